import type {
  CursorPagination,
  LinkPagination,
  OffsetPagination,
  Pagination,
  ProxyConfiguration,
  ProxyResponse,
} from '../http.ts';

type Send = (config: ProxyConfiguration) => Promise<ProxyResponse>;

/** The maximum number of consecutive pages without items but with new cursors. */
const maxEmptyPages = 100;

/**
 * The pages of a list by cursor, by links, or by offset. Throws a TypeError if the configuration is incomplete or does not match
 * the responses, and an Error if cursors or links form a circle: after a list that ends too early, the rest would seem to be
 * deleted. A provider that ignores offsets is not detected, because two pages may be equal.
 */
export async function* paginate(
  send: Send,
  config: ProxyConfiguration,
  usual: Record<string, unknown> = {},
): AsyncGenerator<unknown[], undefined, void> {
  const { paginate: own, ...request } = config;
  // The defaults apply only to their own type of pagination.
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
  let sent: string | number | undefined;
  for (let emptyPages = 0; ; ) {
    const response = await send(call);
    const items = itemsOf(response, how);
    const next = cursorAt(response, path);
    emptyPages = items.length > 0 ? 0 : emptyPages + 1;
    // A cursor may stay the same while the pages differ, such as that of a scroll.
    if (items.length > 0 && next !== undefined && isCircle(next, items)) throw circle('cursor', next);
    if (items.length > 0) yield items;
    await how.on_page?.({ nextPageParam: next, response });
    if (next === undefined) return;
    // An empty page may be in the middle of a list (https://google.aip.dev/158), or at the end of a list whose last cursor is
    // for future items.
    if (emptyPages > 0 && next === sent) return;
    if (emptyPages === maxEmptyPages) {
      throw new Error(
        `The list has ${maxEmptyPages} empty pages one after the other, each with another cursor.`,
      );
    }
    sent = next;
    place(call, how, name, next);
  }
}

async function* byLink(send: Send, call: ProxyConfiguration, how: LinkPagination) {
  const isCircle = circleFinder();
  for (let sent: string | undefined; ; ) {
    const response = await send(call);
    const items = itemsOf(response, how);
    const next = nextLink(response, how);
    // In some lists, the link of the last page leads to the same page.
    const isLast = next === undefined || next === sent;
    if (!isLast && isCircle(next, items)) throw circle('link', next);
    yield items;
    await how.on_page?.({ nextPageParam: next, response });
    if (isLast) return;
    sent = next;
    // The link contains the whole query.
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
 * Detects a page that came before with the same cursor or link. Stores one page, which it replaces after twice as many pages
 * each time (Brent's algorithm), so that it finds circles of any length.
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

function itemsOf({ data }: ProxyResponse, { type, response_path }: Pagination): unknown[] {
  const items = response_path === undefined ? data : at(data, response_path);
  if (Array.isArray(items)) return items;
  const isElsewhere = (Array.isArray(data) || typeof data === 'string') && data.length > 0;
  // Slack, Telegram and others return errors with status 200.
  const { ok, error } = (data ?? {}) as { ok?: unknown; error?: unknown };
  if (ok === false) throw new Error(`The provider answered that it failed: ${String(error).slice(0, 200)}.`);
  if ((items === undefined || items === null) && !isElsewhere) return [];
  // Existing functions get the whole response of a link that has no path to a list.
  if (type === 'link' && response_path === undefined && typeof items === 'object') return items as unknown[];
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

/** Undefined for the values that providers return without a next page. Throws for other values that are not strings. */
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

/** The target with this relation in a Link header (RFC 8288). */
export function linkOf(header: string, relation: string): string | undefined {
  for (const [, target, parameters = ''] of header.matchAll(/<([^>]*)>((?:\s*;[^,;]*(?:"[^"]*")?)*)/g)) {
    const relations = /;\s*rel\s*=\s*"?([^";]*)"?/i.exec(parameters)?.[1] ?? '';
    if (relations.split(/\s+/).includes(relation)) return target;
  }
  return undefined;
}

/** Sets a position or limit in the query, or at a path of the body. */
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

/**
 * The value at a path such as `data.items[0].id`; undefined if there is none. At each step, a key that contains the dots has
 * precedence: `@odata.nextLink` is one name. An empty path is the value itself.
 */
export function at(value: unknown, path: string): unknown {
  if (isObject(value) && Object.hasOwn(value, path)) return value[path];
  const names = stepsOf(path);
  let found = value;
  for (const [index, name] of names.entries()) {
    if (!isObject(found)) return undefined;
    const rest = names.slice(index).join('.');
    if (Object.hasOwn(found, rest)) return found[rest];
    if (!Object.hasOwn(found, name)) return undefined;
    found = found[name];
  }
  return found;
}

/**
 * A copy of an object with a value at a path, with missing objects created. A key that contains the dots has precedence. Throws a
 * TypeError if the path leads through a value without fields.
 */
export function withAt(
  target: Record<string, unknown>,
  path: string,
  value: unknown,
): Record<string, unknown> {
  if (Object.hasOwn(target, path)) return { ...target, [path]: value };
  const [name = path, ...more] = stepsOf(path);
  if (more.length === 0) return { ...target, [name]: value };
  const inner = (Object.hasOwn(target, name) ? target[name] : undefined) ?? {};
  if (!isObject(inner) || Array.isArray(inner)) {
    throw new TypeError(`No value can be set at ${path}: ${name} is not an object.`);
  }
  return { ...target, [name]: withAt(inner, more.join('.'), value) };
}

function stepsOf(path: string): string[] {
  return path
    .replace(/\[(\w+)\]/g, '.$1')
    .split('.')
    .filter((name) => name !== '');
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
