import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { definitionAt } from '../proxy.fixture.ts';
import { createQuota, type Permit, type Quota } from './quota.ts';
import type { Priority } from './sliding-window.ts';
import { quotaSweepJob } from './window-store.ts';

let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

type Limits = {
  project?: number;
  burst?: number;
  /** `none`: accounts have no limit of their own. */
  account?: number | 'none';
  windowS?: number;
  setting?: string;
};
let projects = 0;

/** Connections of one client in a project of its own. */
function subjects(count: number, given: Limits = {}): LiveConnection[] {
  const { project = 60, burst = project, account = project, windowS = 60, setting } = given;
  projects += 1;
  const provider = definitionAt('https://sheets.example', {
    errors: {
      reasons: {
        RATE_LIMIT_EXCEEDED: 'rate_limited',
        rateLimitExceeded: 'rate_limited',
        userRateLimitExceeded: 'rate_limited',
      },
      account_quota: 'PerUser|^userRateLimit',
      guard_pages: true,
    },
    quota: {
      service: 'sheets.example',
      owner_pattern: '^([0-9]+)-',
      limits: [
        { name: 'ReadsPerProject', per: 'owner', counts: 'read', count: project, burst, window_s: windowS },
        ...(account === 'none'
          ? []
          : [{ name: 'ReadsPerUser', per: 'account', counts: 'read', count: account, window_s: windowS }]),
      ],
    },
  });
  const integration = {
    id: projects,
    provider,
    isTest: false,
    client: { clientId: `${projects}-a.apps`, clientSecret: '' },
    integrationConfig: setting === undefined ? {} : { quota: setting },
  };
  return Array.from({ length: count }, (_, n) => {
    const account = { id: `account-${n}`, email: undefined };
    return { id: n + 1, account, integration } as LiveConnection;
  });
}

function ask(
  quota: Quota,
  connection: LiveConnection | undefined,
  given: { priority?: Priority; waitMs?: number; method?: string } = {},
): Permit | undefined {
  const { priority = 'interactive', waitMs = 5_000, method = 'GET' } = given;
  assert.ok(connection);
  return quota.admit({ connection, method, path: '/v4/x?y=z', priority, waitMs });
}

/** Sends and is answered, once it may. */
async function send(...given: Parameters<typeof ask>): Promise<void> {
  const pass = ask(...given);
  await pass?.ready;
  pass?.sent();
  pass?.end();
}

/** The same database, with a count of the statements. */
function counting(db: Db): { db: Db; statements: () => number } {
  let statements = 0;
  const query: Db['query'] = (...given) => {
    statements += 1;
    return db.query(...given);
  };
  return { db: { ...db, query }, statements: () => statements };
}

const isExhausted = (error: unknown) => error instanceof AppError && error.code === 'quota_exhausted';

test('a provider without a quota, and an integration that switches it off, cost no statement', async () => {
  const { db, statements } = counting(database.db);
  const quota = createQuota({ db });
  const [off] = subjects(1, { setting: 'off' });
  assert.equal(ask(quota, off), undefined);
  const [plain] = subjects(1);
  const { quota: _, ...api } = plain!.integration.provider.api;
  const without = {
    ...plain!,
    integration: { ...plain!.integration, provider: { ...plain!.integration.provider, api } },
  };
  assert.equal(ask(quota, without as LiveConnection), undefined);
  assert.equal(ask(quota, plain, { method: 'POST' }), undefined);
  assert.equal(statements(), 0);
});

test('a saved setting that names no limit any more is an error', () => {
  const quota = createQuota({ db: database.db });
  const [connection] = subjects(1, { setting: 'Renamed=5' });
  assert.throws(
    () => ask(quota, connection as LiveConnection),
    (error: Error) =>
      error instanceof AppError &&
      error.code === 'integration_misconfigured' &&
      /ReadsPerProject/.test(error.message),
  );
});

test('calls take their tokens in portions', async () => {
  const { db, statements } = counting(database.db);
  const quota = createQuota({ db });
  const [one] = subjects(1, { project: 1000 });
  for (let n = 0; n < 200; n += 1) await send(quota, one);
  assert.ok(statements() < 30, `${statements()} statements`);
  await quota.stop();
});

test('twenty nodes at once never give more than the limit', async () => {
  const connections = subjects(20, { project: 50 });
  const nodes = connections.map(() => createQuota({ db: database.db }));
  const asked = connections.flatMap((connection, n) =>
    Array.from({ length: 10 }, () => send(nodes[n] as Quota, connection, { waitMs: 1_500 })),
  );
  const settled = await Promise.allSettled(asked);
  const served = settled.filter(({ status }) => status === 'fulfilled').length;
  assert.ok(served <= 50 && served >= 30, `${served} of 200 served`);
  for (const outcome of settled) if (outcome.status === 'rejected') assert.ok(isExhausted(outcome.reason));
  await Promise.all(nodes.map((node) => node.stop()));
});

test('a call that cannot wait gets the expected time of a token', async () => {
  const quota = createQuota({ db: database.db });
  const [one] = subjects(1, { account: 1 });
  await send(quota, one);
  await assert.rejects(send(quota, one, { waitMs: 0 }), (error: AppError) => {
    assert.ok(isExhausted(error));
    assert.ok(error.retryAfterS! > 55 && error.retryAfterS! <= 63, `${error.retryAfterS}`);
    return true;
  });
  await quota.stop();
});

test('a flood of background calls does not delay interactive ones', async () => {
  const quota = createQuota({ db: database.db });
  const [sync, person] = subjects(2, { project: 100, burst: 20, windowS: 3 });
  const flood = Array.from({ length: 200 }, () =>
    send(quota, sync, { priority: 'background', waitMs: 2_000 }).catch(() => {}),
  );
  await sleep(300);
  const order: string[] = [];
  const behind = send(quota, sync, { priority: 'background', waitMs: 1_000 }).then(
    () => order.push('background'),
    () => order.push('background refused'),
  );
  for (let n = 0; n < 5; n += 1) await send(quota, person).then(() => order.push('interactive'));
  await behind;
  assert.deepEqual(order.slice(0, 5), Array(5).fill('interactive'));
  await quota.stop();
  await Promise.all(flood);
});

test('connections of two nodes take turns, however many calls one of them has waiting', async () => {
  const here = createQuota({ db: database.db });
  const there = createQuota({ db: database.db });
  const [greedy, ...modest] = subjects(6, { project: 60, burst: 1, windowS: 3 });
  const order: number[] = [];
  const calls = Array.from({ length: 100 }, () =>
    send(here, greedy, { waitMs: 900 }).then(
      () => order.push(0),
      () => {},
    ),
  );
  await sleep(150);
  const others = modest.map((connection, n) =>
    send(n % 2 === 0 ? here : there, connection).then(() => order.push(n + 1)),
  );
  await Promise.all([...calls, ...others]);
  const last = Math.max(...modest.map((_, n) => order.indexOf(n + 1)));
  assert.ok(last <= 20, `the last of five was served after ${last} calls`);
  await Promise.all([here.stop(), there.stop()]);
});

test('the share of a node that was killed comes back when its window has passed, not before', async () => {
  const ended = openDb(database.target);
  const killed = createQuota({ db: ended });
  const living = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 10, windowS: 1 });
  const passes = Array.from({ length: 10 }, () => ask(killed, one));
  await Promise.all(passes.map((pass) => pass?.ready));
  await ended.end();
  await assert.rejects(send(living, two, { waitMs: 200 }), isExhausted);
  await send(living, two, { waitMs: 5_000 });
  await living.stop();
});

test('the unused tokens of a stopped node are available to other nodes at once', async () => {
  const stopping = createQuota({ db: database.db });
  const staying = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 10 });
  const passes = Array.from({ length: 10 }, () => ask(stopping, one));
  await Promise.all(passes.map((pass) => pass?.ready));
  for (const pass of passes) pass?.end();
  await stopping.stop();
  for (let n = 0; n < 10; n += 1) await send(staying, two, { waitMs: 1_000 });
  await staying.stop();
});

test('a connection that brought its own client takes nothing of the integration’s quota', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 1, account: 'none' });
  const config_override = { client_id: `${projects}0-own.apps`, client_secret: 'secret' };
  const credentials = { type: 'OAUTH2', access_token: 'a', config_override, raw: {} } as const;
  const own: LiveConnection = { ...one!, credentials };
  await send(quota, own);
  await send(quota, two, { waitMs: 1_000 });
  await assert.rejects(send(quota, own, { waitMs: 1_000 }), isExhausted);
  await quota.stop();
});

test('a caller that hangs up leaves the queue at once', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 2, windowS: 1 });
  await Promise.all([send(quota, one), send(quota, one)]);
  let isServed = false;
  const gone = ask(quota, one);
  void gone?.ready?.then(() => {
    isServed = true;
  });
  await sleep(50);
  gone?.end();
  await Promise.all([send(quota, two), send(quota, two)]);
  assert.equal(isServed, false);
  await quota.stop();
});

test('a caller that hangs up frees its place in the line', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 1, account: 'none' });
  await send(quota, two);
  const passes = Array.from({ length: 200 }, () => ask(quota, one, { waitMs: 60_000 }));
  await sleep(50);
  for (let n = 0; n < 3; n += 1) await assert.rejects(send(quota, one, { waitMs: 60_000 }), isExhausted);
  for (const pass of passes) pass?.end();
  const next = ask(quota, one, { waitMs: 60_000 });
  const outcome = await Promise.race([next?.ready?.then(() => 'served'), sleep(100, 'waits')]);
  assert.equal(outcome, 'waits');
  next?.end();
  await quota.stop();
});

test('a line is bounded', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2, { project: 1, windowS: 1 });
  await send(quota, two);
  const passes = Array.from({ length: 400 }, () => ask(quota, one, { waitMs: 300 }));
  const refused = passes.map((pass) =>
    pass?.ready?.then(
      () => undefined,
      (error: unknown) => error,
    ),
  );
  const first = await Promise.race([refused.at(-1), sleep(250)]);
  assert.ok(isExhausted(first), 'the last is refused before its time is up');
  await Promise.all(refused);
  await quota.stop();
});

/** A refusal as Google's newer APIs write it. */
const refusal = (limit: string, retryAfter = '30') => ({
  status: 429,
  headers: { 'retry-after': retryAfter },
  body: Buffer.from(
    JSON.stringify({
      error: {
        details: [
          {
            '@type': 'type.googleapis.com/google.rpc.ErrorInfo',
            reason: 'RATE_LIMIT_EXCEEDED',
            metadata: { quota_limit: limit },
          },
        ],
      },
    }),
  ),
});
/** The same as its older ones do. */
const olderRefusal = (reason: string) => ({
  status: 403,
  headers: {},
  body: Buffer.from(
    JSON.stringify({ error: { code: 403, errors: [{ domain: 'usageLimits', reason, message: 'x' }] } }),
  ),
});

/** A refused call of the connection; resolves when all nodes can read what it closes. */
async function refusedBy(
  quota: Quota,
  connection: LiveConnection | undefined,
  answer: ReturnType<typeof refusal> | ReturnType<typeof olderRefusal>,
): Promise<void> {
  const pass = ask(quota, connection);
  await pass?.ready;
  pass?.sent();
  pass?.end();
  const before = await closings();
  pass?.refused(answer);
  while ((await closings()) === before) await sleep(5);
}
async function closings(): Promise<number | undefined> {
  const [row] = await database.db.query<{ count: number }>(
    `select count(*) as count from quota_book where (pages ->> 'closedUntil')::float8 > 0`,
  );
  return row?.count;
}

test("a provider's refusal closes the bucket it names, on all nodes", async () => {
  const here = createQuota({ db: database.db });
  const there = createQuota({ db: database.db });
  const [one, two] = subjects(2);
  await refusedBy(here, one, refusal('ReadsPerUser'));
  await assert.rejects(send(here, one, { waitMs: 1_000 }), isExhausted);
  await assert.rejects(send(there, one, { waitMs: 1_000 }), isExhausted);
  await send(here, two);
  await send(there, two);

  const [three, four] = subjects(2);
  await refusedBy(here, three, refusal('ReadsPerProject'));
  await assert.rejects(send(there, four, { waitMs: 500 }), (error: AppError) => {
    assert.ok(error.retryAfterS! >= 25 && error.retryAfterS! <= 32, `${error.retryAfterS}`);
    return true;
  });
  await Promise.all([here.stop(), there.stop()]);
});

test('a 403 of an older API closes the bucket that its reason means, until the next minute', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2);
  await refusedBy(quota, one, olderRefusal('userRateLimitExceeded'));
  await assert.rejects(send(quota, one, { waitMs: 0 }), (error: AppError) => {
    assert.ok(isExhausted(error) && error.retryAfterS! <= 62, `${error.retryAfterS}`);
    return true;
  });
  await send(quota, two);

  const [three, four] = subjects(2);
  await refusedBy(quota, three, olderRefusal('rateLimitExceeded'));
  await assert.rejects(send(quota, four, { waitMs: 0 }), isExhausted);

  const [five] = subjects(1);
  const pass = ask(quota, five);
  await pass?.ready;
  pass?.end();
  pass?.refused(olderRefusal('insufficientFilePermissions'));
  await send(quota, five);
  await quota.stop();
});

test('a refusal that names no limit closes all limits if accounts have none of their own', async () => {
  const quota = createQuota({ db: database.db });
  const [one, two] = subjects(2, { account: 'none' });
  await refusedBy(quota, one, { status: 429, headers: {}, body: Buffer.from('slow down') });
  await assert.rejects(send(quota, two, { waitMs: 0 }), isExhausted);
  await quota.stop();
});

test('no answer of a provider closes a bucket for longer than an hour', async () => {
  for (const asked of ['31536000', '9'.repeat(400), 'Fri, 31 Dec 9999 23:59:59 GMT']) {
    const quota = createQuota({ db: database.db });
    const [one] = subjects(1);
    await refusedBy(quota, one, refusal('ReadsPerUser', asked));
    await assert.rejects(send(quota, one, { waitMs: 0 }), (error: AppError) => {
      assert.ok(error.retryAfterS! > 3_500 && error.retryAfterS! <= 3_602, `${error.retryAfterS}`);
      return true;
    });
    await quota.stop();
  }
});

test('a call that cannot wait gets the time of the bucket that opens last', async () => {
  const quota = createQuota({ db: database.db });
  const [one] = subjects(1, { account: 1, windowS: 3 });
  await refusedBy(quota, one, refusal('ReadsPerProject', '300'));
  await assert.rejects(send(quota, one, { waitMs: 0 }), (error: AppError) => {
    assert.ok(error.retryAfterS! > 250, `${error.retryAfterS}`);
    return true;
  });
  await quota.stop();
});

test('an unavailable database is reported as such, and calls continue when it is back', async () => {
  const line = { isCut: false };
  const query: Db['query'] = async (...given) => {
    if (line.isCut) throw new AppError('unavailable');
    return database.db.query(...given);
  };
  const quota = createQuota({ db: { ...database.db, query } });
  const [one] = subjects(1);
  await send(quota, one);
  line.isCut = true;
  await assert.rejects(
    Promise.all(Array.from({ length: 30 }, () => send(quota, one))),
    (error: AppError) => error.code === 'unavailable',
  );
  line.isCut = false;
  await send(quota, one);
  await quota.stop();
});

test('unused windows are removed', async () => {
  const quota = createQuota({ db: database.db });
  const [one] = subjects(1);
  await send(quota, one);
  await quota.stop();
  await database.db.query(`update quota_book set written_at = now() - interval '2 days'`);
  await quotaSweepJob(database.db).run({}, new AbortController().signal);
  assert.deepEqual(await database.db.query('select bucket from quota_book'), []);
});
