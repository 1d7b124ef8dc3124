// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openDatabaseCable } from '../../../test/support/database-cable.ts';
import type { RefreshNode } from '../../../test/support/refresh-node.ts';
import { metrics } from '../../metrics/metrics.ts';
import { joinNodes, type Presence } from '../../nodes/nodes.ts';
import { endConnection } from '../health/status-transitions.ts';
import { destroyConnection, replaceCredentials } from '../store/save.ts';
import { holdConnection } from '../store/store.ts';
import { takeLease } from './lease.ts';
import { codeOf, hour, name, refreshTests } from './refresh.fixture.ts';

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

test('a refusal that the database does not take is stored when it does, and no node requests another', async () => {
  await t().open('single_use', { storeMs: 10_000, patienceMs: 30_000, limitMs: 10_000 });
  const cable = await openDatabaseCable(t().bench.settings.target);
  const [one, other] = [t().node({ target: cable.target }), t().node()];
  const connection = await one.live(name);
  t().grant.good = [];
  t().bench.provider.plan = () => ({ afterMs: 100 });
  const code = codeOf(one.credentials.refreshed(connection));
  while (t().grant.asked === 0) await sleep(5);
  cable.pull();
  while (t().grant.underWay > 0) await sleep(5);
  await sleep(400);
  cable.plug();
  assert.equal(await code, 'connection_needs_reauth');
  assert.equal(await codeOf(t().fresh(other)), 'connection_needs_reauth');
  assert.equal(t().grant.asked, 1);
  await cable.close();
});

describe('an answer in hand goes before the request of another node, where the database was away for longer than the lease', () => {
  /** A node with an answer and without a database, a second node that has taken over its lease, and the results of both. */
  async function takenOver({
    storeMs = 5_000,
    started = async () => {},
  }: {
    storeMs?: number;
    started?: (nodes: RefreshNode[]) => Promise<void>;
  } = {}) {
    await t().open('single_use', { storeMs, patienceMs: 20_000, limitMs: 2_000 });
    const cable = await openDatabaseCable(t().bench.settings.target);
    const [one, other] = [t().node({ target: cable.target }), t().node()];
    await started([one, other]);
    const connection = await one.live(name);
    t().bench.provider.plan = () => ({ afterMs: 1_000 });
    const storing = one.credentials.refreshed(connection);
    while (t().grant.accepted === 0) await sleep(5);
    cable.pull();
    while (t().grant.underWay > 0) await sleep(5);
    const holder = await owner();
    await t().endLease();
    const taking = t().fresh(other);
    const taker = await untilOwned(holder);
    return { cable, one, other, connection, storing, taking, taker };
  }

  async function owner(): Promise<string | null> {
    const [row] = await t().bench.db.query<{ refresh_owner: string | null }>(
      'select refresh_owner from connection where credentials_version = 1',
    );
    assert.ok(row, 'the answer is not stored yet');
    return row.refresh_owner;
  }

  /** The first owner after `before`. */
  async function untilOwned(before: string | null): Promise<string | null> {
    for (;;) {
      const now = await owner();
      if (now !== before) return now;
      await sleep(5);
    }
  }

  async function assertSettled(): Promise<void> {
    const [row] = await t().bench.db.query('select refresh_owner, refresh_sent_at from connection');
    assert.deepEqual(row, { refresh_owner: null, refresh_sent_at: null }, 'nothing is owed');
  }

  test('which waits for it', async () => {
    const { cable, other, storing, taking } = await takenOver();
    cable.plug();
    const { credentials } = await storing;
    assert.deepEqual(await taking, credentials);
    assert.equal(t().grant.asked, 1);
    await assertSettled();
    t().time += hour;
    t().bench.provider.plan = () => ({});
    await t().fresh(other);
    assert.equal(t().grant.accepted, 2);
    await cable.close();
  });

  test('which waits for it as long as the node with the answer runs', async () => {
    const presences: Presence[] = [];
    const { cable, storing, taking } = await takenOver({
      storeMs: 300,
      started: async (nodes) => {
        for (const node of nodes) presences.push(await enter(node));
      },
    });
    const extended = new Set<string>();
    while (extended.size < 8 && t().grant.asked === 1) {
      const [row] = await t().bench.db.query<{ until: string }>(
        'select refresh_until::text as until from connection',
      );
      extended.add(row!.until);
      await sleep(5);
    }
    cable.plug();
    assert.deepEqual(await taking, (await storing).credentials);
    assert.equal(t().grant.asked, 1);
    await assertSettled();
    for (const presence of presences) await presence.stop();
    await cable.close();
  });

  function enter({ db, refreshing }: RefreshNode): Promise<Presence> {
    return joinNodes(db, {
      name: 'node',
      role: 'all',
      version: '1.0.0',
      refreshing,
      reload: async () => undefined,
      onError: () => {},
      onWorkers: () => {},
    });
  }

  test('which waits again if it stood still meanwhile', async () => {
    const { cable, storing, taking, taker } = await takenOver();
    await t().endLease();
    await untilOwned(taker);
    cable.plug();
    assert.deepEqual(await taking, (await storing).credentials);
    assert.equal(t().grant.asked, 1);
    await assertSettled();
    await cable.close();
  });

  test('and is owed still where the same token was imported meanwhile', async () => {
    const { cable, one, other, connection, storing, taking } = await takenOver();
    const { credentials } = connection;
    const { vault } = other.reading;
    const given = { vault, credentials, grant: {}, at: t().now() };
    await replaceCredentials(other.db, { ...given, current: connection });
    assert.deepEqual(await taking, credentials);
    const [row] = await t().bench.db.query(
      'select refresh_owner is not null as held, refresh_sent_at is not null as owed from connection',
    );
    assert.deepEqual(row, { held: true, owed: true }, 'who comes next waits in turn');
    cable.plug();
    await storing;
    await t().endLease();
    t().bench.provider.plan = () => ({});
    await one.credentials.refreshed(await one.live(name));
    assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
    await cable.close();
  });

  test('also where its connections lead nowhere, and fresh ones do not', async () => {
    await t().open('single_use', { storeMs: 5_000, patienceMs: 20_000 });
    const cable = await openDatabaseCable(t().bench.settings.target);
    const [one, other] = [t().node({ target: cable.target }), t().node()];
    const connection = await one.live(name);
    t().bench.provider.plan = () => ({ afterMs: 100 });
    const storing = codeOf(one.credentials.refreshed(connection));
    while (t().grant.accepted === 0) await sleep(5);
    cable.silence();
    while (t().grant.underWay > 0) await sleep(5);
    await t().endLease();
    await t().fresh(other);
    assert.deepEqual([t().grant.asked, t().grant.accepted], [1, 1]);
    await cable.close();
    await storing;
  });
});

test('no caller waits for a response if the provider does not replace tokens', async () => {
  await t().open('none', { storeMs: 60_000 });
  const one = t().node();
  await takeLease(t().bench.db, { connection: await one.live(name), forMs: 1 });
  assert.match((await t().fresh(one)).access_token, /^access~/);
});

test('the wait for an answer is counted, and leaves the provider its time', async () => {
  await t().open('single_use', { storeMs: 1_500, patienceMs: 2_000, limitMs: 600 });
  const waits = () => metrics.refreshLeaseWait.of(['rotating']).counts.reduce((sum, count) => sum + count, 0);
  const one = t().node();
  await takeLease(t().bench.db, { connection: await one.live(name), forMs: 1 });
  t().bench.provider.plan = () => ({ afterMs: 800 });
  const before = waits();
  assert.match((await t().fresh(one)).access_token, /^access~/);
  assert.equal(waits(), before + 1);
});

test('no caller waits for a deleted connection, and it is not refreshed', async () => {
  await t().open('single_use', { storeMs: 10_000, patienceMs: 20_000 });
  const one = t().node();
  for (const forMs of [1, 60_000]) {
    await t().bench.connect(String(forMs), t().now());
    const connection = await one.live(String(forMs));
    await takeLease(one.db, { connection, forMs });
    await sleep(10);
    const waiting = codeOf(one.credentials.refreshed(connection));
    await t().untilLeased();
    await one.db.transaction((tx) => destroyConnection(tx, { id: connection.id, at: t().now() }));
    assert.equal(await waiting, 'unknown_connection');
    assert.equal(t().bench.provider.grant(String(forMs)).asked, 0);
  }
});

test('callers get an error for a response that the database does not accept, and it is stored later', async () => {
  await t().open('single_use', { patienceMs: 300 });
  await refuse('53100', 'before update of credentials on connection for each row');
  const one = t().node();
  assert.equal(await codeOf(t().fresh(one)), 'unavailable');
  assert.equal(await codeOf(t().fresh(one)), 'unavailable', 'and nobody asks again');
  await t().bench.db.query('drop function refuse cascade');
  await one.credentials.settled();
  t().time += hour;
  assert.match((await t().fresh(t().node({ patienceMs: 20_000 }))).access_token, /^access~/);
  assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
});

test('of an answer that the database does not take, though it is there, the refresh token is stored, and nobody takes over', async () => {
  await t().open('single_use', { storeMs: 5_000, patienceMs: 20_000 });
  const which = 'when (old.access_expires_at is distinct from new.access_expires_at)';
  await refuse('54000', `before update on connection for each row ${which}`);
  const [one, other] = [t().node(), t().node()];
  const leaseEnds = new Set<string>();
  let isOver = false;
  const storing = codeOf(t().fresh(one)).finally(() => {
    isOver = true;
  });
  while (t().grant.accepted === 0) await sleep(5);
  const waiting = codeOf(t().fresh(other));
  while (!isOver) {
    const [row] = await t().bench.db.query<{ until: string }>(
      'select refresh_until::text as until from connection where refresh_until is not null',
    );
    if (row) leaseEnds.add(row.until);
    await sleep(20);
  }
  assert.equal(await storing, '54000');
  assert.ok(leaseEnds.size > 1, 'the lease is extended');
  await waiting;
  assert.equal(t().grant.asked, 1);
  await t().bench.db.query('drop function refuse cascade');
  t().time += 61_000;
  await t().fresh(other);
  assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
});

test('an answer is stored whole by a database that needs more time for it than most tries have', async () => {
  await t().open('single_use', { storeMs: 5_000, patienceMs: 20_000 });
  const { db } = t().bench;
  await db.query(
    `create function take_time() returns trigger language plpgsql as
       $$ begin perform pg_sleep(2); return new; end $$`,
  );
  await db.query(
    `create trigger take_time before update on connection for each row
       when (old.access_expires_at is distinct from new.access_expires_at) execute function take_time()`,
  );
  assert.match((await t().fresh(t().node())).access_token, /^access~/);
  await db.query('drop function take_time cascade');
  t().time += hour;
  await t().fresh(t().node());
  assert.deepEqual([t().grant.asked, t().grant.accepted], [2, 2]);
});

/** From now on the database fails with this code. */
async function refuse(code: string, when: string): Promise<void> {
  const raise = `begin raise 'no' using errcode = '${code}'; end`;
  await t().bench.db.query(`create function refuse() returns trigger language plpgsql as $$ ${raise} $$`);
  await t().bench.db.query(`create trigger refuse ${when} execute function refuse()`);
}

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
    // Its token is not lost: the next refresh succeeds with it.
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
