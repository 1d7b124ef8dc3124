import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, beforeEach, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { revocationUnit } from '../../auth-modes/revocation.ts';
import { ensureEnvironment } from '../../environments/store.ts';
import { createIntegration, type Integration } from '../../integrations/store.ts';
import { createLog } from '../../log.ts';
import { openVault } from '../../vault.ts';
import { destroyConnection, insertConnection } from '../store/save.ts';
import { type Connection, findHead } from '../store/store.ts';
import { forgetTokens, recordIssuedToken, sweepTokens, updateTokenSlots } from './issued-tokens.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
const google = catalog.get('google-sheet');
/** A small limit: near from 4 on, reached at 5. */
const limit = 5;
const clientId = '111-a.apps.googleusercontent.com';
const log = createLog({ level: 'silent', format: 'json' });

let database: TestDatabase;
let dev: Integration;
let prod: Integration;
let time = new Date('2026-11-21T12:00:00Z');
before(async () => {
  database = await openTestDatabase();
  const make = async (name: string) => {
    const environmentId = (await ensureEnvironment(database.db, { name, vault })).environment.id;
    const made = await createIntegration(database.db, {
      vault,
      catalog,
      testClient: undefined,
      environmentId,
      key: 'sheets',
      provider: 'google-sheet',
      client: { clientId, clientSecret: 'secret' },
    });
    const refresh_token_lifetime = { unused_days: 180, live_per_account: limit };
    return { ...made, provider: { ...google, refresh_token_lifetime } };
  };
  [dev, prod] = [await make('dev'), await make('prod')];
});
after(() => database.drop());
beforeEach(async () => {
  for (const table of ['issued_token', 'connection', 'event'])
    await database.db.query(`delete from ${table}`);
});

const account = { id: 'ada' };
const tick = (seconds = 1) => {
  time = new Date(time.getTime() + seconds * 1000);
  return time;
};
const connect = (integration = dev, { of = account, at = tick } = {}) =>
  database.db.transaction(async (tx) => {
    const connection = await insertConnection(tx, {
      vault,
      integration,
      grant: { account: of },
      at: time,
      credentials: { type: 'OAUTH2', access_token: 'a', refresh_token: 'r', raw: {} },
    });
    await recordIssuedToken(tx, { integration, account: of, connection, wasDead: false, at: at() });
    return connection;
  });
const reconnect = (connection: Connection, wasDead = false) =>
  database.db.transaction((tx) =>
    recordIssuedToken(tx, { integration: dev, account, connection, wasDead, at: tick() }),
  );
const connectMany = async (count: number) => {
  const made: Connection[] = [];
  for (let turn = 0; turn < count; turn += 1) made.push(await connect());
  return made;
};
const destroy = ({ id }: Connection) =>
  database.db.transaction((tx) => destroyConnection(tx, { id, at: new Date() }));
const update = () => updateTokenSlots(database.db, { log, signal: new AbortController().signal });
const slotsOf = async (connection: Connection) => (await findHead(database.db, connection))?.tokenSlots;
const events = async () =>
  (
    await database.db.query<{ environment_id: number; data: Record<string, unknown> }>(
      "select environment_id, data from event where type = 'connection.token_slots' order by created_at",
    )
  ).map(({ environment_id, data }) => ({
    environmentId: environment_id,
    connection: data.connection_id,
    used: data.used,
    isNext: data.is_next,
  }));

test('an account near the limit is reported once, and so is each connection that will be ended next', async () => {
  const made = await connectMany(6);
  const [first, second, , fourth] = made.map(({ connectionId }) => connectionId);
  assert.deepEqual(
    (await events()).map(({ connection, used, isNext }) => [connection, used, isNext]),
    [
      [fourth, 4, false],
      [first, 5, true],
      [second, 5, true],
    ],
  );
  await update();
  assert.deepEqual(await slotsOf(made[1]!), { used: 5, limit });
});

test('the tokens of all environments count, and each hears of its own connections alone', async () => {
  const [theirs] = [await connect(prod)];
  await connectMany(4);
  const reported = await events();
  assert.deepEqual(
    reported.map(({ environmentId, isNext }) => [environmentId, isNext]),
    [
      [dev.environmentId, false],
      [prod.environmentId, true],
    ],
  );
  assert.equal(reported[1]?.connection, theirs.connectionId);
});

test('another account, and a provider without a limit, count for themselves', async () => {
  await connectMany(3);
  const other = await connect(dev, { of: { id: 'grace' } });
  assert.equal(await slotsOf(other), undefined);
  const unlimited = { ...dev, provider: { ...dev.provider, refresh_token_lifetime: {} } };
  for (let turn = 0; turn < 6; turn += 1) await connect(unlimited);
  assert.deepEqual(await events(), []);
});

test('reconnecting the oldest gives a place back; reconnecting a later one takes one', async () => {
  const [first, second, third] = await connectMany(3);
  await reconnect(first!);
  assert.equal(await slotsOf(first!), undefined);
  // Superseded, and younger than the oldest needed token: it is dropped after that one.
  await reconnect(third!);
  assert.deepEqual(await slotsOf(third!), { used: 4, limit });
  await reconnect(second!);
  assert.deepEqual(await slotsOf(second!), undefined);
  assert.deepEqual((await events()).length, 1);
});

test('a crossing is reported again after the account was below', async () => {
  const [first] = await connectMany(4);
  await destroy(first!);
  await connect();
  assert.deepEqual(
    (await events()).map(({ used }) => used),
    [4, 4],
  );
});

test('a deleted connection in between takes a place until its grant is revoked', async () => {
  const made = await connectMany(4);
  await destroy(made[2]!);
  assert.equal(await update(), 2);
  assert.deepEqual(await slotsOf(made[0]!), { used: 4, limit });
  const unit = revocationUnit(google, clientId)!;
  await forgetTokens(database.db, { unit, accountId: 'ada' });
  await update();
  const later = await connect();
  assert.equal(await slotsOf(later), undefined);
});

test('a token died with its connection, and does not count when it is replaced', async () => {
  const made = await connectMany(4);
  await database.db.query("update connection set status = 'needs_reauth' where id = $1", [made[2]!.id]);
  await update();
  assert.equal(await slotsOf(made[3]!), undefined);
  await database.db.query("update connection set status = 'active' where id = $1", [made[2]!.id]);
  await reconnect(made[2]!, true);
  assert.deepEqual(await slotsOf(made[2]!), { used: 4, limit });
});

test('a token that came and was not kept takes a place', async () => {
  const made = await connectMany(3);
  await database.db.transaction((tx) =>
    recordIssuedToken(tx, { integration: dev, account, connection: undefined, wasDead: false, at: tick() }),
  );
  assert.deepEqual(
    (await events()).map(({ connection, used }) => [connection, used]),
    [[made[0]!.connectionId, 4]],
  );
});

test('a superseded token that was unused for so long counts as dead', async () => {
  const [, second] = await connectMany(3);
  await reconnect(second!);
  assert.deepEqual(await slotsOf(second!), { used: 4, limit });
  tick(181 * 24 * 3600);
  await connect();
  await update();
  assert.deepEqual(await slotsOf(second!), { used: 4, limit });
  const [{ count }] = (await database.db.query('select count(*)::integer from issued_token')) as [
    { count: number },
  ];
  assert.equal(count, 4);
});

test('the tokens of an account without connections are deleted, those of other accounts are kept', async () => {
  const left = [await connect(), await connect()];
  await connect(dev, { of: { id: 'bob' } });
  const inBetween = await connect(dev, { of: { id: 'cy' } });
  await connect(dev, { of: { id: 'cy' } });
  for (const connection of [...left, inBetween]) await destroy(connection);
  const max = 2;
  const after = await sweepTokens(database.db, { after: undefined, max });
  assert.notEqual(after, undefined);
  assert.equal(await sweepTokens(database.db, { after, max }), undefined);
  const rows = await database.db.query<{ count: number }>(
    'select count(*)::integer as count from issued_token group by holder order by count',
  );
  assert.deepEqual(
    rows.map(({ count }) => count),
    [1, 2],
  );
});

test('the table contains neither token nor account', async () => {
  await connectMany(1);
  const [row] = await database.db.query<{ text: string }>('select t::text as text from issued_token t');
  assert.ok(!row?.text.includes(Buffer.from('ada').toString('hex')));
});

test('twenty at once are counted one by one', async () => {
  // All have the same time: the order of insertion counts.
  await Promise.all(Array.from({ length: 20 }, () => connect(dev, { at: () => time })));
  const reported = await events();
  assert.equal(reported.filter(({ isNext }) => !isNext).length, 1);
  const next = reported.filter(({ isNext }) => isNext).map(({ connection }) => connection);
  assert.equal(next.length, 16);
  assert.equal(new Set(next).size, 16);
  await update();
  const counted = await database.db.query("select from connection where token_slots->>'used' = '5'");
  assert.equal(counted.length, limit, 'the provider has dropped the others');
});

test('a connection whose warning cannot be written does not stop the others', async () => {
  const [bad, ...others] = await connectMany(4);
  assert.ok(bad);
  await database.db.query('update connection set token_slots = $1', [JSON.stringify({ used: 9, limit })]);
  await database.db.query(
    `alter table connection add constraint broken check (id <> ${bad.id} or token_slots->>'used' = '9')`,
  );
  assert.equal(await update(), others.length);
  await database.db.query('alter table connection drop constraint broken');
});
