import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { Webhook } from 'standardwebhooks';
import { type DeliveryBench, openDeliveryBench, type Received } from './deliveries.fixture.ts';
import { rotateSigningKey, signingKeys } from './signing.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

const at = () => ({
  environmentId: bench.environmentId,
  vault: bench.vault,
  now: new Date(bench.nowMs()),
});
const rotate = (overlapMs: number) =>
  bench.db.transaction((tx) => rotateSigningKey(tx, { ...at(), overlapMs }));
const secretsNow = async () => (await signingKeys(bench.db, at())).map(({ secret }) => secret);

function isVerified({ body, headers }: Received, secret: string): boolean {
  try {
    new Webhook(secret).verify(body, headers as Record<string, string>);
    return true;
  } catch {
    return false;
  }
}
const isVerifiedByClient = ({ body, headers }: Received, webhookSigningKey: string) =>
  new Nango({ apiKey: 'x', webhookSigningKey } as never).verifyIncomingWebhookRequest(
    body,
    headers as Record<string, unknown>,
  );

test('the standard package and the official client accept a sent delivery, and refuse a changed one', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  const [got] = receiver.got as [Received];
  const [secret] = (await secretsNow()) as [string];
  assert.match(secret, /^whsec_[A-Za-z0-9+/]{43}=$/);
  assert.equal(isVerified(got, secret), true);
  assert.equal(isVerifiedByClient(got, secret), true);
  const changed = { ...got, body: got.body.replace('ada', 'eve') };
  assert.equal(isVerified(changed, secret), false);
  assert.equal(isVerifiedByClient(changed, secret), false);
  const moved = { ...got, headers: { ...got.headers, 'webhook-id': crypto.randomUUID() } };
  assert.equal(isVerified(moved, secret), false);
  // Its signature could be continued with more text: only those get it who may have nothing better.
  assert.equal(got.headers['x-nango-signature'], undefined);
});

test('in a rotation both keys sign until the overlap is over, and no delivery is lost to either', async () => {
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  const [before] = (await secretsNow()) as [string];
  const worker = bench.deliverer();
  await bench.raise([0]);
  await worker.deliverDue();
  const [after, still] = (await rotate(60_000)).map(({ secret }) => secret);
  assert.notEqual(after, before);
  assert.equal(still, before);
  worker.forgetKeys(bench.environmentId);
  await bench.raise([1]);
  await worker.deliverDue();
  const [first, second] = receiver.got as [Received, Received];
  assert.deepEqual([isVerified(first, before), isVerified(first, after!)], [true, false]);
  assert.deepEqual([isVerified(second, before), isVerified(second, after!)], [true, true]);
  assert.deepEqual([isVerifiedByClient(second, before), isVerifiedByClient(second, after!)], [false, true]);
  bench.advance(61_000);
  assert.deepEqual(await secretsNow(), [after]);
  worker.forgetKeys(bench.environmentId);
  await bench.raise([2]);
  await worker.deliverDue();
  assert.deepEqual(
    [isVerified(receiver.got[2]!, before), isVerified(receiver.got[2]!, after!)],
    [false, true],
  );
});

test('twenty first looks at once make one key', async () => {
  const found = await Promise.all(Array.from({ length: 20 }, secretsNow));
  assert.equal(new Set(found.flat()).size, 1);
});

test('twenty rotations at once leave five keys that sign, one of them the newest', async () => {
  await Promise.all(Array.from({ length: 20 }, () => rotate(60_000)));
  const keys = await signingKeys(bench.db, at());
  assert.equal(keys.length, 5);
  assert.deepEqual(
    keys.map(({ retiresAt }) => retiresAt === null),
    [true, false, false, false, false],
  );
  await rotate(0);
  assert.equal((await secretsNow()).length, 1);
});

test('the database holds no readable key', async () => {
  const [secret] = (await secretsNow()) as [string];
  const rows = await bench.db.query<{ text: string }>('select signing_key::text as text from signing_key');
  const held = rows.map(({ text }) => text).join('\n');
  assert.ok(!held.includes(Buffer.from(secret).toString('hex')));
  assert.ok(!held.includes(Buffer.from(secret.slice(6), 'base64').toString('hex')));
});
