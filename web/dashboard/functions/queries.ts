import { keepPreviousData, type QueryClient, queryOptions } from '@tanstack/react-query';
import { type Answer, call, type Query, request } from '../../api/client.ts';

export type ListedFunction = Answer<'GET /functions'>['data'][number];
export type WholeFunction = Answer<'GET /integrations/{key}/functions/{name}'>['data'];
export type FunctionType = ListedFunction['type'];
export type Version = Answer<'GET /integrations/{key}/functions/{name}/versions'>['data'][number];
export type Sync = Answer<'GET /functions/syncs'>['syncs'][number];
export type HeldDelete = NonNullable<Sync['held_deletes']>[number];
export type SyncCounts = Answer<'GET /functions/syncs'>['counts'];
export type Run = Answer<'GET /functions/runs'>['runs'][number];
export type RunLine = Answer<'GET /functions/runs/{id}/lines'>['lines'][number];
/** Functions of different types may have the same name. */
export type FunctionAt = { integration: string; type: FunctionType; name: string };
/** One sync of a connection. */
export type SyncAt = { integration: string; connection: string; name: string; variant: string };

/** The polling interval for states that change. */
const everyMs = 5_000;

export const functionsQuery = (environment: string, query: Query<'GET /functions'>) =>
  queryOptions({
    queryKey: [environment, 'functions', query],
    queryFn: ({ signal }) => call('GET /functions', { environment, signal, query }),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });

export const functionQuery = (environment: string, { integration, type, name }: FunctionAt) =>
  queryOptions({
    queryKey: [environment, 'functions', 'of', integration, type, name],
    queryFn: async ({ signal }) =>
      (
        await call('GET /integrations/{key}/functions/{name}', {
          environment,
          signal,
          path: { key: integration, name },
          query: { type },
        })
      ).data,
  });

/** `version` undefined: the current version. */
export const codeQuery = (
  environment: string,
  { integration, type, name, version }: FunctionAt & { version: number | undefined },
) =>
  queryOptions({
    queryKey: [environment, 'functions', 'of', integration, type, name, 'code', version],
    queryFn: async ({ signal }) =>
      (
        await call('GET /integrations/{key}/functions/{name}/code', {
          environment,
          signal,
          path: { key: integration, name },
          query: { type, ...(version !== undefined && { version }) },
        })
      ).code,
    staleTime: 60_000,
  });

export const versionsQuery = (environment: string, { integration, type, name }: FunctionAt) =>
  queryOptions({
    queryKey: [environment, 'functions', 'of', integration, type, name, 'versions'],
    queryFn: async ({ signal }) =>
      (
        await call('GET /integrations/{key}/functions/{name}/versions', {
          environment,
          signal,
          path: { key: integration, name },
          query: { type },
        })
      ).data,
  });

export const syncsQuery = (environment: string, query: Query<'GET /functions/syncs'>) =>
  queryOptions({
    queryKey: [environment, 'syncs', query],
    queryFn: ({ signal }) => call('GET /functions/syncs', { environment, signal, query }),
    placeholderData: keepPreviousData,
    refetchInterval: everyMs,
  });

/** Newest first. Only the first page is polled. */
export const runsQuery = (environment: string, query: Query<'GET /functions/runs'>) =>
  queryOptions({
    queryKey: [environment, 'runs', query],
    queryFn: ({ signal }) => call('GET /functions/runs', { environment, signal, query }),
    placeholderData: keepPreviousData,
    refetchInterval: query.cursor === undefined ? everyMs : false,
  });

export function isOver({ state }: Pick<Run, 'state'>): boolean {
  return state !== 'waiting' && state !== 'running';
}

/** Polled every second until the run ends, also during an outage of the service, because the run continues. */
export const runQuery = (environment: string, id: string) =>
  queryOptions({
    queryKey: [environment, 'runs', 'one', id],
    queryFn: ({ signal }) => call('GET /functions/runs/{id}', { environment, signal, path: { id } }),
    refetchInterval: ({ state: { data, error } }) => {
      if (data === undefined) return error === null && 1_000;
      return !isOver(data) && 1_000;
    },
  });

/** The activity log is written in batches, so entries may come after the end of the run. */
const loggedAfterMs = 5_000;
const maxCalls = 1_000;

/** The last proxied calls and saves of a run, oldest first. */
export const callsQuery = (environment: string, { id, ...run }: Run) =>
  queryOptions({
    queryKey: [environment, 'runs', 'one', id, 'calls'],
    queryFn: async ({ signal }) => {
      const of = { integration_id: run.integration_id, connection_id: run.connection_id ?? '' };
      const ended = run.ended_at === null ? undefined : Date.parse(run.ended_at) + loggedAfterMs;
      const { operations } = await call('GET /operations', {
        environment,
        signal,
        query: {
          ...of,
          from: run.queued_at,
          limit: maxCalls,
          ...(ended !== undefined && { to: new Date(ended).toISOString() }),
        },
      });
      return operations.filter(({ type, details }) => type !== 'run' && details.run === id).reverse();
    },
    refetchInterval: () =>
      run.ended_at !== null && Date.now() - Date.parse(run.ended_at) > loggedAfterMs ? false : 2_000,
  });

/** All lines of a run; each request fetches those after the last known line. */
export const linesQuery = (environment: string, id: string, queries: QueryClient) => {
  const queryKey = [environment, 'runs', 'one', id, 'lines'];
  return queryOptions({
    queryKey,
    queryFn: async ({ signal }) => {
      const lines = [...(queries.getQueryData<RunLine[]>(queryKey) ?? [])];
      for (;;) {
        const after = lines.at(-1)?.position ?? -1;
        const more = await call('GET /functions/runs/{id}/lines', {
          environment,
          signal,
          path: { id },
          query: { after },
        });
        lines.push(...more.lines);
        if (!more.has_more) return lines;
      }
    },
    staleTime: 0,
  });
};

export async function setEnabled(
  environment: string,
  { integration, type, name, enabled }: FunctionAt & { enabled: boolean },
): Promise<WholeFunction> {
  const { data } = await call('PATCH /integrations/{key}/functions/{name}', {
    environment,
    path: { key: integration, name },
    query: { type },
    body: { enabled },
  });
  return data;
}

export async function rollBack(
  environment: string,
  { integration, type, name, version }: FunctionAt & { version: number },
): Promise<void> {
  await call('POST /integrations/{key}/functions/{name}/rollback', {
    environment,
    path: { key: integration, name },
    query: { type },
    body: { version },
  });
}

/** Includes its versions, schedules and runs. */
export async function removeFunction(
  environment: string,
  { integration, type, name }: FunctionAt,
): Promise<void> {
  await call('DELETE /integrations/{key}/functions/{name}', {
    environment,
    path: { key: integration, name },
    query: { type },
  });
}

/** The sync in the body of a call; without a connection, for all connections. */
const named = ({
  integration,
  connection,
  name,
  variant,
}: Omit<SyncAt, 'connection'> & { connection?: string }) => ({
  integration_id: integration,
  ...(connection !== undefined && { connection_id: connection }),
  syncs: [{ name, variant }],
});

export async function triggerSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /functions/syncs/trigger', { environment, body: named(at) });
}

/** Runs the syncs of a connection whose last run failed. Returns their number. */
export async function retryFailedSyncs(
  environment: string,
  { integration, id }: { integration: string; id: string },
): Promise<number> {
  const of = { integration_id: integration, connection_id: id };
  const { syncs } = await call('GET /functions/syncs', { environment, query: { ...of, state: 'failing' } });
  const failing = syncs.map((sync) => ({ name: sync.function, variant: sync.variant }));
  if (failing.length > 0)
    await call('POST /functions/syncs/trigger', { environment, body: { ...of, syncs: failing } });
  return failing.length;
}

/** Runs the sync immediately. Its next ends of delete tracking may delete up to these numbers of records. */
export async function allowMassDelete(
  environment: string,
  { deletes, ...at }: SyncAt & { deletes: HeldDelete[] },
): Promise<void> {
  const allowed = Object.fromEntries(deletes.map((held) => [held.model, held.would_delete]));
  await call('POST /functions/syncs/trigger', {
    environment,
    body: { ...named(at), allow_mass_delete: allowed },
  });
}

/** Deletes the checkpoint and, with `records: 'removed'`, the records. Runs the sync immediately. */
export async function resetSync(
  environment: string,
  { records, ...at }: SyncAt & { records: 'kept' | 'removed' },
): Promise<void> {
  const opts = { reset: true, emptyCache: records === 'removed' };
  await call('POST /functions/syncs/trigger', { environment, body: { ...named(at), opts } });
}

export async function pauseSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /functions/syncs/pause', { environment, body: named(at) });
}

export async function startSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /functions/syncs/start', { environment, body: named(at) });
}

/** null restores the frequency of the function. */
export async function setFrequency(
  environment: string,
  { integration, connection, name, variant, frequency }: SyncAt & { frequency: string | null },
): Promise<void> {
  await call('PUT /functions/syncs/frequency', {
    environment,
    body: {
      sync_name: name,
      sync_variant: variant,
      integration_id: integration,
      connection_id: connection,
      frequency,
    },
  });
}

export async function cancelRun(environment: string, id: string): Promise<Run> {
  return call('POST /functions/runs/{id}/cancel', { environment, path: { id } });
}

export type ActionAnswer = { output: unknown; tookMs: number };

/** Waits for the output of the action; `signal` also cancels the action. */
export async function callAction(
  environment: string,
  {
    at,
    connection,
    input,
    signal,
  }: { at: FunctionAt; connection: string; input: unknown; signal: AbortSignal },
): Promise<ActionAnswer> {
  const begunMs = performance.now();
  const response = await request('POST /functions/actions/trigger', {
    environment,
    signal,
    headers: { 'connection-id': connection, 'integration-id': at.integration },
    body: { action_name: at.name, ...(input !== undefined && { input }) },
  });
  const output: unknown = await response.json();
  return { output, tookMs: performance.now() - begunMs };
}
