import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openTestDatabase } from '../../test/support/database.ts';
import { deleteInSteps } from './delete-in-steps.ts';
import type { Db } from './pool.ts';

test('many rows are deleted in several transactions, and a killed deletion is continued', async () => {
  const { db, drop } = await openTestDatabase();
  try {
    await db.query('create table thing as select n % 2 as owner, n from generate_series(1, 2400) as n');
    const left = async () =>
      (
        await db.query<{ count: number }>('select count(*) as count from thing group by owner order by owner')
      ).map(({ count }) => count);
    const killed = new Error('killed');
    let statements = 0;
    const until = (last: number): Db => ({
      ...db,
      query(text, values) {
        statements += 1;
        return statements > last ? Promise.reject(killed) : db.query(text, values);
      },
    });
    const of = { table: 'thing', where: 'owner = $1', values: [1] };
    await assert.rejects(deleteInSteps(until(2), of), killed);
    assert.deepEqual(await left(), [1_200, 200]);
    statements = 0;
    await deleteInSteps(until(1), of);
    assert.deepEqual(await left(), [1_200]);
  } finally {
    await drop();
  }
});
