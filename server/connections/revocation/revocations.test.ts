import assert from 'node:assert/strict';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import type { Integration } from '../../integrations/store.ts';
import { clientSecret, type DisconnectBench, openDisconnectBench, tokenOf } from '../disconnect.fixture.ts';
import { sealKept } from '../refresh/previous-refresh-tokens.ts';
import { type Connection, findConnection } from '../store/store.ts';
import { whileExchanging } from './revocation-lock.ts';
import { sendRevocation } from './revocations.ts';

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

describe('a forced revocation of a token that is dead at the provider', () => {
  const three = async () => {
    const prod = await bench.integrate(crypto.randomUUID(), { environment: 'prod' });
    const all: [Connection, Connection, Connection] = [
      await bench.connect(sheets, 'ada'),
      await bench.connect(prod, 'ada'),
      await bench.connect(sheets, 'ada'),
    ];
    return all;
  };

  test('continues with the tokens of the others, which it ends here, until one is accepted', async () => {
    const [one, two, last] = await three();
    const stranger = await bench.connect(sheets);
    bench.provider.knowsAsDead([tokenOf(one)]);
    assert.deepEqual(await bench.disconnect(one, 'always', 3), { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, [tokenOf(one), tokenOf(two)]);
    const transitions = await Promise.all([two, last, stranger].map((other) => bench.now(other)));
    assert.deepEqual(
      transitions.map((state) => state?.status),
      ['needs_reauth', 'needs_reauth', 'active'],
    );
  });

  test('is done once the provider reports all of them as dead', async () => {
    const all = await three();
    bench.provider.knowsAsDead(all.map(tokenOf));
    assert.deepEqual(await bench.disconnect(all[0], 'always', 2), { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, all.map(tokenOf));
    assert.deepEqual(await bench.waiting(), []);
  });

  test('is not done while one of them may live: the rest waits, sealed, and is sent later', async () => {
    const [one, two, last] = await three();
    bench.provider.knowsAsDead([tokenOf(one)], 503);
    assert.deepEqual(await bench.disconnect(one, 'always', 2), { revocation: 'queued' });
    assert.deepEqual(await bench.waiting(), [
      { attempts: 1, evidence: { error: 'server_error', http_status: 503 } },
    ]);
    bench.provider.revoked.length = 0;
    bench.provider.knowsAsDead([tokenOf(two)]);
    bench.advance(hour);
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [tokenOf(two), tokenOf(last)]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('continues although one of the others cannot be opened', async () => {
    const [one, bad, last] = await three();
    await bench.db.query(`update connection set credentials = '\\x00' where id = $1`, [bad.id]);
    bench.provider.knowsAsDead([tokenOf(one)]);
    assert.deepEqual(await bench.disconnect(one, 'always', 2), { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, [tokenOf(one), tokenOf(last)]);
  });
});

test('a revocation continues with the tokens that were kept beside a dead one', async () => {
  const one = await bench.connect(sheets, 'ada');
  const kept = ['refresh-kept-of-the-one', 'refresh-kept-of-old'];
  await bench.db.query('update connection set kept_tokens = $2 where id = $1', [one.id, sealKept(one, kept)]);
  bench.provider.knowsAsDead([tokenOf(one)]);
  assert.deepEqual(await bench.disconnect(one), { revocation: 'done' });
  assert.deepEqual(bench.provider.revoked, [tokenOf(one), kept[0]]);
});

describe('a refresh that is under way when its connection is deleted', () => {
  const next = 'refresh-that-comes-too-late';
  /** Resolves once a refresh holds the lease; `arrives` lets its answer come. */
  const refreshing = async (connection: Connection) => {
    const answer = Promise.withResolvers<string>();
    const refresh = assert.rejects(bench.refresh(connection, answer.promise), { code: 'unknown_connection' });
    const held = () => bench.db.query('select from connection where refresh_until > now()');
    while ((await held()).length === 0) await wait(5);
    return {
      arrives: async () => {
        answer.resolve(next);
        await refresh;
      },
    };
  };
  const untilDeleted = async () => {
    while ((await bench.eventsOf('connection.deleted')).length === 0) await wait(5);
  };

  test('is waited for, and the token that it brings is revoked', async () => {
    const rotating = await bench.integrate('rotating', { provider: 'rotating' });
    const one = await bench.connect(rotating, 'ada');
    const { arrives } = await refreshing(one);
    const deleted = bench.disconnect(one);
    await untilDeleted();
    assert.deepEqual(bench.provider.revoked, []);
    await arrives();
    assert.deepEqual(await deleted, { revocation: 'done' });
    assert.deepEqual(bench.provider.revoked, [next]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('has its token revoked also where the revocation was carried out before', async () => {
    const one = await bench.connect(sheets, 'ada');
    const { arrives } = await refreshing(one);
    assert.deepEqual(await bench.disconnect(one), { revocation: 'done' });
    await arrives();
    assert.equal((await bench.waiting()).length, 1);
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [tokenOf(one), next]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('has its token revoked also where the revocation is being sent at the moment', async () => {
    const one = await bench.connect(sheets, 'ada');
    const { arrives } = await refreshing(one);
    const carriedOut = Promise.withResolvers<void>();
    bench.provider.answersWhen(carriedOut.promise);
    const deleted = bench.disconnect(one);
    while (bench.provider.revoked.length === 0) await wait(5);
    await arrives();
    carriedOut.resolve();
    assert.deepEqual(await deleted, { revocation: 'done' });
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [tokenOf(one), next]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('has its token revoked with the rest where the provider is down', async () => {
    bench.provider.answers(503);
    const one = await bench.connect(sheets, 'ada');
    const { arrives } = await refreshing(one);
    assert.deepEqual(await bench.disconnect(one), { revocation: 'queued' });
    await arrives();
    assert.equal((await bench.waiting()).length, 1);
    bench.provider.knowsAsDead([next]);
    bench.provider.revoked.length = 0;
    bench.advance(hour);
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [next, tokenOf(one)]);
  });

  test('has its token left where the grant was to stay, or is needed by another connection', async () => {
    const one = await bench.connect(sheets, 'ada');
    const first = await refreshing(one);
    assert.deepEqual(await bench.disconnect(one, 'never'), { revocation: 'none' });
    await first.arrives();
    const two = await bench.connect(sheets, 'ada');
    await bench.connect(sheets, 'ada');
    const second = await refreshing(two);
    assert.deepEqual(await bench.disconnect(two), { revocation: 'shared' });
    await second.arrives();
    assert.deepEqual(await bench.waiting(), []);
  });
});

test('a revocation that a fault of the database kept from being sent is sent by the next run', async () => {
  bench.provider.answers(503);
  await bench.disconnect(await bench.connect(sheets, 'ada'));
  bench.provider.answers(200);
  bench.advance(hour);
  await bench.db.query(
    `create function fail() returns trigger language plpgsql as $$ begin raise 'no' using errcode = '40P01'; end $$`,
  );
  await bench.db.query(
    'create trigger fails before update of attempts on revocation for each row execute function fail()',
  );
  await bench.runJob();
  assert.equal(bench.provider.revoked.length, 1);
  await bench.db.query('drop function fail cascade');
  await bench.runJob();
  assert.equal(bench.provider.revoked.length, 2);
  assert.deepEqual(await bench.waiting(), []);
});

describe('an outage of the provider', () => {
  test('does not stop the deletion; the revocation follows when the provider is back', async () => {
    bench.provider.answers(503);
    const one = await bench.connect(sheets, 'ada');
    assert.deepEqual(await bench.disconnect(one), { revocation: 'queued' });
    assert.equal(await findConnection(bench.db, { ...one, vault: bench.deps.reading.vault }), undefined);
    assert.deepEqual(await bench.waiting(), [
      { attempts: 1, evidence: { error: 'server_error', http_status: 503 } },
    ]);
    bench.provider.answers(200);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1, 'not before its time');
    bench.advance(hour);
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [tokenOf(one), tokenOf(one)]);
    assert.deepEqual(await bench.waiting(), []);
    assert.deepEqual(await bench.eventsOf('connection.revoke_failed'), []);
  });

  test('of more than three days ends the revocation, is reported once, and the token is deleted', async () => {
    bench.provider.answers(503);
    const one = await bench.connect(sheets, 'ada');
    await bench.disconnect(one);
    for (let hours = 0; hours < 80; hours += 8) {
      bench.advance(8 * hour);
      await bench.runJob();
    }
    const [event, ...more] = await bench.eventsOf('connection.revoke_failed');
    assert.equal(event?.connection_id, one.connectionId);
    assert.deepEqual(event?.evidence, { error: 'server_error', http_status: 503 });
    assert.deepEqual(more, []);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('does not keep others waiting where what it holds cannot be opened', async () => {
    bench.provider.answers(503);
    const bad = await bench.connect(sheets, 'ada');
    const good = await bench.connect(sheets, 'bob');
    await bench.disconnect(bad);
    await bench.disconnect(good);
    await bench.db.query(
      "update revocation set secrets = '\\x00' where id = (select min(id) from revocation)",
    );
    bench.provider.answers(200);
    bench.provider.revoked.length = 0;
    bench.advance(hour);
    await bench.runJob();
    assert.deepEqual(bench.provider.revoked, [tokenOf(good)]);
    const [left, ...more] = await bench.db.query<{ next_at: Date }>('select next_at from revocation');
    assert.ok(left && left.next_at > bench.deps.now());
    assert.deepEqual(more, []);
    bench.advance(75 * hour);
    await bench.runJob();
    assert.deepEqual(await bench.waiting(), [], 'after three days it is given up');
    const [event, ...others] = await bench.eventsOf('connection.revoke_failed');
    assert.deepEqual(
      [event?.connection_id, event?.evidence],
      [bad.connectionId, { error: 'secrets_unreadable' }],
    );
    assert.deepEqual(others, []);
    assert.equal((await bench.auditOf('connection.revoke_failed')).at(-1), `sheets/${bad.connectionId}`);
  });

  test('is given up after three days also where the provider names a far day, and not sent later', async () => {
    bench.provider.answers(503, {}, { 'retry-after': String(30 * 24 * 3600) });
    await bench.disconnect(await bench.connect(sheets, 'ada'));
    bench.provider.answers(200);
    bench.advance(75 * hour);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1, 'only the attempt that failed');
    const [event] = await bench.eventsOf('connection.revoke_failed');
    assert.deepEqual([event?.attempts, event?.evidence], [1, { error: 'server_error', http_status: 503 }]);
    assert.deepEqual(await bench.waiting(), []);
  });

  test('of the service for more than three days leaves its attempt to a revocation that was not tried yet', async () => {
    await whileExchanging(bench.db, { integration: sheets, ownClient: undefined }, async () => {
      assert.deepEqual(await bench.disconnect(await bench.connect(sheets, 'ada')), { revocation: 'queued' });
    });
    bench.advance(75 * hour);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1);
    assert.deepEqual(await bench.eventsOf('connection.revoke_failed'), []);
  });

  test('leaves no token readable in the database', async () => {
    bench.provider.answers(503);
    const one = await bench.connect(sheets, 'ada');
    await bench.disconnect(one);
    const [row] = await bench.db.query<{ text: string }>('select revocation::text as text from revocation');
    for (const secret of [tokenOf(one), clientSecret]) {
      assert.ok(!row?.text.includes(secret));
      assert.ok(!row?.text.includes(Buffer.from(secret).toString('hex')));
    }
  });

  test('is over for the old grant once the account has connected again: the new one is not ended', async () => {
    bench.provider.answers(503);
    await bench.disconnect(await bench.connect(sheets, 'ada'));
    await bench.connect(sheets, 'ada');
    bench.provider.answers(200);
    bench.advance(hour);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1, 'only the attempt that failed');
    assert.deepEqual(await bench.waiting(), []);
  });

  test('continues after the sending node was killed', async () => {
    bench.provider.answers(503);
    await bench.disconnect(await bench.connect(sheets, 'ada'));
    await bench.db.query(
      "update revocation set sending_until = clock_timestamp() + interval '30 seconds', next_at = $1",
      [bench.deps.now()],
    );
    bench.provider.answers(200);
    await bench.runJob();
    assert.equal(bench.provider.revoked.length, 1, 'while that node may be at it, nobody else is');
    await bench.db.query('update revocation set sending_until = clock_timestamp()');
    await bench.runJob();
    assert.deepEqual(await bench.waiting(), []);
  });
});

test('twenty nodes that find one revocation due send it once', async () => {
  bench.provider.answers(503);
  await bench.disconnect(await bench.connect(sheets, 'ada'));
  bench.provider.answers(200);
  const [row] = await bench.db.query<{ id: number }>('select id from revocation');
  const signal = new AbortController().signal;
  await Promise.all(Array.from({ length: 20 }, () => sendRevocation(bench.deps, { id: row!.id, signal })));
  assert.equal(bench.provider.revoked.length, 2, 'the failure and one more');
});
