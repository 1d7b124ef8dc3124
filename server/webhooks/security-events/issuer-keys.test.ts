import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import type { Integration } from '../../integrations/store.ts';
import { about, openWebhookBench, type WebhookBench } from '../webhooks.fixture.ts';

const minute = 60_000;
const events = about('ada', 'sessions-revoked');
let bench: WebhookBench;
let integration: Integration;
beforeEach(async () => {
  bench = await openWebhookBench();
  integration = await bench.integrate('sheets');
});
afterEach(() => bench.end());

type Key = WebhookBench['provider']['keys']['own'];
const signedBy = async (key: Key) => bench.push(await bench.provider.sign({ events }, { key }));
/** As anyone can write it who knows the client ID. */
const knock = () => {
  const { keys } = bench.provider;
  return signedBy({ ...keys.foreign, jwk: { ...keys.foreign.jwk, kid: 'made-up' } });
};
const publish = (...keys: Key[]) => Object.assign(bench.provider.state, { served: keys });

test('a new key of the issuer is accepted as soon as it is published, by twenty tokens at once', async () => {
  const one = await bench.connect(integration, 'ada');
  const { own, next } = bench.provider.keys;
  assert.equal((await signedBy(own)).status, 202);
  assert.equal((await bench.now(one)).status, 'needs_reauth');
  publish(own, next);
  bench.advance(minute);
  const answers = await Promise.all(Array.from({ length: 20 }, () => signedBy(next)));
  assert.deepEqual([...new Set(answers.map(({ status }) => status))], [202]);
  assert.equal(bench.provider.state.keyReads, 2);
});

test('a new key right after a request with a made-up key is deferred, and accepted when it comes again', async () => {
  const one = await bench.connect(integration, 'ada');
  const { own, next } = bench.provider.keys;
  assert.equal((await signedBy(own)).status, 202);
  await bench.db.query(`update connection set status = 'active', fault = null`);
  bench.advance(minute);
  assert.equal((await knock()).body.err, 'invalid_key', 'it was looked for');
  publish(own, next);
  const token = await bench.provider.sign({ events }, { key: next });
  const early = await bench.push(token);
  assert.equal(early.status, 503, early.text);
  const retryAfter = Number(early.headers.get('retry-after'));
  assert.ok(retryAfter > 50 && retryAfter <= 60, String(retryAfter));
  assert.equal((await bench.now(one)).status, 'active');
  bench.advance(retryAfter * 1000);
  assert.equal((await bench.push(token)).status, 202);
  assert.equal((await bench.now(one)).status, 'needs_reauth');
});

test('the keys are read once a minute, however often a stranger knocks', async () => {
  const { state } = bench.provider;
  assert.equal((await knock()).status, 400, 'the first, since they were read just now');
  for (let knocks = 0; knocks < 20; knocks += 1) assert.equal((await knock()).status, 503);
  assert.equal(state.keyReads, 1);
  bench.advance(minute);
  const answers = await Promise.all(Array.from({ length: 20 }, knock));
  assert.ok(answers.every(({ status }) => status === 400 || status === 503));
  assert.equal(state.keyReads, 2);
});

test('unavailable keys are requested again after some seconds, and the sender retries', async () => {
  const { own } = bench.provider.keys;
  bench.provider.state.status = 503;
  assert.equal((await signedBy(own)).status, 503);
  const again = await signedBy(own);
  assert.deepEqual([again.status, again.headers.get('retry-after')], [503, '5']);
  assert.equal(bench.provider.state.keyReads, 1);
  bench.provider.state.status = 200;
  bench.advance(5_000);
  assert.equal((await signedBy(own)).status, 202);
});
