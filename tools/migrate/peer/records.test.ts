import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { destroyConnection } from '../../../server/connections/store/save.ts';
import { raisePositions } from '../../../server/ops/backup/positions.ts';
import { checkRecords } from '../../../server/records/codec/check.ts';
import { findDataset } from '../../../server/records/dataset.ts';
import { setDatasetSettings } from '../../../server/records/datasets.ts';
import { listRecords } from '../../../server/records/read/list.ts';
import { createScratchBuffer } from '../../../server/records/read/portion.ts';
import { findConsumer } from '../../../server/records/retention/consumers.ts';
import { emptyDataset } from '../../../server/records/write/delete.ts';
import { saveRecords } from '../../../server/records/write/save.ts';
import type { PeerStandIn } from '../../../test/support/peer.ts';
import { cursorOf, type PeerRecord, peerConnection } from '../../../test/support/peer-bodies.ts';
import { type Installation, type Move, openMove } from '../migrate.fixture.ts';
import type { Report } from '../report.ts';
import { keyOfDataset, type Position, readPositions } from './records.ts';
import { type PeerRun, runPeer } from './run.ts';

let move: Move;
let peer: PeerStandIn;
let here: Installation;
beforeEach(async () => {
  move = await openMove('sheets');
  ({ peer, here } = move);
  peer.connections = [peerConnection({ id: 'ada', integration: 'sheets' })];
});
afterEach(() => move.close());

const some = (count: number, more: (n: number) => Partial<PeerRecord> = () => ({})): PeerRecord[] =>
  Array.from({ length: count }, (_, n) => ({
    id: `r${n}`,
    fields: { name: `Name ${n}`, n },
    // Several of a batch have one time.
    order: Math.floor(n / 7) * 1000,
    ...more(n),
  }));

const positionsOf = (given: Position, variant = 'base') =>
  new Map([[keyOfDataset({ integration: 'sheets', connection: 'ada', model: 'Row', variant }), given]]);

async function run(more: Partial<PeerRun['records'] & object> = {}): Promise<Report> {
  const records = { models: undefined, positions: new Map(), consumer: 'app', ...more };
  return (await runPeer(move.open({ records }))).report;
}

/** As a sync that runs here does. */
async function saveHere(given: PeerRecord[]) {
  const connection = (await here.find('sheets', 'ada'))!;
  // Fields in another order than the peer has them.
  const sent = given.map(({ id, fields }) => ({ n: fields.n as number, name: fields.name as string, id }));
  return saveRecords(here.db, {
    connection,
    model: 'Row',
    variant: 'base',
    restore: 'always',
    records: checkRecords(sent, { metadataKey: '_trellis_metadata', expectedBytes: 1_000 }),
  });
}

const failedOf = ({ records }: Report) => records!.failed.map(({ reason }) => reason);
const consumersOf = ({ records }: Report) => records!.consumers;

async function stored(cursor?: string, variant = 'base') {
  const connection = (await here.find('sheets', 'ada'))!;
  const scratch = createScratchBuffer();
  const at = { connection, model: 'Row', variant, limit: 10_000, maxBytes: 1e9, scratch, cursor };
  const { records } = await listRecords(here.db, at);
  return records.map(({ id, lastAction, fields, prunedAt }) => ({
    id,
    lastAction,
    fields: fields && (JSON.parse(fields.toString()) as unknown),
    prunedAt,
  }));
}

async function consumer(variant = 'base') {
  const connection = (await here.find('sheets', 'ada'))!.id;
  return findConsumer(here.db, { connection, model: 'Row', variant, name: 'app' });
}

test('records and tombstones are imported in order; pruned ones are counted and skipped', async () => {
  const records = some(650, (n) => ({
    isDeleted: n % 50 === 3,
    isPruned: n % 50 === 4,
  }));
  peer.connections[0]!.records.set('Row', records);
  peer.connections[0]!.records.set('Row::eu', some(3));
  const report = await run();
  assert.deepEqual(report.records, {
    datasets: 2,
    records: 627,
    deleted: 13,
    pruned: 13,
    unfinished: 0,
    consumers: { made: 0, existing: 0 },
    failed: [],
    differing: [],
  });
  const order = (one: PeerRecord) => cursorOf(one);
  const expected = records
    .filter(({ isPruned }) => !isPruned)
    .toSorted((one, other) => (atob(order(one)) < atob(order(other)) ? -1 : 1));
  const found = await stored();
  assert.deepEqual(found.map(({ id }) => id).toSorted(), expected.map(({ id }) => id).toSorted());
  const live = found.filter(({ lastAction }) => lastAction !== 'DELETED');
  assert.deepEqual(
    live.map(({ id }) => id),
    expected.filter(({ isDeleted }) => !isDeleted).map(({ id }) => id),
  );
  assert.deepEqual(live[0]!.fields, expected.find(({ isDeleted }) => !isDeleted)!.fields);
  assert.equal((await stored(undefined, 'eu')).length, 3);
});

test('a second run saves nothing again, and continues where the previous run was cut off', async () => {
  peer.connections[0]!.records.set(
    'Row',
    some(900, (n) => ({ isDeleted: n === 450 })),
  );
  const asked = () => peer.requests.filter(({ path }) => path === '/records').length;
  let pages = 0;
  peer.trouble = (_, path) => (path === '/records' && ++pages > 3 ? 'drop' : undefined);
  const broken = await run();
  assert.equal(broken.records!.failed.length, 1);
  peer.trouble = () => undefined;
  const before = asked();
  const report = await run();
  assert.equal(asked() - before, 2, 'the first pages were asked for again');
  assert.equal(report.records!.records, 899);
  const lastSeq = await here.db.query('select last_seq from dataset');
  await run();
  assert.deepEqual(await here.db.query('select last_seq from dataset'), lastSeq);
});

test('changes at the peer after a dataset was read come with the next run, before a position is set', async () => {
  const records = some(4, (n) => ({ order: n * 1000 }));
  peer.connections[0]!.records.set('Row', records);
  await run();
  const late = { id: 'late', fields: { name: 'late', n: 9 }, order: 12_000 };
  Object.assign(records[1]!, { fields: { name: 'changed', n: 1 }, order: 10_000 });
  Object.assign(records[2]!, { isDeleted: true, order: 11_000 });
  records.push(late);
  const asked = peer.requests.length;
  const report = await run({ positions: positionsOf({ cursor: cursorOf(late) }) });
  const pages = peer.requests.slice(asked).filter(({ path }) => path === '/records');
  assert.equal(pages.length, 2, 'all was read again');
  assert.deepEqual(
    (await stored()).map(({ id, lastAction }) => [id, lastAction]),
    [
      ['r0', 'ADDED'],
      ['r3', 'ADDED'],
      ['r1', 'UPDATED'],
      ['r2', 'DELETED'],
      ['late', 'ADDED'],
    ],
  );
  const { records: live, deleted, differing } = report.records!;
  assert.deepEqual([live, deleted, differing], [4, 1, []]);
  assert.equal((await consumer())!.behind, 0);
});

test('an unknown position fails and creates nothing', async () => {
  peer.connections[0]!.records.set('Row', some(1));
  peer.connections[0]!.records.set('Empty', []);
  const cursor = cursorOf(some(1)[0]!);
  const at = (connection: string, model: string) =>
    [keyOfDataset({ integration: 'sheets', connection, model, variant: 'base' }), { cursor }] as const;
  const positions = new Map([at('nobody', 'Row'), at('ada', 'Rwo'), at('ada', 'Empty')]);
  const report = await run({ positions });
  assert.deepEqual(failedOf(report), ['unknown_model', 'unknown_connection']);
  assert.deepEqual(consumersOf(report), { made: 1, existing: 0 });
  assert.deepEqual(await here.db.query('select model from dataset order by model'), [
    { model: 'Empty' },
    { model: 'Row' },
  ]);
  assert.equal(await here.count(`imported_dataset where model = 'Rwo'`), 0);
  // What was not asked for is not missed.
  const settings = { records: { models: undefined, positions, consumer: 'app' }, filter: new Set<string>() };
  const { report: none } = await runPeer(move.open(settings));
  assert.deepEqual(failedOf(none), []);
});

test('an application continues after its cursor of the peer', async () => {
  const records = some(500);
  peer.connections[0]!.records.set('Row', records);
  const ordered = records.toSorted((one, other) => (atob(cursorOf(one)) < atob(cursorOf(other)) ? -1 : 1));
  const report = await run({ positions: positionsOf({ cursor: cursorOf(ordered[299]!) }) });
  assert.deepEqual(report.records!.consumers, { made: 1, existing: 0 });
  const { cursor, behind } = (await consumer())!;
  assert.equal(behind, 200);
  assert.deepEqual(
    (await stored(cursor)).map(({ id }) => id),
    ordered.slice(300).map(({ id }) => id),
  );
});

test('an application that has read everything continues at the end, one that has read nothing at the beginning', async () => {
  const records = some(20);
  peer.connections[0]!.records.set('Row', records);
  peer.connections[0]!.records.set('Row::eu', records);
  const last = records.reduce((one, other) => (atob(cursorOf(one)) > atob(cursorOf(other)) ? one : other));
  const positions = new Map([
    ...positionsOf({ cursor: cursorOf(last) }),
    ...positionsOf({ modified_after: '2020-01-01T00:00:00Z' }, 'eu'),
  ]);
  await run({ positions });
  assert.equal((await consumer())!.behind, 0);
  assert.equal((await consumer('eu'))!.behind, 20);
  assert.equal((await consumer('eu'))!.cursor, undefined);
});

test('a position by time is the first change at or after it', async () => {
  peer.connections[0]!.records.set(
    'Row',
    some(30, (n) => ({ order: n * 1_000_000 })),
  );
  await run({ positions: positionsOf({ modified_after: '2026-01-01T00:00:10.000Z' }) });
  const { cursor } = (await consumer())!;
  assert.deepEqual(
    (await stored(cursor)).map(({ id }) => id),
    Array.from({ length: 20 }, (_, n) => `r${n + 10}`),
  );
});

test('changes at the peer between the read and the new position are not missed', async () => {
  const records = some(400);
  peer.connections[0]!.records.set('Row', records);
  const ordered = records.toSorted((one, other) => (atob(cursorOf(one)) < atob(cursorOf(other)) ? -1 : 1));
  const at = cursorOf(ordered[390]!);
  let pages = 0;
  peer.trouble = (_, path) => {
    pages += path === '/records' ? 1 : 0;
    // After the two pages of all records, before the one of those behind the cursor.
    if (pages === 3) {
      Object.assign(records[5]!, { fields: { name: 'changed' }, order: 900_000 });
      records.push({ id: 'late', fields: { name: 'late' }, order: 900_001 });
      pages += 1;
    }
    return undefined;
  };
  await run({ positions: positionsOf({ cursor: at }) });
  const { cursor } = (await consumer())!;
  const seen = await stored(cursor);
  assert.ok(seen.some(({ id }) => id === 'late'));
  assert.deepEqual(seen.find(({ id }) => id === 'r5')?.fields, { name: 'changed' });
  for (const { id } of ordered.slice(391))
    assert.ok(
      seen.some((one) => one.id === id),
      id,
    );
});

test('a dataset with local records is not changed, and neither is its consumer', async () => {
  peer.connections[0]!.records.set('Row', some(20));
  await run({ positions: positionsOf({ modified_after: '2026-01-01T00:00:00Z' }) });
  const before = await consumer();
  const [last] = await stored();
  assert.ok(last);
  const again = await run({ positions: positionsOf({ cursor: cursorOf(some(20)[19]!) }) });
  assert.deepEqual(consumersOf(again), { made: 0, existing: 1 });
  assert.deepEqual(await consumer(), before);

  await here.db.query('delete from imported_dataset');
  assert.deepEqual(failedOf(await run()), ['dataset_has_records']);
});

test('a connection that is created again gets its records and consumer again', async () => {
  peer.connections[0]!.records.set('Row', some(20));
  const positions = positionsOf({ cursor: cursorOf(some(20)[19]!) });
  await run({ positions });
  const remove = async () => {
    const { id } = (await here.find('sheets', 'ada'))!;
    await here.db.transaction((tx) => destroyConnection(tx, { id, at: new Date() }));
  };
  await remove();
  const options = { models: undefined, positions, consumer: 'app' };
  const { report } = await runPeer(move.open({ records: options, overwrites: true }));
  assert.deepEqual([(await stored()).length, failedOf(report)], [20, []]);
  assert.deepEqual(consumersOf(report), { made: 1, existing: 0 });

  // What was told of a row that is gone is not told of the one that has taken its place.
  await remove();
  await runPeer(move.open({ overwrites: true }));
  peer.trouble = (_, path) => (path === '/records' ? 'fail' : undefined);
  const failed = await run();
  assert.deepEqual([failed.records!.records, failedOf(failed)], [0, ['server_error']]);
});

test('a dataset without records is filled whatever its position is', async () => {
  await runPeer(move.open());
  const dataset = { connection: (await here.find('sheets', 'ada'))!.id, model: 'Row', variant: 'base' };
  await setDatasetSettings(here.db, dataset, { ignoreFields: ['seen'] });
  await raisePositions(here.db);
  peer.connections[0]!.records.set('Row', some(20));
  assert.deepEqual(failedOf(await run()), []);
  assert.equal((await stored()).length, 20);

  // The way out for a refused dataset: it is emptied, and starts again.
  await saveHere([{ id: 'here', fields: { name: 'here', n: 1 }, order: 0 }]);
  const positions = positionsOf({ modified_after: '2020-01-01T00:00:00Z' });
  assert.deepEqual(failedOf(await run({ positions })), ['dataset_has_records']);
  const { id } = (await findDataset(here.db, dataset))!;
  await here.db.transaction((tx) => emptyDataset(tx, id));
  const report = await run({ positions });
  assert.deepEqual([failedOf(report), consumersOf(report)], [[], { made: 1, existing: 0 }]);
  assert.equal(report.records!.records, 20);
  assert.equal((await stored()).length, 20);
  assert.equal((await consumer())!.behind, 20);
});

test('a run for positions does not undo changes of a local sync', async () => {
  const records = some(20);
  peer.connections[0]!.records.set('Row', records);
  const positions = positionsOf({ modified_after: '2026-01-01T00:00:00Z' });
  await run({ positions });
  const changed = { ...records[5]!, fields: { name: 'changed here', n: 5 } };
  await saveHere([changed]);
  const before = await stored();

  const again = await run({ positions });
  assert.deepEqual([consumersOf(again), failedOf(again)], [{ made: 0, existing: 1 }, []]);
  assert.deepEqual(await stored(), before);
  assert.deepEqual(failedOf(await run()), []);
  assert.deepEqual(failedOf(await run({ positions, consumer: 'other' })), ['dataset_has_records']);
  assert.deepEqual(await stored(), before);
});

test('a page that arrives after a sync saved records is discarded, and the saved records stay', async () => {
  const records = some(900);
  peer.connections[0]!.records.set('Row', records);
  const { get } = move.open().peer;
  let pages = 0;
  const reader = {
    ...move.open().peer,
    async get(...asked: Parameters<typeof get>) {
      const answer = await get(...asked);
      if (asked[0] === '/records' && ++pages === 2) await saveHere([records[890]!]);
      return answer;
    },
  };
  const options = { models: undefined, positions: new Map(), consumer: 'app' };
  const { report } = await runPeer(move.open({ peer: reader, records: options }));
  assert.deepEqual(failedOf(report), ['dataset_has_records']);
  assert.equal((await stored()).length, 201);
});

test('a connection deleted before its records are read does not affect the others', async () => {
  peer.connections[0]!.records.set('Row', some(10));
  const bob = peerConnection({ id: 'bob', integration: 'sheets', createdAt: new Date(0) });
  peer.connections.push(bob);
  peer.trouble = (_, path) => {
    if (path === '/sync/status') peer.connections = peer.connections.filter((one) => one !== bob);
    return undefined;
  };
  const report = await run();
  assert.deepEqual(failedOf(report), ['unknown_connection']);
  assert.equal(report.records!.records, 10);
});

test('a sync that saves the same values finds no change, whatever the order of the fields', async () => {
  peer.connections[0]!.records.set('Row', some(30));
  await run();
  const saved = await saveHere(some(30));
  assert.deepEqual([saved.added, saved.updated, saved.unchangedCount], [[], [], 30]);
});

test('an invalid line of a file of positions is named', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'trellis-positions-'));
  move.after(() => rm(folder, { recursive: true }));
  const path = join(folder, 'positions.ndjson');
  const one = { provider_config_key: 'sheets', connection_id: 'ada', model: 'Row' };
  await writeFile(
    path,
    `${JSON.stringify({ ...one, cursor: 'c' })}\n\n${JSON.stringify({ ...one, variant: 'eu', modified_after: 't' })}\n`,
  );
  assert.equal((await readPositions(path)).size, 2);
  await writeFile(path, `${JSON.stringify({ ...one, cursor: 'c' })}\n{"model": 1}\n`);
  await assert.rejects(readPositions(path), /positions\.ndjson:2: /);
  await writeFile(path, `${JSON.stringify(one)}\n`);
  await assert.rejects(readPositions(path), /:1: .*either cursor or modified_after/);
});
