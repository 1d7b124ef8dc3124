import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { quotaUse } from './quota.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

const integration = (id: number, clientId: string, more: { quota?: string; isTest?: boolean } = {}) => ({
  id,
  provider: catalog.get('google-sheet'),
  isTest: more.isTest ?? false,
  client: { clientId, clientSecret: 'secret' },
  integrationConfig: more.quota === undefined ? ({} as Record<string, string>) : { quota: more.quota },
});
const reads = 'ReadRequestsPerMinutePerProject';

test('the use is the sum of the last window of the whole project', async () => {
  const { db } = database;
  const [clock] = await db.query<{ cell: number }>(
    'select floor(extract(epoch from clock_timestamp()) / 2)::integer as cell',
  );
  const { cell } = clock!;
  // A cell is two seconds: one of long ago, two of the window, one reserved ahead.
  const cells = [
    [cell - 40, 100, 0],
    [cell - 20, 7, 2],
    [cell - 1, 3, 0],
    [cell + 2, 1, 0],
  ];
  const bucket = JSON.stringify(['sheets.googleapis.com', '123', '', reads, 60]);
  await db.query('insert into quota_book (bucket, pages, version) values ($1, $2, gen_random_uuid())', [
    bucket,
    JSON.stringify({ closedUntil: 0, cells }),
  ]);
  const uses = await quotaUse(db, [
    integration(1, '123-one.apps.googleusercontent.com'),
    integration(2, '123-two.apps.googleusercontent.com', { quota: `${reads}=600` }),
    integration(3, '456-other.apps.googleusercontent.com'),
    integration(4, '123-one.apps.googleusercontent.com', { quota: 'off' }),
    integration(5, '123-one.apps.googleusercontent.com', { isTest: true }),
    integration(6, '123-one.apps.googleusercontent.com', { quota: 'no longer a setting' }),
  ]);
  const readsOf = (id: number) => uses.get(id)?.find(({ name }) => name === reads);
  const of = { name: reads, counts: 'read', windowS: 60, closedUntil: undefined };
  assert.deepEqual(readsOf(1), { ...of, limit: 300, used: 13 });
  assert.deepEqual(readsOf(2), { ...of, limit: 600, used: 13 });
  assert.deepEqual(readsOf(3), { ...of, limit: 300, used: 0 });
  for (const id of [4, 5, 6]) assert.equal(uses.get(id), undefined);
  assert.ok(uses.get(1)!.every(({ name }) => name.endsWith('PerProject')));
});

test('a closed limit has the time of its end, and a reopened one has none', async () => {
  const { db } = database;
  const close = (until: Date) =>
    db.query(`update quota_book set pages = jsonb_set(pages, '{closedUntil}', to_jsonb($1::float8))`, [
      until.getTime(),
    ]);
  const closedUntil = async () =>
    (await quotaUse(db, [integration(1, '123-one.apps.googleusercontent.com')]))
      .get(1)!
      .find(({ name }) => name === reads)?.closedUntil;
  const until = new Date(Date.now() + 60_000);
  await close(until);
  assert.deepEqual(await closedUntil(), until);
  await close(new Date(Date.now() - 60_000));
  assert.equal(await closedUntil(), undefined);
});
