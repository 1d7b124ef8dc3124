import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { countingBlocks } from '../../../test/support/blocks.ts';
import { countWaiting } from '../../../test/support/locks.ts';
import { revocationUnit } from '../../auth-modes/revocation.ts';
import { AppError } from '../../errors.ts';
import type { Integration } from '../../integrations/store.ts';
import { type DisconnectBench, openDisconnectBench, tokenOf } from '../disconnect.fixture.ts';
import { replaceCredentials } from '../store/save.ts';
import type { Connection } from '../store/store.ts';
import { recordIssuedToken } from './issued-tokens.ts';
import { whileExchanging } from './revocation-lock.ts';
import { isGrantShared } from './shared-grants.ts';

/** Connections with their own OAuth client, which decides which grants end together with theirs. */

let bench: DisconnectBench;
let sheets: Integration;
let prod: Integration;
before(async () => {
  bench = await openDisconnectBench();
  sheets = await bench.integrate('sheets', { client: '111-a' });
  prod = await bench.integrate('sheets', { environment: 'prod', client: '222-a' });
});
after(() => bench.end());
beforeEach(() => {
  bench.provider.answers(200);
  bench.provider.revoked.length = 0;
});
afterEach(() => bench.clear());

const own = '999-x';
const statusOf = async (connection: Connection) => (await bench.now(connection))?.status;
const refusesBecauseOf = (others: number) => (error: unknown) =>
  error instanceof AppError &&
  error.code === 'revocation_ends_others' &&
  (error.payload as { others: number }).others === others;

test('a grant of its own client stays while another has that client, under whatever integration', async () => {
  const one = await bench.connect(sheets, 'ada', own);
  const other = await bench.connect(prod, 'ada', '999-y');
  assert.deepEqual(await bench.disconnect(one), { revocation: 'shared' });
  assert.deepEqual(bench.provider.revoked, []);
  assert.deepEqual(await bench.disconnect(other), { revocation: 'done' });
  assert.deepEqual(bench.provider.revoked, [tokenOf(other)]);
});

test('a grant of its own client and that of an integration of the same project end together', async () => {
  const third = await bench.integrate('third', { client: '999-z' });
  const plain = await bench.connect(third, 'ada');
  assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada', own)), { revocation: 'shared' });
  const mine = await bench.connect(sheets, 'ada', own);
  assert.deepEqual(await bench.disconnect(plain), { revocation: 'shared' });
  assert.deepEqual(await bench.disconnect(mine), { revocation: 'done' });
});

test('a grant of its own client and that of its integration have nothing in common', async () => {
  const plain = await bench.connect(sheets, 'ada');
  const mine = await bench.connect(sheets, 'ada', own);
  assert.deepEqual(await bench.disconnect(mine), { revocation: 'done' });
  assert.equal(await statusOf(plain), 'active');
  const another = await bench.connect(sheets, 'ada', own);
  assert.deepEqual(await bench.disconnect(plain, 'always'), { revocation: 'done' });
  assert.equal(await statusOf(another), 'active');
  assert.deepEqual(bench.provider.revoked, [tokenOf(mine), tokenOf(plain)]);
});

test('other projects, accounts, providers and connections that need their user share no client', async () => {
  await bench.connect(sheets, 'ada', '9991-x');
  await bench.connect(sheets, 'bob', own);
  await bench.connect(await bench.integrate('alone', { provider: 'rotating' }), 'ada', own);
  const dead = await bench.connect(sheets, 'ada', own);
  await bench.db.query(`update connection set status = 'needs_reauth' where id = $1`, [dead.id]);
  assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada', own)), { revocation: 'done' });
});

test('one whose account is not known may be of any account of its own client, and of no other', async () => {
  await bench.connect(prod, undefined, own);
  assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada', own)), { revocation: 'shared' });
  assert.deepEqual(await bench.disconnect(await bench.connect(sheets, undefined, own)), {
    revocation: 'shared',
  });
  assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'done' });
});

test('a forced revocation counts and ends those of its client alone', async () => {
  const one = await bench.connect(sheets, 'ada', own);
  const other = await bench.connect(prod, 'ada', own);
  const third = await bench.connect(await bench.integrate('forced', { client: '999-z' }), 'ada');
  const unknown = await bench.connect(prod, undefined, own);
  const plain = await bench.connect(sheets, 'ada');
  await assert.rejects(bench.disconnect(one, 'always'), refusesBecauseOf(3));
  assert.deepEqual(await bench.disconnect(one, 'always', 3), { revocation: 'done' });
  const statuses = await Promise.all([other, third, unknown, plain].map(statusOf));
  assert.deepEqual(statuses, ['needs_reauth', 'needs_reauth', 'active', 'active']);
});

test('one whose own client is not known counts for every project, and is ended by none', async () => {
  const odd = await bench.connect(sheets, 'ada', own);
  await bench.db.query('update connection set own_client_id = null');
  for (const client of [undefined, own]) {
    const one = await bench.connect(prod, 'ada', client);
    assert.deepEqual(await bench.disconnect(one), { revocation: 'shared' });
    const another = await bench.connect(prod, 'ada', client);
    await assert.rejects(bench.disconnect(another, 'always'), refusesBecauseOf(1));
    assert.deepEqual(await bench.disconnect(another, 'always', 1), { revocation: 'done' });
  }
  assert.equal(await statusOf(odd), 'active');
  assert.deepEqual(await bench.disconnect(odd), { revocation: 'done' });
});

test('a queued revocation is dropped once the account connects again by that client, and by no other', async () => {
  bench.provider.answers(503);
  await bench.disconnect(await bench.connect(sheets, 'ada', own), 'always');
  bench.advance(3600_000);
  await bench.connect(sheets, 'ada');
  await bench.runJob();
  assert.equal((await bench.waiting()).length, 1);
  await bench.connect(prod, 'ada', own);
  bench.advance(6 * 3600_000);
  bench.provider.answers(200);
  await bench.runJob();
  assert.deepEqual(await bench.waiting(), []);
  assert.equal((await bench.eventsOf('connection.revoke_dropped')).length, 1);
});

test('a code of a client that was brought along puts off the revocations of that client', async () => {
  const ownClient = { clientId: `${own}.apps.googleusercontent.com`, clientSecret: 'secret' };
  const mine = await bench.connect(sheets, 'ada', own);
  const plain = await bench.connect(sheets, 'ada');
  await whileExchanging(bench.db, { integration: sheets, ownClient }, async () => {
    assert.deepEqual(await bench.disconnect(plain), { revocation: 'done' });
    assert.deepEqual(await bench.disconnect(mine), { revocation: 'queued' });
  });
});

test('a revocation forgets the tokens of its client alone', async () => {
  const mine = await bench.connect(sheets, 'ada', own);
  const plain = await bench.connect(sheets, 'ada');
  const client = { clientId: `${own}.apps.googleusercontent.com`, clientSecret: 'secret' };
  for (const [connection, integration] of [
    [mine, { ...sheets, client }] as const,
    [plain, sheets] as const,
  ]) {
    const issued = { account: { id: 'ada' }, wasDead: false, at: bench.deps.now() };
    await bench.db.transaction((tx) => recordIssuedToken(tx, { ...issued, integration, connection }));
  }
  await bench.disconnect(mine);
  const left = await bench.db.query<{ connection: number }>('select connection from issued_token');
  assert.deepEqual(left, [{ connection: plain.id }]);
});

test('a deletion counts again if the client was changed while the deletion waited', async () => {
  const one = await bench.connect(sheets, 'ada');
  const { account, credentials } = await bench.connect(prod, 'ada', own);
  const { vault } = bench.deps.reading;
  const given = { vault, current: one, credentials, grant: { account }, at: bench.deps.now() };
  let deleted: Promise<unknown> | undefined;
  await bench.db.transaction(async (tx) => {
    await tx.query('select from connection where id = $1 for update', [one.id]);
    deleted = assert.rejects(bench.disconnect(one, 'always'), refusesBecauseOf(1));
    while ((await countWaiting(bench.db)) === 0) await wait(5);
    await replaceCredentials(tx, given);
  });
  await deleted;
  assert.deepEqual(bench.provider.revoked, []);
});

test('a look for own clients reads few blocks, however many connections have none', async () => {
  const { db, deps } = bench;
  await bench.connect(prod, 'ada', own);
  await db.query(
    `insert into connection (environment_id, integration_id, connection_id, data_key)
     select environment_id, id, 'many-' || n, gen_random_uuid() from integration, generate_series(1, 20000) as n
     where id = $1`,
    [prod.id],
  );
  await db.query('vacuum analyze connection');
  const unit = revocationUnit(sheets.provider, sheets.client!.clientId)!;
  const counting = countingBlocks(db);
  for (const accountId of [undefined, 'ada'])
    assert.equal(await isGrantShared(counting.db, { unit, accountId, reading: deps.reading }), false);
  for (const { blocks, plan } of counting.reads) assert.ok(blocks < 60, plan);
});
