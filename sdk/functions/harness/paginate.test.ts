import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pagination, ProxyConfiguration, ProxyResponse } from '../http.ts';
import { linkOf, paginate } from './paginate.ts';
import { at } from './path.ts';

/** A provider that answers by the query, and what it was asked. */
function provider(answer: (query: URLSearchParams, call: ProxyConfiguration) => Partial<ProxyResponse>) {
  const asked: string[] = [];
  const send = async (call: ProxyConfiguration): Promise<ProxyResponse> => {
    const query = new URLSearchParams(call.params as Record<string, string> | undefined);
    asked.push(`${call.endpoint}?${query}${call.data === undefined ? '' : ` ${JSON.stringify(call.data)}`}`);
    return {
      status: 200,
      statusText: 'OK',
      headers: {},
      config: call,
      data: undefined,
      ...answer(query, call),
    };
  };
  return { asked, send };
}

async function pagesOf(
  given: ReturnType<typeof provider>,
  paging: Partial<Pagination>,
  more: Partial<ProxyConfiguration> = {},
) {
  return Array.fromAsync(paginate(given.send, { endpoint: '/items', ...more, paginate: paging }));
}

test('pages by cursor end where no cursor comes', async () => {
  const given = provider((query) => ({
    data: {
      rows: [{ n: query.get('page') ?? 'first' }],
      meta: { next: { first: 'b', b: 'c' }[query.get('page') ?? 'first'] },
    },
  }));
  const pages = await pagesOf(
    given,
    {
      ...{ type: 'cursor', response_path: 'rows', limit: 10, limit_name_in_request: 'size' },
      ...{ cursor_name_in_request: 'page', cursor_path_in_response: 'meta.next' },
    },
    { params: { q: 'x' } },
  );
  assert.deepEqual(pages, [[{ n: 'first' }], [{ n: 'b' }], [{ n: 'c' }]]);
  assert.deepEqual(given.asked, [
    '/items?q=x&size=10',
    '/items?q=x&size=10&page=b',
    '/items?q=x&size=10&page=c',
  ]);
});

test('a cursor that does not move on ends the pages', async () => {
  const given = provider(() => ({ data: { rows: [1], next: 'same' } }));
  const pages = await pagesOf(given, {
    ...{
      type: 'cursor',
      response_path: 'rows',
      cursor_name_in_request: 'c',
      cursor_path_in_response: 'next',
    },
  });
  assert.equal(pages.length, 2);
});

test('a cursor goes into the body where the provider wants it there', async () => {
  const given = provider((_, { data }) => ({
    data: { rows: [1], next: (data as { c?: string }).c === undefined ? 'n' : '' },
  }));
  await pagesOf(
    given,
    {
      ...{ type: 'cursor', response_path: 'rows', in_body: true, limit: 5, limit_name_in_request: 'size' },
      ...{ cursor_name_in_request: 'c', cursor_path_in_response: 'next' },
    },
    { method: 'POST', data: { kind: 'row' } },
  );
  assert.deepEqual(given.asked, [
    '/items? {"kind":"row","size":5}',
    '/items? {"kind":"row","size":5,"c":"n"}',
  ]);
});

test('pages by link follow the header Link, an empty page included', async () => {
  const given = provider((_, { endpoint }) => ({
    data: endpoint === '/items' ? [] : [1],
    headers: endpoint === '/items' ? { link: '<https://api.example/items?page=2>; rel="next"' } : {},
  }));
  const pages = await pagesOf(
    given,
    { type: 'link', link_rel_in_response_header: 'next' },
    { params: { a: 1 } },
  );
  assert.deepEqual(pages, [[], [1]]);
  assert.deepEqual(given.asked, ['/items?a=1', 'https://api.example/items?page=2?']);
});

test('pages by offset count items or pages, and end with one that is not full', async () => {
  const rows = Array.from({ length: 5 }, (_, index) => index);
  const byItem = provider((query) => ({
    data: rows.slice(Number(query.get('skip')), Number(query.get('skip')) + 2),
  }));
  const paging = {
    type: 'offset',
    limit: 2,
    limit_name_in_request: 'take',
    offset_name_in_request: 'skip',
  } as const;
  assert.deepEqual(await pagesOf(byItem, paging), [[0, 1], [2, 3], [4]]);
  const byPage = provider((query) => {
    const from = (Number(query.get('skip')) - 1) * 2;
    return { data: rows.slice(from, from + 2) };
  });
  const counted = { ...paging, offset_start_value: 1, offset_calculation_method: 'per-page' } as const;
  assert.deepEqual(await pagesOf(byPage, counted), [[0, 1], [2, 3], [4]]);
  assert.deepEqual(
    byPage.asked.map((line) => line.at(-1)),
    ['1', '2', '3'],
  );
});

test("what the provider's definition says of pages counts where the call says nothing", async () => {
  const given = provider(() => ({ data: { list: [1] } }));
  const usual = {
    type: 'cursor',
    response_path: 'list',
    cursor_name_in_request: 'c',
    cursor_path_in_response: 'n',
  };
  assert.deepEqual(await Array.fromAsync(paginate(given.send, { endpoint: '/x' }, usual)), [[1]]);
  await assert.rejects(Array.fromAsync(paginate(given.send, { endpoint: '/x' })), /needs a type/);
});

test('an answer without a list where one was promised is told', async () => {
  const given = provider(() => ({ data: { rows: 'none' } }));
  await assert.rejects(pagesOf(given, { type: 'link', response_path: 'rows' }), /no list at rows/);
});

test('a header Link is read by relation, with several, with parameters, and where it says nothing', () => {
  const header = '<https://a.example/1>; rel="prev first", <https://a.example/3>; title="a; b"; rel=next';
  assert.equal(linkOf(header, 'next'), 'https://a.example/3');
  assert.equal(linkOf(header, 'first'), 'https://a.example/1');
  assert.equal(linkOf('', 'next'), undefined);
});

test('a path leads through objects and lists, and nowhere through what is inherited', () => {
  assert.equal(at({ a: [{ b: 1 }] }, 'a[0].b'), 1);
  assert.equal(at({ a: null }, 'a.b'), undefined);
  assert.equal(at({}, 'constructor.name'), undefined);
  assert.deepEqual(at([1], ''), [1]);
});

test('what a call leaves out is as the provider has it, unless it turns pages in another way', async () => {
  const usual = { type: 'cursor', cursor_path_in_response: 'next', cursor_name_in_request: 'page', limit: 2 };
  const pagesBy = async (own?: Partial<Pagination>) => {
    const given = provider((query) => ({
      data: { rows: [1], next: query.get('page') === null ? 'b' : undefined },
    }));
    const call = { endpoint: '/items', ...(own && { paginate: own }) };
    const pages = await Array.fromAsync(paginate(given.send, call, usual));
    return [pages.length, given.asked];
  };
  assert.deepEqual(await pagesBy({ response_path: 'rows' }), [2, ['/items?', '/items?page=b']]);
  assert.deepEqual(await pagesBy({ response_path: 'rows', limit_name_in_request: 'n' }), [
    2,
    ['/items?n=2', '/items?n=2&page=b'],
  ]);
  // A limit of the provider's would end it after one item.
  const offset = { type: 'offset', offset_name_in_request: 'from', response_path: 'rows' } as const;
  const given = provider((query) => ({ data: { rows: query.get('from') === '2' ? [] : [1] } }));
  const call = { endpoint: '/items', paginate: offset };
  assert.equal((await Array.fromAsync(paginate(given.send, call, usual))).length, 2);
});
