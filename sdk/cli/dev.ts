/** `trellis dev`: deploys a folder after each save, and runs one of its functions. */
import { once } from 'node:events';
import { watchFolder } from '../compile/watch-folder.ts';
import { type Api, createApi, requireBody } from './api.ts';
import {
  type CommandContext,
  environmentFor,
  processContext,
  readJson,
  required,
  type ServiceOptions,
  UsageError,
} from './arguments.ts';
import { compileFolder, deployChanged } from './deploy.ts';
import { abbreviate } from './local-run.ts';
import { type DeployedRun, pause, runDeployed, summaryOf } from './run-deployed.ts';
import { folderError, readTarget } from './target.ts';

/** The pause between a change and the compilation, because editors write a file in several steps. */
const debounceMs = 200;

type Watched = Pick<CommandContext, 'print' | 'printError'> & {
  api: Api;
  folder: string;
  run: Omit<DeployedRun, 'print' | 'signal'> | undefined;
};

type DevOptions = ServiceOptions & {
  run?: string | undefined;
  connection?: string | undefined;
  input?: string | undefined;
  variant: string;
};

/** Runs until `ending` aborts, by default on SIGINT or SIGTERM. Returns 0. */
export async function devCommand(
  folder: string,
  options: DevOptions,
  { env, print, printError }: CommandContext = processContext,
  ending: AbortSignal = untilSignal(),
): Promise<number> {
  if (options.run === undefined && options.connection !== undefined)
    throw new UsageError('--connection requires --run.');
  const run =
    options.run === undefined
      ? undefined
      : {
          target: readTarget(options.run),
          connectionId: required('--connection', options.connection),
          input: readJson('--input', options.input),
          variant: options.variant,
        };
  const watched = { api: createApi(environmentFor(options, env)), folder, run, print, printError };
  const changes = watchChanges(folder, (error) => printError(error.message));
  try {
    while (!ending.aborted) {
      const change = changes.next();
      const stop = AbortSignal.any([ending, change]);
      await deployAndRun(watched, stop).catch((error: Error) => {
        if (!stop.aborted) printError(error.message);
      });
      if (!stop.aborted) print('Waiting for a change.');
      if (!stop.aborted) await once(stop, 'abort');
      if (!ending.aborted) await pause(debounceMs, ending);
    }
  } finally {
    changes.close();
  }
  print('Ended.');
  return 0;
}

/** Handles one save. An abort ends it early, and cancels a run that it started. */
async function deployAndRun(
  { api, folder, run, print, printError }: Watched,
  signal: AbortSignal,
): Promise<void> {
  const functions = await compileFolder(folder, { printError, signal });
  if (functions === undefined) return printError('Nothing was deployed. The deployed version is unchanged.');
  const deployed = await deployChanged(api, functions);
  if ('faults' in deployed) return deployed.faults.forEach(printError);
  for (const line of deployed.lines) print(line);
  print(deployed.lines.length > 0 ? `Deployed to ${api.url}.` : 'No changes.');
  if (run === undefined || signal.aborted) return;
  const { integrationKey } = run.target;
  const headers = { 'connection-id': run.connectionId, 'integration-id': integrationKey };
  const scope = { headers, variant: run.variant };
  const before = await lastCursors(api, scope);
  print(`Running ${integrationKey}/${run.target.name} for ${run.connectionId}`);
  const { run: ended, output } = await runDeployed(api, { ...run, print, signal });
  for (const line of summaryOf(ended)) (ended.state === 'succeeded' ? print : printError)(line);
  if (output !== undefined) print(JSON.stringify(output, null, 2));
  for await (const line of changedRecords(api, { ...scope, before, models: Object.keys(ended.counts) }))
    print(line);
}

/** `next` returns a signal that aborts at the next change of a file that is not a recording. */
function watchChanges(
  folder: string,
  onError: (error: Error) => void,
): { next(): AbortSignal; close(): void } {
  let change = new AbortController();
  const watched = watchFolder(folder, {
    onError,
    onChange(file) {
      if (!file?.endsWith('.test.json')) change.abort();
    },
  });
  return {
    next() {
      change = new AbortController();
      try {
        watched.renew();
      } catch (error) {
        throw folderError(folder, error);
      }
      return change.signal;
    },
    close: watched.close,
  };
}

/** Returns a signal that aborts at the first SIGINT or SIGTERM. A second signal of the same name ends the process. */
function untilSignal(): AbortSignal {
  const ending = new AbortController();
  for (const name of ['SIGINT', 'SIGTERM'] as const) process.once(name, () => ending.abort());
  return ending.signal;
}

type DatasetScope = { headers: Record<string, string>; variant: string };
type Stored = Record<string, unknown> & { id: string };

const maxShown = 20;

/** The last cursor of each model of a connection and variant. */
async function lastCursors(api: Api, { headers, variant }: DatasetScope): Promise<Map<string, string>> {
  type Dataset = { model: string; variant: string; last_cursor: string | null };
  const { datasets } = requireBody<{ datasets: Dataset[] }>(await api.get('/records/datasets', headers));
  return new Map(
    datasets.flatMap((one) =>
      one.variant === variant && one.last_cursor !== null ? [[one.model, one.last_cursor]] : [],
    ),
  );
}

/** Yields a line for each record that changed after the cursors `before`: id, action and payload. */
async function* changedRecords(
  api: Api,
  { headers, variant, before, models }: DatasetScope & { before: Map<string, string>; models: string[] },
): AsyncIterable<string> {
  const metadataKey = `_${await api.brand()}_metadata`;
  for (const model of models) {
    const cursor = before.get(model);
    const query = new URLSearchParams({ model, variant, limit: String(maxShown) });
    if (cursor !== undefined) query.set('cursor', cursor);
    const page = requireBody<{ records: Stored[]; next_cursor: string | null }>(
      await api.get(`/records?${query}`, headers),
    );
    for (const { [metadataKey]: metadata, ...record } of page.records) {
      const { last_action: action } = metadata as { last_action: string };
      yield `  ${model} ${record.id} ${action} ${abbreviate(record)}`;
    }
    if (page.next_cursor !== null) yield `  ${model}: more records were changed`;
  }
}
