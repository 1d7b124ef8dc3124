import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, ask, call, type Query } from '../../api/client.ts';
import { eventsOf } from './event-source.ts';

export type Operation = Answer<'GET /operations'>['operations'][number];
export type WholeOperation = Answer<'GET /operations/{id}'>;
export type Filters = Query<'GET /operations'>;
export type Point = NonNullable<Answer<'GET /operations/stats'>['series']>[number];

/** Newest first; fetched again every few seconds if no other source reports new operations. */
export const operationsQuery = (environment: string, query: Filters, everyMs: number | false = 3_000) =>
  queryOptions({
    queryKey: [environment, 'operations', query],
    queryFn: ({ signal }) => call('GET /operations', { environment, signal, query }),
    refetchInterval: query.cursor === undefined ? everyMs : false,
    placeholderData: keepPreviousData,
  });

export const operationQuery = (environment: string, id: string) =>
  queryOptions({
    queryKey: [environment, 'operations', 'one', id],
    queryFn: ({ signal }) => call('GET /operations/{id}', { environment, signal, path: { id } }),
    staleTime: 60_000,
  });

/** How many there were and failed, and how long they took, step by step. */
export const seriesQuery = (
  environment: string,
  query: Query<'GET /operations/stats'> & { step_s: number },
) =>
  queryOptions({
    queryKey: [environment, 'operations', 'series', query],
    queryFn: async ({ signal }) =>
      (await call('GET /operations/stats', { environment, signal, query })).series ?? [],
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });

/**
 * Operations as they are logged, until the service ends it or `signal` does. `lastId` is the newest that is known: what
 * came since is told, and a few again.
 */
export async function* followOperations(
  environment: string,
  { filters, lastId, signal, onOpen }: Following,
): AsyncGenerator<Operation> {
  const response = await ask('GET /operations/tail', {
    environment,
    signal,
    query: filters,
    headers: { accept: 'text/event-stream', ...(lastId !== undefined && { 'last-event-id': lastId }) },
  });
  onOpen();
  for await (const { event, data } of eventsOf(response)) {
    if (event === 'operation') yield JSON.parse(data) as Operation;
  }
}

export type Following = {
  filters: Query<'GET /operations/tail'>;
  lastId: string | undefined;
  signal: AbortSignal;
  onOpen: () => void;
};
