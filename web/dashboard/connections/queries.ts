import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, call, type ExportFormat, exportList, type Query, send } from '../../api/client.ts';
import type { Operation } from '../activity/queries.ts';
import type { TimelineKind } from '../search.ts';

export type Connection = Answer<'GET /connections'>['connections'][number];
export type WholeConnection = Answer<'GET /connections/{id}'>;
export type Health = Connection['health'];
/** The key of a connection: an ID is unique within its integration. */
export type At = { integration: string; id: string };

export const connectionsQuery = (environment: string, query: Query<'GET /connections'>) =>
  queryOptions({
    queryKey: [environment, 'connections', query],
    queryFn: ({ signal }) => call('GET /connections', { environment, signal, query }),
  });

/** All connections that match the filters, as a file. */
export const exportConnections = (
  environment: string,
  query: Query<'GET /connections'>,
  format: ExportFormat,
) => exportList('GET /connections', { environment, query, format });

/** Without credentials, which the dashboard never receives; nothing is refreshed. */
export const connectionQuery = (environment: string, { integration, id }: At) =>
  queryOptions({
    queryKey: [environment, 'connection', integration, id],
    queryFn: ({ signal }) =>
      call('GET /connections/{id}', {
        environment,
        signal,
        path: { id },
        query: { integration_id: integration },
      }),
  });

/** The operations of each kind of entries in the timeline of a connection, apart from its events. */
const timelineFilters: [TimelineKind, Query<'GET /operations'>][] = [
  ['connects', { type: 'connect' }],
  ['refreshes', { type: 'refresh' }],
  ['syncs', { type: 'run' }],
  ['failures', { status: 'failed' }],
];

/** The newest operations and events of one kind or of all; `isWhole` if there are no older ones. */
export const timelineQuery = (environment: string, { integration, id }: At, kind: TimelineKind | undefined) =>
  queryOptions({
    queryKey: [environment, 'connection', integration, id, 'timeline', kind],
    queryFn: async ({ signal }) => {
      const of = { integration_id: integration, connection_id: id, limit: 50 };
      const wants = (one: TimelineKind) => kind === undefined || kind === one;
      const [{ events, next_before: older }, ...pages] = await Promise.all([
        wants('events')
          ? call('GET /events/latest', { environment, signal, query: of })
          : { events: [], next_before: null },
        ...timelineFilters
          .filter(([one]) => wants(one))
          .map(([, filter]) => call('GET /operations', { environment, signal, query: { ...of, ...filter } })),
      ]);
      // One list may have more entries before this time than were read.
      const from =
        [older === null ? undefined : events.at(-1)?.created_at, ...pages.map(({ searched_until: at }) => at)]
          .map((at) => at ?? '')
          .sort()
          .at(-1) ?? '';
      const isShown = ({ created_at: at }: { created_at: string }) => at >= from;
      const found = new Map<string, Operation>(
        pages.flatMap(({ operations }) => operations.map((one) => [one.id, one])),
      );
      return {
        operations: [...found.values()].filter(isShown),
        events: events.filter(isShown),
        isWhole: from === '',
      };
    },
    refetchInterval: 10_000,
    placeholderData: keepPreviousData,
  });

/** The key of its deletion: the connection is not fetched while it runs. */
export const deletionKey = (environment: string, { integration, id }: At) => [
  environment,
  'delete connection',
  integration,
  id,
];

export const datasetsQuery = (environment: string, { integration, id }: At) =>
  queryOptions({
    queryKey: [environment, 'connection', integration, id, 'datasets'],
    queryFn: async ({ signal }) =>
      (
        await call('GET /records/datasets', {
          environment,
          signal,
          headers: { 'connection-id': id, 'integration-id': integration },
        })
      ).datasets,
  });

/** A link for the owner of the account, with a test end user. */
export async function newConnectLink(
  environment: string,
  integration: string,
  endUser: string,
): Promise<SessionLink> {
  const { data } = await call('POST /connect/sessions', {
    environment,
    body: { end_user: { id: endUser }, allowed_integrations: [integration] },
  });
  return { link: data.connect_link, token: data.token };
}

export type SessionLink = { link: string; token: string };

/** A link with which the owner grants access again or, if the grant works, only the missing scopes. */
export async function newReconnectLink(
  environment: string,
  { integration, id, health }: At & { health: Health },
): Promise<SessionLink> {
  const { data } = await call('POST /connect/sessions/reconnect', {
    environment,
    body: health.reconnect?.body ?? { integration_id: integration, connection_id: id },
  });
  return { link: data.connect_link, token: data.token };
}

export type ConnectLink = Answer<'GET /connect/sessions'>['data'][number];

export const connectLinksQuery = (environment: string, query: Query<'GET /connect/sessions'>) =>
  queryOptions({
    queryKey: [environment, 'connect links', query],
    queryFn: ({ signal }) => call('GET /connect/sessions', { environment, signal, query }),
    placeholderData: keepPreviousData,
    refetchInterval: 5_000,
  });

export const revokeLink = (environment: string, id: number) =>
  call('DELETE /connect/sessions/{id}', { environment, path: { id } });

type ConnectProgress = Answer<'GET /connect/session/progress'>['data'];

/** Whether the link is finished: all scopes are granted, or it has expired. */
export function isLinkOver(
  { connection, state, under_way, expires_at }: ConnectProgress,
  nowMs: number,
): boolean {
  if (connection?.missing_scopes.length === 0) return true;
  if (state === 'expired') return !under_way;
  return state === 'connected' && Date.parse(expires_at) <= nowMs;
}

/** The progress of the link, polled every 1.5 s until it is finished. */
export const connectProgressQuery = (environment: string, token: string) =>
  queryOptions({
    queryKey: [environment, 'connect progress', token],
    queryFn: async ({ signal }) =>
      (
        (await send('GET /connect/session/progress', {
          signal,
          headers: { authorization: `Bearer ${token}` },
        })) as Answer<'GET /connect/session/progress'>
      ).data,
    refetchInterval: ({ state: { data } }) =>
      data !== undefined && isLinkOver(data, Date.now()) ? false : 1_500,
    gcTime: 0,
    staleTime: 0,
  });

/** The newest connection of an end user, polled while the user is at the provider. */
export const newestConnectionQuery = (
  environment: string,
  { integration, endUser }: { integration: string; endUser: string },
) =>
  queryOptions({
    queryKey: [environment, 'connections', 'newest', integration, endUser],
    queryFn: async ({ signal }) => {
      const { connections } = await call('GET /connections', {
        environment,
        signal,
        query: { integration_id: integration, end_user_id: endUser, limit: 1 },
      });
      return connections[0] ?? null;
    },
    gcTime: 0,
    staleTime: 0,
  });

export async function refresh(environment: string, { integration, id }: At): Promise<void> {
  await call('POST /connections/{id}/refresh', {
    environment,
    path: { id },
    query: { integration_id: integration },
  });
}

/** Replaces all tags. */
export async function setTags(
  environment: string,
  { integration, id, tags }: At & { tags: Record<string, string> },
): Promise<void> {
  await call('PATCH /connections/{id}', {
    environment,
    path: { id },
    query: { integration_id: integration },
    body: { tags },
  });
}

export async function setMetadata(
  environment: string,
  { integration, id, metadata }: At & { metadata: Record<string, unknown> },
): Promise<void> {
  await call('POST /connections/metadata', {
    environment,
    body: { connection_id: id, integration_id: integration, metadata },
  });
}

/** Deletes the connection with its credentials and records. */
export async function deleteConnection(environment: string, { integration, id }: At): Promise<void> {
  await call('DELETE /connections/{id}', {
    environment,
    path: { id },
    query: { integration_id: integration },
  });
}
