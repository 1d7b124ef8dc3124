// Slow: it fills tables with many rows.
import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { countingBlocks } from '../../test/support/blocks.ts';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import { ensureEnvironment } from '../environments/store.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/auth/caller.ts';
import { createIntegration } from '../integrations/store.ts';
import { openVault } from '../vault.ts';
import { emailsOf, withAccounts } from './accounts.ts';
import { logAll } from './logging.fixture.ts';
import type { OperationFilter } from './operations.ts';
import { searchOperations } from './search.ts';
import { countOperations } from './series.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
let database: TestDatabase;
const environmentId = 1;
before(async () => {
  database = await openTestDatabase();
  const { db } = database;
  const environments = [];
  for (const name of ['dev', 'prod'])
    environments.push((await ensureEnvironment(db, { name, vault })).environment.id);
  assert.deepEqual(environments, [1, 2]);
  const client = { clientId: 'id', clientSecret: 'secret' };
  const make = async (key: string, of = environmentId) =>
    (
      await createIntegration(db, {
        vault,
        catalog,
        testClient: undefined,
        environmentId: of,
        key,
        provider: 'google-sheet',
        client,
      })
    ).id;
  const [sheet, drive, far] = [await make('sheet'), await make('drive'), await make('sheet', 2)];
  const connect = (integration: number, id: string, email: string | null, endUser: string | null = null) =>
    db.query(
      `insert into connection (environment_id, integration_id, connection_id, data_key, account_id, account_email, end_user)
       select environment_id, id, $2, gen_random_uuid(), 'account', $3::text,
         case when $4::text is not null then jsonb_build_object('id', 'u', 'email', $4::text) end
       from integration where id = $1`,
      [integration, id, email, endUser],
    );
  await connect(sheet, 'ada', 'Ada@Example.com');
  await connect(drive, 'ada', null, 'ada@example.com');
  await connect(sheet, 'bob', 'bob@example.com', 'boss@example.com');
  await connect(sheet, 'eve', null);
  await connect(far, 'far', 'ada@example.com');
  for (let n = 0; n < 21; n += 1) await connect(sheet, `many-${n}`, 'many@example.com');
  const entries = Array.from({ length: 300 }, (_, n) => ({
    at: new Date(Date.UTC(2026, 0, 1 + (n % 3), 10, 0, n)).toISOString(),
    path: `/${n}`,
    integration: n % 4 === 0 ? 'drive' : 'sheet',
    connection: n % 3 === 0 ? 'bob' : 'ada',
    ...(n % 10 === 0 && { status: 'failed' as const }),
  }));
  // IDs ascend, so they are logged in the order of their times.
  await logAll(
    db,
    entries.sort((one, other) => (one.at < other.at ? -1 : 1)),
  );
});
after(() => database.drop());

const filterOf = (more: Partial<OperationFilter>) => withAccounts(database.db, { environmentId, ...more });

async function found(filter: OperationFilter, { limit, max = 1_000 }: { limit: number; max?: number }) {
  const paths: unknown[] = [];
  let before: string | undefined;
  do {
    const page = await searchOperations(database.db, { filter, limit, before, max });
    paths.push(...page.operations.map(({ path }) => path));
    before = page.next;
  } while (before !== undefined);
  return paths;
}

/** Newest first. */
const pathsOf = (fits: (n: number) => boolean) =>
  Array.from({ length: 300 }, (_, n) => n)
    .filter(fits)
    .sort((a, b) => (b % 3) - (a % 3) || b - a)
    .map((n) => `/${n}`);

test('an e-mail address finds the operations of its connections, in order and on pages without a gap', async () => {
  const both = await filterOf({ text: 'ADA@example.com' });
  assert.equal(both.accounts?.length, 2);
  const ofAda = pathsOf((n) => n % 3 !== 0);
  for (const limit of [7, 100, 1_000])
    for (const max of [5, 1_000])
      assert.deepEqual(await found(both, { limit, max }), ofAda, `${limit} ${max}`);
  const failed = await filterOf({ text: 'ada@example.com', status: 'failed' });
  assert.deepEqual(
    await found(failed, { limit: 7 }),
    pathsOf((n) => n % 3 !== 0 && n % 10 === 0),
  );
  const drive = await filterOf({ text: 'ada@example.com', integration: 'drive' });
  assert.deepEqual([drive.connection, drive.accounts], ['ada', undefined]);
  assert.deepEqual(
    await found(drive, { limit: 7 }),
    pathsOf((n) => n % 3 !== 0 && n % 4 === 0),
  );
  assert.deepEqual(
    await found(await filterOf({ text: 'boss@example.com' }), { limit: 50 }),
    pathsOf((n) => n % 12 !== 0 && n % 3 === 0),
  );
  assert.deepEqual(
    await found(await filterOf({ text: 'bob@example.com', connection: 'ada' }), { limit: 9 }),
    [],
  );
});

test('counts are those of the connections, as in a tail', async () => {
  const range = { from: new Date('2026-01-01'), to: new Date('2026-01-10') };
  const both = await filterOf({ text: 'ada@example.com', ...range });
  const { hours } = await countOperations(database.db, {
    filter: { ...both, ...range },
    kept: { sampleRate: 1, keptDays: 15 },
    now: range.to,
  });
  assert.equal(
    hours.reduce((sum, { count }) => sum + count, 0),
    200,
  );
});

test('other texts, and addresses of nobody, are searched as texts', async () => {
  for (const text of ['ada', 'nobody@example.com', '@example.com', 'ada@example.com and more'])
    assert.deepEqual(await filterOf({ text }), { environmentId, text });
  await assert.rejects(filterOf({ text: 'many@example.com' }), (error) => {
    assert.ok(error instanceof AppError);
    assert.equal(error.code, 'invalid_query_params');
    return true;
  });
});

test('the statements of a search for an address read below 150 blocks, however many others there are', async () => {
  const { db } = database;
  await db.query(
    `insert into operation (id, environment_id, created_at, type, status, integration, connection, path, details)
     select
       (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid,
       1, at, 'proxy', 'success', 'sheet', 'other-' || n % 1000, '/other', '{}'
     from (
       select n, timestamptz '2026-01-01' + n * interval '400 milliseconds' as at from generate_series(1, 200000) as n
     ) as others`,
  );
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key, account_id, account_email, end_user)
     select environment_id, id, 'other-' || n, gen_random_uuid(), n, n || '@other.example.com',
       jsonb_build_object('id', n, 'email', n || '@user.example.com')
     from integration, generate_series(1, 30000) as n
     where key = 'sheet' and environment_id = 1`,
  );
  await db.query('vacuum analyze operation, connection');
  const { db: counting, reads } = countingBlocks(db);
  const filter = await withAccounts(counting, { environmentId, text: 'ada@example.com' });
  const { operations } = await searchOperations(counting, { filter, limit: 300 });
  assert.deepEqual(
    operations.map(({ path }) => path),
    pathsOf((n) => n % 3 !== 0),
  );
  await emailsOf(counting, { caller: callerWith('connections:read'), all: operations });
  assert.ok(reads.length >= 3);
  for (const { blocks, plan } of reads) assert.ok(blocks < 150, plan);
});

test('operations are shown with the address of the account or, without one, of the end user', async () => {
  const operations = [
    { integration: 'sheet', connection: 'ada' },
    { integration: 'drive', connection: 'ada' },
    { integration: 'sheet', connection: 'bob' },
    { integration: 'sheet', connection: 'eve' },
    { integration: 'sheet', connection: 'far' },
    { integration: null, connection: null },
  ];
  const emailOf = await emailsOf(database.db, { caller: callerWith('connections:read'), all: operations });
  assert.deepEqual(operations.map(emailOf), [
    'Ada@Example.com',
    'ada@example.com',
    'bob@example.com',
    null,
    null,
    null,
  ]);
  const hidden = await emailsOf(database.db, { caller: callerWith('events:read'), all: operations });
  assert.ok(operations.every((one) => hidden(one) === null));
});

function callerWith(scope: string): Caller {
  return { kind: 'key', environmentId, scopes: new Set([scope]) } as Partial<Caller> as Caller;
}
