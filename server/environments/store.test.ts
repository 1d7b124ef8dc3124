import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { clearEnvironment, deleteEnvironment } from './store.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

test('what an environment has in large tables is deleted before it, and only if it is unused', async () => {
  const { db } = database;
  await db.query(
    `insert into environment (name, data_key) values ('old', gen_random_uuid()), ('other', gen_random_uuid())`,
  );
  await db.query(
    `insert into integration (environment_id, key, provider, display_name)
     select id, 'sheets', 'google-sheet', 'Sheets' from environment`,
  );
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key)
     select environment_id, id, 'one', gen_random_uuid() from integration`,
  );
  await db.query(
    `insert into connect_session (environment_id, token_hash, settings, expires_at)
     select environment.id, decode(md5(environment.id || '/' || n), 'hex'), '\\x00', now()
     from environment, generate_series(1, 1200) as n`,
  );
  const left = async () => {
    const [row] = await db.query<Record<string, number>>(
      `select
         (select count(*) from environment where name = 'old') as environments,
         (select count(*) from connect_session join environment on environment.id = environment_id where name = 'old')
           as sessions,
         (select count(*) from connection join environment on environment.id = environment_id where name = 'old')
           as connections,
         (select count(*) from connect_session) as all`,
    );
    return row;
  };
  await assert.rejects(clearEnvironment(db, 'old'), { code: 'environment_in_use' });
  assert.deepEqual(await left(), { environments: 1, sessions: 1_200, connections: 1, all: 2_400 });
  await db.query(
    `update connection
     set data_key = null, deleted_at = now()
     where environment_id = (select id from environment where name = 'old')`,
  );
  await clearEnvironment(db, 'old');
  assert.deepEqual(await left(), { environments: 1, sessions: 0, connections: 0, all: 1_200 });
  await db.transaction((tx) => deleteEnvironment(tx, 'old'));
  assert.deepEqual(await left(), { environments: 0, sessions: 0, connections: 0, all: 1_200 });
  await assert.rejects(clearEnvironment(db, 'old'), { code: 'not_found' });
});
