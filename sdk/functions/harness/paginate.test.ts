import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { CursorPagination, Pagination, ProxyConfiguration, ProxyResponse } from '../http.ts';
import { at, linkOf, paginate, withAt } from './paginate.ts';

/** A provider that answers by the query, and what it was asked. */
function provider(answer: (query: URLSearchParams, call: ProxyConfiguration) => Partial<ProxyResponse>) {
  const asked: string[] = [];
  const send = async (call: ProxyConfiguration): Promise<ProxyResponse> => {
    if (asked.length === 200) throw new Error('asked without end');
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

test('pages by cursor end with the first answer without a cursor', async () => {
  const given = provider((query) => ({
    data: {
      rows: [{ n: query.get('page') ?? 'first' }],
      meta: { next: { first: 'b', b: 'c' }[query.get('page') ?? 'first'] },
    },
  }));
  const pages = await pagesOf(
    given,
    {
      type: 'cursor',
      response_path: 'rows',
      limit: 10,
      limit_name_in_request: 'size',
      cursor_name_in_request: 'page',
      cursor_path_in_response: 'meta.next',
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

const byNext: CursorPagination = {
  type: 'cursor',
  response_path: 'rows',
  cursor_name_in_request: 'c',
  cursor_path_in_response: 'next',
};

test('a cursor that the provider ignores and a circle of cursors are errors, not the end of the list', async () => {
  const passedOver = provider(() => ({ data: { rows: [1], next: 'same' } }));
  await assert.rejects(pagesOf(passedOver, byNext), /same page again, with the same cursor \(same\)/);
  assert.equal(passedOver.asked.length, 2);
  const round = provider((query) => {
    const page = Number(query.get('c') ?? 0);
    return { data: { rows: [page], next: page === 7 ? 3 : page + 1 } };
  });
  await assert.rejects(pagesOf(round, byNext), /same page again/);
  assert.ok(round.asked.length < 20, `asked ${round.asked.length} times`);
});

test('a cursor that stays the same is followed while the pages differ, up to an empty one', async () => {
  let left = 4;
  const scroll = provider(() => ({ data: { rows: left === 0 ? [] : [left--], next: 'scroll' } }));
  assert.deepEqual(await pagesOf(scroll, byNext), [[4], [3], [2], [1]]);
  assert.equal(scroll.asked.length, 5);
});

test('an empty page does not end a list, and an endless list of empty pages is an error', async () => {
  const gap = provider((query) => {
    const page = Number(query.get('c') ?? 0);
    return { data: { rows: page > 0 && page < 50 ? [] : [page], ...(page < 50 && { next: page + 1 }) } };
  });
  assert.deepEqual(await pagesOf(gap, byNext), [[0], [50]]);
  const tail = provider((query) => {
    const page = Number(query.get('c') ?? 0);
    return { data: { rows: page === 0 ? ['only'] : [], next: page + 1 } };
  });
  await assert.rejects(pagesOf(tail, byNext), /100 empty pages/);
  const waiting = provider((query) => ({
    data: { rows: query.has('c') ? [] : ['only'], next: 'what is yet to come' },
  }));
  assert.deepEqual(await pagesOf(waiting, byNext), [['only']]);
  assert.equal(waiting.asked.length, 2);
});

test('false, null and empty values mean no cursor; other types than text and number are an error', async () => {
  for (const next of [false, null, undefined, '', ' ', [], {}]) {
    const given = provider(() => ({ data: { rows: [1], next } }));
    assert.deepEqual(await pagesOf(given, byNext), [[1]]);
    assert.equal(given.asked.length, 1);
  }
  for (const next of [true, { after: 'b' }]) {
    const given = provider(() => ({ data: { rows: [1], next } }));
    await assert.rejects(pagesOf(given, byNext), /There is no cursor at next of the answer, but/);
    const linked = { type: 'link', response_path: 'rows', link_path_in_response_body: 'next' } as const;
    await assert.rejects(pagesOf(given, linked), /There is no link at next of the answer, but/);
  }
});

test('each kind of pagination requires its options', async () => {
  const given = provider(() => ({ data: [1] }));
  const { cursor_name_in_request: _, ...nameless } = byNext;
  await assert.rejects(pagesOf(given, nameless), /by cursor needs cursor_name_in_request/);
  await assert.rejects(pagesOf(given, { type: 'offset' }), /by offset needs offset_name_in_request/);
  await assert.rejects(pagesOf(given, { type: 'link' }), /by link needs link_rel_in_response_header or/);
});

test('cursor and limit of POST, PUT and PATCH are put into the body, unless the call has another setting', async () => {
  const search = () =>
    provider((query, { data }) => {
      const page = Number((data as { c?: number }).c ?? query.get('c') ?? 0);
      return { data: { rows: [page], ...(page < 2 && { next: page + 1 }) } };
    });
  for (const method of ['POST', 'put', 'PATCH'] as const) {
    const given = search();
    const paging = { ...byNext, limit: 9, limit_name_in_request: 'size' };
    assert.deepEqual(await pagesOf(given, paging, { method, data: { q: 'x' } }), [[0], [1], [2]]);
    assert.equal(given.asked[1], '/items? {"q":"x","size":9,"c":1}');
  }
  const inQuery = search();
  await pagesOf(inQuery, { ...byNext, in_body: false }, { method: 'POST', data: { q: 'x' } });
  assert.equal(inQuery.asked[1], '/items?c=1 {"q":"x"}');
});

test("a name with dots is a path in a body, as GraphQL needs it; the caller's object stays unchanged", async () => {
  const data = { query: 'q', variables: { first: 1 } };
  const given = provider((_, { data }) => {
    const page = (data as { variables: { after?: number } }).variables.after ?? 0;
    return { data: { rows: [page], ...(page < 2 && { next: page + 1 }) } };
  });
  const paging = { ...byNext, cursor_name_in_request: 'variables.after' };
  assert.deepEqual(await pagesOf(given, paging, { method: 'POST', data }), [[0], [1], [2]]);
  assert.equal(given.asked[2], '/items? {"query":"q","variables":{"first":1,"after":2}}');
  assert.deepEqual(data, { query: 'q', variables: { first: 1 } });
});

test('a form keeps its fields, and a body without fields is an error', async () => {
  const forms: string[] = [];
  const given = provider((_, { data }) => {
    forms.push(String(data));
    return { data: { rows: [forms.length], ...(forms.length < 2 && { next: 'b' }) } };
  });
  await pagesOf(given, byNext, { method: 'POST', data: new URLSearchParams({ q: 'x' }) });
  assert.deepEqual(forms, ['q=x', 'q=x&c=b']);
  const text = provider(() => ({ data: { rows: [1], next: 'b' } }));
  await assert.rejects(
    pagesOf(text, byNext, { method: 'POST', data: '{"q":"x"}' }),
    /c cannot be set in a body/,
  );
});

test('a cursor is sent in the body if the provider requires it', async () => {
  const given = provider((_, { data }) => ({
    data: { rows: [1], next: (data as { c?: string }).c === undefined ? 'n' : '' },
  }));
  await pagesOf(
    given,
    {
      type: 'cursor',
      response_path: 'rows',
      in_body: true,
      limit: 5,
      limit_name_in_request: 'size',
      cursor_name_in_request: 'c',
      cursor_path_in_response: 'next',
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

test('a link can have a name with dots, as in answers of Microsoft Graph', async () => {
  const given = provider((_, { endpoint }) => {
    const page = Number(/\d$/.exec(endpoint)?.[0] ?? 1);
    const link = { '@odata.nextLink': `https://graph.example/v1.0/users?$skiptoken=${page + 1}` };
    return { data: { '@odata.context': 'c', value: [{ id: `u${page}` }], ...(page < 3 && link) } };
  });
  const paging = {
    type: 'link',
    response_path: 'value',
    link_path_in_response_body: '@odata.nextLink',
  } as const;
  assert.deepEqual(await pagesOf(given, paging), [[{ id: 'u1' }], [{ id: 'u2' }], [{ id: 'u3' }]]);
});

test('a link is read from the body if the header has none', async () => {
  const given = provider((_, { endpoint }) => ({
    data: { rows: [endpoint], ...(endpoint === '/items' && { links: { next: '/items?page=2' } }) },
  }));
  const paging = { type: 'link', response_path: 'rows', link_rel_in_response_header: 'next' } as const;
  const pages = await pagesOf(given, { ...paging, link_path_in_response_body: 'links.next' });
  assert.deepEqual(pages, [['/items'], ['/items?page=2']]);
});

test('pages by link without a path to a list are the whole responses', async () => {
  const given = provider((_, { endpoint }) => ({
    data: { d: { results: [endpoint], ...(endpoint === '/items' && { __next: '/b' }) } },
  }));
  const pages: unknown[] = await pagesOf(given, { type: 'link', link_path_in_response_body: 'd.__next' });
  assert.deepEqual(pages, [{ d: { results: ['/items'], __next: '/b' } }, { d: { results: ['/b'] } }]);
});

test('a link to its own page ends the list, and a circle of links is an error', async () => {
  const linked = { type: 'link', response_path: 'rows', link_path_in_response_body: 'next' } as const;
  const self = provider((_, { endpoint }) => ({ data: { rows: [endpoint], next: '/items?page=2' } }));
  assert.deepEqual(await pagesOf(self, linked), [['/items'], ['/items?page=2']]);
  const round = provider((_, { endpoint }) => ({
    data: { rows: [endpoint], next: endpoint === '/b' ? '/a' : '/b' },
  }));
  await assert.rejects(pagesOf(round, linked), /same page again, with the same link/);
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

test("the pagination of the provider's definition is the default of a call", async () => {
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

test('a response without the expected list is an error', async () => {
  const given = provider(() => ({ data: { rows: 'none' } }));
  await assert.rejects(pagesOf(given, { type: 'link', response_path: 'rows' }), /no list at rows/);
  const atTop = provider(() => ({ data: [1] }));
  await assert.rejects(pagesOf(atTop, byNext), /no list at rows/);
  const page = provider(() => ({ data: '<html>Back soon</html>' }));
  await assert.rejects(pagesOf(page, byNext), /no list at rows/);
  const failing = provider(() => ({ data: { ok: false, error: 'internal_error' } }));
  await assert.rejects(pagesOf(failing, byNext), /answered that it failed: internal_error/);
  const empty = provider(() => ({ data: '' }));
  assert.deepEqual(await pagesOf(empty, byNext), []);
});

test('a header Link is read by relation, with several links, with parameters, and if it is empty', () => {
  const header = '<https://a.example/1>; rel="prev first", <https://a.example/3>; title="a; b"; rel=next';
  assert.equal(linkOf(header, 'next'), 'https://a.example/3');
  assert.equal(linkOf(header, 'first'), 'https://a.example/1');
  assert.equal(linkOf('', 'next'), undefined);
});

test('a path leads through objects and lists, and never through inherited properties', () => {
  assert.equal(at({ a: [{ b: 1 }] }, 'a[0].b'), 1);
  assert.equal(at({ a: null }, 'a.b'), undefined);
  assert.equal(at({}, 'constructor.name'), undefined);
  assert.deepEqual(at([1], ''), [1]);
  assert.equal(at({ a: { 'b.c': 1, b: { c: 2 } } }, 'a.b.c'), 1);
  assert.equal(at({ 'a[0]': 1, a: [2] }, 'a[0]'), 1);
});

test('a path is set in a copy; an existing key with the same dots has priority', () => {
  assert.deepEqual(withAt({ a: null }, 'a.b.c', 1), { a: { b: { c: 1 } } });
  assert.deepEqual(withAt({ 'a.b': 0, a: { d: 2 } }, 'a.b', 1), { 'a.b': 1, a: { d: 2 } });
  assert.throws(() => withAt({ a: 'text' }, 'a.b', 1), /No value can be set at a.b: a is not an object/);
});

test("options that a call omits come from the provider's definition, unless the kind of pagination differs", async () => {
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
