/** Runs a deployed function in the service for one connection, and follows its log. */
import { setTimeout } from 'node:timers/promises';
import { folderOfKind } from '../compile/files.ts';
import { type Api, requireBody, UnreachableError } from './api.ts';
import type { Target } from './target.ts';

const pollMs = 300;

export type DeployedRun = {
  target: Target;
  connectionId: string;
  /** For a sync. */
  variant: string;
  /** For a sync: the number of records that a held deletion may delete, by model. */
  allowed?: Record<string, number> | undefined;
  /** For an action. */
  input: unknown;
  print: (line: string) => void;
  signal?: AbortSignal | undefined;
};
type Counts = { added: number; updated: number; deleted: number; unchanged: number };
export type Run = {
  id: string;
  function: string;
  kind: string;
  variant: string;
  state: 'waiting' | 'running' | 'succeeded' | 'failed' | 'cancelled';
  started_at: string | null;
  error: { code: string; message: string; payload?: { stack?: string } } | null;
  counts: Record<string, Counts>;
};
type Deployed = { type: 'sync' | 'action' | 'on-event'; enabled: boolean };

/** Returns the finished run, and the `output` of an action that succeeded. Throws the error of the service. */
export async function runDeployed(api: Api, options: DeployedRun): Promise<{ run: Run; output?: unknown }> {
  const { target, connectionId } = options;
  const { integrationKey, name, kind } = target;
  const type = kind && `?type=${kind === 'on_event' ? 'on-event' : kind}`;
  const path = `/integrations/${encodeURIComponent(integrationKey)}/functions/${encodeURIComponent(name)}`;
  const { data } = requireBody<{ data: Deployed }>(await api.get(`${path}${type ?? ''}`));
  if (data.type === 'on-event') {
    throw new Error(
      'An event function runs when its event happens and cannot be started. Use trellis dryrun.',
    );
  }
  if (!data.enabled) throw new Error(`${integrationKey}/${folderOfKind[data.type]}/${name} is disabled.`);
  const headers = { 'connection-id': connectionId, 'integration-id': integrationKey };
  if (data.type !== 'sync' && options.allowed !== undefined)
    throw new Error('--allow-mass-delete is only for syncs.');
  if (data.type === 'sync') return { run: await runSync(api, options) };
  const started = await api.post(
    '/functions/actions/trigger',
    { action_name: name, ...(options.input !== undefined && { input: options.input }) },
    { ...headers, 'x-async': 'true' },
  );
  const { id } = requireBody<{ id: string }>(started);
  const run = await followRun(api, id, options);
  return run.state === 'succeeded'
    ? { run, output: requireBody(await api.get(`/functions/actions/${id}`)) }
    : { run };
}

async function runSync(api: Api, options: DeployedRun): Promise<Run> {
  const { target, connectionId, variant, print, signal } = options;
  const { integrationKey, name } = target;
  const scope = new URLSearchParams({ integration_id: integrationKey, connection_id: connectionId });
  const newest = async (): Promise<Run | undefined> => {
    const query = new URLSearchParams([...scope, ['function', name], ['kind', 'sync'], ['limit', '100']]);
    const { runs } = requireBody<{ runs: Run[] }>(await api.get(`/functions/runs?${query}`));
    return runs.find((run) => run.variant === variant);
  };
  const before = await newest();
  if (before?.state === 'running') print('The sync is running. Waiting for the run after it.');
  requireBody(
    await api.post('/functions/syncs/trigger', {
      syncs: [{ name, variant }],
      integration_id: integrationKey,
      connection_id: connectionId,
      ...(options.allowed && { allow_mass_delete: options.allowed }),
    }),
  );
  for (;;) {
    const run = await newest();
    const isNew = run !== undefined && (run.id !== before?.id || before.state === 'waiting');
    if (isNew) return followRun(api, run.id, options);
    // A running sync is not held, even if its last run ended with a reason to hold it.
    const held = run?.state === 'running' ? undefined : await heldSync(api, { scope, name, variant });
    if (held !== undefined) throw new Error(`The sync does not start: ${held.message} (${held.code})`);
    if (signal?.aborted) throw new Error('The sync was not started.');
    await pause(pollMs, signal);
  }
}

type Held = { code: string; message: string };

/** The reason why the service does not start a run of the sync. */
async function heldSync(
  api: Api,
  { scope, name, variant }: { scope: URLSearchParams; name: string; variant: string },
): Promise<Held | undefined> {
  const { syncs } = requireBody<{ syncs: { variant: string; held: Held | null }[] }>(
    await api.get(`/functions/syncs/status?${scope}&syncs=${name}::${variant}`),
  );
  return syncs.find((sync) => sync.variant === variant)?.held ?? undefined;
}

type Line = { position: number; level: string; message: string };

/** The longest outage that is waited for: a restarted service is available within this time and continues its runs. */
const maxOutageMs = 60_000;

/**
 * Prints the log of a run and returns the run once it has ended. When the signal aborts, cancels the run and waits for its end.
 * Retries for 60 s while the service cannot be reached, unless the signal aborts.
 */
export async function followRun(
  api: Api,
  id: string,
  { print, signal }: { print: (line: string) => void; signal?: AbortSignal | undefined },
): Promise<Run> {
  let after = -1;
  let isCancelled = false;
  const printLines = async (): Promise<boolean> => {
    const page = requireBody<{ lines: Line[]; has_more: boolean }>(
      await api.get(`/functions/runs/${id}/lines?after=${after}`),
    );
    for (const { position, level, message } of page.lines) {
      print(formatLine(level, message));
      after = position;
    }
    return page.has_more;
  };
  const poll = async (): Promise<Run | undefined> => {
    const run = await getRun(api, id);
    // The lines are read after the state, so that none of an ended run is missing.
    while (await printLines());
    if (['succeeded', 'failed', 'cancelled'].includes(run.state)) return run;
    if (signal?.aborted && !isCancelled) {
      requireBody(await api.post(`/functions/runs/${id}/cancel`, {}));
      isCancelled = true;
    }
    return undefined;
  };
  let outageSince: number | undefined;
  for (;;) {
    try {
      const run = await poll();
      if (run !== undefined) return run;
      outageSince = undefined;
    } catch (error) {
      const isLong = outageSince !== undefined && Date.now() - outageSince > maxOutageMs;
      if (!(error instanceof UnreachableError) || isLong || signal?.aborted) throw error;
      if (outageSince === undefined)
        print('The service cannot be reached. Waiting; the run continues once it is available.');
      outageSince ??= Date.now();
    }
    await pause(pollMs, isCancelled ? undefined : signal);
  }
}

async function getRun(api: Api, id: string): Promise<Run> {
  return requireBody<Run>(await api.get(`/functions/runs/${id}`));
}

/** Formats a line of a function's log, of a deployed or a local run. */
export function formatLine(level: string, message: string): string {
  return `  ${level === 'info' ? '' : `${level}: `}${message}`;
}

/** The lines that summarize an ended run. */
export function summaryOf(run: Run): string[] {
  const lines = Object.entries(run.counts).map(
    ([model, { added, updated, deleted, unchanged }]) =>
      `${model}: ${added} added, ${updated} updated, ${deleted} deleted, ${unchanged} unchanged`,
  );
  if (run.state === 'succeeded') return [...lines, 'The run succeeded.'];
  const { code = '', message = '', payload } = run.error ?? {};
  const locations = [...(payload?.stack ?? '').matchAll(/[^\s()]+\.ts:\d+:\d+/g)].map(
    ([location]) => `  at ${location}`,
  );
  const verb = run.state === 'failed' ? 'failed' : 'was cancelled';
  return [...lines, `The run ${verb}${code && `: ${message} (${code})`}`, ...locations];
}

/** Resolves after `ms`, or once the signal aborts. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return setTimeout(ms, undefined, signal && { signal }).catch(() => {});
}
