// In a process of its own: it measures memory.
// Slow: it exports many rows.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type ClientRequest, get, type IncomingMessage } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { after, before, beforeEach, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { z } from 'zod';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import type { Caller } from './auth/caller.ts';
import type { ExportLimits } from './list-exports.ts';
import { type App, createHttp } from './server.ts';

type Row = {
  id: string;
  place: { city: string; zip?: string | undefined } | null;
  more?: unknown;
  late?: string;
  count?: number;
};

const owner: Caller = {
  ...({ kind: 'key', environmentId: 1, environment: 'dev', keyId: 1 } as const),
  scopes: new Set(['records:read']),
};
const viewer: Caller = {
  ...({ kind: 'user', environmentId: 3, environment: 'stage', userId: 'u', role: 'viewer' } as const),
  scopes: new Set(['records:read']),
};
const callers: Record<string, Caller> = {
  'key-of-dev': owner,
  'key-of-prod': { ...owner, environmentId: 2, environment: 'prod' },
  'key-of-test': { ...owner, environmentId: 3, environment: 'test' },
  'cookie-of-viewer': viewer,
};

let app: App;
let port: number;
/** Another service, which waits only for a moment for its clients. */
let impatient: { app: App; port: number };
/** The lines of the log that report something unexpected. */
let lines: string[] = [];
/** The list, and what happens before a page of it is returned. */
let rows: Row[] = [];
let pages = 0;
let beforePage: (page: number) => unknown = () => {};
let beforeCall: () => void = () => {};

before(async () => {
  ({ app, port } = await openApp({}));
  impatient = await openApp({ stallMs: 100 });
});

async function openApp(exports: Partial<ExportLimits>): Promise<{ app: App; port: number }> {
  const opened = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost:3003' },
    log: createLog({ level: 'warn', format: 'json' }, { write: (line) => void lines.push(line) }),
    authenticate: {
      async key(secret) {
        const caller = callers[secret];
        if (caller === undefined) throw new AppError('unknown_account');
        return caller;
      },
      async session() {
        throw new AppError('unknown_connect_session_token');
      },
    },
    isRootAlias: () => false,
    limits: {
      exports: { perEnvironment: 1, perNode: 2, ...exports },
      rates: {
        takeOf() {
          beforeCall();
          return {};
        },
        takeAt: () => ({}),
      },
    },
  });
  const access = { by: 'key', scope: 'records:read', viewers: 'without exports' } as const;
  const row = z.looseObject({
    id: z.string(),
    place: z.object({ city: z.string(), zip: z.string().optional() }).nullable(),
  });
  opened.get(
    '/rows',
    {
      config: { access },
      schema: {
        list: { items: 'rows', by: { parameter: 'after', next: 'next_after' } },
        querystring: z.strictObject({
          after: z.coerce.number().int().default(0),
          limit: z.coerce.number().int().min(1).max(500).default(10),
          search: z.string().optional(),
        }),
        response: {
          200: z.object({ rows: z.array(row), next_after: z.number().nullable() }),
        },
      },
    },
    async ({ query: { after, limit, search = '' } }) => {
      pages += 1;
      await beforePage(pages);
      const next = after + limit < rows.length ? after + limit : null;
      const found = rows.slice(after, after + limit).filter(({ id }) => id.includes(search));
      return { rows: found, next_after: next };
    },
  );
  const size = z.coerce.number().int().min(1).max(1_000);
  opened.get(
    '/places',
    {
      config: { access },
      schema: {
        list: {
          items: 'rows',
          by: 'page',
          sizes: { first: 100, following: 100 },
          positions: { parameter: 'before', last: 'last' },
        },
        querystring: z.strictObject({
          limit: size.optional(),
          page: z.coerce.number().int().default(0),
          before: z.string().optional(),
        }),
        response: { 200: z.object({ rows: z.array(row) }) },
      },
    },
    async ({ query: { limit = 100, before } }) => {
      const start = before === undefined ? 0 : Number(before.slice(1));
      return { rows: rows.slice(start, start + limit), last: `p${start + limit}` };
    },
  );
  opened.get(
    '/feed',
    {
      config: { access },
      schema: {
        list: { items: 'rows', by: { parameter: 'after', next: 'next_after', isFeed: true } },
        querystring: z.strictObject({
          after: z.coerce.number().int().default(0),
          limit: size.default(10),
          wait: z.coerce.number().default(0),
        }),
        response: { 200: z.object({ rows: z.array(row), next_after: z.number() }) },
      },
    },
    async ({ query: { after, limit } }) => {
      pages += 1;
      const found = rows.slice(after, after + limit);
      // Entries are added all the time.
      rows.push(...numbered(1));
      return { rows: found, next_after: after + found.length };
    },
  );
  await opened.listen({ host: '127.0.0.1', port: 0 });
  return { app: opened, port: (opened.server.address() as AddressInfo).port };
}

after(() => Promise.all([app.close(), impatient.app.close()]));
beforeEach(() => {
  rows = [];
  pages = 0;
  lines = [];
  beforePage = () => {};
  beforeCall = () => {};
});

const ndjson = 'application/x-ndjson';
type Asked = { path?: string; query?: string; key?: string; at?: number };
const requestOf = (
  accept: string,
  { path = '/rows', query = '', key = 'key-of-dev', at = port }: Asked = {},
): ClientRequest =>
  get(`http://127.0.0.1:${at}${path}${query}`, {
    headers: { accept, authorization: `Bearer ${key}` },
    agent: false,
  });

async function open(accept: string, given: Asked = {}): Promise<IncomingMessage> {
  const [answer] = (await once(requestOf(accept, given), 'response')) as [IncomingMessage];
  return answer;
}

/** The text of an answer, and whether it came to its end. */
async function read(answer: IncomingMessage): Promise<{ text: string; isWhole: boolean }> {
  let text = '';
  try {
    for await (const chunk of answer.setEncoding('utf8')) text += chunk;
    return { text, isWhole: answer.complete };
  } catch {
    return { text, isWhole: false };
  }
}

const numbered = (count: number, more: Partial<Row> = {}): Row[] =>
  Array.from({ length: count }, (_, index) => ({ id: `row-${index}`, place: null, ...more }));

test('an export has the entries of all pages, under the filters of the list', async () => {
  rows = numbered(1_203);
  const answer = await open(ndjson);
  assert.equal(answer.headers['content-type'], ndjson);
  assert.match(
    String(answer.headers['content-disposition']),
    /^attachment; filename="rows-\d{4}-\d\d-\d\d\.ndjson"$/,
  );
  const { text, isWhole } = await read(answer);
  assert.equal(isWhole, true);
  const lines = text.trimEnd().split('\n');
  assert.deepEqual(
    lines.slice(0, -1).map((line) => JSON.parse(line)),
    rows,
  );
  assert.deepEqual(JSON.parse(lines.at(-1)!), { _trellis_export: { count: 1_203 } });
  assert.equal(pages, 3);

  const some = await read(
    await open(`${ndjson}, application/json;q=0.5`, { query: '?search=row-11&after=1' }),
  );
  assert.equal(
    some.text.trimEnd().split('\n').length,
    rows.filter(({ id }) => id.includes('row-11')).length + 1,
  );

  const page = await open(`application/json, ${ndjson}`);
  assert.match(String(page.headers['content-type']), /^application\/json/);
  assert.equal(JSON.parse((await read(page)).text).rows.length, 10);
});

test('CSV has a column for each field, and no cell that a spreadsheet would run', async () => {
  rows = [
    { id: '=1+1', place: { city: 'Rome, "the" city', zip: '-5' }, more: -5 },
    { id: '@sum', place: null, more: { deep: true } },
    ...numbered(500),
    { id: 'a;=2+2', place: { city: 'Zoë\nLine' }, more: '\tx', late: '+1', count: 2 },
  ];
  const answer = await open('text/csv');
  assert.equal(answer.headers['content-type'], 'text/csv; charset=utf-8');
  assert.match(String(answer.headers['content-disposition']), /\.csv"$/);
  const lines = (await read(answer)).text.split('\r\n');
  assert.deepEqual(lines.slice(0, 4), [
    'id,place.city,place.zip,more,other_fields',
    `'=1+1,"Rome, ""the"" city",'-5,-5,`,
    `'@sum,,,"{""deep"":true}",`,
    'row-0,,,,',
  ]);
  assert.deepEqual(lines.slice(-2), [`"a;=2+2","Zoë\nLine",,"'\tx","{""late"":""+1"",""count"":2}"`, '']);
  rows = [];
  assert.equal((await read(await open('text/csv'))).text, 'id,place.city,place.zip,other_fields\r\n');
});

test('a fault of a later page breaks the connection, so that the file does not seem whole', async () => {
  rows = numbered(2_000);
  for (const accept of [ndjson, 'text/csv']) {
    beforePage = (page) => {
      if (page === 3) throw new Error('broken');
    };
    pages = 0;
    const { text, isWhole } = await read(await open(accept));
    assert.equal(isWhole, false);
    assert.match(text, /row-999/);
    assert.doesNotMatch(text, /row-1000|_trellis_export/);
  }
});

test('a caller that loses its access meanwhile gets no further page', async () => {
  rows = numbered(2_000);
  beforePage = (page) => {
    if (page === 2) delete callers['key-of-test'];
  };
  const { text, isWhole } = await read(await open(ndjson, { key: 'key-of-test' }));
  callers['key-of-test'] = { ...owner, environmentId: 3 };
  assert.equal(isWhole, false);
  assert.doesNotMatch(text, /row-1000/);
});

test('a request that the list refuses gets the error of the list', async () => {
  const refusalOf = async (query: string, key?: string) => {
    const answer = await open(ndjson, { query, ...(key && { key }) });
    const { error } = JSON.parse((await read(answer)).text);
    return [answer.statusCode, error.code, error.errors?.[0]?.path[0]];
  };
  assert.deepEqual(await refusalOf('?cursor=nonsense'), [400, 'invalid_query_params', 'cursor']);
  assert.deepEqual(await refusalOf('?wrong=1'), [400, 'invalid_query_params', undefined]);
  assert.deepEqual(await refusalOf('?limit=10'), [400, 'invalid_query_params', 'limit']);
  assert.deepEqual(await refusalOf('', 'unknown'), [401, 'unknown_account', undefined]);
  assert.deepEqual(await refusalOf('', 'cookie-of-viewer'), [403, 'forbidden', undefined]);
});

test('an export whose caller used up its calls waits, and is whole', async () => {
  rows = numbered(1_500);
  let calls = 0;
  beforeCall = () => {
    calls += 1;
    if (calls === 3) throw new AppError('too_many_requests', undefined, { retryAfterS: 1 });
  };
  const { text, isWhole } = await read(await open(ndjson));
  assert.equal(isWhole, true);
  assert.match(text, /"count":1500/);
  assert.ok(calls > 4);
});

test('few exports run at once: one of an environment and two of the node here', async () => {
  rows = numbered(1_000);
  let release = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  beforePage = () => held;
  const first = open(ndjson);
  const second = open(ndjson, { key: 'key-of-prod' });
  while (pages < 2) await nextTurn();
  for (const key of ['key-of-dev', 'key-of-test']) {
    const refused = await open(ndjson, { key });
    assert.equal(refused.statusCode, 429);
    assert.ok(Number(refused.headers['retry-after']) > 0);
    refused.resume();
  }
  release();
  for (const one of [first, second]) assert.equal((await read(await one)).isWhole, true);
  assert.equal((await read(await open(ndjson))).isWhole, true);
});

test('an export ends when its client goes, and its place is free', async () => {
  rows = numbered(100_000, { more: 'x'.repeat(1_000) });
  (await open(ndjson)).destroy();
  const next = await openWhenFree(port);
  assert.ok(pages < 150, `${pages} pages`);
  next.destroy();
  (await openWhenFree(port)).destroy();
});

test('an export whose client goes while it looks for entries reads no further page, and logs nothing', async () => {
  rows = numbered(50_000);
  const gone = new Promise<void>((resolve) => {
    app.server.once('connection', (socket: Socket) => socket.once('close', () => resolve()));
  });
  beforePage = (page) => (page === 3 ? gone : undefined);
  const answer = await open(ndjson, { query: '?search=row-0&after=0' });
  const [first] = (await once(answer, 'data')) as [Buffer];
  assert.match(String(first), /"row-0"/);
  answer.destroy();
  await gone;
  (await openWhenFree(port, '?after=49999')).destroy();
  assert.ok(pages < 10, `${pages} pages`);
  assert.deepEqual(lines, []);
});

test('an export whose client goes during the first page releases its place, and logs nothing', async () => {
  rows = numbered(1_000);
  const gone = new Promise<void>((resolve) => {
    app.server.once('connection', (socket: Socket) => socket.once('close', () => resolve()));
  });
  beforePage = () => gone;
  const request = requestOf(ndjson).on('error', () => {});
  while (pages < 1) await nextTurn();
  request.destroy();
  await gone;
  (await openWhenFree(port)).destroy();
  assert.deepEqual(lines, []);
});

test('an export goes on from the position of its caller, and ends at the end of a feed', async () => {
  rows = numbered(2_503);
  const { text, isWhole } = await read(await open(ndjson, { path: '/places', query: '?before=p100' }));
  assert.equal(isWhole, true);
  assert.match(text, /^\{"id":"row-100",.*"count":2403\}\}\n$/s);

  pages = 0;
  const feed = await read(await open(ndjson, { path: '/feed', query: '?after=3' }));
  assert.equal(feed.isWhole, true);
  assert.match(feed.text, /"count":2502\}/);
  assert.equal(pages, 3);
  const refused = await open(ndjson, { path: '/feed', query: '?wait=5' });
  assert.equal(refused.statusCode, 400);
  refused.resume();
});

test('an export is cut off when its client accepts nothing, and its place is free', async () => {
  rows = numbered(100_000, { more: 'x'.repeat(1_000) });
  const stalled = await open(ndjson, { at: impatient.port });
  (await openWhenFree(impatient.port)).destroy();
  assert.equal((await read(stalled)).isWhole, false);
});

/** Opens an export as soon as the one before has released its place. */
async function openWhenFree(at: number, query = ''): Promise<IncomingMessage> {
  for (;;) {
    const answer = await open(ndjson, { at, query });
    if (answer.statusCode === 200) return answer;
    answer.resume();
  }
}

test('100,000 rows for a slow reader: the service reads a few pages ahead and holds no more in memory', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  rows = numbered(100_000, { more: 'x'.repeat(1_000) });
  const heldMb = () => {
    collect();
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return (heapUsed + external) / 1024 / 1024;
  };
  for (const accept of [ndjson, 'text/csv']) {
    pages = 0;
    let received = 0;
    let looked = 0;
    let maxAhead = 0;
    let maxMb = 0;
    const answer = await open(accept);
    const start = heldMb();
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      received += chunk.length;
      for (let turn = 0; turn < 20; turn++) await nextTurn();
      maxAhead = Math.max(maxAhead, pages - received / 1_010 / 500);
      if (received - looked < 10_000_000) continue;
      looked = received;
      maxMb = Math.max(maxMb, heldMb() - start);
    }
    assert.equal(answer.complete, true);
    assert.equal(pages, 200);
    assert.ok(received > 100_000_000);
    // In pages of half a megabyte: two, and what the kernel holds for a loopback socket, at most some 10 MB.
    assert.ok(maxAhead < 30, `${maxAhead} pages ahead`);
    assert.ok(maxMb < 32, `${maxMb.toFixed(1)} MB`);
  }
});
