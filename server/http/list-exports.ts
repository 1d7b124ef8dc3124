/**
 * Exports: every list that takes `cursor` and answers `next_cursor` returns all its entries as a file, if the first type in
 * `Accept` is `text/csv` or `application/x-ndjson`.
 *
 * An export requests the pages of its own list, one after the other, with the headers and filters of the caller. So each page
 * is authorized, filtered, masked and counted for the rate limit as any other call, and only one page is in memory.
 */
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import type { FastifyInstance, FastifyReply, FastifyRequest, FastifySchema } from 'fastify';
import type { Response } from 'light-my-request';
import { z } from 'zod';
import type { Brand } from '../brand.ts';
import { AppError, fieldError } from '../errors.ts';

export type ExportLimits = {
  /** Running exports: of one environment, and of the node. */
  perEnvironment: number;
  perNode: number;
  /** An export is cut off after this time, and if its client accepts nothing for `stallMs`. */
  totalMs: number;
  stallMs: number;
};

const usualLimits: ExportLimits = {
  perEnvironment: 2,
  perNode: 4,
  totalMs: 30 * 60_000,
  stallMs: 60_000,
};

/** Sizes of pages; the first one that the list accepts is used. */
const pageSizes = ['1000', '500', '100'];
/** A page is sent in parts. The limit for a client that accepts nothing is measured for each part. */
const partBytes = 64 * 1024;

type Format = { type: string; extension: string; lines: () => LineWriter };
/** The lines of a page, and those after the last one. */
type LineWriter = { page(entries: Entry[]): string; end(count: number): string };
type Entry = Record<string, unknown>;
type ListRoute = {
  items: string;
  entry: z.ZodType;
  pageSize: string | undefined;
  /** Calls can wait for further entries. The list has a next cursor even at its end: a page with fewer entries is the last. */
  isFeed: boolean;
};

/** To be called before the routes are added, and after `addLists`. */
export function addListExports(
  app: FastifyInstance,
  { brand, limits }: { brand: Brand; limits?: Partial<ExportLimits> | undefined },
): void {
  const bounds = { ...usualLimits, ...limits };
  const running = new Map<number, number>();

  /** Counts an export. Returns the function that ends the count. */
  function countExport({ caller }: FastifyRequest): () => void {
    // Lists for people belong to no environment.
    const environment = (caller as FastifyRequest['caller'] | null)?.environmentId ?? 0;
    const own = running.get(environment) ?? 0;
    const all = running.values().reduce((sum, count) => sum + count, 0);
    if (own >= bounds.perEnvironment || all >= bounds.perNode)
      throw new AppError(
        'too_many_requests',
        `This node runs at most ${bounds.perEnvironment} exports of an environment and ${bounds.perNode} in total.`,
        { retryAfterS: 10 },
      );
    running.set(environment, own + 1);
    return () => {
      const left = running.get(environment)! - 1;
      if (left === 0) running.delete(environment);
      else running.set(environment, left);
    };
  }

  app.addHook('onRoute', (route) => {
    const list = route.method === 'GET' ? listOf(route.schema) : undefined;
    if (list === undefined) return;
    const name = route.url.split('/').findLast((part) => part !== '' && !part.startsWith(':')) ?? 'export';
    route.preValidation = [
      async (request, reply) => {
        const format = formatOf(request, { brand, list });
        if (format === undefined) return;
        refuseViewers(request);
        // Fastify would go on with the handler of the list after a response that broke off.
        reply.raw.once('close', () => {
          if (!reply.sent) reply.hijack();
        });
        const release = countExport(request);
        let opened: Readable | Response;
        try {
          opened = await openExport(app, { request, reply, list, format, bounds });
        } catch (error) {
          release();
          if (reply.sent) return reply;
          throw error;
        }
        if (opened instanceof Readable) opened.once('close', release);
        else release();
        if (reply.sent) {
          // The client went while the first page was read.
          if (opened instanceof Readable) opened.destroy();
          return reply;
        }
        if (!(opened instanceof Readable)) return refusedBy(opened, reply);
        const day = new Date().toISOString().slice(0, 10);
        return reply
          .header('content-type', format.type)
          .header('content-disposition', `attachment; filename="${name}-${day}.${format.extension}"`)
          .header('cache-control', 'no-store')
          .send(opened);
      },
      ...[route.preValidation ?? []].flat(),
    ];
  });
}

function listOf(schema: FastifySchema | undefined): ListRoute | undefined {
  const response = (schema?.response as Record<number, unknown> | undefined)?.[200];
  const query = schema?.querystring;
  if (!(response instanceof z.ZodObject) || !('next_cursor' in response.shape)) return undefined;
  const taken = query instanceof z.ZodObject ? (query.shape as Record<string, z.ZodType>) : {};
  if (schema?.list === undefined && taken.cursor === undefined) return undefined;
  const fields = Object.entries(response.shape as Record<string, z.ZodType>);
  const found = fields.find(([field, type]) =>
    schema?.list === undefined ? type instanceof z.ZodArray : field === schema.list.items,
  );
  if (found === undefined || !(found[1] instanceof z.ZodArray)) return undefined;
  return {
    items: found[0],
    entry: found[1].element as z.ZodType,
    pageSize: pageSizes.find((size) => taken.limit?.safeParse(size).success),
    isFeed: taken.wait !== undefined,
  };
}

/** Undefined: the response is a page in JSON. */
function formatOf(
  { method, headers: { accept = '' } }: FastifyRequest,
  { brand, list }: { brand: Brand; list: ListRoute },
): Format | undefined {
  const type = /^\s*([^,;\s]+)/.exec(accept)?.[1]?.toLowerCase();
  if (method !== 'GET') return undefined;
  if (type === 'application/x-ndjson') return { type, extension: 'ndjson', lines: () => ndjson(brand) };
  if (type === 'text/csv')
    return { type: 'text/csv; charset=utf-8', extension: 'csv', lines: () => csv(list.entry) };
  return undefined;
}

function refuseViewers({ caller, routeOptions }: FastifyRequest): void {
  const { access } = routeOptions.config;
  if (access.by === 'key' && access.viewers === 'without exports' && caller.kind === 'user')
    if (caller.role === 'viewer') throw new AppError('forbidden', 'A viewer cannot change or export data.');
}

/** The stream of an export whose first page was read, or the response that refused this page. */
async function openExport(
  app: FastifyInstance,
  {
    request,
    reply,
    list,
    format,
    bounds,
  }: { request: FastifyRequest; reply: FastifyReply; list: ListRoute; format: Format; bounds: ExportLimits },
): Promise<Readable | Response> {
  const url = new URL(request.url, 'http://localhost');
  for (const name of ['limit', 'page', 'wait'])
    if (url.searchParams.has(name))
      throw fieldError(
        'invalid_query_params',
        [name],
        'is not accepted: an export has all entries that exist',
      );
  if (list.pageSize !== undefined) url.searchParams.set('limit', list.pageSize);
  const { by, positions } = request.routeOptions.schema?.list ?? {};
  const position = typeof by === 'object' ? by.parameter : positions?.parameter;
  const { accept: _, 'accept-encoding': __, connection: ___, ...headers } = request.headers;
  const read = (cursor?: string) => {
    if (cursor !== undefined) url.searchParams.set('cursor', cursor);
    // The cursor replaces the position that the caller gave.
    if (cursor !== undefined && position !== undefined) url.searchParams.delete(position);
    return app.inject({
      url: url.pathname + url.search,
      headers: { ...headers, accept: 'application/json' },
      remoteAddress: request.socket.remoteAddress ?? '127.0.0.1',
    });
  };
  const first = await read();
  if (first.statusCode !== 200) return first;

  // A destroyed stream does not stop its generator, so the generator checks this signal before each page.
  const over = new AbortController();
  let stalled: NodeJS.Timeout | undefined;
  const total = setTimeout(() => cut('The export took too long.'), bounds.totalMs);
  const stream = Readable.from(chunks(), { objectMode: true, highWaterMark: 0 });
  reply.raw.once('close', () => over.abort());
  stream.once('close', () => {
    clearTimeout(stalled);
    clearTimeout(total);
  });
  return stream;

  function cut(message: string): void {
    over.abort();
    stream.destroy(new Error(message));
  }

  async function* chunks(): AsyncGenerator<Buffer, void, undefined> {
    const { page, end } = format.lines();
    let count = 0;
    for (let response: Response | undefined = first; response !== undefined; ) {
      const body = response.json<Entry>();
      const entries = body[list.items] as Entry[];
      count += entries.length;
      yield* partsOf(page(entries));
      over.signal.throwIfAborted();
      const next = body.next_cursor as string | null;
      const isLast = next === null || (list.isFeed && entries.length < Number(list.pageSize));
      response = isLast ? undefined : await following(next);
    }
    yield* partsOf(end(count));
  }

  function* partsOf(lines: string): Generator<Buffer, void, undefined> {
    const bytes = Buffer.from(lines);
    for (let start = 0; start < bytes.length; start += partBytes) {
      stalled = setTimeout(() => cut('The client accepted nothing for too long.'), bounds.stallMs);
      yield bytes.subarray(start, start + partBytes);
      clearTimeout(stalled);
    }
  }

  async function following(cursor: string): Promise<Response> {
    for (;;) {
      over.signal.throwIfAborted();
      const response = await read(cursor);
      const { statusCode, headers: answered } = response;
      if (statusCode === 200) return response;
      // The page counts for the caller's rate limit.
      if (statusCode !== 429) throw new Error(`A page of the export was refused with ${statusCode}.`);
      await pause(Number(answered['retry-after'] ?? 1) * 1_000, undefined, { signal: over.signal });
    }
  }
}

/** Passes on the response that refused the first page. */
function refusedBy(response: Response, reply: FastifyReply): FastifyReply {
  for (const name of ['content-type', 'retry-after', 'ratelimit', 'ratelimit-policy']) {
    const value = response.headers[name];
    if (value !== undefined) reply.header(name, value);
  }
  return reply.code(response.statusCode).send(response.rawPayload);
}

/** An entry on each line; the last line has their number. */
function ndjson(brand: Brand): LineWriter {
  return {
    page: (entries) => entries.map((entry) => `${JSON.stringify(entry)}\n`).join(''),
    end: (count) => `${JSON.stringify({ [brand.exportKey]: { count } })}\n`,
  };
}

/** The name of the column for fields that have no column of their own, as JSON. */
const otherFields = 'other_fields';
/** Columns that are not in the schema: spreadsheets accept about 16,000, and keys of records can be data. */
const maxFurther = 1_000;

/**
 * RFC 4180. The columns are the fields of the schema, those of its objects with dots in their names, and further fields of the
 * first entries. If the schema permits any field, the last column has those that appear later.
 */
function csv(schema: z.ZodType): LineWriter {
  const columns = columnsIn(schema);
  const own = new Set(columns.map(([field]) => field));
  const isOpen = schema instanceof z.ZodObject && schema.def.catchall instanceof z.ZodUnknown;
  let isBegun = false;
  const row = (cells: unknown[]) => `${cells.map(cellOf).join(',')}\r\n`;
  const head = () => {
    isBegun = true;
    return row([...columns.map((path) => path.join('.')), ...(isOpen ? [otherFields] : [])]);
  };
  const othersIn = (entry: Entry) => Object.entries(entry).filter(([field]) => !own.has(field));
  return {
    page(entries) {
      if (entries.length === 0) return '';
      let lines = '';
      if (!isBegun) {
        const further = new Set(entries.flatMap((entry) => othersIn(entry).map(([field]) => field)));
        for (const field of [...further].slice(0, maxFurther)) {
          columns.push([field]);
          own.add(field);
        }
        lines = head();
      }
      for (const entry of entries) {
        const others = isOpen ? othersIn(entry) : [];
        const cells = columns.map((path) => valueAt(entry, path));
        if (isOpen) cells.push(others.length === 0 ? undefined : Object.fromEntries(others));
        lines += row(cells);
      }
      return lines;
    },
    end: () => (isBegun ? '' : head()),
  };
}

function columnsIn(schema: z.ZodType, path: string[] = []): string[][] {
  if (schema instanceof z.ZodOptional || schema instanceof z.ZodNullable)
    return columnsIn(schema.unwrap() as z.ZodType, path);
  if (!(schema instanceof z.ZodObject)) return [path];
  return Object.entries(schema.shape as Record<string, z.ZodType>).flatMap(([field, type]) =>
    columnsIn(type, [...path, field]),
  );
}

function valueAt(entry: Entry, path: readonly string[]): unknown {
  return path.reduce<unknown>(
    (value, field) =>
      typeof value === 'object' && value !== null && Object.hasOwn(value, field)
        ? (value as Entry)[field]
        : undefined,
    entry,
  );
}

/** A spreadsheet evaluates texts that begin with these characters; their wide forms count in East Asian locales. */
const formula = /^[=+\-@\t\r\n＝＋－＠]/;

/** A text that a spreadsheet would evaluate gets an apostrophe before it. Numbers stay as they are. */
function cellOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  const plain = typeof value === 'object' ? JSON.stringify(value) : String(value);
  const text = typeof value === 'string' && formula.test(plain) ? `'${plain}` : plain;
  // Some locales separate cells by semicolons or tabs.
  return /[",;\t\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
