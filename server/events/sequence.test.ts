import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { openVault } from '../vault.ts';
import { queueEvent } from './outbox.ts';
import { sequenceEvents } from './sequence.ts';

let database: TestDatabase;
let environmentId: number;
before(async () => {
  database = await openTestDatabase();
  const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
  environmentId = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment.id;
});
after(() => database.drop());

const queue = (run = database.db as Parameters<typeof queueEvent>[0]) =>
  queueEvent(run, { environmentId, type: 'connection.created', data: {} });
const readAfter = (position: number) =>
  database.db.query<{ id: string; position: number }>(
    'select id, position from event where position > $1 order by position',
    [position],
  );

test('an event of a transaction that rolls back never exists', async () => {
  await assert.rejects(
    database.db.transaction(async (tx) => {
      await queue(tx);
      throw new Error('no');
    }),
  );
  assert.equal(await sequenceEvents(database.db), 0);
});

test('twenty sequencers at once give each event one position, without gaps', async () => {
  await Promise.all(Array.from({ length: 40 }, () => queue()));
  let placed = 0;
  while (placed < 40) {
    const counts = await Promise.all(Array.from({ length: 20 }, () => sequenceEvents(database.db)));
    placed += counts.reduce((sum, count) => sum + count, 0);
  }
  const positions = (await readAfter(0)).map(({ position }) => position);
  assert.deepEqual(
    positions,
    Array.from({ length: 40 }, (_, index) => index + 1),
  );
});

test('a follower never misses an event of a writer that commits late', async () => {
  const before = (await readAfter(0)).length;
  const seen = new Set<string>();
  let position = before;
  let isWriting = true;
  const writers = Array.from({ length: 6 }, async () => {
    for (let turn = 0; turn < 10; turn += 1) {
      await database.db.transaction(async (tx) => {
        await queue(tx);
        await sleep(Math.random() * 8);
      });
    }
  });
  const follower = (async () => {
    for (let isLast = false; !isLast; ) {
      isLast = !isWriting;
      await sequenceEvents(database.db);
      for (const event of await readAfter(position)) {
        seen.add(event.id);
        position = event.position;
      }
    }
  })();
  await Promise.all(writers);
  isWriting = false;
  await follower;
  assert.equal(seen.size, 60);
});
