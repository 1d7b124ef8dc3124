import { keepPreviousData, type QueryClient, queryOptions } from '@tanstack/react-query';
import { type Answer, ask, call, type Query } from '../../api/client.ts';

export type ListedFunction = Answer<'GET /functions'>['data'][number];
export type WholeFunction = Answer<'GET /integrations/{key}/functions/{name}'>['data'];
export type FunctionType = ListedFunction['type'];
export type Version = Answer<'GET /integrations/{key}/functions/{name}/versions'>['data'][number];
export type Sync = Answer<'GET /functions/syncs'>['syncs'][number];
export type HeldDelete = NonNullable<Sync['held_deletes']>[number];
export type SyncCounts = Answer<'GET /functions/syncs'>['counts'];
export type Run = Answer<'GET /functions/runs'>['runs'][number];
export type RunLine = Answer<'GET /functions/runs/{id}/lines'>['lines'][number];
/** A name may stand for a function of each kind. */
export type FunctionAt = { integration: string; type: FunctionType; name: string };
/** One sync of a connection. */
export type SyncAt = { integration: string; connection: string; name: string; variant: string };

/** What runs changes while one looks. */
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

/** `version` undefined: of the one that runs. */
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

/** Newest first; pages behind the first one stand still. */
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

/** Asked for each second until it is over, and through an outage of the service: the run goes on meanwhile. */
export const runQuery = (environment: string, id: string) =>
  queryOptions({
    queryKey: [environment, 'runs', 'one', id],
    queryFn: ({ signal }) => call('GET /functions/runs/{id}', { environment, signal, path: { id } }),
    refetchInterval: ({ state: { data, error } }) => {
      if (data === undefined) return error === null && 1_000;
      return !isOver(data) && 1_000;
    },
  });

/** All lines of a run that there are; each look asks for those behind the last one that is known. */
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

/** With its versions, schedules and runs. */
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

/** What a call about a sync names; all connections where none is given. */
const named = ({
  integration,
  connection,
  name,
  variant,
}: Omit<SyncAt, 'connection'> & { connection?: string }) => ({
  provider_config_key: integration,
  ...(connection !== undefined && { connection_id: connection }),
  syncs: [{ name, variant }],
});

export async function triggerSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /sync/trigger', { environment, body: named(at) });
}

/** Runs it at once; its next ends of delete tracking may delete so many records of these models. */
export async function allowMassDelete(
  environment: string,
  { deletes, ...at }: SyncAt & { deletes: HeldDelete[] },
): Promise<void> {
  const allowed = Object.fromEntries(deletes.map((held) => [held.model, held.would_delete]));
  await call('POST /sync/trigger', { environment, body: { ...named(at), allow_mass_delete: allowed } });
}

/** Forgets where it was; with `records: 'removed'` what it has saved, too. It runs at once. */
export async function resetSync(
  environment: string,
  { records, ...at }: SyncAt & { records: 'kept' | 'removed' },
): Promise<void> {
  const opts = { reset: true, emptyCache: records === 'removed' };
  await call('POST /sync/trigger', { environment, body: { ...named(at), opts } });
}

export async function pauseSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /sync/pause', { environment, body: named(at) });
}

export async function startSync(environment: string, at: SyncAt): Promise<void> {
  await call('POST /sync/start', { environment, body: named(at) });
}

/** null brings back the function's own. */
export async function setFrequency(
  environment: string,
  { integration, connection, name, variant, frequency }: SyncAt & { frequency: string | null },
): Promise<void> {
  await call('PUT /sync/update-connection-frequency', {
    environment,
    body: {
      sync_name: name,
      sync_variant: variant,
      provider_config_key: integration,
      connection_id: connection,
      frequency,
    },
  });
}

export async function cancelRun(environment: string, id: string): Promise<Run> {
  return call('POST /functions/runs/{id}/cancel', { environment, path: { id } });
}

export type ActionAnswer = { output: unknown; tookMs: number };

/** Waits for the action's output; `signal` ends the action, too. */
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
  const response = await ask('POST /action/trigger', {
    environment,
    signal,
    headers: { 'connection-id': connection, 'provider-config-key': at.integration },
    body: { action_name: at.name, ...(input !== undefined && { input }) },
  });
  const output: unknown = await response.json();
  return { output, tookMs: performance.now() - begunMs };
}
