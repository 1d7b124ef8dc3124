// In a process of its own: it measures memory.
// Slow: it exports many records.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { after, before, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { hangUpHalfWay } from '../../test/support/hang-up.ts';
import type { WirePage } from '../../test/support/records.ts';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { portionRecords } from './read/page.ts';

let trellis: TestTrellis;
let given: Awaited<ReturnType<typeof connect>>;
before(async () => {
  trellis = await openTrellis();
  given = await connect(trellis);
});
after(() => trellis.close());

async function save(model: string, count: number, text = ''): Promise<void> {
  for (let from = 1; from <= count; from += 5000) {
    const records = Array.from({ length: Math.min(5000, count - from + 1) }, (_, index) => ({
      id: `r${from + index}`,
      n: from + index,
      text,
    }));
    const saved = await trellis.call('POST', '/records', {
      headers: given.headers,
      body: { model, records },
    });
    assert.equal(saved.status, 200, saved.text);
  }
}

/** The answer, not read yet. */
async function open(query: string): Promise<IncomingMessage> {
  const request = get(`${trellis.baseUrl}/records/export?${query}`, {
    headers: { ...given.headers, authorization: `Bearer ${trellis.keys.dev}` },
    agent: false,
  });
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return answer;
}

type Line = { id?: string; _trellis_export?: { count: number; next_cursor: string | null } };

/** All whole lines of an answer, and whether it came to its end. */
async function read(answer: IncomingMessage): Promise<{ lines: Line[]; isWhole: boolean }> {
  let text = '';
  let isWhole = true;
  try {
    for await (const chunk of answer.setEncoding('utf8')) text += chunk;
  } catch {
    isWhole = false;
  }
  const parts = text.split('\n');
  parts.pop();
  return { lines: parts.map((line) => JSON.parse(line)), isWhole };
}

test('an export holds each record as a list shows it, and ends with its count and where to go on', async () => {
  await save('Whole', 1203);
  const answer = await open('model=Whole');
  assert.equal(answer.headers['content-type'], 'application/x-ndjson');
  const { lines, isWhole } = await read(answer);
  assert.equal(isWhole, true);
  const list = await trellis.call('GET', '/records?model=Whole&limit=10000', { headers: given.headers });
  const { records } = list.body as unknown as WirePage;
  assert.deepEqual(lines.slice(0, -1), records);
  const next_cursor = records.at(-1)?._trellis_metadata.cursor ?? null;
  assert.deepEqual(lines.at(-1), { _trellis_export: { count: 1203, next_cursor } });

  await save('Whole', 2, 'changed');
  const more = await read(await open(`model=Whole&cursor=${next_cursor}`));
  assert.deepEqual(
    more.lines.slice(0, -1).map(({ id }) => id),
    ['r1', 'r2'],
  );
  const again = await read(
    await open(`model=Whole&cursor=${more.lines.at(-1)?._trellis_export?.next_cursor}`),
  );
  assert.deepEqual(
    again.lines,
    [more.lines.at(-1)].map((line) => ({
      _trellis_export: { count: 0, next_cursor: line?._trellis_export?.next_cursor },
    })),
  );
});

test('an export of nothing is its last line', async () => {
  const { lines } = await read(await open('model=Never'));
  assert.deepEqual(lines, [{ _trellis_export: { count: 0, next_cursor: null } }]);
});

test('an invalid request gets an error, not a broken export', async () => {
  await save('Other', 1);
  const of = async (query: string) => {
    const answer = await trellis.call('GET', `/records/export?${query}`, { headers: given.headers });
    return [answer.status, (answer.body.error as { code?: string } | undefined)?.code];
  };
  assert.deepEqual(await of('model=Other&cursor=nonsense'), [400, 'invalid_cursor']);
  assert.deepEqual(await of('model=Other&limit=3'), [400, 'invalid_query_params']);
  assert.deepEqual(await of('model=/'), [400, 'invalid_query_params']);
});

test('a slow reader stops the service from reading ahead: the buffered data stay bounded', async () => {
  await save('Large', 50_000, 'x'.repeat(900));
  let portions = 0;
  const { pipeline, records } = trellis.db;
  // Also on a cluster it reads by this pool.
  Object.assign(trellis.db, { records: undefined });
  trellis.db.pipeline = (statements) => {
    portions += 1;
    return pipeline(statements);
  };
  try {
    const answer = await open('model=Large');
    let received = 0;
    let maxAhead = 0;
    let tail = '';
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      received += chunk.length;
      tail = (tail + chunk.toString('latin1')).slice(-300);
      // A reader in no hurry: what does not wait for it runs ahead now.
      for (let turn = 0; turn < 20; turn++) await nextTurn();
      maxAhead = Math.max(maxAhead, portions * portionRecords - received / 1150);
    }
    assert.match(tail, /"_trellis_export":\{"count":50000,/);
    assert.equal(portions, 50_000 / portionRecords);
    // In records: two portions, and what the kernel holds for a loopback socket, at most some 10 MB.
    assert.ok(maxAhead < 15_000, `read ${maxAhead} records ahead`);
  } finally {
    Object.assign(trellis.db, { pipeline, records });
  }
});

test('an export holds a few portions in memory, however large the dataset is', async () => {
  // 50,000 records of 900 bytes, as the slow reader left them: some 50 MB.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const held = () => {
    // What the first one finds to be garbage may hold memory outside the heap, which the second one gives back.
    collect();
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return (heapUsed + external) / 1024 / 1024;
  };
  const before = held();
  let max = 0;
  let received = 0;
  let looked = 0;
  for await (const chunk of (await open('model=Large')) as AsyncIterable<Buffer>) {
    received += chunk.length;
    if (received - looked < 5_000_000) continue;
    looked = received;
    max = Math.max(max, held() - before);
  }
  assert.ok(received > 50_000_000);
  assert.ok(max < 32, `${max.toFixed(1)} MB`);
});

test('an export that breaks off half-way has no last line, and its response is incomplete', async () => {
  await save('Broken', 3000);
  // A payload that does not open: the second page cannot be written.
  await trellis.db.query(
    `update payload
     set body = substring(body from 1 for 20)
     from dataset
     where dataset.id = payload.dataset_id and dataset.model = 'Broken' and payload.seq = 1700`,
  );
  const { lines, isWhole } = await read(await open('model=Broken'));
  assert.equal(isWhole, false);
  assert.ok(lines.length <= 1699, `${lines.length} lines`);
  assert.ok(lines.every((line) => line._trellis_export === undefined));
});

test('after a reader disconnects half-way nothing keeps running', async () => {
  await hangUpHalfWay(trellis, () => open('model=Large'));
  const { lines } = await read(await open('model=Whole'));
  assert.ok(lines.at(-1)?._trellis_export);
});

test('an export ends with its connection: deleted half-way, it has no last line', async () => {
  const doomed = await connect(trellis, { account: 'grace@example.com' });
  const records = Array.from({ length: 10_000 }, (_, index) => ({ id: `r${index}`, text: 'x'.repeat(2500) }));
  await trellis.call('POST', '/records', { headers: doomed.headers, body: { model: 'Doomed', records } });
  const request = get(`${trellis.baseUrl}/records/export?model=Doomed`, {
    headers: { ...doomed.headers, authorization: `Bearer ${trellis.keys.dev}` },
    agent: false,
  });
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  await once(answer, 'readable');
  await trellis.call(
    'DELETE',
    `/connections/${doomed.connectionId}?provider_config_key=${doomed.integration}`,
  );
  const { lines, isWhole } = await read(answer);
  assert.equal(isWhole, false);
  assert.ok(lines.every((line) => line._trellis_export === undefined));
});
