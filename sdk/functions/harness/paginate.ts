import type {
  CursorPagination,
  LinkPagination,
  OffsetPagination,
  Pagination,
  ProxyConfiguration,
  ProxyResponse,
} from '../http.ts';
import { at, withAt } from './path.ts';

type Send = (config: ProxyConfiguration) => Promise<ProxyResponse>;

/** Pages without an item, one after the other, each with another cursor: nobody can tell whether more comes. */
const maxEmptyPages = 100;

/**
 * Pages of a list by cursor, by links, or by offset. Throws a TypeError where it is not said how, or where what the provider
 * answers cannot be read so, and an Error where cursors or links lead round in a circle: a list that ends too early would
 * look as if the rest had been deleted. Offsets that a provider passes over are seen by nobody, since two pages may be alike.
 */
export async function* paginate(
  send: Send,
  config: ProxyConfiguration,
  usual: Record<string, unknown> = {},
): AsyncGenerator<unknown[], undefined, void> {
  const { paginate: own, ...request } = config;
  // What is usual for another way to turn pages says nothing of this one.
  const isUsual = own?.type === undefined || own.type === usual.type;
  const how = { ...(isUsual && usual), ...own } as Pagination;
  const call = { ...request, method: request.method ?? ('GET' as const) };
  how.in_body ??= ['POST', 'PUT', 'PATCH'].includes(call.method.toUpperCase());
  if (how.limit !== undefined && how.limit_name_in_request !== undefined) {
    place(call, how, how.limit_name_in_request, how.limit);
  }
  if (how.type === 'cursor') yield* byCursor(send, call, how);
  else if (how.type === 'link') yield* byLink(send, call, how);
  else if (how.type === 'offset') yield* byOffset(send, call, how);
  else throw new TypeError('paginate needs a type: cursor, link or offset.');
}

async function* byCursor(send: Send, call: ProxyConfiguration, how: CursorPagination) {
  const path = needed(how, 'cursor_path_in_response');
  const name = needed(how, 'cursor_name_in_request');
  const isCircle = circleFinder();
  let asked: string | number | undefined;
  for (let emptyPages = 0; ; ) {
    const response = await send(call);
    const items = itemsOf(response, how);
    const next = cursorAt(response, path);
    emptyPages = items.length > 0 ? 0 : emptyPages + 1;
    // The cursor alone may stay the same while the pages differ: that of a scroll does.
    if (items.length > 0 && next !== undefined && isCircle(next, items)) throw circle('cursor', next);
    if (items.length > 0) yield items;
    await how.on_page?.({ nextPageParam: next, response });
    if (next === undefined) return;
    // An empty page may stand amid the list (https://google.aip.dev/158), or at the end of one that gives a cursor for what is
    // yet to come.
    if (emptyPages > 0 && next === asked) return;
    if (emptyPages === maxEmptyPages) {
      throw new Error(
        `The list has ${maxEmptyPages} empty pages one after the other, each with another cursor.`,
      );
    }
    asked = next;
    place(call, how, name, next);
  }
}

async function* byLink(send: Send, call: ProxyConfiguration, how: LinkPagination) {
  const isCircle = circleFinder();
  for (let asked: string | undefined; ; ) {
    const response = await send(call);
    const items = itemsOf(response, how);
    const next = nextLink(response, how);
    // A page whose link leads to itself is the last one, as some lists have it.
    const isLast = next === undefined || next === asked;
    if (!isLast && isCircle(next, items)) throw circle('link', next);
    yield items;
    await how.on_page?.({ nextPageParam: next, response });
    if (isLast) return;
    asked = next;
    // The link holds the whole query.
    call.endpoint = next;
    delete call.params;
  }
}

async function* byOffset(send: Send, call: ProxyConfiguration, how: OffsetPagination) {
  const name = needed(how, 'offset_name_in_request');
  const byPage = how.offset_calculation_method === 'per-page';
  for (let offset = how.offset_start_value ?? 0; ; ) {
    place(call, how, name, offset);
    const response = await send(call);
    const items = itemsOf(response, how);
    const isLast = items.length === 0 || (how.limit !== undefined && items.length < how.limit);
    offset += byPage ? 1 : items.length;
    if (items.length > 0) yield items;
    await how.on_page?.({ nextPageParam: isLast ? undefined : offset, response });
    if (isLast) return;
  }
}

/**
 * Tells whether a page came before with the same way on. Keeps one page, of which it takes a new one after twice as many
 * (Brent's algorithm), so that it finds circles of any length in lists of any length.
 */
function circleFinder(): (next: string | number, items: unknown[]) => boolean {
  let kept: { next: string | number; items: string } | undefined;
  let age = 0;
  let max = 1;
  return (next, items) => {
    if (next === kept?.next && JSON.stringify(items) === kept.items) return true;
    age += 1;
    if (kept === undefined || age === max) {
      max = kept === undefined ? 1 : max * 2;
      age = 0;
      kept = { next, items: JSON.stringify(items) };
    }
    return false;
  };
}

function circle(by: string, next: string | number): Error {
  return new Error(
    `The provider gave the same page again, with the same ${by} (${String(next).slice(0, 200)}): its list has no end this way.`,
  );
}

function itemsOf({ data }: ProxyResponse, { response_path }: Pagination): unknown[] {
  const items = response_path === undefined ? data : at(data, response_path);
  if (Array.isArray(items)) return items;
  const isElsewhere = (Array.isArray(data) || typeof data === 'string') && data.length > 0;
  // Slack, Telegram and others refuse with status 200.
  const { ok, error } = (data ?? {}) as { ok?: unknown; error?: unknown };
  if (ok === false) throw new Error(`The provider answered that it failed: ${String(error).slice(0, 200)}.`);
  if ((items === undefined || items === null) && !isElsewhere) return [];
  throw new TypeError(`There is no list at ${response_path ?? 'the top'} of the answer.`);
}

function cursorAt({ data }: ProxyResponse, path: string): string | number | undefined {
  const found = at(data, path);
  if (typeof found === 'number') return found;
  return textAt(found, { path, what: 'cursor' });
}

function nextLink({ data, headers }: ProxyResponse, how: LinkPagination): string | undefined {
  const { link_rel_in_response_header: relation, link_path_in_response_body: path } = how;
  if (relation === undefined && path === undefined) {
    throw new TypeError('paginate by link needs link_rel_in_response_header or link_path_in_response_body.');
  }
  const linked = relation === undefined ? undefined : linkOf(headers.link ?? '', relation);
  if (linked !== undefined || path === undefined) return linked;
  return textAt(at(data, path), { path, what: 'link' });
}

/** Undefined for what providers write where there is no next page; anything else that is no text is no end. */
function textAt(found: unknown, { path, what }: { path: string; what: string }): string | undefined {
  if (typeof found === 'string') return found.trim() || undefined;
  if (found === undefined || found === null || found === false) return undefined;
  if (typeof found === 'object' && Object.keys(found).length === 0) return undefined;
  throw new TypeError(
    `There is no ${what} at ${path} of the answer, but ${JSON.stringify(found).slice(0, 200)}.`,
  );
}

function needed<How extends Pagination>(how: How, name: keyof How & string): string {
  const given = how[name];
  if (typeof given === 'string' && given !== '') return given;
  throw new TypeError(`paginate by ${how.type} needs ${name}.`);
}

/** Of a header Link (RFC 8288) the target that has this relation. */
export function linkOf(header: string, relation: string): string | undefined {
  for (const [, target, parameters = ''] of header.matchAll(/<([^>]*)>((?:\s*;[^,;]*(?:"[^"]*")?)*)/g)) {
    const relations = /;\s*rel\s*=\s*"?([^";]*)"?/i.exec(parameters)?.[1] ?? '';
    if (relations.split(/\s+/).includes(relation)) return target;
  }
  return undefined;
}

/** Position and limit go where the provider wants them: into the query, or into the body, there at a path. */
function place(call: ProxyConfiguration, { in_body }: Pagination, name: string, value: string | number) {
  if (in_body === true) {
    call.data = placedInBody(call.data, name, value);
  } else if (typeof call.params === 'string' || call.params instanceof URLSearchParams) {
    call.params = new URLSearchParams(call.params);
    call.params.set(name, String(value));
  } else {
    call.params = { ...call.params, [name]: value };
  }
}

function placedInBody(body: unknown, name: string, value: string | number): unknown {
  if (body instanceof URLSearchParams) {
    const fields = new URLSearchParams(body);
    fields.set(name, String(value));
    return fields;
  }
  if (body === undefined || body === null) return withAt({}, name, value);
  if (typeof body === 'object' && !Array.isArray(body) && !(body instanceof Uint8Array)) {
    return withAt(body as Record<string, unknown>, name, value);
  }
  throw new TypeError(
    `${name} cannot be set in a body that is no object: give \`data\` as one, or say \`in_body: false\`.`,
  );
}
