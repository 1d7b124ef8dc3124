/**
 * Whether a bundle may be deployed, and what it is: what it requires is looked at, and it is loaded once, where customer
 * code runs and with nothing to ask for, to say what it is.
 */
import { createHash } from 'node:crypto';
import { AppError, type FieldError } from '../../errors.ts';
import { sdkNames } from '../isolation/harness-text.ts';
import { refusedRequires } from '../isolation/requires.ts';
import type { RunLimits, RunOrder, Runtime } from '../isolation/runtime.ts';
import { type Definition, type Kind, readDescription } from './definition.ts';

/** One function to deploy. */
export type Given = {
  integrationKey: string;
  kind: Kind;
  name: string;
  /** CommonJS, as a bundler made it. */
  code: string;
  /** What it was written as. */
  source: string | null;
  features: readonly string[];
  sdkVersion: string | null;
  /** Where it stands in what was sent, for faults. */
  path: readonly (string | number)[];
};

export type Examined = Given & { definition: Definition; label: string; digest: Buffer };

/** Beyond it a bundle is none that one function needs. */
export const mostCodeBytes = 10 * 1024 * 1024;
/** Loading a bundle and reading its schemas takes tens of milliseconds; a machine may be busy. */
const limits: RunLimits = {
  ...{ timeoutMs: 20_000, blockedMs: 10_000, cancelGraceMs: 100 },
  resultBytes: 1024 * 1024,
};
/** Processes of a runtime are few, and are for runs. */
const atOnce = 2;
/** Runs may hold all of them for long: a deploy waits so long for one. */
const patienceMs = 60_000;

/** As `integration/syncs/name`: how functions are named to people. */
export function titleOf({
  integrationKey,
  kind,
  name,
}: Pick<Given, 'integrationKey' | 'kind' | 'name'>): string {
  return `${integrationKey}/${kind === 'on_event' ? 'on-events' : `${kind}s`}/${name}`;
}

/** Examines each; of those that may not be deployed every fault, with the function's title in front. */
export async function examineAll(
  given: readonly Given[],
  { runtime, environmentId }: { runtime: Pick<Runtime, 'run'>; environmentId: number },
): Promise<{ examined: Examined[]; faults: FieldError[] }> {
  const results: (Examined | FieldError[])[] = [];
  let next = 0;
  const work = async () => {
    while (next < given.length) {
      const at = next++;
      results[at] = await examine(given[at]!, { runtime, environmentId });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return {
    examined: results.filter((result): result is Examined => !Array.isArray(result)),
    faults: results.filter((result) => Array.isArray(result)).flat(),
  };
}

async function examine(
  given: Given,
  { runtime, environmentId }: { runtime: Pick<Runtime, 'run'>; environmentId: number },
): Promise<Examined | FieldError[]> {
  const { code, source, kind, features, sdkVersion } = given;
  const fault = (message: string): FieldError => ({
    code: 'custom',
    message: `${titleOf(given)}: ${message}`,
    path: given.path.map(String),
  });
  if (Buffer.byteLength(code) > mostCodeBytes) return [fault('is larger than 10 MB')];
  try {
    const refused = await refusedRequires(code, sdkNames);
    if (refused.length > 0) {
      return refused.map(({ message, line, column }) =>
        fault(`${message}${line === undefined ? '' : ` (line ${line}, column ${column})`}`),
      );
    }
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    return [fault(`is no JavaScript: ${error.message}`)];
  }
  const signal = AbortSignal.timeout(patienceMs);
  const outcome = await runtime.run(descriptionOrder({ environmentId, code, signal }));
  if ('failure' in outcome) {
    const { cause, error, message } = outcome.failure;
    if (cause === 'cancelled' || cause === 'unavailable') {
      const reason =
        'No process for functions is free to look at the bundle. Nothing was deployed. Try again.';
      throw new AppError('unavailable', reason, { retryAfterS: 10, cause: new Error(message) });
    }
    return [fault(`cannot be loaded: ${error === undefined ? message : wordsOf(error)}`)];
  }
  const said = readDescription(outcome.result, { features, sdkVersion });
  if ('faults' in said) {
    return said.faults.map(({ message, path }) =>
      fault(path.length === 0 ? message : `${path.join('.')} ${message}`),
    );
  }
  if (said.definition.kind !== kind) {
    return [fault(`is sent as ${kind}, and says that it is ${said.definition.kind}`)];
  }
  return { ...given, ...said, digest: digestOf(code, source) };
}

/** Loads the bundle once, with nothing to ask for, to hear what it is. */
export function descriptionOrder({
  environmentId,
  code,
  signal,
}: {
  environmentId: number;
  code: string;
  signal: AbortSignal;
}): RunOrder {
  return {
    environmentId,
    bundle: { id: createHash('sha256').update(code).digest('hex'), code },
    exportName: 'default',
    kind: 'describe',
    input: null,
    limits,
    signal,
    serve: () => Promise.reject(new Error('A function that is deployed asks for nothing.')),
    log: () => {},
  };
}

function wordsOf({
  name,
  message,
  stack,
}: {
  name: string;
  message: string;
  stack?: string | undefined;
}): string {
  const [, place] = /^\s+at .*?\(?([^\s()]+:\d+:\d+)\)?$/m.exec(stack ?? '') ?? [];
  return `${name}: ${message}${place === undefined ? '' : ` (${place})`}`;
}

/** What tells one version's text from another's. */
export function digestOf(code: string, source: string | null): Buffer {
  const hash = createHash('sha256').update(createHash('sha256').update(code).digest());
  return hash.update(source ?? '').digest();
}
