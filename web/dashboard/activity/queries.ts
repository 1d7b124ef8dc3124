import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, call, type Query } from '../../api/client.ts';

export type Operation = Answer<'GET /operations'>['operations'][number];
export type Filters = Query<'GET /operations'>;

/** Newest first, read anew every few seconds while the page is in sight. */
export const operationsQuery = (environment: string, query: Filters) =>
  queryOptions({
    queryKey: [environment, 'operations', query],
    queryFn: ({ signal }) => call('GET /operations', { environment, signal, query }),
    refetchInterval: query.cursor === undefined ? 3_000 : false,
    placeholderData: keepPreviousData,
  });

export const operationQuery = (environment: string, id: string) =>
  queryOptions({
    queryKey: [environment, 'operations', 'one', id],
    queryFn: ({ signal }) => call('GET /operations/{id}', { environment, signal, path: { id } }),
    staleTime: 60_000,
  });

/** How many succeeded and failed, an hour each. */
export const statsQuery = (environment: string, query: Query<'GET /operations/stats'>) =>
  queryOptions({
    queryKey: [environment, 'operations', 'stats', query],
    queryFn: ({ signal }) => call('GET /operations/stats', { environment, signal, query }),
    refetchInterval: 30_000,
    placeholderData: keepPreviousData,
  });
