import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { type Db, openDb } from '../../server/db/pool.ts';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { openDatabaseCable } from '../../test/support/database-cable.ts';
import { type ImportLock, withImportLock } from './import-lock.ts';

let database: TestDatabase;
/** As many connections as a command has. */
let db: Db;
beforeEach(async () => {
  database = await openTestDatabase();
  db = openDb(database.target, { maxConnections: 2 });
});
afterEach(async () => {
  await db.end();
  await database.drop();
});

const lost = { code: 'unavailable', message: /The database ended the session .* Run the same command again/ };

/** As the server does to a session that it has no more patience with. */
async function endLock(held: ImportLock): Promise<void> {
  await held.take(7);
  const ended = await held.db.query(
    `select pg_terminate_backend(pid, 10000)
     from pg_locks
     where locktype = 'advisory'
       and database = (select oid from pg_database where datname = current_database())`,
  );
  assert.equal(ended.length, 1);
}

test('fifty concurrent imports run one after the other on one session, and a failing one blocks none', async () => {
  const done = await withImportLock(db, (held) =>
    Promise.allSettled(
      Array.from({ length: 50 }, (_, n) =>
        held.db.transaction(async (tx) => {
          assert.equal(db.load().waiting, 0);
          const [row] = await tx.query<{ n: number }>('select 10 / ($1::int - 7) as n, pg_sleep(0.001)', [n]);
          return row!.n;
        }),
      ),
    ),
  );
  assert.deepEqual(
    done.flatMap(({ status }, n) => (status === 'rejected' ? [n] : [])),
    [7],
  );
});

test('an import that lost its locks fails with advice, and writes nothing afterwards', async () => {
  let working: Promise<never> | undefined;
  const run = withImportLock(
    db,
    (held) => {
      const work = async (): Promise<never> => {
        await endLock(held);
        for (;;) await held.db.query('select');
      };
      working = work();
      return working;
    },
    { everyMs: 5 },
  );
  await assert.rejects(run, lost);
  await assert.rejects(working!, lost);
});

test('a session that does not answer counts as lost, and does not delay the end', async () => {
  const cable = await openDatabaseCable(database.target);
  const far = openDb(cable.target, { maxConnections: 2, rollbackWithinMs: 5 });
  try {
    const work = async (held: ImportLock): Promise<never> => {
      await held.take(7);
      cable.silence();
      return new Promise(() => {});
    };
    await assert.rejects(withImportLock(far, work, { everyMs: 5, withinMs: 5 }), lost);
    await far.end();
  } finally {
    await cable.close();
  }
});

test('an import that lost its locks shortly before its end does not succeed', async () => {
  await assert.rejects(withImportLock(db, endLock, { everyMs: 1_000_000 }), lost);
});
