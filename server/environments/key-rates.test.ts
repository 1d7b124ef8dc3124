import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { openTestDatabase, type TestDatabase } from '../../test/support/database.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { KeyCaller } from '../http/auth/caller.ts';
import { createRateLimits } from '../http/limits/rate-limit.ts';
import { openVault } from '../vault.ts';
import { createKeyRates } from './key-rates.ts';
import { createKeyReader } from './key-reader.ts';
import { createKey } from './keys.ts';
import { type Environment, ensureEnvironment } from './store.ts';

const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
let database: TestDatabase;
let dev: Environment;
before(async () => {
  database = await openTestDatabase();
  dev = (await ensureEnvironment(database.db, { name: 'dev', vault })).environment;
});
after(() => database.drop());

const makeKey = () => createKey(database.db, { environment: dev, name: 'k', scopes: ['*'] });
const newKey = async () => (await makeKey()).key.id;
type LimitedKey = { keyId: number; rateLimit?: number | undefined; fullAtMs?: number | undefined };
/** One of several nodes; it adds its calls only when `share` is called. `otherwise`: the limit of keys without a limit. */
function openNode(otherwise = 1, nowMs = () => performance.now(), db: Queryable = database.db) {
  const { take, ...rates } = createKeyRates({ db, nowMs, shareEveryMs: 1 << 30 });
  return { ...rates, take: (key: LimitedKey) => take(key, key.rateLimit ?? otherwise) };
}
/** Tells how long a test has run at most, by the clock of the nodes and by that of the database. */
function stopwatch(): () => number {
  const beganMs = performance.now();
  return () => performance.now() - beganMs + 100;
}

function passing(node: ReturnType<typeof openNode>, key: LimitedKey, times: number) {
  let passed = 0;
  for (let at = 0; at < times; at++) if (node.take(key).waitMs === 0) passed += 1;
  return passed;
}

test('what one node took is taken from what the others let pass', async () => {
  const key = { keyId: await newKey(), rateLimit: 600 };
  const ranMs = stopwatch();
  const filled = () => Math.ceil(ranMs() / 100);
  const nodes = [openNode(), openNode(), openNode()];
  assert.equal(passing(nodes[0]!, key, 400), 400);
  await nodes[0]!.share();
  assert.equal(passing(nodes[1]!, key, 1), 1);
  await nodes[1]!.share();
  const rest = passing(nodes[1]!, key, 600);
  assert.ok(rest >= 199 && rest <= 199 + filled(), String(rest));
  await nodes[1]!.share();
  await nodes[0]!.share();
  passing(nodes[2]!, key, 1);
  await nodes[2]!.share();
  assert.ok(passing(nodes[2]!, key, 600) <= filled());
  await Promise.all(nodes.map((node) => node.stop()));
});

test('twenty nodes that add at once lose no call, and none waits for another in a circle', async () => {
  const keys = await Promise.all(Array.from({ length: 5 }, newKey));
  const ranMs = stopwatch();
  const nodes = Array.from({ length: 20 }, () => openNode(1_000_000));
  for (const [at, node] of nodes.entries())
    for (const keyId of at % 2 === 0 ? keys : keys.toReversed()) passing(node, { keyId }, 20_000);
  await Promise.all(nodes.map((node) => node.share()));
  const rows = await database.db.query<{ ms: number }>(
    `select extract(epoch from full_at - now())::float8 * 1000 as ms from key_rate where key_id = any($1::bigint[])`,
    [keys],
  );
  // 400,000 calls of each, at a million a minute.
  assert.equal(rows.length, 5);
  for (const { ms } of rows) assert.ok(ms >= 24_000 - ranMs() && ms <= 24_000, String(ms));
  await Promise.all(nodes.map((node) => node.stop()));
});

test('a key has its own limit, or that of the setting, or none', async () => {
  const caller = (keyId: number, rateLimit?: number) => ({ kind: 'key', keyId, rateLimit }) as KeyCaller;
  const { take, stop } = createKeyRates({ db: database.db, shareEveryMs: 1 << 30 });
  const limits = (perKey: number | undefined) =>
    createRateLimits({
      ofKey: take,
      perKey,
      perPerson: undefined,
      perAddress: undefined,
      trustedProxies: [],
    });
  const policyOf = (perKey: number | undefined, rateLimit?: number) =>
    limits(perKey).takeOf(caller(keyId, rateLimit))?.['ratelimit-policy'];
  const keyId = await newKey();
  assert.equal(policyOf(7), '"key";q=7;w=60');
  assert.equal(policyOf(7, 9), '"key";q=9;w=60');
  assert.equal(policyOf(undefined), undefined);
  assert.equal(policyOf(undefined, 3), '"key";q=3;w=60');
  await stop();
});

test('a changed limit does not return used requests', async () => {
  let nowMs = 0;
  const keyId = await newKey();
  const node = openNode(undefined, () => nowMs);
  assert.equal(passing(node, { keyId, rateLimit: 60 }, 100), 60);
  for (const rateLimit of [61, 1_000, 10, 60]) assert.equal(passing(node, { keyId, rateLimit }, 10), 0);
  // It fills as fast as the limit says that it has by then.
  nowMs += 6_000;
  assert.equal(passing(node, { keyId, rateLimit: 1_000 }, 200), 100);
  nowMs += 60_000;
  assert.equal(passing(node, { keyId, rateLimit: 60 }, 100), 60);
  await node.stop();
});

test('a node that has not served a key before counts the calls of other nodes', async () => {
  const { key, secret } = await makeKey();
  let nowMs = 1_000;
  const first = openNode(600, () => nowMs);
  assert.equal(passing(first, { keyId: key.id }, 600), 600);
  await first.stop();
  const reader = createKeyReader({ db: database.db, vault, clock: () => nowMs });
  const caller = await reader.key(secret);
  // When the other added what it took, however long ago that is.
  nowMs = (caller.fullAtMs ?? 0) - 60_000;
  const second = openNode(600, () => nowMs);
  assert.equal(passing(second, caller, 600), 0);
  await Promise.all([second.stop(), reader.settled()]);
});

test('while the database is unavailable a node counts by its own figures, and adds them afterwards', async () => {
  const keyId = await newKey();
  const ranMs = stopwatch();
  let isAway = true;
  const db = {
    ...database.db,
    query: (async (...asked: Parameters<typeof database.db.query>) => {
      if (isAway) throw new AppError('unavailable');
      return database.db.query(...asked);
    }) as typeof database.db.query,
  };
  const node = openNode(600, undefined, db);
  assert.equal(passing(node, { keyId }, 300), 300);
  await node.share();
  assert.equal(passing(node, { keyId }, 100), 100);
  isAway = false;
  await node.share();
  const [row] = await database.db.query<{ ms: number }>(
    'select extract(epoch from full_at - now())::float8 * 1000 as ms from key_rate where key_id = $1',
    [keyId],
  );
  assert.ok(row !== undefined && row.ms >= 40_000 - ranMs() && row.ms <= 40_000, String(row?.ms));
  await node.stop();
});

test('a deleted key is dropped, and other keys are still counted', async () => {
  const [gone, keyId] = [await newKey(), await newKey()];
  const node = openNode(600);
  passing(node, { keyId: gone }, 10);
  passing(node, { keyId }, 10);
  await database.db.query('delete from api_key where id = $1', [gone]);
  await node.share();
  const rows = await database.db.query<{ id: number }>(
    'select key_id as id from key_rate where key_id = any($1::bigint[])',
    [[gone, keyId]],
  );
  assert.deepEqual(rows, [{ id: keyId }]);
  await node.stop();
});
