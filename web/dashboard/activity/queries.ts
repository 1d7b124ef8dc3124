import { keepPreviousData, queryOptions } from '@tanstack/react-query';
import { type Answer, call, type ExportFormat, exportList, type Query, request } from '../../api/client.ts';

export type Operation = Answer<'GET /operations'>['operations'][number];
export type WholeOperation = Answer<'GET /operations/{id}'>;
export type Filters = Query<'GET /operations'>;
export type Point = NonNullable<Answer<'GET /operations/stats'>['series']>[number];

/** Newest first. Polled every few seconds if there is no stream. */
export const operationsQuery = (environment: string, query: Filters, everyMs: number | false = 3_000) =>
  queryOptions({
    queryKey: [environment, 'operations', query],
    queryFn: ({ signal }) => call('GET /operations', { environment, signal, query }),
    refetchInterval: query.cursor === undefined ? everyMs : false,
    placeholderData: keepPreviousData,
  });

/** All operations that match the filters, as a file. */
export const exportOperations = (environment: string, query: Filters, format: ExportFormat) =>
  exportList('GET /operations', { environment, query, format });

export const operationQuery = (environment: string, id: string) =>
  queryOptions({
    queryKey: [environment, 'operations', 'one', id],
    queryFn: ({ signal }) => call('GET /operations/{id}', { environment, signal, path: { id } }),
    staleTime: 60_000,
  });

/** The number of operations and of failures, and the durations, for each step. */
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
 * Operations as they are logged, until the service or `signal` ends the stream. Starts after `lastId`, and may repeat a
 * few operations.
 */
export async function* followOperations(
  environment: string,
  { filters, lastId, signal, onOpen }: Following,
): AsyncGenerator<Operation> {
  const response = await request('GET /operations/tail', {
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

/** One server-sent event (HTML standard, §9.2). */
type ServerEvent = { event: string; data: string };

/** The events of a response. `EventSource` cannot send custom headers, which the service requires beside the cookie. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  const reader = response.body?.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = (await reader?.read()) ?? { done: true, value: undefined };
      if (done) return;
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        const found = eventOf(block);
        if (found !== undefined) yield found;
      }
    }
  } finally {
    void reader?.cancel().catch(() => undefined);
  }
}

/** Undefined for comments and retry intervals. */
function eventOf(block: string): ServerEvent | undefined {
  let event = 'message';
  const data: string[] = [];
  for (const line of block.split('\n')) {
    if (line.startsWith('event: ')) event = line.slice('event: '.length);
    else if (line.startsWith('data: ')) data.push(line.slice('data: '.length));
  }
  return data.length === 0 ? undefined : { event, data: data.join('\n') };
}
