// Slow: it drives published clients.

import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { isTrellisError, type TrellisEvent, verifyEvent, verifyHmac } from '../../sdk/client/index.ts';
import {
  type DeliveryBench,
  openDeliveryBench,
  type Received,
} from '../../server/deliveries/deliveries.fixture.ts';
import { rotateSigningKey, signingKeys } from '../../server/deliveries/signing.ts';

let bench: DeliveryBench;
beforeEach(async () => {
  bench = await openDeliveryBench();
});
afterEach(() => bench.drop());

test('what the service sends is verified by the client, also while its key is replaced', async () => {
  const at = () => ({
    environmentId: bench.environmentId,
    vault: bench.vault,
    now: new Date(bench.nowMs()),
  });
  const keys = async () => (await signingKeys(bench.db, at())).map(({ secret }) => secret);
  const receiver = await bench.receiver();
  await bench.endpoint(receiver.url);
  await bench.raise([0]);
  await bench.deliverer().deliverDue();
  const [got] = receiver.got as [Received];
  const [key] = (await keys()) as [string];
  const now = bench.nowMs();
  const event: TrellisEvent = await verifyEvent(got.body, got.headers, key, { now });
  assert.equal(event.id, JSON.parse(got.body).id);
  assert.equal((await verifyHmac(got.body, got.headers, key, { brand: 'nango' })).id, event.id);
  await assert.rejects(verifyEvent(got.body, got.headers, key, { now: now + 301_000 }), (error) =>
    isTrellisError(error, 'stale_signature'),
  );
  await assert.rejects(verifyEvent(got.body.replace('dev', 'prod'), got.headers, key, { now }), (error) =>
    isTrellisError(error, 'invalid_signature'),
  );

  await bench.db.transaction((tx) => rotateSigningKey(tx, { ...at(), overlapMs: 60_000 }));
  await bench.raise([1]);
  await bench.deliverer().deliverDue();
  const next = receiver.got[1] as Received;
  const [newest] = (await keys()) as [string];
  assert.notEqual(newest, key);
  for (const good of [key, newest]) await verifyEvent(next.body, next.headers, good, { now: bench.nowMs() });
});
