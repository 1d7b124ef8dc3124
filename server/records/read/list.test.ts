import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { datasetCalls, openRecordBench, type RecordBench, rows } from '../../../test/support/records.ts';
import type { Db } from '../../db/pool.ts';
import { pageBytes, portionRecords } from './page.ts';

let bench: RecordBench;
before(async () => {
  bench = await openRecordBench();
});
after(() => bench.end());

const fresh = async (name = {}) => datasetCalls(bench.db, await bench.connect(), name);
const idsOf = (page: { records: { id: string }[] }) => page.records.map(({ id }) => id);

test('pages follow each other without gap or repeat, and next_cursor is null exactly at the end', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 10));
  for (const limit of [1, 3, 5, 9, 10, 11]) {
    const ids: string[] = [];
    let pages = 0;
    let cursor: string | undefined;
    do {
      const page = await calls.list({ limit, cursor });
      assert.ok(page.records.length > 0 && page.records.length <= limit);
      ids.push(...idsOf(page));
      pages += 1;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
    assert.equal(pages, Math.ceil(10 / limit));
    assert.deepEqual(
      ids,
      rows(1, 10).map(({ id }) => id),
    );
  }
  const end = await calls.cursorOf(10);
  assert.deepEqual(await calls.list({ cursor: end }), { records: [], next_cursor: null });
});

test('a page of large records ends at the page budget and has the cursor of the next page', async () => {
  const calls = await fresh();
  const large = 'x'.repeat(3 * 1024 * 1024);
  for (let n = 0; n < 8; n += 1) await calls.save([{ id: `r${n}`, large }]);
  const first = await calls.list({ limit: 100 });
  assert.equal(first.records.length, Math.ceil(pageBytes / large.length));
  const second = await calls.list({ limit: 100, cursor: first.next_cursor ?? '' });
  assert.equal(second.next_cursor, null);
  assert.deepEqual(
    [...idsOf(first), ...idsOf(second)],
    Array.from({ length: 8 }, (_, n) => `r${n}`),
  );
});

test('pruned records do not count towards the page budget', async () => {
  const calls = await fresh();
  const large = 'x'.repeat(3 * 1024 * 1024);
  for (let n = 1; n <= 9; n += 1) await calls.save([{ id: `r${n}`, large }]);
  await calls.prune(await calls.cursorOf(7));
  // Above the floor too: the payload of r9 comes to stand between two that are gone.
  await calls.delete('r2', 'r9', 'r3');
  const page = await calls.list({ limit: 100 });
  assert.deepEqual(
    [idsOf(page), page.next_cursor],
    [['r1', 'r4', 'r5', 'r6', 'r7', 'r8', 'r2', 'r9', 'r3'], null],
  );
  assert.deepEqual(
    page.records.filter(({ _trellis_metadata: { pruned_at } }) => pruned_at === null).map(({ id }) => id),
    ['r8', 'r9'],
  );
});

test('a record that changes while its page is read comes once, with the page or behind it', async () => {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  const count = 2 * portionRecords + 10;
  await calls.save(rows(1, count));
  // Between the first portion and the second: one that was given out, one that was not yet.
  let asked = 0;
  const page = await calls.list({
    limit: 10_000,
    connection: async () => {
      asked += 1;
      if (asked === 2) await calls.save(rows(1, 1, 'second').concat(rows(count, count, 'second')));
      return connection;
    },
  });
  assert.ok(asked > 2);
  assert.deepEqual(
    idsOf(page),
    rows(1, count - 1).map(({ id }) => id),
  );
  assert.ok(page.next_cursor !== null, 'there is more: the one that moved on');
  assert.deepEqual(idsOf(await calls.list({ cursor: page.next_cursor })), ['r1', `r${count}`]);
});

test('a filter of several actions is their union', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.save(rows(3, 4, 'second'));
  await bench.db.query(
    `update record set deleted_at = last_modified_at where dataset_id = $1 and external_id in ('r4', 'r6')`,
    [(await calls.row()).id],
  );
  const of = async (actions: ('ADDED' | 'UPDATED' | 'DELETED')[]) => idsOf(await calls.list({ actions }));
  assert.deepEqual(await of(['ADDED']), ['r1', 'r2', 'r5']);
  assert.deepEqual(await of(['UPDATED']), ['r3']);
  assert.deepEqual(await of(['DELETED']), ['r6', 'r4']);
  assert.deepEqual(await of(['ADDED', 'DELETED']), ['r1', 'r2', 'r5', 'r6', 'r4']);
  assert.deepEqual(await of(['ADDED', 'UPDATED', 'DELETED']), ['r1', 'r2', 'r5', 'r6', 'r3', 'r4']);
  assert.deepEqual(await of([]), []);
  const page = await calls.list({ actions: ['DELETED'], limit: 1 });
  assert.deepEqual(idsOf(page), ['r6']);
  assert.deepEqual(
    idsOf(await calls.list({ actions: ['DELETED'], limit: 1, cursor: page.next_cursor ?? '' })),
    ['r4'],
  );
});

test('ids limit the set and keep order, limit and cursor; unknown ones are skipped', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  const ids = ['r5', 'none', 'r2', 'r2', 'r6'];
  assert.deepEqual(idsOf(await calls.list({ ids })), ['r2', 'r5', 'r6']);
  const page = await calls.list({ ids, limit: 2 });
  assert.deepEqual(idsOf(page), ['r2', 'r5']);
  const rest = await calls.list({ ids, limit: 2, cursor: page.next_cursor ?? '' });
  assert.deepEqual([idsOf(rest), rest.next_cursor], [['r6'], null]);
});

test('modified_after gives what changed at that time or later, to the microsecond', async () => {
  const calls = await fresh();
  for (let n = 0; n < 9; n += 1) await calls.save(rows(n * 3 + 1, n * 3 + 3));
  await calls.save(rows(4, 8, 'second'));
  const all = await calls.listAll();
  for (const [index, record] of all.entries()) {
    const modifiedAfter = record._trellis_metadata.last_modified_at;
    const expected = all.filter(({ _trellis_metadata: m }) => m.last_modified_at >= modifiedAfter);
    assert.deepEqual(await calls.listAll({ modifiedAfter }), expected, `from record ${index}`);
  }
  assert.deepEqual(await calls.listAll({ modifiedAfter: '1970-01-01T00:00:00Z' }), all);
  assert.deepEqual(await calls.listAll({ modifiedAfter: '9999-01-01T00:00:00Z' }), []);
  const cursor = await calls.cursorOf(25);
  const modifiedAfter = all[3]?._trellis_metadata.last_modified_at ?? '';
  assert.deepEqual(
    (await calls.listAll({ modifiedAfter, cursor })).length,
    all.length - all.findIndex(({ _trellis_metadata: m }) => m.cursor === cursor) - 1,
  );
});

test('variants and models are apart', async () => {
  const connection = await bench.connect();
  const base = datasetCalls(bench.db, connection);
  const other = datasetCalls(bench.db, connection, { variant: 'other' });
  await base.save(rows(1, 2));
  await other.save(rows(2, 3, 'second'));
  assert.deepEqual(idsOf(await base.list()), ['r1', 'r2']);
  assert.deepEqual(idsOf(await other.list()), ['r2', 'r3']);
});

test("a cursor of another connection's records, or of another model's, is none here", async () => {
  const calls = await fresh();
  await calls.save(rows(1, 3));
  const connection = await bench.connect();
  const [here, beside] = ['Row', 'Beside'].map((model) => datasetCalls(bench.db, connection, { model }));
  for (const cursor of [await calls.cursorOf(1), await calls.cursorOf(3)]) {
    await assert.rejects(here!.list({ cursor }), { code: 'invalid_cursor' });
    await here!.save(rows(1, 5));
    await assert.rejects(here!.list({ cursor }), { code: 'invalid_cursor' });
  }
  await beside!.save(rows(1, 2));
  await assert.rejects(here!.list({ cursor: await beside!.cursorOf(1) }), { code: 'invalid_cursor' });
});

test('a page with some pruned records has each as it is, and a page without them is the same in steps', async () => {
  const calls = await fresh();
  await calls.save(rows(1, 6));
  await calls.prune(await calls.cursorOf(2));
  await calls.save(rows(3, 3, 'second'));
  const page = await calls.list({ limit: 100 });
  const whole = await calls.list({ limit: 100, cursor: await calls.cursorOf(2) });
  assert.deepEqual(page.records.slice(2), whole.records);
  assert.deepEqual(idsOf(page), ['r1', 'r2', 'r4', 'r5', 'r6', 'r3']);
  const filtered = await calls.list({
    limit: 100,
    cursor: await calls.cursorOf(2),
    actions: ['ADDED', 'UPDATED', 'DELETED'],
  });
  assert.deepEqual(whole.records, filtered.records);
});

test('a follower of the cursor misses no change of writers that pause between their statements', async () => {
  const connection = await bench.connect();
  const steady = datasetCalls(bench.db, connection);
  const paused = datasetCalls(pausing(bench.db), connection);
  await steady.save([{ id: 'start' }]);
  const seen = new Map<string, { round: unknown; cursor: string }>();
  const read = async (cursor: string | undefined): Promise<string | undefined> => {
    const page = await steady.list({ limit: 7, cursor });
    for (const { id, round, _trellis_metadata: metadata } of page.records)
      seen.set(id, { round, cursor: metadata.cursor });
    return page.records.at(-1)?._trellis_metadata.cursor;
  };
  const write = async (writer: number) => {
    for (let round = 0; round < 10; round += 1) {
      const ids = Array.from({ length: 1 + ((writer + round) % 4) }, (_, n) => `r${(writer + n) % 6}`);
      await paused.save(ids.map((id) => ({ id, round, writer })));
      if (round % 4 === 0) await paused.prune(await steady.cursorOf((await steady.row()).last_seq), 5);
    }
  };
  let isWriting = true;
  const writing = Promise.all([0, 1, 2, 3, 4, 5].map(write)).finally(() => {
    isWriting = false;
  });
  let cursor: string | undefined;
  while (isWriting) cursor = (await read(cursor)) ?? cursor;
  await writing;
  for (let next = await read(cursor); next !== undefined; next = await read(next));

  const all = await steady.listAll();
  assert.equal(all.length, 7);
  for (const { id, _trellis_metadata: metadata } of all)
    assert.equal(seen.get(id)?.cursor, metadata.cursor, id);
});

/** The same database, where each statement of a transaction, and its commit, may be overtaken by others. */
function pausing(db: Db): Db {
  let step = 0;
  const pause = () => sleep((step++ * 7) % 4);
  return {
    ...db,
    records: undefined,
    transaction: (work, mode) =>
      db.transaction(async (tx) => {
        const result = await work({
          ...tx,
          async query<R extends object>(text: string, values?: readonly unknown[]) {
            await pause();
            return tx.query<R>(text, values);
          },
        });
        await pause();
        return result;
      }, mode),
  };
}
