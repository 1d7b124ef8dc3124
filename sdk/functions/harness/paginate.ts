import type {
  CursorPagination,
  LinkPagination,
  OffsetPagination,
  Pagination,
  ProxyConfiguration,
  ProxyResponse,
} from '../http.ts';
import { at } from './path.ts';

type Send = (config: ProxyConfiguration) => Promise<ProxyResponse>;

/** Pages of a list by cursor, by links, or by offset. Throws a TypeError where it is not said how. */
export async function* paginate(
  send: Send,
  config: ProxyConfiguration,
  usual: Record<string, unknown> = {},
): AsyncGenerator<unknown[], undefined, void> {
  const { paginate: own, ...request } = config;
  // What is usual for another way to turn pages says nothing of this one.
  const isUsual = own?.type === undefined || own.type === usual.type;
  const how = { ...(isUsual && usual), ...own } as Pagination;
  const call = { method: 'GET' as const, ...request };
  if (how.limit !== undefined && how.limit_name_in_request !== undefined) {
    place(call, how, { [how.limit_name_in_request]: how.limit });
  }
  if (how.type === 'cursor') yield* byCursor(send, call, how);
  else if (how.type === 'link') yield* byLink(send, call, how);
  else if (how.type === 'offset') yield* byOffset(send, call, how);
  else throw new TypeError('paginate needs a type: cursor, link or offset.');
}

async function* byCursor(send: Send, call: ProxyConfiguration, how: CursorPagination) {
  for (let last: unknown; ; ) {
    const response = await send(call);
    const items = itemsOf(response, how);
    const next = at(response.data, how.cursor_path_in_response);
    const nextPageParam = typeof next === 'number' ? next : String(next ?? '').trim() || undefined;
    if (items.length > 0) yield items;
    await how.on_page?.({ nextPageParam, response });
    // A provider that gives the same cursor again would be asked for ever.
    if (nextPageParam === undefined || nextPageParam === last) return;
    last = nextPageParam;
    place(call, how, { [how.cursor_name_in_request]: nextPageParam });
  }
}

async function* byLink(send: Send, call: ProxyConfiguration, how: LinkPagination) {
  for (;;) {
    const response = await send(call);
    yield itemsOf(response, how);
    const next = nextLink(response, how);
    await how.on_page?.({ nextPageParam: next, response });
    if (next === undefined) return;
    // The link holds the whole query.
    call.endpoint = next;
    delete call.params;
  }
}

async function* byOffset(send: Send, call: ProxyConfiguration, how: OffsetPagination) {
  const byPage = how.offset_calculation_method === 'per-page';
  for (let offset = how.offset_start_value ?? 0; ; ) {
    place(call, how, { [how.offset_name_in_request]: offset });
    const response = await send(call);
    const items = itemsOf(response, how);
    const isLast = items.length === 0 || (how.limit !== undefined && items.length < how.limit);
    offset += byPage ? 1 : items.length;
    if (items.length > 0) yield items;
    await how.on_page?.({ nextPageParam: isLast ? undefined : offset, response });
    if (isLast) return;
  }
}

function itemsOf({ data }: ProxyResponse, { response_path }: Pagination): unknown[] {
  const items = response_path === undefined ? data : at(data, response_path);
  if (items === undefined || items === null) return [];
  if (Array.isArray(items)) return items;
  throw new TypeError(`There is no list at ${response_path ?? 'the top'} of the answer.`);
}

function nextLink({ data, headers }: ProxyResponse, how: LinkPagination): string | undefined {
  if (how.link_rel_in_response_header !== undefined) {
    return linkOf(headers.link ?? '', how.link_rel_in_response_header);
  }
  const link = how.link_path_in_response_body && at(data, how.link_path_in_response_body);
  return typeof link === 'string' && link !== '' ? link : undefined;
}

/** Of a header Link (RFC 8288) the target that has this relation. */
export function linkOf(header: string, relation: string): string | undefined {
  for (const [, target, parameters = ''] of header.matchAll(/<([^>]*)>((?:\s*;[^,;]*(?:"[^"]*")?)*)/g)) {
    const relations = /;\s*rel\s*=\s*"?([^";]*)"?/i.exec(parameters)?.[1] ?? '';
    if (relations.split(/\s+/).includes(relation)) return target;
  }
  return undefined;
}

/** Position and limit go where the provider wants them: into the query, or into the body. */
function place(call: ProxyConfiguration, { in_body }: Pagination, values: Record<string, string | number>) {
  if (in_body === true) {
    call.data = { ...(call.data as Record<string, unknown> | undefined), ...values };
  } else if (typeof call.params === 'string' || call.params instanceof URLSearchParams) {
    const params = new URLSearchParams(call.params);
    for (const [name, value] of Object.entries(values)) params.set(name, String(value));
    call.params = params;
  } else {
    call.params = { ...call.params, ...values };
  }
}
