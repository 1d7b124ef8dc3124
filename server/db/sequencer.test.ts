import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { countingBlocks } from '../../test/support/blocks.ts';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { AppError } from '../errors.ts';
import { type Db, openDb, type Tx } from './pool.ts';
import { keepPlacing, lockSequence, placeAll, placeNext, type Sequence } from './sequencer.ts';

let database: TestDatabase;
/** As another node's. */
let other: Db;
before(async () => {
  database = await openTestDatabase();
  other = openDb(database.target);
});
after(async () => {
  await other.end();
  await database.drop();
});

const write = (db: Pick<Db, 'query'> = database.db, count = 1) =>
  db.query(
    `insert into audit (actor, action, target)
     select 'a', 'b', 'c' from generate_series(1, $1)`,
    [count],
  );

/** Gives positions, after what a test does first. */
function sequenceOf(onPlace: (tx: Tx) => Promise<void> = async () => {}): Sequence {
  return {
    name: 'audit',
    async place(tx, { lastPosition }) {
      await onPlace(tx);
      const placed = await tx.query(
        `update audit
         set position = $1 + oldest.rank, chain = '\\x00'
         from (select id, row_number() over (order by id) as rank from audit where position is null) as oldest
         where audit.id = oldest.id
         returning audit.id`,
        [lastPosition],
      );
      return { count: placed.length, isMore: false };
    },
  };
}

/** Holds the sequence in a transaction of another node for as long as `work` takes. */
async function whileHeld(work: () => Promise<void>): Promise<void> {
  await other.transaction(async (tx) => {
    await lockSequence(tx, { name: 'audit', lock: 'for update' });
    await work();
  });
}
const waiting = async () => (await database.db.query('select from audit where position is null')).length;

test('a hundred readers who wait for a sequencer that is held take one connection of the pool', async () => {
  await write();
  const sequence = sequenceOf();
  let readers: Promise<boolean[]> | undefined;
  await whileHeld(async () => {
    readers = Promise.all(Array.from({ length: 100 }, () => placeAll(database.db, sequence)));
    // All have begun when an answer to a later statement is here.
    for (let round = 0; round < 20; round += 1) await database.db.query('select 1');
    const { total, idle, waiting: awaited } = database.db.load();
    assert.deepEqual([total - idle, awaited], [1, 0]);
  });
  assert.ok((await readers!).every((isDone) => isDone));
  assert.equal(await waiting(), 0);
});

test('a caller during a round gets a round that sees all earlier commits', async () => {
  await write();
  const begun = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const slow: Sequence = {
    name: 'audit',
    // What is written after this is not seen by the step that runs.
    async place(tx, at) {
      const placed = await sequenceOf().place(tx, at);
      begun.resolve();
      await go.promise;
      return placed;
    },
  };
  const first = placeAll(database.db, slow);
  await begun.promise;
  await write(other);
  const second = placeAll(database.db, slow);
  go.resolve();
  await first;
  await second;
  assert.equal(await waiting(), 0);
});

test('a lock that is held for seconds ends the wait, and positions come when it is free', async () => {
  await write();
  const sequence = sequenceOf(async (tx) => {
    await tx.query('select from lock_of_test for update');
  });
  await database.db.query('create table lock_of_test as select 1 as id');
  await other.transaction(async (tx) => {
    await tx.query('select from lock_of_test for update');
    assert.deepEqual(await Promise.all([placeAll(database.db, sequence), placeNext(other, sequence)]), [
      false,
      0,
    ]);
  });
  assert.equal(await placeAll(database.db, sequence), true);
  assert.equal(await waiting(), 0);
  await database.db.query('drop table lock_of_test');
});

test('the server ends the transaction of an inactive sequencer, and every wait for a lock has a limit', async () => {
  await write();
  let settings: object | undefined;
  const sequence = sequenceOf(async (tx) => {
    [settings] = await tx.query(
      `select current_setting('idle_in_transaction_session_timeout') as idle, current_setting('lock_timeout') as lock`,
    );
  });
  await placeAll(database.db, sequence);
  assert.deepEqual(settings, { idle: '10s', lock: '2s' });
});

test('a read has all that was written since the previous one, also while an old snapshot is open', async () => {
  const old = Promise.withResolvers<void>();
  const go = Promise.withResolvers<void>();
  const backup = other.transaction(async (tx) => {
    await tx.query('select count(*) from audit');
    old.resolve();
    await go.promise;
  }, 'snapshot');
  try {
    await old.promise;
    const sequence = sequenceOf();
    const { db, reads } = countingBlocks(database.db);
    await write(database.db, 20_000);
    await placeAll(db, sequence);
    // A look goes back to the oldest transaction that writes, which may be one of another database of the server.
    let fewest = Number.POSITIVE_INFINITY;
    for (let look = 0; look < 200 && fewest >= 20; look += 1) {
      await write();
      reads.length = 0;
      await placeAll(db, sequence);
      fewest = Math.min(fewest, reads[0]!.blocks);
      if (fewest >= 20) await pause(50);
    }
    assert.ok(fewest < 20, `a look read ${fewest} blocks`);
    assert.equal(await waiting(), 0);
  } finally {
    go.resolve();
    await backup;
  }
});

test('what a transaction wrote that was open during many looks gets its position when it commits', async () => {
  const sequence = sequenceOf();
  await placeAll(database.db, sequence);
  await other.transaction(async (tx) => {
    await write(tx);
    for (let round = 0; round < 10; round += 1) {
      await write();
      await placeAll(database.db, sequence);
    }
  });
  assert.equal(await waiting(), 1);
  await placeAll(database.db, sequence);
  assert.equal(await waiting(), 0);
});

test('what a server that took over wrote under earlier transactions is found within a hundred looks', async () => {
  const sequence = sequenceOf();
  await placeAll(database.db, sequence);
  await database.db.query(
    `insert into audit (actor, action, target, written_in) values ('a', 'b', 'c', '3'::xid8)`,
  );
  for (let look = 0; look < 100; look += 1) await placeNext(database.db, sequence);
  assert.equal(await waiting(), 0);
});

test('periodic steps look at a slow outbox now and then, and find its entries', async () => {
  const looks = { own: 0, withOutbox: 0 };
  const slow: Db = {
    ...database.db,
    async query(text, values) {
      if (text.endsWith(' as oldest')) {
        const looksAtOutbox = text.includes('dataset_outbox');
        looks[looksAtOutbox ? 'withOutbox' : 'own'] += 1;
        if (looksAtOutbox) await pause(100);
      }
      return database.db.query(text, values);
    },
  };
  const found = Promise.withResolvers<void>();
  const sequence: Sequence = {
    name: 'audit',
    async place(_, { sent }) {
      if (sent.length > 0) found.resolve();
      return { count: 0, isMore: false };
    },
  };
  const placing = keepPlacing(slow, { sequences: [sequence], everyMs: 1, onError: found.reject });
  try {
    while (looks.own < 5) await pause(5);
    await database.db.query(
      `insert into dataset_outbox (dataset_id, id, sequence, entry) values (1, gen_random_uuid(), 'audit', '{}')`,
    );
    await found.promise;
  } finally {
    await placing.stop();
    await database.db.query('delete from dataset_outbox');
  }
  assert.ok(looks.own > looks.withOutbox, JSON.stringify(looks));
});

test('rows get their positions while the outbox cannot be read, as when a worker of a cluster is away', async () => {
  const sequence = sequenceOf();
  await placeAll(database.db, sequence);
  const withoutWorker: Db = {
    ...database.db,
    query: async (text, values) => {
      if (text.includes('dataset_outbox')) throw new AppError('unavailable');
      return database.db.query(text, values);
    },
  };
  await write();
  assert.equal(await placeAll(withoutWorker, sequence), true);
  assert.equal(await waiting(), 0);
  await write();
  const failed = Promise.withResolvers<never>();
  const placing = keepPlacing(withoutWorker, { sequences: [sequence], everyMs: 1, onError: failed.reject });
  try {
    while ((await Promise.race([waiting(), failed.promise])) > 0) await pause(5);
  } finally {
    await placing.stop();
  }
});

test('rows get their positions while a statement about the outbox does not end, as when a worker of a cluster is frozen', async () => {
  const sequence = sequenceOf();
  await placeAll(database.db, sequence);
  await other.transaction(async (tx) => {
    await tx.query('lock table dataset_outbox in access exclusive mode');
    for (let round = 0; round < 3; round += 1) {
      await write();
      assert.equal(await placeAll(database.db, sequence), true);
      assert.equal(await waiting(), 0);
    }
    const [statements] = await tx.query(
      `select count(*) as waiting from pg_locks where relation = 'dataset_outbox'::regclass and not granted`,
    );
    assert.deepEqual(statements, { waiting: 1 }, 'a statement waits beside another');
  });
});

test('sequences share the periodic look, and steps of one that take long do not delay the other', async () => {
  const looks: string[] = [];
  const recording: Db = {
    ...database.db,
    async query(text, values) {
      if (text.endsWith(' as oldest')) looks.push(text);
      return database.db.query(text, values);
    },
  };
  const [begun, go] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const slow = sequenceOf(async () => {
    begun.resolve();
    await go.promise;
  });
  const placed = Promise.withResolvers<void>();
  const event: Sequence = {
    name: 'event',
    async place() {
      placed.resolve();
      return { count: 0, isMore: false };
    },
  };
  const sequences = [slow, event];
  const placing = keepPlacing(recording, { sequences, everyMs: 5, onError: placed.reject });
  try {
    while (looks.length < 3) await pause(5);
    assert.ok(looks.every((text) => text.includes('from audit') && text.includes('from event')));
    await write();
    await begun.promise;
    await database.db.query(
      `insert into dataset_outbox (dataset_id, id, sequence, entry) values (1, gen_random_uuid(), 'event', '{}')`,
    );
    await placed.promise;
  } finally {
    go.resolve();
    await placing.stop();
    await database.db.query('delete from dataset_outbox');
  }
  assert.equal(await waiting(), 0);
});
