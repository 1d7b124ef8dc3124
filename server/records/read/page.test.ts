// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { after, before, test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { hangUpHalfWay } from '../../../test/support/hang-up.ts';
import type { WirePage } from '../../../test/support/records.ts';
import { connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';
import { portionRecords } from './page.ts';

let trellis: TestTrellis;
let given: Awaited<ReturnType<typeof connect>>;
before(async () => {
  trellis = await openTrellis();
  given = await connect(trellis);
});
after(() => trellis.close());

const count = 6 * portionRecords;

async function save(model: string, of: { headers: Record<string, string>; text?: string }): Promise<void> {
  const records = Array.from({ length: count }, (_, n) => ({ id: `r${n + 1}`, n, text: of.text }));
  const saved = await trellis.call('POST', '/records', { headers: of.headers, body: { model, records } });
  assert.equal(saved.status, 200, saved.text);
}

/** The answer to a list of 10,000, not read yet. */
async function open(model: string, headers = given.headers): Promise<IncomingMessage> {
  const request = get(`${trellis.baseUrl}/records?model=${model}&limit=10000`, {
    headers: { ...headers, authorization: `Bearer ${trellis.keys.dev}` },
    agent: false,
  });
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return answer;
}

async function isWhole(answer: IncomingMessage): Promise<boolean> {
  try {
    for await (const _ of answer);
    return true;
  } catch {
    return false;
  }
}

/** Calls `work` and counts the portions that are read meanwhile. */
async function countPortions(work: (portions: () => number) => Promise<void>): Promise<void> {
  const { pipeline, records } = trellis.db;
  let portions = 0;
  Object.assign(trellis.db, { records: undefined });
  trellis.db.pipeline = (statements) => {
    portions += 1;
    return pipeline(statements);
  };
  try {
    await work(() => portions);
  } finally {
    Object.assign(trellis.db, { pipeline, records });
  }
}

test('a page of many portions holds each record once, in order, each portion read once', async () => {
  await save('Whole', given);
  await countPortions(async (portions) => {
    const answer = await trellis.call('GET', '/records?model=Whole&limit=10000', { headers: given.headers });
    const { records, next_cursor } = answer.body as unknown as WirePage;
    assert.deepEqual(
      records.map(({ id, n }) => [id, n]),
      Array.from({ length: count }, (_, n) => [`r${n + 1}`, n]),
    );
    assert.equal(next_cursor, null);
    assert.equal(portions(), count / portionRecords, 'none is read beyond the last');
  });
});

test('a reader that takes nothing keeps the service from reading on', async () => {
  // More than the sockets of both sides hold, and no more than a page: a portion is 2 MB.
  await save('Slow', { ...given, text: 'x'.repeat(5000) });
  await countPortions(async (portions) => {
    const answer = await open('Slow');
    for (let turn = 0; turn < 2000; turn += 1) await nextTurn();
    const waiting = portions();
    assert.equal(await isWhole(answer), true);
    assert.ok(waiting < portions(), `${waiting} of ${portions()} portions were read`);
  });
});

test('a fault in a later portion breaks the answer off', async () => {
  await save('Broken', given);
  await trellis.db.query(
    `update payload
     set body = substring(body from 1 for 20)
     from dataset
     where dataset.id = payload.dataset_id and dataset.model = 'Broken' and payload.seq = $1`,
    [2 * portionRecords + 10],
  );
  assert.equal(await isWhole(await open('Broken')), false);
  assert.equal(await isWhole(await open('Whole')), true);
});

test('a page ends with its connection: deleted half-way, it breaks off', async () => {
  const doomed = await connect(trellis, { account: 'grace@example.com' });
  await save('Doomed', { ...doomed, text: 'x'.repeat(4000) });
  const answer = await open('Doomed', doomed.headers);
  await once(answer, 'readable');
  await trellis.call(
    'DELETE',
    `/connections/${doomed.connectionId}?provider_config_key=${doomed.integration}`,
  );
  assert.equal(await isWhole(answer), false);
});

test('a reader that hangs up half-way frees its database connection, and no more is read', async () => {
  await countPortions(async (portions) => {
    await hangUpHalfWay(trellis, () => open('Slow'));
    const left = portions();
    for (let turn = 0; turn < 200; turn += 1) await nextTurn();
    assert.equal(portions(), left);
    assert.ok(left < 6, `${left} portions were read`);
  });
});
