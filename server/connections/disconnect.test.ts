import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import { type DisconnectBench, openDisconnectBench, tokenOf } from './disconnect.fixture.ts';
import { sendingMs, whileExchanging } from './revocation/revocation-lock.ts';
import { findConnection } from './store/store.ts';

const hour = 3600_000;
let bench: DisconnectBench;
let sheets: Integration;
before(async () => {
  bench = await openDisconnectBench();
  sheets = await bench.integrate('sheets');
});
after(() => bench.end());
beforeEach(() => {
  bench.provider.answers(200);
  bench.provider.revoked.length = 0;
});
afterEach(() => bench.clear());

describe('a deletion', () => {
  test('revokes at the provider with the last connection of the account, and not before', async () => {
    const one = await bench.connect(sheets, 'ada');
    const other = await bench.connect(sheets, 'ada');
    assert.deepEqual(await bench.disconnect(one), { revocation: 'shared' });
    assert.deepEqual(bench.provider.revoked, []);
    assert.deepEqual(await bench.disconnect(other), { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, [tokenOf(other)]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('counts every connection that ends with the project: other environments, providers and clients', async () => {
    const drive = await bench.integrate('drive', { provider: 'google-drive' });
    const prod = await bench.integrate('sheets', { environment: 'prod', client: '111-b' });
    for (const integration of [drive, prod]) {
      const other = await bench.connect(integration, 'ada');
      assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'shared' });
      assert.deepEqual(await bench.disconnect(other), { revocation: 'done' });
    }
  });

  test('does not count a project whose number merely begins alike', async () => {
    await bench.connect(await bench.integrate('alike', { client: '1111-a' }), 'ada');
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'done' });
  });

  test('does not count other accounts, other projects, and connections that need their user anyway', async () => {
    const elsewhere = await bench.integrate('elsewhere', { client: '222-a' });
    await bench.connect(elsewhere, 'ada');
    await bench.connect(sheets, 'bob');
    const dead = await bench.connect(sheets, 'ada');
    await bench.db.query(`update connection set status = 'needs_reauth' where id = $1`, [dead.id]);
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'done' });
  });

  test('leaves a grant that may be that of a connection whose account is not known', async () => {
    await bench.connect(sheets);
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'shared' });
    const unknown = await bench.connect(sheets);
    await bench.connect(sheets, 'ada');
    assert.deepEqual(await bench.disconnect(unknown), { revocation: 'shared' });
  });

  test('keeps the grant on request, and if a provider has no revocation', async () => {
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada'), 'never'), {
      revocation: 'none',
    });
    const open = await bench.integrate('open', { provider: 'unauthenticated', client: null });
    assert.deepEqual(await bench.disconnect(await bench.connect(open)), { revocation: 'none' });
    assert.deepEqual(bench.provider.revoked, []);
  });

  test('takes a token that is dead already for revoked', async () => {
    bench.provider.answers(400, { error: 'invalid_token', error_description: 'Token expired or revoked' });
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'done' });
  });
});

test('of twenty connections of one account that are deleted at once, one revokes', async () => {
  const all = await Promise.all(Array.from({ length: 20 }, () => bench.connect(sheets, 'ada')));
  const outcomes = await Promise.all(all.map((connection) => bench.disconnect(connection)));
  assert.equal(outcomes.filter(({ revocation }) => revocation === 'done').length, 1);
  assert.equal(outcomes.filter(({ revocation }) => revocation === 'shared').length, 19);
  assert.equal(bench.provider.revoked.length, 1);
});

describe('a forced revocation', () => {
  test('is refused until the number of the others is confirmed, and changes nothing before', async () => {
    const one = await bench.connect(sheets, 'ada');
    await bench.connect(sheets, 'ada');
    await bench.connect(sheets);
    for (const wrong of [0, 1, 3]) {
      await assert.rejects(
        bench.disconnect(one, 'always', wrong),
        (error) =>
          error instanceof AppError &&
          error.code === 'revocation_ends_others' &&
          (error.payload as { others: number }).others === 2,
      );
    }
    assert.deepEqual(bench.provider.revoked, []);
    assert.deepEqual(await bench.eventsOf('connection.deleted'), []);
    assert.deepEqual(await bench.disconnect(one, 'always', 2), { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, [tokenOf(one)]);
  });

  test('sends the others an event at once, each in its environment, with the cause of their end', async () => {
    const prod = await bench.integrate('forced', { environment: 'prod' });
    const other = await bench.connect(prod, 'ada');
    const stranger = await bench.connect(prod, 'bob');
    await bench.disconnect(await bench.connect(sheets, 'ada'), 'always', 1);
    const statusOf = async (connection: typeof other) =>
      (await findConnection(bench.db, { ...connection, vault: bench.deps.reading.vault }))?.status;
    assert.equal(await statusOf(other), 'needs_reauth');
    assert.equal(await statusOf(stranger), 'active');
    const events = await bench.eventsOf('connection.needs_reauth', 'prod');
    assert.deepEqual(
      events.map(({ connection_id, cause }) => [connection_id, cause]),
      [[other.connectionId, 'revoked_by_disconnect']],
    );
    assert.deepEqual(await bench.eventsOf('connection.needs_reauth'), []);
    assert.deepEqual(await bench.auditOf('connection.ended', 'prod'), [`forced/${other.connectionId}`]);
  });

  test('that waits is sent although a refresh has kept another connection alive meanwhile', async () => {
    const prod = await bench.integrate('kept-alive', { environment: 'prod' });
    const other = await bench.connect(prod, 'ada');
    bench.provider.answers(503);
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada'), 'always', 1), {
      revocation: 'queued',
    });
    await bench.refresh(other);
    assert.equal((await bench.now(other))?.status, 'active');
    bench.provider.answers(200);
    bench.advance(hour);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 2, 'the failure and one more');
    assert.deepEqual(await bench.waiting(), []);
    assert.deepEqual(await bench.eventsOf('connection.revoke_dropped'), []);
  });

  test('that waits is dropped and reported once the account has connected again', async () => {
    bench.provider.answers(503);
    const one = await bench.connect(sheets, 'ada');
    await bench.disconnect(one, 'always');
    bench.advance(hour);
    await bench.connect(sheets, 'ada');
    bench.provider.answers(200);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1, 'only the attempt that failed');
    const reported = await bench.eventsOf('connection.revoke_dropped');
    assert.deepEqual(
      reported.map(({ connection_id }) => connection_id),
      [one.connectionId],
    );
    assert.ok((await bench.auditOf('connection.revoke_dropped')).includes(`sheets/${one.connectionId}`));
  });

  test('needs no confirmation if no other connection loses access', async () => {
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada'), 'always'), {
      revocation: 'done',
    });
  });
});

describe('a grant that is just being made', () => {
  test('puts off the revocations of its project, and survives them', async () => {
    const one = await bench.connect(sheets, 'ada');
    await whileExchanging(bench.db, { integration: sheets, ownClient: undefined }, async () => {
      assert.deepEqual(await bench.disconnect(one), { revocation: 'queued' });
      await bench.connect(sheets, 'ada');
    });
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, []);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('begins after a revocation that is on its way', async () => {
    const order: string[] = [];
    const arrived = Promise.withResolvers<void>();
    bench.provider.answersWhen(arrived.promise.then(() => order.push('revoked')));
    const deleted = bench.disconnect(await bench.connect(sheets, 'ada'));
    while (bench.provider.revoked.length === 0) await wait(5);
    const exchanged = whileExchanging(bench.db, { integration: sheets, ownClient: undefined }, async () => {
      order.push('exchanged');
    });
    while ((await bench.db.query('select from exchange')).length === 0) await wait(5);
    arrived.resolve();
    await Promise.all([deleted, exchanged]);
    assert.deepEqual(order, ['revoked', 'exchanged']);
    assert.deepEqual(await bench.db.query('select from exchange'), []);
  });

  test('begins after a revocation without an answer can no longer be carried out', async () => {
    bench.provider.hangsUp();
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'queued' });
    const [left] = await bench.db.query<{ seconds: number }>(
      'select extract(epoch from sending_until - clock_timestamp())::float8 as seconds from revocation',
    );
    assert.ok(left!.seconds > sendingMs / 2000, 'what the provider may take after the answer was given up');
    let isOver = false;
    const begun = Array.from({ length: 20 }, () =>
      whileExchanging(bench.db, { integration: sheets, ownClient: undefined }, async () => isOver),
    );
    while ((await bench.db.query('select from exchange')).length < 20) await wait(5);
    isOver = true;
    await bench.db.query('update revocation set sending_until = clock_timestamp()');
    assert.deepEqual([...new Set(await Promise.all(begun))], [true]);
  });

  test('is forgotten when its node died, so that revocations go on', async () => {
    await bench.db.query(
      "insert into exchange (unit, expires_at) values ($1, clock_timestamp() + interval '60 seconds')",
      ['https://oauth2.googleapis.com/revoke 111'],
    );
    assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'queued' });
    await bench.db.query('update exchange set expires_at = clock_timestamp()');
    bench.advance(61_000);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1);
  });
});
