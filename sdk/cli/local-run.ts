/** The shared parts of the commands that run a local function: its options, its code, its inputs, and the report of its run. */
import { bundle } from '../compile/bundle.ts';
import { compile } from '../compile/compile.ts';
import { type FunctionFile, formatFault } from '../compile/files.ts';
import type { About } from '../functions/harness/service.ts';
import type { Json, JsonObject, ModelEffects } from '../local/outcome.ts';
import type { Reads } from '../local/reads.ts';
import type { LocalEnd } from '../local/run-locally.ts';
import type { Api } from './api.ts';
import { readJson, readJsonObject, required, type ServiceOptions, UsageError } from './arguments.ts';
import { type ConnectionRef, findPaginate, getConnection, getIntegration, liveReads } from './live-reads.ts';

/** The options of the commands that run local code for a connection. */
export type RunValues = ServiceOptions & {
  folder: string;
  connection?: string | undefined;
  input?: string | undefined;
  checkpoint?: string | undefined;
  metadata?: string | undefined;
  variant: string;
  allowWrites?: true | undefined;
};

type RunOptions = {
  connectionId: string;
  input: Json | undefined;
  checkpoint: Json;
  metadata: JsonObject | undefined;
  variant: string;
  mayWrite: boolean;
};

/** Parses the options. Throws a UsageError. */
export function readRunOptions(values: RunValues): RunOptions {
  return {
    connectionId: required('--connection', values.connection),
    input: readJson('--input', values.input) as Json | undefined,
    checkpoint: (readJsonObject('--checkpoint', values.checkpoint) as JsonObject | undefined) ?? null,
    metadata: readJsonObject('--metadata', values.metadata) as JsonObject | undefined,
    variant: values.variant,
    mayWrite: values.allowWrites === true,
  };
}

type CompileOptions = { file: FunctionFile; printError: (line: string) => void };

/** Bundles a function as a deploy does, without checking types. Prints faults and returns undefined if there are any. */
export async function bundleFunction(
  folder: string,
  { file, printError }: CompileOptions,
): Promise<string | undefined> {
  const result = await bundle(folder, file.file);
  if ('code' in result) return result.code;
  for (const fault of result.faults) printError(formatFault(fault));
  return undefined;
}

/** Like `bundleFunction`, but checks types. */
export async function compileFunction(
  folder: string,
  { file, printError }: CompileOptions,
): Promise<string | undefined> {
  const { functions, faults, warnings } = await compile(folder, { files: [file] });
  for (const warning of warnings) printError(warning);
  for (const fault of faults) printError(formatFault(fault));
  return functions[0]?.code;
}

type LiveRun = {
  ref: ConnectionRef;
  connection: JsonObject;
  about: About;
  metadata: JsonObject;
  reads: Reads;
};

/** Reads the inputs of a run from the service. Throws the errors of the service. */
export async function prepareLive(
  api: Api,
  { file, options }: { file: FunctionFile; options: RunOptions },
): Promise<LiveRun> {
  const { integrationKey, kind } = file;
  const { connectionId, variant, mayWrite } = options;
  if (kind !== 'sync' && variant !== 'base') throw new UsageError('--variant is only for syncs.');
  const ref = { integrationKey, connectionId };
  const connection = await getConnection(api, ref);
  const integration = await getIntegration(api, integrationKey);
  const provider = String(connection.provider);
  const paginate = await findPaginate(api, provider);
  return {
    ref,
    connection,
    about: {
      connectionId,
      providerConfigKey: integrationKey,
      variant,
      provider,
      environmentName: integration.environmentName,
      ...(paginate && { paginate }),
    },
    metadata: options.metadata ?? ((connection.metadata ?? {}) as JsonObject),
    reads: liveReads(api, { ref, connection, integration, mayWrite }),
  };
}

/** The number of records shown for each change. */
const maxShown = 5;
const maxCharacters = 500;

/** The lines that describe a local run. */
export function report({ outcome, mismatches, notes, locations }: LocalEnd): string[] {
  return [
    ...Object.entries(outcome.records).flatMap(([model, effects]) => describeEffects(model, effects)),
    ...mismatches.flatMap(([model, all]) => [
      `${model}: ${all.length} record(s) do not match the model`,
      ...limited(all.map(({ id, path, message }) => `  ${id}: ${path || 'the record'}: ${message}`)),
    ]),
    ...notes.map((note) => `${note}.`),
    ...('result' in outcome ? [`Output: ${JSON.stringify(outcome.result, null, 2)}`] : []),
    ...(outcome.error === undefined ? [] : describeError(outcome.error, locations)),
  ];
}

function describeEffects(model: string, { saved, updated, deleted }: ModelEffects): string[] {
  return [
    `${model}: ${saved.length} would be saved, ${updated.length} updated, ${deleted.length} deleted`,
    ...limited(saved.map((record) => `  save ${abbreviate(record)}`)),
    ...limited(updated.map((record) => `  update ${abbreviate(record)}`)),
    ...limited(deleted.map((id) => `  delete ${id}`)),
  ];
}

function describeError(
  { code, message, payload }: NonNullable<LocalEnd['outcome']['error']>,
  locations: readonly string[],
): string[] {
  const [first] = locations;
  return [
    `${first ? `${first}: ` : ''}${message}${code === undefined ? '' : ` (${code})`}`,
    ...locations.slice(1).map((location) => `  at ${location}`),
    ...(payload === undefined ? [] : [`  ${abbreviate(payload)}`]),
  ];
}

function limited(lines: string[]): string[] {
  if (lines.length <= maxShown) return lines;
  return [...lines.slice(0, maxShown), `  and ${lines.length - maxShown} more`];
}

/** JSON of at most 500 characters. */
export function abbreviate(value: unknown): string {
  const text = JSON.stringify(value);
  return text.length > maxCharacters ? `${text.slice(0, maxCharacters - 1)}…` : text;
}
