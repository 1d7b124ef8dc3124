import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { openKeyBench } from './data-keys.fixture.ts';

let bench: Awaited<ReturnType<typeof openKeyBench>>;
let keys: { environment: string; connection: string };
beforeEach(async () => {
  bench = await openKeyBench();
  const [environment, connection] = await bench.make(2);
  keys = { environment: environment!.id, connection: connection!.id };
  await bench.db.query(
    `with e as (
       insert into environment (name, data_key) values ('dev', $1) returning id
     ), i as (
       insert into integration (environment_id, key, provider, display_name)
       select id, 'notes', 'private-api-key', 'Notes' from e
       returning id, environment_id
     )
     insert into connection (environment_id, integration_id, connection_id, data_key)
     select environment_id, id, 'ada', $2 from i`,
    [keys.environment, keys.connection],
  );
});
afterEach(() => bench.drop());

const ways = {
  'is marked as deleted': 'update connection set data_key = null, deleted_at = now()',
  'is removed': 'delete from connection',
  'is removed with its integration': 'delete from integration',
};
for (const [way, statement] of Object.entries(ways)) {
  test(`a connection that ${way} takes its data key along, and no other`, async () => {
    await bench.db.query(statement);
    assert.equal(await bench.wrappedOf(keys.connection), undefined);
    assert.ok(await bench.wrappedOf(keys.environment));
  });
}

test('an environment that is removed takes all data keys along', async () => {
  await bench.db.query('delete from environment');
  assert.deepEqual(await bench.counts(), {});
});

test('a connection that is changed keeps its data key', async () => {
  await bench.db.query('update connection set data_key = data_key, updated_at = now()');
  assert.ok(await bench.wrappedOf(keys.connection));
});

test('a rollback restores the data key', async () => {
  const undone = bench.db.transaction(async (tx) => {
    await tx.query('delete from connection');
    throw new Error('undone');
  });
  await assert.rejects(undone, /undone/);
  assert.ok(await bench.wrappedOf(keys.connection));
});
