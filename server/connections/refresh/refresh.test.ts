import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { countWaiting } from '../../../test/support/locks.ts';
import type { OAuth2Credentials } from '../../auth-modes/oauth2-credentials.ts';
import { digestColumns, replaceCredentials } from '../store/save.ts';
import { takeLease } from './lease.ts';
import { codeOf, hour, name, refreshTests, timeoutMs } from './refresh.fixture.ts';

const t = refreshTests();

describe('callers at the moment of expiry', () => {
  test('on three nodes share one refresh, which is slow, and get the same token', async () => {
    await t().open('single_use');
    t().bench.provider.plan = () => ({ beforeMs: 200, afterMs: 200 });
    const three = [t().node(), t().node(), t().node()];
    const got = await Promise.all(Array.from({ length: 30 }, (_, index) => t().fresh(three[index % 3]!)));
    assert.equal(new Set(got.map(({ access_token }) => access_token)).size, 1);
    assert.deepEqual([t().grant.asked, t().grant.accepted, t().grant.maxAtOnce], [1, 1, 1]);
  });

  test('hold no database connection while the provider is slow', async () => {
    await t().open('none');
    t().bench.provider.plan = () => ({ beforeMs: 400 });
    const one = t().node();
    const waiting = t().fresh(one);
    while (t().grant.underWay === 0) await sleep(5);
    const { total, idle } = one.db.load();
    assert.equal(total - idle, 0);
    await waiting;
  });

  test('of a token that is valid for a while do not wait, and the refresh continues in the background', async () => {
    await t().open('none');
    const one = t().node();
    const old = await t().fresh(one);
    t().time += hour - 60_000;
    t().bench.provider.plan = () => ({ beforeMs: 300 });
    const got = await Promise.all(Array.from({ length: 10 }, () => t().fresh(one)));
    assert.deepEqual([...new Set(got.map(({ access_token }) => access_token))], [old.access_token]);
    await one.credentials.settled();
    assert.notEqual((await t().fresh(one)).access_token, old.access_token);
    assert.equal(t().grant.accepted, 2);
  });
});

describe('an answer that is lost', () => {
  for (const rotation of ['none', 'until_used'] as const) {
    test(`is requested again, and no caller gets an error (rotation: ${rotation})`, async () => {
      await t().open(rotation);
      t().bench.provider.plan = ({ asked }) => ({ isDropped: asked === 0 });
      const one = t().node();
      assert.match((await t().fresh(one)).access_token, /^access~/);
      t().time += hour;
      await t().fresh(one);
      assert.equal(t().grant.accepted, 3);
      assert.deepEqual(await t().bench.eventsOf(name), []);
    });
  }

  test('ends the connection under single use, and is named as the cause', async () => {
    await t().open('single_use');
    t().bench.provider.plan = () => ({ isDropped: true });
    const one = t().node();
    assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
    assert.deepEqual(await t().bench.stateOf(name), { status: 'needs_reauth', cause: 'refresh_reply_lost' });
    assert.deepEqual(await t().bench.eventsOf(name), ['connection.needs_reauth']);
    const { asked } = t().grant;
    assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
    assert.equal(t().grant.asked, asked, 'a dead connection is not refreshed by itself');
  });

  test('is not the cause of a dead grant whose tokens the provider does not replace', async () => {
    await t().open('none');
    const away = t().node({ through: () => Promise.reject(new TypeError('fetch failed')) });
    assert.equal(await codeOf(t().fresh(away)), 'connection_refresh_failed');
    t().grant.good = [];
    t().time += hour;
    assert.equal(await codeOf(t().fresh(t().node())), 'connection_needs_reauth');
    assert.equal((await t().bench.stateOf(name)).cause, 'grant_dead');
  });

  test('is the cause all the same where the provider did replace the token before', async () => {
    await t().open('single_use');
    const definition = join(t().bench.provider.directory, 'rotating.yaml');
    await writeFile(
      definition,
      (await readFile(definition, 'utf8')).replace('rotates: true', 'rotates: false'),
    );
    const one = t().node();
    await t().fresh(one);
    t().time += hour;
    t().bench.provider.plan = () => ({ isDropped: true });
    assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
    assert.equal((await t().bench.stateOf(name)).cause, 'refresh_reply_lost');
  });

  test('because its node was killed delays no caller for longer than the time limit of a request', async () => {
    await t().open('until_used');
    const one = t().node();
    const killed = await one.live(name);
    assert.ok(await takeLease(t().bench.db, { connection: killed, forMs: timeoutMs }));
    assert.match((await t().fresh(one)).access_token, /^access~/);
  });

  test('because its node was killed is the cause of the end under single use', async () => {
    await t().open('single_use');
    const one = t().node();
    await takeLease(t().bench.db, { connection: await one.live(name), forMs: 100 });
    t().grant.good = [];
    assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
    assert.equal((await t().bench.stateOf(name)).cause, 'refresh_reply_lost');
  });

  test('leads to one look whether the token before is still good, by the node that was refused', async () => {
    await t().open('single_use');
    const tokens: string[] = [];
    const one = t().node({
      through(url, init) {
        tokens.push(new URLSearchParams(String(init?.body)).get('refresh_token') ?? '');
        return fetch(url, init);
      },
    });
    const [first] = t().grant.good;
    await t().fresh(t().node());
    t().time += hour;
    const [second] = t().grant.good;
    await takeLease(t().bench.db, { connection: await one.live(name), forMs: 100 });
    // As if the killed node had received the third token.
    t().grant.good = ['third'];
    assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
    assert.deepEqual(tokens, [second, first]);
  });
});

test('a refusal without a lost answer is a dead grant', async () => {
  await t().open('single_use');
  const one = t().node();
  await t().fresh(one);
  t().time += hour;
  t().grant.good = [];
  assert.equal(await codeOf(t().fresh(one)), 'connection_needs_reauth');
  assert.equal((await t().bench.stateOf(name)).cause, 'grant_dead');
});

describe('a caller is served by credentials that come in while a refusal is judged', () => {
  const imports = async () => {
    const { db, reading, live } = t().node();
    const current = await live(name);
    const { refresh_token } = current.credentials as OAuth2Credentials;
    const credentials = {
      type: 'OAUTH2',
      access_token: 'imported',
      refresh_token,
      raw: {},
    } as OAuth2Credentials;
    await replaceCredentials(db, { vault: reading.vault, current, credentials, grant: {}, at: t().now() });
  };
  const connects = () => t().bench.connect(name, new Date(t().time + hour));
  for (const [which, bring, error] of [
    ['of a new grant', connects, 'invalid_grant'],
    ['of the same grant', imports, 'invalid_grant'],
    ['of the same grant, in an outage', imports, 'temporarily_unavailable'],
  ] as const) {
    test(which, async () => {
      await t().open('single_use');
      const { promise: answered, resolve: go } = Promise.withResolvers<void>();
      const one = t().node({
        async through(url, init) {
          const response = await fetch(url, init);
          await answered;
          return response;
        },
      });
      t().bench.provider.plan = () => ({ refusal: { status: 400, error } });
      const caller = codeOf(t().fresh(one));
      while (t().grant.asked === 0) await sleep(5);
      const { db } = t().bench;
      const untilWaiting = async (count: number) => {
        while ((await countWaiting(db)) < count) await sleep(5);
      };
      let brought: Promise<void> | undefined;
      await db.transaction(async (tx) => {
        await tx.query('select from connection for no key update');
        // First in the queue: after the first statement of the verdict it would race with the last one.
        brought = bring();
        await untilWaiting(1);
        go();
        await untilWaiting(2);
      });
      await brought;
      assert.equal(await caller, 'success');
      assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
      const [row] = await db.query(
        'select refresh_owner, refresh_failures, refresh_not_before from connection',
      );
      assert.deepEqual(row, { refresh_owner: null, refresh_failures: 0, refresh_not_before: null });
    });
  }
});

test('a provider that cannot be reached owes no answer', async () => {
  await t().open('single_use');
  const cause = Object.assign(new Error('refused'), { code: 'ECONNREFUSED' });
  const one = t().node({ through: () => Promise.reject(new TypeError('fetch failed', { cause })) });
  assert.equal(await codeOf(t().fresh(one)), 'connection_refresh_failed');
  t().grant.good = [];
  t().time += hour;
  assert.equal(await codeOf(t().fresh(t().node())), 'connection_needs_reauth');
  assert.equal((await t().bench.stateOf(name)).cause, 'grant_dead');
});

describe('a node that stood still', () => {
  /** A node whose request reaches the provider only once `go` is called. */
  function lateNode() {
    const { promise, resolve: go } = Promise.withResolvers<void>();
    const late = t().node({
      through: async (url, init) => {
        await promise;
        return fetch(url, { ...init, signal: AbortSignal.timeout(5000) });
      },
    });
    return { late, go };
  }

  test('brings a token that is kept, and tried before the connection is called dead', async () => {
    await t().open('until_used');
    const { late, go } = lateNode();
    const first = late.credentials.refreshed(await late.live(name));
    await t().untilLeased();
    await t().endLease();
    const other = t().node();
    await t().fresh(other);
    // The old token is still valid, so the late request gets a successor that replaces the stored one.
    go();
    await first;
    // The provider accepts only the late token.
    t().grant.good = t().grant.good.slice(-1);
    t().time += hour;
    assert.match((await t().fresh(other)).access_token, /^access~/);
    assert.deepEqual(
      [t().grant.accepted, t().grant.asked],
      [3, 4],
      'the stored token was refused, the kept one was not',
    );
    t().time += hour;
    await t().fresh(other);
    assert.deepEqual(await t().bench.eventsOf(name), []);
    assert.equal((await t().bench.stateOf(name)).status, 'active');
  });

  test('passes no verdict, but takes what the other node stored', async () => {
    await t().open('none');
    const { late, go } = lateNode();
    const first = late.credentials.refreshed(await late.live(name));
    await t().untilLeased();
    await t().endLease();
    const { access_token } = await t().fresh(t().node());
    t().bench.provider.plan = () => ({ refusal: { status: 400, error: 'invalid_grant' } });
    go();
    assert.equal(((await first).credentials as OAuth2Credentials).access_token, access_token);
    assert.equal(t().grant.asked, 2);
    assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
  });

  test('keeps its token beside that of a reconnect which brought none of its own', async () => {
    await t().open('single_use');
    const { late, go } = lateNode();
    const current = await late.live(name);
    const first = late.credentials.refreshed(current);
    await t().untilLeased();
    const { db, reading } = late;
    const { credentials } = current;
    await replaceCredentials(db, { vault: reading.vault, current, credentials, grant: {}, at: new Date() });
    go();
    await first;
    assert.equal(t().grant.accepted, 1);
    const stored = digestColumns((await late.live(name)).credentials);
    const [row] = await db.query('select refresh_prefix_digest, refresh_token_digest from connection');
    assert.deepEqual(row, stored, 'a security event finds it by its new token');
    t().time += hour;
    await t().fresh(t().node());
    assert.equal(t().grant.accepted, 2);
    assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
  });

  test('does not put a token of the old grant on a connection that was connected again', async () => {
    await t().open('until_used');
    const { late, go } = lateNode();
    const first = late.credentials.refreshed(await late.live(name));
    await t().untilLeased();
    const old = t().grant.good;
    await t().bench.connect(name, t().now());
    const { good } = t().grant;
    t().grant.good = old;
    go();
    await first;
    assert.equal(t().grant.accepted, 1);
    t().grant.good = good;
    const [row] = await t().bench.db.query('select kept_tokens, refresh_owner from connection');
    assert.deepEqual(row, { kept_tokens: null, refresh_owner: null });
    await t().fresh(t().node());
    assert.equal(t().grant.accepted, 2);
  });
});

test('a stop waits for an answer that is on its way', async () => {
  await t().open('single_use');
  const one = t().node();
  await t().fresh(one);
  t().time += hour - 60_000;
  t().bench.provider.plan = () => ({ beforeMs: 200, afterMs: 100 });
  await t().fresh(one);
  await one.credentials.settled();
  t().time += 60_000;
  await t().fresh(t().node());
  assert.equal(t().grant.accepted, 2);
});

test('the token before the one in use is kept until that one has been used', async () => {
  await t().open('single_use');
  const one = t().node();
  const kept = async () => {
    const { dataKey } = await one.live(name);
    const [row] = await t().bench.db.query<{ kept_tokens: Buffer }>('select kept_tokens from connection');
    return dataKey.openJson(row!.kept_tokens, 'kept tokens') as string[];
  };
  const [first] = t().grant.good;
  await t().fresh(one);
  assert.deepEqual(await kept(), [first]);
  const [second] = t().grant.good;
  t().time += hour;
  await t().fresh(one);
  assert.deepEqual(await kept(), [second]);
});
