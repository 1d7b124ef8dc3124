import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabaseCable } from '../../test/support/database-cable.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';
import { endConnection } from './states.ts';
import { holdConnection } from './store.ts';

const t = refreshTests();

test('an answer that the database does not take is kept until it does', async () => {
  await t().open('single_use');
  const cable = await openDatabaseCable(t().bench.settings.target);
  const one = t().node({ target: cable.target });
  const connection = await one.live(name);
  t().bench.provider.plan = () => ({ afterMs: 100 });
  const refreshing = one.credentials.refreshed(connection);
  while (t().grant.accepted === 0) await sleep(5);
  cable.pull();
  await sleep(400);
  cable.plug();
  await refreshing;
  t().time += hour;
  assert.match((await t().fresh(t().node())).access_token, /^access~/);
  assert.equal(t().grant.accepted, 2);
  await cable.close();
});

test('an answer in hand goes before the request of another node, where the database was away for longer than the lease', async (context) => {
  await t().open('single_use', { storeMs: 5_000, patienceMs: 20_000 });
  const cable = await openDatabaseCable(t().bench.settings.target);
  context.after(cable.close);
  const [one, other] = [t().node({ target: cable.target }), t().node()];
  const connection = await one.live(name);
  t().bench.provider.plan = () => ({ afterMs: 100 });
  const storing = one.credentials.refreshed(connection);
  while (t().grant.accepted === 0) await sleep(5);
  cable.pull();
  while (t().grant.underWay > 0) await sleep(5);
  await t().endLease();
  const takingOver = t().fresh(other);
  await Promise.race([t().untilLeased(), takingOver]);
  cable.plug();
  const { credentials } = await storing;
  assert.deepEqual(await takingOver, credentials);
  assert.equal(t().grant.asked, 1);
  const [row] = await t().bench.db.query('select refresh_owner, refresh_sent_at from connection');
  assert.deepEqual(row, { refresh_owner: null, refresh_sent_at: null }, 'nothing is owed');
  t().time += hour;
  await t().fresh(other);
  assert.equal(t().grant.accepted, 2);
});

describe('an answer that the database refuses at the very end', () => {
  const refusals = {
    'a server that goes away': 'perform pg_terminate_backend(pg_backend_pid())',
    ...Object.fromEntries(
      ['25006', '40P01', '53100', '53300'].map((code) => [code, `raise 'no' using errcode = '${code}'`]),
    ),
  };
  for (const [refusal, statement] of Object.entries(refusals)) {
    test(`is stored all the same (${refusal})`, async () => {
      await t().open('single_use');
      for (const sql of [
        'create sequence commits',
        `create function refuse() returns trigger language plpgsql as
           $$ begin if nextval('commits') = 1 then ${statement}; end if; return null; end $$`,
        `create constraint trigger refuse after update of credentials on connection
           deferrable initially deferred for each row execute function refuse()`,
      ]) {
        await t().bench.db.query(sql);
      }
      const one = t().node();
      assert.match((await t().fresh(one)).access_token, /^access~/);
      t().time += hour;
      await t().fresh(t().node());
      assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
      const [row] = await t().bench.db.query<{ commits: number }>(
        'select last_value as commits from commits',
      );
      assert.equal(row?.commits, 3, 'the first commit was refused');
    });
  }
});

test('an answer with a text that the database cannot hold is stored without it', async () => {
  await t().open('single_use');
  const one = t().node({
    async through(url, init) {
      const answer = (await (await fetch(url, init)).json()) as object;
      return Response.json({ ...answer, scope: 'read\u0000 write' });
    },
  });
  await t().fresh(one);
  assert.deepEqual((await one.live(name)).scopesGranted, ['read', 'write']);
});

test('of an answer that the database can never hold, the refresh token is stored', async () => {
  await t().open('single_use');
  for (const sql of [
    'create sequence attempts',
    `create function refuse() returns trigger language plpgsql as
       $$ begin if nextval('attempts') = 1 then raise 'no' using errcode = '22003'; end if; return new; end $$`,
    `create trigger refuse before update on connection for each row
       when (old.access_expires_at is distinct from new.access_expires_at) execute function refuse()`,
  ]) {
    await t().bench.db.query(sql);
  }
  const one = t().node();
  assert.equal(await codeOf(t().fresh(one)), '22003');
  assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed', 'not at every call');
  t().time += 61_000;
  assert.match((await t().fresh(one)).access_token, /^access~/);
  assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
});

for (const rotation of ['none', 'single_use'] as const) {
  test(`a refresh under way does not revive a connection whose end is reported (rotation: ${rotation})`, async () => {
    await t().open(rotation);
    t().bench.provider.plan = () => ({ afterMs: 200 });
    const one = t().node();
    const live = await one.live(name);
    const callers = Array.from({ length: 20 }, () => codeOf(one.credentials.refreshed(live)));
    while (t().grant.accepted === 0) await sleep(5);
    await t().bench.db.transaction((tx) =>
      endConnection(tx, { connection: live, cause: 'security_event', evidence: {}, at: t().now() }),
    );
    assert.deepEqual([...new Set(await Promise.all(callers))], ['connection_needs_reauth']);
    assert.deepEqual(await t().bench.stateOf(name), { status: 'needs_reauth', cause: 'security_event' });
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.needs_reauth']);
    // Its token is not lost: who asks for a refresh gets one with it.
    assert.equal(await codeOf(one.credentials.refreshed(await one.live(name))), 'success');
    assert.equal(t().grant.accepted, 2);
  });
}

test('a refresh does not wait for who writes records of the connection, whatever it comes to', async () => {
  await t().open('single_use');
  const one = t().node();
  const { id } = await one.live(name);
  const outage = { refusal: { status: 503, error: 'server_error' } };
  const refuse = () => (t().grant.good = []);
  const comeTo: [() => unknown, string][] = [
    [() => (t().bench.provider.plan = () => outage), 'connection_refresh_failed'],
    [() => (t().bench.provider.plan = () => ({})), 'success'],
    [refuse, 'connection_needs_reauth'],
  ];
  for (const [prepare, code] of comeTo) {
    t().time += hour;
    prepare();
    const giveUp = new AbortController();
    const told = await t().bench.db.transaction(async (tx) => {
      await holdConnection(tx, id);
      const tooLate = sleep(5000, 'it waits', giveUp);
      return Promise.race([codeOf(t().fresh(one)), tooLate]).finally(() => giveUp.abort());
    });
    assert.equal(told, code);
  }
});
