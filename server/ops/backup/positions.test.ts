import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestDatabase } from '../../../test/support/database.ts';
import { datasetCalls, openRecordBench, type RecordBench } from '../../../test/support/records.ts';
import { chainAll, verifyAudit } from '../../activity/audit-chain.ts';
import type { Db } from '../../db/pool.ts';
import { placeAll } from '../../db/sequencer.ts';
import { eventSequence } from '../../events/sequence.ts';
import { raisePositions, raisePositionsOnce } from './positions.ts';

const step = 2 ** 32;
let bench: RecordBench;
let db: Db;
before(async () => {
  bench = await openRecordBench();
  ({ db } = bench);
});
after(() => bench.end());

const writeEvent = (on: Db) =>
  on.query(
    `insert into event (id, environment_id, type, data)
     select gen_random_uuid(), id, 'records.dataset_emptied', $1 from environment`,
    [{ connection_id: 'c', provider_config_key: 'k', model: 'M', variant: 'base', records: 0, deleted: 0 }],
  );
const positions = async (on: Db) => {
  await placeAll(on, eventSequence);
  return (await on.query<{ position: number }>('select position from event order by position')).map(
    ({ position }) => position,
  );
};

test('records: cursors from before and from the lost time are valid, and later records are after both', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(db, connection);
  await calls.save([{ id: 'a' }, { id: 'b' }]);
  const [before] = (await calls.listAll()).slice(-1);
  const backup = await bench.copy();
  try {
    await calls.save([{ id: 'lost' }]);
    const [lost] = (await calls.listAll()).slice(-1);
    const lostOther = datasetCalls(db, connection, { model: 'Lost' });
    await lostOther.save([{ id: 'x' }]);
    const [ofLostDataset] = await lostOther.listAll();

    const again = datasetCalls(backup.db, connection);
    const { datasets } = await raisePositions(backup.db);
    assert.equal(datasets, 1);
    const follow = async (cursor: string) =>
      (await again.listAll({ cursor })).map(({ id, _trellis_metadata }) => [id, _trellis_metadata.cursor]);
    const cursorOf = (record: typeof before) => record!._trellis_metadata.cursor;
    for (const one of [before, lost]) assert.deepEqual(await follow(cursorOf(one)), []);
    await again.save([{ id: 'other' }]);
    for (const one of [before, lost])
      assert.deepEqual(
        (await follow(cursorOf(one))).map(([id]) => id),
        ['other'],
      );
    assert.notEqual((await follow(cursorOf(before)))[0]?.[1], cursorOf(lost));
    assert.deepEqual(
      (await again.listAll()).map(({ id }) => id),
      ['a', 'b', 'other'],
    );
    const [row] = await backup.db.query<{ last: number }>('select last_seq as last from dataset');
    assert.equal(row?.last, step + 3);

    // A dataset of the lost time has lent its number to no other.
    const otherModel = datasetCalls(backup.db, connection, { model: 'Other' });
    await otherModel.save([{ id: 'x' }]);
    await assert.rejects(otherModel.list({ cursor: cursorOf(ofLostDataset) }), { code: 'invalid_cursor' });
  } finally {
    await backup.drop();
  }
});

test('the feed continues 2^32 further, users sign in again, and the audit log has no gap', async () => {
  await writeEvent(db);
  const [first] = await positions(db);
  await db.query(`insert into invitation (hash, role, expires_at) values ('\\x00', 'owner', 'infinity')`);
  await raisePositions(db);
  await writeEvent(db);
  const [, second] = await positions(db);
  assert.equal(second, (first ?? 0) + step + 1);
  assert.deepEqual(await db.query('select from invitation'), []);
  await chainAll(db);
  const { fault, waiting } = await verifyAudit(db);
  assert.deepEqual([fault, waiting], [undefined, 0]);
});

test('repeated calls, also twenty at once, raise the positions once until a position is assigned', async () => {
  const { db: fresh, drop } = await openTestDatabase();
  try {
    const outcomes = await Promise.all(Array.from({ length: 20 }, () => raisePositionsOnce(fresh)));
    assert.equal(outcomes.filter((outcome) => 'datasets' in outcome).length, 1);
    const last = async () => {
      const [row] = await fresh.query<{ last: number }>(
        `select last_position as last from sequencer where name = 'event'`,
      );
      return row?.last;
    };
    assert.equal(await last(), step);
    await fresh.query(`insert into environment (name, data_key) values ('e', gen_random_uuid())`);
    await writeEvent(fresh);
    await positions(fresh);
    assert.ok('datasets' in (await raisePositionsOnce(fresh)));
    assert.equal(await last(), 2 * step + 1);
    await raisePositions(fresh);
    assert.equal(await last(), 3 * step + 1);
  } finally {
    await drop();
  }
});
