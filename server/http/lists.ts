/**
 * Lists in one form: each takes `cursor` and `limit`, and answers `next_cursor`, which is null if there are no more entries.
 * Routes with another form (`page`, `after`, `before`, or no pages) keep it, and get this form by `list` in their schema.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { z } from 'zod';
import { fieldError } from '../errors.ts';
import { setSentName } from './spellings.ts';

export type List = {
  /** The field of the response that has the entries. */
  items: string;
  /**
   * `whole`: the route returns all entries. `page`: it takes `page` and `limit`. Otherwise the parameter that takes the
   * position in the field `next` of the previous response. In a feed this field is never null, and an empty page is the last.
   */
  by: 'whole' | 'page' | { parameter: 'after' | 'before'; next: string; isFeed?: true };
  /** If `limit` of a list by pages has no default: the entries of the first page, and of each following one. */
  sizes?: { first: number; following: number };
  /**
   * If the entries of a list by pages have positions, in some of its orders: the parameter that takes one, and the field
   * with that of the last entry, which is not sent. Then an entry that is removed meanwhile moves no other past a page.
   */
  positions?: { parameter: string; last: string };
};

declare module 'fastify' {
  interface FastifySchema {
    /** Of a list whose form is not that of all lists. */
    list?: List;
  }
}

type Query = Record<string, unknown>;
type Page = { start: number; limit: number | undefined };

const maxLimit = 1_000;
/** The number of entries before the page, and for lists by pages its size. */
const offsetForm = /^(\d{1,9})(?:\/(\d{1,4}))?$/;
const positionForm = /^[A-Za-z0-9._-]{1,100}$/;

/** The parameters that a list has in addition to those of its schema, for the document. */
export function listParameters({ by }: List): Record<string, object> {
  const cursor = { type: 'string', maxLength: 200 };
  return by === 'whole' ? { cursor, limit: { type: 'integer', minimum: 1, maximum: maxLimit } } : { cursor };
}

/** To be called before the routes are added. */
export function addLists(app: FastifyInstance): void {
  const pages = new WeakMap<FastifyRequest, Page>();
  app.addHook('onRoute', (route) => {
    const list = route.schema?.list;
    if (list === undefined) return;
    const response = route.schema?.response as Record<number, z.ZodObject>;
    // A deprecated route is the same list.
    const name = route.schema?.operationId?.replace(/Deprecated$/, '') ?? route.url;
    route.schema = { ...route.schema, response: { ...response, 200: withNextCursor(response[200]!) } };
    route.preValidation = [
      async (request) => {
        const page = takePage(request, list, name);
        if (page !== undefined) pages.set(request, page);
      },
      ...[route.preValidation ?? []].flat(),
    ];
    route.preSerialization = [
      ...[route.preSerialization ?? []].flat(),
      async (request, reply, payload) =>
        reply.statusCode === 200
          ? withCursor(payload as Query, { list, name, request, page: pages.get(request) })
          : payload,
    ];
  });
}

function withNextCursor(schema: z.ZodObject): z.ZodObject {
  const extended = schema.extend({ next_cursor: z.string().nullable() });
  const meta = z.globalRegistry.get(schema);
  return meta === undefined ? extended : extended.meta(meta);
}

/** Takes `cursor`, and `limit` of a whole list, out of the query, and sets the parameters of the route. */
function takePage(request: FastifyRequest, { by, sizes, positions }: List, name: string): Page | undefined {
  const query = request.query as Query;
  const { cursor } = query;
  if (cursor !== undefined && typeof cursor !== 'string') throw wrong('cursor', 'must be one text');
  delete query.cursor;
  if (by === 'whole') {
    const { limit } = query;
    delete query.limit;
    const start = cursor === undefined ? 0 : offsetIn(positionIn(cursor, name)).start;
    return { start, limit: limitOf(limit) };
  }
  if (cursor === undefined) return undefined;
  const position = positionIn(cursor, name);
  if (by === 'page' && positions !== undefined && !offsetForm.test(position)) {
    if (!positionForm.test(position)) throw wrongCursor();
    if (query.page !== undefined)
      throw wrong('page', 'cannot be combined with this `cursor`, which is a position');
    setUnlessOther(query, positions.parameter, position);
    setSentName(request, positions.parameter, 'cursor');
    query.limit ??= String(sizes!.following);
    return undefined;
  }
  if (by === 'page') {
    const { start, limit } = offsetIn(position);
    if (limit === undefined || limit === 0 || start % limit !== 0) throw wrongCursor();
    setUnlessOther(query, 'limit', String(limit));
    setUnlessOther(query, 'page', String(start / limit));
    return undefined;
  }
  if (!positionForm.test(position)) throw wrongCursor();
  setUnlessOther(query, by.parameter, position);
  setSentName(request, by.parameter, 'cursor');
  return undefined;
}

/** Throws if the caller has set the parameter to something else. */
function setUnlessOther(query: Query, name: string, value: string): void {
  if (query[name] !== undefined && query[name] !== value)
    throw wrong(name, 'differs from that of `cursor`: send only one of them');
  query[name] = value;
}

function withCursor(
  payload: Query,
  {
    list,
    name,
    request,
    page,
  }: { list: List; name: string; request: FastifyRequest; page: Page | undefined },
): Query {
  const { items, by, sizes, positions } = list;
  const entries = payload[items] as unknown[];
  if (by === 'whole') {
    const { start, limit = entries.length } = page ?? { start: 0 };
    const end = start + limit;
    const next = end < entries.length ? cursorOf(name, String(end)) : null;
    return { ...payload, [items]: entries.slice(start, end), next_cursor: next };
  }
  if (by === 'page') {
    const query = request.query as { page: number; limit?: number };
    const limit = query.limit ?? sizes!.first;
    const last = positions && payload[positions.last];
    if (last !== undefined)
      return { ...payload, next_cursor: entries.length < limit ? null : cursorOf(name, String(last)) };
    const start = (query.page + 1) * limit;
    const total = (payload.pagination as { total: number } | undefined)?.total;
    const isLast = total === undefined ? entries.length < limit : start >= total;
    return {
      ...payload,
      next_cursor: isLast ? null : cursorOf(name, `${start}/${query.limit ?? sizes!.following}`),
    };
  }
  const next = payload[by.next];
  const isLast = next === null || next === undefined || (by.isFeed === true && entries.length === 0);
  return { ...payload, next_cursor: isLast ? null : cursorOf(name, String(next)) };
}

function limitOf(given: unknown): number | undefined {
  if (given === undefined) return undefined;
  const limit = typeof given === 'string' && /^\d{1,9}$/.test(given) ? Number(given) : 0;
  if (limit < 1 || limit > maxLimit) throw wrong('limit', `must be a whole number from 1 to ${maxLimit}`);
  return limit;
}

function offsetIn(position: string): Page {
  const [text, start, limit] = offsetForm.exec(position) ?? [];
  if (text === undefined) throw wrongCursor();
  return { start: Number(start), limit: limit === undefined ? undefined : Number(limit) };
}

/** Names its list, so that a cursor of another list is refused. */
function cursorOf(list: string, position: string): string {
  return Buffer.from(`${list}:${position}`).toString('base64url');
}

/** The position in a cursor of this list. Cursors of earlier versions name no list. */
function positionIn(cursor: string, list: string): string {
  const text = Buffer.from(cursor, 'base64url').toString();
  if (Buffer.from(text).toString('base64url') !== cursor) throw wrongCursor();
  if (!text.includes(':')) return text;
  if (!text.startsWith(`${list}:`)) throw wrongCursor();
  return text.slice(list.length + 1);
}

function wrongCursor() {
  return wrong('cursor', 'is not a `next_cursor` of this list');
}

function wrong(name: string, message: string) {
  return fieldError('invalid_query_params', [name], message);
}
