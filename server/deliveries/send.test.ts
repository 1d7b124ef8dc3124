import assert from 'node:assert/strict';
import { getEventListeners } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { brandNames } from '../brand.ts';
import { exampleConnection } from '../events/event-types.ts';
import type { Fetch } from '../outbound/outbound.ts';
import type { Claim } from './claims.ts';
import { send } from './send.ts';

const createdAt = new Date('2026-11-21T10:00:00Z');
const claim: Claim = {
  owner: crypto.randomUUID(),
  leasedAtMs: 0,
  environmentId: 1,
  environment: 'dev',
  endpoint: {
    id: 1,
    kind: 'events',
    format: 'standard',
    url: 'https://app.example.com/hook',
    isProbe: false,
  },
  lane: 0,
  others: [],
  delivery: {
    id: 1,
    attempts: 0,
    queuedAt: createdAt,
    createdAt,
    eventId: crypto.randomUUID(),
    type: 'connection.created',
    data: exampleConnection,
  },
};
const sending = (fetch: Fetch, signal: AbortSignal) => ({
  fetch,
  signal,
  brand: brandNames('nango'),
  authModeOf: () => 'OAUTH2',
  timeoutMs: 60_000,
  mailer: undefined,
  baseUrl: 'https://trellis.example',
  keys: [{ secret: `whsec_${'a'.repeat(43)}=`, createdAt, retiresAt: null }] as const,
  nowMs: () => createdAt.getTime(),
});

test('nothing of an attempt is kept once it has ended, however long the service runs', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const running = new AbortController();
  const signals: WeakRef<object>[] = [];
  const fetch: Fetch = async (_, { signal }) => {
    signals.push(new WeakRef(signal as AbortSignal));
    return new Response('taken') as never;
  };
  for (let n = 0; n < 100; n += 1) await send(claim, sending(fetch, running.signal));
  assert.equal(getEventListeners(running.signal, 'abort').length, 0);
  await sleep(1);
  collect();
  const held = signals.filter((signal) => signal.deref() !== undefined).length;
  assert.ok(held < 10, `${held} of ${signals.length} are held`);
});

test('an aborted attempt has no outcome, and no attempt begins after the abort', async () => {
  const running = new AbortController();
  let calls = 0;
  const fetch: Fetch = async () => {
    calls += 1;
    return new Promise(() => {});
  };
  const attempt = send(claim, sending(fetch, running.signal));
  running.abort();
  assert.equal(await attempt, undefined);
  assert.equal(await send(claim, sending(fetch, running.signal)), undefined);
  assert.equal(calls, 1);
});

test('a delivery that cannot be written is not sent, and is no failure of the receiver', async () => {
  const broken = { ...claim, delivery: { ...claim.delivery, createdAt: new Date(Number.NaN) } };
  const fetch: Fetch = () => assert.fail('it was sent');
  await assert.rejects(send(broken, sending(fetch, new AbortController().signal)), RangeError);
});
