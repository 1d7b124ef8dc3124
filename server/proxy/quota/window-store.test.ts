import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import type { Db } from '../../db/pool.ts';
import { createWindowStore } from './window-store.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

const rule = { count: 10, burst: 10, windowMs: 1000 };
type Trip = { beforeMs?: number; afterMs?: number; aheadMs?: number };

/** The same database behind a slow line, with a clock that may have been set. */
function distant(db: Db, trip: Trip): Db {
  const query = async <R extends object>(text: string, values?: readonly unknown[]): Promise<R[]> => {
    const { beforeMs = 0, afterMs = 0, aheadMs = 0 } = trip;
    await sleep(beforeMs);
    const rows = await db.query<R & { clock: number }>(text, values);
    await sleep(afterMs);
    return rows.map((row) => ({ ...row, clock: row.clock + aheadMs }));
  };
  return { ...db, query };
}

/** By how many ms the ledger's time differs from the database's, which is this machine's. */
const error = (store: ReturnType<typeof createWindowStore>) => Math.abs(store.now() - Date.now());

test("one fast statement yields the database's time, and slow ones before and after do no harm", async () => {
  const trip: Trip = { beforeMs: 400 };
  const store = createWindowStore(distant(database.db, trip));
  const touch = () => store.change({ bucket: 'clock', rule, known: undefined, change: () => {} });
  await touch();
  assert.ok(error(store) > 100, `${error(store)} ms off after a trip of which nothing is known`);
  trip.beforeMs = 0;
  await touch();
  assert.ok(error(store) < 50, `${error(store)} ms off after a quick one`);
  trip.afterMs = 400;
  await touch();
  assert.ok(error(store) < 50, `${error(store)} ms off after another slow one`);
});

test("a database's clock that was set is followed at once", async () => {
  const trip: Trip = {};
  const store = createWindowStore(distant(database.db, trip));
  const touch = () => store.change({ bucket: 'set', rule, known: undefined, change: () => {} });
  await touch();
  for (const aheadMs of [5_000, -3_000]) {
    trip.aheadMs = aheadMs;
    await touch();
    const off = store.now() - Date.now();
    assert.ok(Math.abs(off - aheadMs) < 50, `${off} ms ahead, not ${aheadMs}`);
  }
});

test('twenty concurrent changes of a window are all written', async () => {
  const stores = Array.from({ length: 20 }, () => createWindowStore(database.db));
  await Promise.all(
    stores.map((store) =>
      store.change({
        bucket: 'shared',
        rule: { count: 1000, burst: 1000, windowMs: 3_600_000 },
        known: undefined,
        change: (window, now) => {
          const cell = Math.floor(now / 120_000);
          window.take({
            rule: { count: 1000, burst: 1000, windowMs: 3_600_000 },
            priority: 'interactive',
            from: cell,
            to: cell,
            want: 3,
          });
        },
      }),
    ),
  );
  const [row] = await database.db.query<{ pages: { cells: [number, number, number][] } }>(
    `select pages from quota_book where bucket = 'shared'`,
  );
  assert.equal(
    row?.pages.cells.reduce((sum, [, interactive]) => sum + interactive, 0),
    60,
  );
});
