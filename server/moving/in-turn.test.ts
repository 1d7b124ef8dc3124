import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openTestDatabase } from '../../test/support/database.ts';
import { openDb } from '../db/pool.ts';
import { inTurn } from './in-turn.ts';

test('fifty at once go one after the other over one connection, and one that fails holds up none', async () => {
  const { target, drop } = await openTestDatabase();
  const one = openDb(target, { maxConnections: 1 });
  const db = inTurn(one);
  try {
    const done = await Promise.allSettled(
      Array.from({ length: 50 }, (_, n) =>
        db.transaction(async (tx) => {
          assert.equal(one.load().waiting, 0);
          const [row] = await tx.query<{ n: number }>('select 10 / ($1::int - 7) as n, pg_sleep(0.001)', [n]);
          return row!.n;
        }),
      ),
    );
    assert.deepEqual(
      done.flatMap(({ status }, n) => (status === 'rejected' ? [n] : [])),
      [7],
    );
  } finally {
    await one.end();
    await drop();
  }
});
