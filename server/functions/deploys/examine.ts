/**
 * Examines bundles before a deploy, in a process for functions: checks the requires of a bundle, then loads it once, without the
 * right to call the service, to get its definition. The service itself neither parses nor runs the text of a bundle.
 */
import { createHash } from 'node:crypto';
import { AppError, type FieldError } from '../../errors.ts';
import { checkRequires } from '../isolation/check-requires.ts';
import { sdkNames } from '../isolation/program.ts';
import type { RunLimits, RunOutcome, ThrownError } from '../isolation/run-order.ts';
import type { Runtime } from '../isolation/runtime.ts';
import { type Definition, type Kind, readDescription } from './definition.ts';

/** One function to deploy. */
export type Given = {
  integrationKey: string;
  kind: Kind;
  name: string;
  /** CommonJS, the output of a bundler. */
  code: string;
  /** The authored text. */
  source: string | null;
  features: readonly string[];
  sdkVersion: string | null;
  /** Its path in the request, for faults. */
  path: readonly (string | number)[];
};

/** The definition of a bundle as `result`, or why it is refused, one sentence for each place. */
export type Description = RunOutcome | { refused: string[] };

export type Describe = (of: {
  environmentId: number;
  code: string;
  signal: AbortSignal;
}) => Promise<Description>;

export type Examined = Given & { definition: Definition; label: string; digest: Buffer };

const maxCodeBytes = 10 * 1024 * 1024;
/** Loading a bundle takes tens of milliseconds, parsing one of 10 MB up to 5 s. The machine may be busy. */
const limits: RunLimits = {
  timeoutMs: 20_000,
  blockedMs: 20_000,
  cancelGraceMs: 100,
  resultBytes: 1024 * 1024,
};
/** The runtime has few processes, and runs need them. */
const atOnce = 2;
/** The limit for one bundle: the wait for a process and both steps. */
const maxWaitMs = 60_000;
/** The maximum number of reported faults. */
export const maxFaults = 100;
const maxStackLine = 1_000;

/** The name of a function in messages, such as `integration/syncs/name`. */
export function titleOf({
  integrationKey,
  kind,
  name,
}: Pick<Given, 'integrationKey' | 'kind' | 'name'>): string {
  return `${integrationKey}/${kind === 'on_event' ? 'on-events' : `${kind}s`}/${name}`;
}

/**
 * Examines bundles, and returns the faults of the invalid ones, each with the title of its function. Stops after 100 faults, and
 * after a bundle that exhausts its limits: 5,000 such bundles would take hours.
 */
export async function examineAll(
  given: readonly Given[],
  { describe, environmentId }: { describe: Describe; environmentId: number },
): Promise<{ examined: Examined[]; faults: FieldError[] }> {
  const results: (Examined | FieldError[])[] = [];
  let next = 0;
  let faultsLeft = maxFaults;
  const usedUp = () => {
    faultsLeft = 0;
  };
  const work = async () => {
    while (next < given.length && faultsLeft > 0) {
      const at = next++;
      const result = await examine(given[at]!, { describe, environmentId, usedUp });
      results[at] = result;
      if (Array.isArray(result)) faultsLeft -= result.length;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  return {
    examined: results.filter((result): result is Examined => !Array.isArray(result)),
    faults: results
      .filter((result) => Array.isArray(result))
      .flat()
      .slice(0, maxFaults),
  };
}

async function examine(
  given: Given,
  { describe, environmentId, usedUp }: { describe: Describe; environmentId: number; usedUp: () => void },
): Promise<Examined | FieldError[]> {
  const { code, source, kind, features, sdkVersion } = given;
  const fault = (message: string): FieldError => ({
    code: 'custom',
    message: `${titleOf(given)}: ${message}`,
    path: given.path.map(String),
  });
  if (Buffer.byteLength(code) > maxCodeBytes) return [fault('is larger than 10 MB')];
  const outcome = await describe({ environmentId, code, signal: AbortSignal.timeout(maxWaitMs) });
  if ('refused' in outcome) return outcome.refused.map(fault);
  if ('failure' in outcome) {
    const { cause, error, message } = outcome.failure;
    if (cause === 'cancelled' || cause === 'unavailable') {
      const reason =
        'No process for functions is free to look at the bundle. Nothing was deployed. Try again.';
      throw new AppError('unavailable', reason, { retryAfterS: 10, cause: new Error(message) });
    }
    // Code of a bundle cannot end its process: it was killed, perhaps because the machine lacks memory.
    if (cause === 'exited')
      throw new AppError('unavailable', `${titleOf(given)}: ${message} Nothing was deployed. Try again.`, {
        retryAfterS: 10,
      });
    if (cause === 'timeout' || cause === 'out_of_memory') usedUp();
    return [fault(`cannot be loaded: ${error === undefined ? message.replace(/\.$/, '') : wordsOf(error)}`)];
  }
  const said = readDescription(outcome.result, { features, sdkVersion });
  if ('faults' in said) {
    return said.faults.map(({ message, path }) =>
      fault(path.length === 0 ? message : `${path.join('.')} ${message}`),
    );
  }
  if (said.definition.kind !== kind) {
    return [fault(`is sent as ${kind}, but its definition is of the kind ${said.definition.kind}`)];
  }
  return { ...given, ...said, digest: digestOf(code, source) };
}

/** Describes bundles in processes of this node. */
export function describeHere(runtime: Pick<Runtime, 'run'>): Describe {
  return async ({ environmentId, code, signal }) => {
    const order = { environmentId, limits, signal };
    const check = await checkRequires(runtime, { ...order, code, also: sdkNames });
    if ('failure' in check) return check;
    const refused = check.result as string[];
    if (refused.length > 0) return { refused };
    return runtime.run({
      ...order,
      bundle: { id: createHash('sha256').update(code).digest('hex'), code },
      exportName: 'default',
      kind: 'describe',
      input: null,
      serve: () => Promise.reject(new Error('A function cannot call the service during its deploy.')),
      log: () => {},
    });
  };
}

function wordsOf({ name, message, stack }: ThrownError): string {
  const place = stack === undefined ? undefined : placeIn(stack);
  return `${name}: ${message}${place === undefined ? '' : ` (${place})`}`;
}

/** The first place of a stack, as `file:line:column`. The code may have written the stack: this takes linear time. */
function placeIn(stack: string): string | undefined {
  for (const line of stack.split('\n')) {
    if (line.length > maxStackLine || !/^\s+at /.test(line)) continue;
    const place = line
      .replace(/\)$/, '')
      .split(/[\s()]/)
      .at(-1)!;
    if (/.:\d+:\d+$/.test(place)) return place;
  }
  return undefined;
}

/** Identifies the text of a version. */
export function digestOf(code: string, source: string | null): Buffer {
  const hash = createHash('sha256').update(createHash('sha256').update(code).digest());
  return hash.update(source ?? '').digest();
}
