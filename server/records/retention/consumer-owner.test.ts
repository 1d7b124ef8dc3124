import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import type { WirePage } from '../../../test/support/records.ts';
import { type Answer, connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';
import { putSettingKey } from '../../environments/setting-key.ts';
import { runRetention } from './retention.ts';

let trellis: TestTrellis;
let given: Awaited<ReturnType<typeof connect>>;
before(async () => {
  trellis = await openTrellis();
  given = await connect(trellis);
});
after(() => trellis.close());

type Key = { id: number; secret: string };
const reads = ['records:read'];
const writes = ['records:read', 'records:write'];

const at = (method: string, path: string, key: string | undefined, body?: unknown) =>
  trellis.call(method, path, { headers: given.headers, key, ...(body !== undefined && { body }) });
async function newKey(scopes: string[], more: Record<string, unknown> = {}): Promise<Key> {
  const body = { name: 'k', scopes, ...more };
  const answer = await trellis.call('POST', '/environment/api-keys', { body });
  assert.equal(answer.status, 201, answer.text);
  return answer.body.data as Key;
}
const replace = (body: Record<string, unknown>, key = trellis.keys.dev) =>
  trellis.call('POST', '/environment/api-keys', { key, body: { name: 'k', scopes: reads, ...body } });
const revoke = async ({ id }: Key) => {
  const answer = await trellis.call('DELETE', `/environment/api-keys/${id}`);
  assert.equal(answer.status, 200, answer.text);
};
const codeOf = ({ status, body }: Answer) => [status, (body.error as { code?: string } | undefined)?.code];
const payloadOf = ({ body }: Answer) => (body.error as { payload?: unknown }).payload;

let models = 0;
/** A dataset of its own with the cursors of ten records, and the calls on its consumer `app`. */
async function tenRecords() {
  models += 1;
  const model = `M${models}`;
  const records = Array.from({ length: 10 }, (_, n) => ({ id: `r${n}` }));
  await at('POST', '/records', trellis.keys.dev, { model, records });
  const { body } = await at('GET', `/records?model=${model}`, trellis.keys.dev);
  const cursors = (body as unknown as WirePage).records.map(
    ({ _trellis_metadata }) => _trellis_metadata.cursor,
  );
  const path = '/records/consumers/app';
  return {
    model,
    cursors,
    put: (key: string, cursor: string | null | undefined, more: { rewind?: boolean } = {}) =>
      at('PUT', path, key, { model, cursor, ...more }),
    end: (key: string) => at('DELETE', `${path}?model=${model}`, key),
    stand: async () => {
      const { body } = await at('GET', `${path}?model=${model}`, trellis.keys.dev);
      return [body.cursor, body.key_id];
    },
    entries: async () => {
      await placeEntries(trellis.db);
      return (
        await trellis.db.query<{ text: string }>(
          `select actor || ' ' || action as text
           from audit
           where action like 'consumer.%' and details ->> 'model' = $1
           order by id`,
          [model],
        )
      ).map(({ text }) => text);
    },
  };
}

test('a key that reads records does not move, rewind, keep alive or remove the consumer of another key', async () => {
  const [owner, other] = [await newKey(reads), await newKey(reads)];
  const { cursors, put, end, stand, entries } = await tenRecords();
  const made = await put(owner.secret, cursors[3]);
  assert.deepEqual([made.status, made.body.key_id, made.body.stalled_since], [200, owner.id, null]);
  for (const answer of [
    await put(other.secret, cursors[9]),
    await put(other.secret, cursors[3]),
    await put(other.secret, null, { rewind: true }),
    await end(other.secret),
  ]) {
    assert.deepEqual(codeOf(answer), [403, 'forbidden'], answer.text);
    assert.match(answer.text, /records:write/);
  }
  assert.deepEqual(await stand(), [cursors[3], owner.id]);
  assert.deepEqual(await entries(), []);
  assert.equal((await put(owner.secret, cursors[4])).status, 200);
  assert.equal((await put(owner.secret, null, { rewind: true })).status, 200);
  assert.equal((await end(owner.secret)).status, 200);
  assert.deepEqual(await entries(), [`key:${owner.id} consumer.removed`]);
});

test('retention keeps what the owner has not read when another key tries to move or remove the consumer', async () => {
  const [owner, other] = [await newKey(reads), await newKey(reads)];
  const { model, cursors, put, end } = await tenRecords();
  await put(owner.secret, cursors[3]);
  await put(other.secret, cursors[9]);
  await end(other.secret);
  await at('PUT', '/records/retention', trellis.keys.dev, { prune_after_days: 1 });
  await runRetention(trellis.db, { now: new Date(Date.now() + 2 * 86_400_000) });
  await at('DELETE', '/records/retention', trellis.keys.dev);
  const { body } = await at('GET', `/records?model=${model}`, trellis.keys.dev);
  const pruned = (body as unknown as WirePage).records.map(
    ({ _trellis_metadata }) => _trellis_metadata.pruned_at !== null,
  );
  assert.deepEqual(pruned, [...Array(4).fill(true), ...Array(6).fill(false)]);
});

test('a caller with records:write moves and removes the consumer of another key, with an entry for each', async () => {
  const owner = await newKey(reads);
  for (const scopes of [writes, ['records:write']]) {
    const admin = await newKey(scopes);
    const { cursors, put, end, stand, entries } = await tenRecords();
    await put(owner.secret, cursors[3]);
    assert.equal((await put(admin.secret, cursors[5])).status, 200);
    assert.equal((await put(admin.secret, cursors[1], { rewind: true })).status, 200);
    // The owner stays the same.
    assert.deepEqual(await stand(), [cursors[1], owner.id]);
    assert.equal((await put(owner.secret, cursors[2])).status, 200);
    assert.equal((await end(admin.secret)).status, 200);
    const by = `key:${admin.id}`;
    assert.deepEqual(await entries(), [
      `${by} consumer.moved`,
      `${by} consumer.moved`,
      `${by} consumer.removed`,
    ]);
  }
});

test('a key that replaces another one owns its consumers, together with that key until it is revoked', async () => {
  const old = await newKey(reads);
  const { cursors, put, stand, entries } = await tenRecords();
  await put(old.secret, cursors[1]);
  const young = await newKey(reads, { replaces: old.id });
  assert.deepEqual(await stand(), [cursors[1], young.id]);
  assert.equal((await put(young.secret, cursors[2])).status, 200);
  assert.equal((await put(old.secret, cursors[3])).status, 200);
  await revoke(old);
  assert.equal((await put(young.secret, cursors[4])).status, 200);
  // The third key in a row, made after the second one was revoked.
  await revoke(young);
  const third = await newKey(reads, { replaces: young.id });
  assert.equal((await put(third.secret, cursors[5])).status, 200);
  assert.deepEqual(await stand(), [cursors[5], third.id]);
  assert.deepEqual(await entries(), []);
  const details = await trellis.db.query<{ replaces: number }>(
    `select (details ->> 'replaces')::bigint as replaces
     from audit
     where action = 'key.created' and (details ->> 'id')::bigint = any($1::bigint[])
     order by id`,
    [[young.id, third.id]],
  );
  assert.deepEqual(
    details.map(({ replaces }) => replaces),
    [old.id, young.id],
  );
});

test('`replaces` that does not fit is refused by field, and makes no key', async () => {
  const old = await newKey(reads);
  const [prod] = await trellis.db.query<{ id: number }>(
    `select api_key.id from api_key join environment on environment.id = environment_id where environment.name = 'prod'`,
  );
  const [last] = await trellis.db.query<{ id: number }>('select max(id) as id from api_key');
  const successor = await newKey(reads, { replaces: old.id });
  const count = async () =>
    ((await trellis.call('GET', '/environment/api-keys')).body.data as unknown[]).length;
  const before = await count();
  const bad: Record<string, unknown>[] = [
    { replaces: old.id },
    { replaces: prod!.id },
    // The ID that the new key would have.
    { replaces: last!.id + 2 },
    { replaces: last!.id + 3 },
    ...[0, -1, 1.5, '4', null, 2 ** 53, Number.MAX_SAFE_INTEGER].map((replaces) => ({ replaces })),
    { replaces: successor.id, scopes: ['proxy:read', 'environment:read'] },
  ];
  for (const body of bad) {
    const answer = await replace(body);
    assert.deepEqual(codeOf(answer), [400, 'invalid_body'], answer.text);
    const { errors } = answer.body.error as { errors: { path: string[] }[] };
    assert.deepEqual(errors[0]?.path, ['replaces'], answer.text);
  }
  assert.equal(await count(), before);
  const without = await newKey(reads);
  assert.deepEqual(codeOf(await replace({ replaces: old.id }, without.secret)), [403, 'forbidden']);
  await revoke(successor);
  assert.equal((await replace({ replaces: old.id })).status, 201);
});

test('of twenty keys that replace one key at once, one is made, also when that key is revoked', async () => {
  for (const isRevoked of [false, true]) {
    const old = await newKey(reads);
    if (isRevoked) await revoke(old);
    const answers = await Promise.all(Array.from({ length: 20 }, () => replace({ replaces: old.id })));
    assert.deepEqual(answers.map(({ status }) => status).sort(), [201, ...Array(19).fill(400)]);
  }
});

test('a consumer without a valid owner is assigned to the key that acknowledges its present cursor', async () => {
  for (const end of ['revoked', 'expired', 'before owners']) {
    const hour = new Date(Date.now() + 3_600_000).toISOString();
    const old = await newKey(reads, end === 'expired' ? { expires_at: hour } : {});
    const { model, cursors, put, end: remove, stand, entries } = await tenRecords();
    await put(old.secret, cursors[3]);
    if (end === 'revoked') await revoke(old);
    if (end === 'expired') await trellis.advance(3_600);
    if (end === 'before owners')
      await trellis.db.query(
        'update consumer set owner_key_id = null, held_seq = null, held_since = null from dataset where dataset.id = dataset_id and model = $1',
        [model],
      );
    assert.deepEqual(await stand(), [cursors[3], null], end);
    const next = await newKey(reads);
    for (const answer of [
      await put(next.secret, cursors[9]),
      await put(next.secret, cursors[1]),
      await put(next.secret, null, { rewind: true }),
      await remove(next.secret),
    ]) {
      assert.deepEqual(codeOf(answer), [409, 'consumer_without_owner'], answer.text);
      assert.deepEqual(payloadOf(answer), { cursor: cursors[3] });
    }
    assert.deepEqual(await stand(), [cursors[3], null]);
    const taken = await put(next.secret, cursors[3]);
    assert.deepEqual([taken.status, taken.body.key_id], [200, next.id], taken.text);
    assert.equal((await put(next.secret, cursors[4])).status, 200);
    assert.deepEqual(await entries(), [`key:${next.id} consumer.owner_changed`]);
  }
});

test('of twenty keys that acknowledge a consumer without an owner at once, one becomes its owner', async () => {
  const old = await newKey(reads);
  const { cursors, put, stand, entries } = await tenRecords();
  await put(old.secret, cursors[3]);
  await revoke(old);
  const keys = await Promise.all(Array.from({ length: 20 }, () => newKey(reads)));
  const answers = await Promise.all(keys.map(({ secret }) => put(secret, cursors[3])));
  const winners = keys.filter((_, index) => answers[index]?.status === 200);
  assert.equal(winners.length, 1);
  for (const answer of answers.filter(({ status }) => status !== 200))
    assert.deepEqual(codeOf(answer), [403, 'forbidden']);
  assert.deepEqual(await stand(), [cursors[3], winners[0]?.id]);
  assert.deepEqual(await entries(), [`key:${winners[0]?.id} consumer.owner_changed`]);
});

test('a consumer without an owner is assigned to a key although its present cursor has expired', async () => {
  const old = await newKey(reads);
  const { model, cursors, put, stand } = await tenRecords();
  await put(old.secret, cursors[3]);
  await revoke(old);
  await trellis.db.query('update dataset set tombstone_floor = 5 where model = $1', [model]);
  const next = await newKey(reads);
  assert.deepEqual(codeOf(await put(next.secret, cursors[1])), [409, 'consumer_without_owner']);
  assert.deepEqual(codeOf(await put(next.secret, cursors[3])), [410, 'cursor_expired']);
  assert.deepEqual(await stand(), [cursors[3], next.id]);
  assert.equal((await put(next.secret, null, { rewind: true })).status, 200);
});

test('what a node of the previous release writes has no owner, and its moves leave the owner', async () => {
  const owner = await newKey(reads);
  const { model, cursors, put, stand } = await tenRecords();
  const asBefore = (seq: number) =>
    trellis.db.query(
      `insert into consumer (dataset_id, name, seq, since, acknowledged_at)
       select id, 'app', $2, 0, clock_timestamp() from dataset where model = $1
       on conflict on constraint consumer_name_unique do update
       set seq = excluded.seq, since = excluded.since, acknowledged_at = excluded.acknowledged_at, stale_at = null`,
      [model, seq],
    );
  await asBefore(3);
  assert.deepEqual(await stand(), [cursors[2], null]);
  assert.equal((await put(owner.secret, cursors[2])).status, 200);
  await asBefore(5);
  assert.deepEqual(await stand(), [cursors[4], owner.id]);
  assert.equal((await put(owner.secret, cursors[5])).status, 200);
});

test('the key of the setting owns what the key that stood there before owned', async () => {
  const [environment] = await trellis.db.query<{ id: number; name: string }>(
    `select id, name from environment where name = 'dev'`,
  );
  const [first, second] = ['a', 'b'].map((letter) => `trs_dev_${letter.repeat(43)}`);
  const set = (secret: string) =>
    trellis.db.transaction((tx) => putSettingKey(tx, { environment: environment!, secret, at: new Date() }));
  await set(first!);
  const { cursors, put, stand, entries } = await tenRecords();
  await put(first!, cursors[3]);
  await set(second!);
  assert.equal((await put(second!, cursors[4])).status, 200);
  const [cursor, keyId] = await stand();
  assert.equal(cursor, cursors[4]);
  assert.notEqual(keyId, null);
  assert.deepEqual(await entries(), []);
});
