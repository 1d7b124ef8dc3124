import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, type Body, call, type Query } from '../../api/client.ts';

export type Endpoint = Answer<'GET /events/endpoints'>['endpoints'][number];
export type Delivery = Answer<'GET /events/deliveries'>['deliveries'][number];
export type WholeDelivery = Answer<'GET /events/deliveries/{id}'>;
export type EventType = Answer<'GET /events/types'>['types'][number];
export type LatestEvent = Answer<'GET /events/latest'>['events'][number];
export type SigningKey = Answer<'GET /environment/webhook-signing-key'>['data'];
export type EndpointInput = Body<'POST /events/endpoints'>;

/** Own endpoints and those of the settings first, then those of connections up to the limit. */
export const endpointsQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'endpoints'],
    queryFn: ({ signal }) => call('GET /events/endpoints', { environment, signal, query: { limit: 200 } }),
    refetchInterval: 5_000,
  });

/** The catalogue of types only changes with a release. */
export const typesQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'event types'],
    queryFn: async ({ signal }) => (await call('GET /events/types', { environment, signal })).types,
    staleTime: Number.POSITIVE_INFINITY,
  });

/** Newest first. The first page is polled while it is shown. */
export const deliveriesQuery = (environment: string, query: Query<'GET /events/deliveries'>) =>
  queryOptions({
    queryKey: [environment, 'deliveries', query],
    queryFn: ({ signal }) => call('GET /events/deliveries', { environment, signal, query }),
    refetchInterval: query.before === undefined ? 3_000 : false,
    placeholderData: keepPreviousData,
  });

export const deliveryQuery = (environment: string, id: number) =>
  queryOptions({
    queryKey: [environment, 'deliveries', 'one', id],
    queryFn: ({ signal }) => call('GET /events/deliveries/{id}', { environment, signal, path: { id } }),
    refetchInterval: 3_000,
  });

/** Newest first. The first page is polled while it is shown. */
export const latestQuery = (environment: string, query: Query<'GET /events/latest'>) =>
  queryOptions({
    queryKey: [environment, 'events', query],
    queryFn: ({ signal }) => call('GET /events/latest', { environment, signal, query }),
    refetchInterval: query.before === undefined ? 3_000 : false,
    placeholderData: keepPreviousData,
  });

/** Includes the key: only for roles that may read it. */
export const signingKeyQuery = (environment: string) =>
  queryOptions({
    queryKey: [environment, 'signing key'],
    queryFn: async ({ signal }) =>
      (await call('GET /environment/webhook-signing-key', { environment, signal })).data,
    gcTime: 0,
  });

export const createEndpoint = (environment: string, body: EndpointInput) =>
  call('POST /events/endpoints', { environment, body });

export const changeEndpoint = (
  environment: string,
  { id, ...body }: { id: number } & Body<'PATCH /events/endpoints/{id}'>,
) => call('PATCH /events/endpoints/{id}', { environment, path: { id }, body });

export const deleteEndpoint = (environment: string, id: number) =>
  call('DELETE /events/endpoints/{id}', { environment, path: { id } });

export const testEndpoint = (environment: string, id: number) =>
  call('POST /events/endpoints/{id}/test', { environment, path: { id } });

export const replayDelivery = (environment: string, id: number) =>
  call('POST /events/deliveries/{id}/replay', { environment, path: { id } });

type Range = { from: string; to?: string; undelivered_only: boolean };

/** Replays a range in several calls, and reports the number of queued events. */
export async function replayRange(
  environment: string,
  { id, range, onProgress }: { id: number; range: Range; onProgress: (count: number) => void },
): Promise<number> {
  let total = 0;
  let after: string | null = null;
  do {
    const body: Body<'POST /events/endpoints/{id}/replay'> = after === null ? range : { ...range, after };
    const answer = await call('POST /events/endpoints/{id}/replay', { environment, path: { id }, body });
    total += answer.count;
    onProgress(total);
    after = answer.next_after;
  } while (after !== null);
  return total;
}

/** Queues the newest event of the endpoint's types. Returns `waiting` if a delivery of the event already waits, `none` if the feed has no such event. */
export async function sendLatest(
  environment: string,
  { id, types }: Endpoint,
): Promise<'none' | 'waiting' | 'queued'> {
  const { events } = await call('GET /events/latest', {
    environment,
    query: { limit: 1, ...(types.length > 0 && { types: types.join(',') }) },
  });
  const [latest] = events;
  if (latest === undefined) return 'none';
  const range = { from: latest.created_at, undelivered_only: false };
  const queued = await replayRange(environment, { id, range, onProgress: () => {} });
  return queued > 0 ? 'queued' : 'waiting';
}

export const changeSettings = async (environment: string, body: Body<'PATCH /environment/settings'>) =>
  (await call('PATCH /environment/settings', { environment, body })).data;

export const rotateSigningKey = async (environment: string, overlapHours: number) =>
  (
    await call('POST /environment/webhook-signing-key/rotate', {
      environment,
      body: { overlap_hours: overlapHours },
    })
  ).data;
