import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { isTrellisError, type KnownCode, type TrellisEvent, verifyEvent, verifyHmac } from './index.ts';

const newKey = () => `whsec_${randomBytes(32).toString('base64')}`;
const secret = newKey();
const body = JSON.stringify({
  id: 'e1',
  type: 'connection.created',
  environment: 'dev',
  created_at: '2026-11-21T10:13:59.733Z',
  data: { connection_id: 'zoë' },
});
const signed = (at = new Date(), key = secret, text = body) => ({
  'webhook-id': 'e1',
  'webhook-timestamp': String(Math.floor(at.getTime() / 1000)),
  'webhook-signature': new Webhook(key).sign('e1', at, text),
});
const is = (code: KnownCode) => (error: unknown) => isTrellisError(error, code);

test('a signed event is verified, for all forms of body and headers', async () => {
  const headers = signed();
  const mixed = Object.fromEntries(
    Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]]),
  );
  for (const rawBody of [
    body,
    Buffer.from(body),
    new TextEncoder().encode(body),
    new TextEncoder().encode(body).buffer,
  ]) {
    // Those of another window or library are no `Headers` of this one.
    const foreign = { get: (name: string) => new Headers(headers).get(name) };
    for (const given of [headers, new Headers(headers), mixed, foreign, new Map(Object.entries(headers))]) {
      const event: TrellisEvent = await verifyEvent(rawBody, given, secret);
      assert.equal(event.id, 'e1');
      if (event.type === 'connection.created') assert.equal(event.data.connection_id, 'zoë');
    }
  }
});

test('a changed body, another key and a missing header are refused', async () => {
  const headers = signed();
  const changes: [string, Record<string, string | undefined>][] = [
    [body.replace('dev', 'prod'), headers],
    [`${body} `, headers],
    [body, { ...headers, 'webhook-id': 'e2' }],
    [body, { ...headers, 'webhook-timestamp': String(Number(headers['webhook-timestamp']) + 1) }],
    [body, signed(new Date(), newKey())],
    [body, { ...headers, 'webhook-signature': headers['webhook-signature'].replace('v1,', 'v2,') }],
    [body, { ...headers, 'webhook-signature': 'v1,not base64!' }],
    [body, { ...headers, 'webhook-signature': '' }],
    [body, { ...headers, 'webhook-timestamp': 'now' }],
    [body, { ...headers, 'webhook-id': undefined }],
    [body, {}],
    [body, { 'x-trellis-hmac-sha256': createHmac('sha256', secret).update(body).digest('hex') }],
  ];
  for (const [text, given] of changes)
    await assert.rejects(verifyEvent(text, given, secret), is('invalid_signature'), JSON.stringify(given));
  const notJson = signed(new Date(), secret, 'no JSON');
  await assert.rejects(verifyEvent('no JSON', notJson, secret), is('invalid_signature'));
});

test('an old or future timestamp is refused', async () => {
  const now = Date.now();
  for (const [seconds, isGood] of [
    [0, true],
    [-299, true],
    [299, true],
    [-302, false],
    [302, false],
    [-86_400, false],
  ] as const) {
    const headers = signed(new Date(now + seconds * 1000));
    const verified = verifyEvent(body, headers, secret, { now });
    if (isGood) await verified;
    else await assert.rejects(verified, is('stale_signature'));
  }
  await verifyEvent(body, signed(new Date(now - 500_000)), secret, { now, toleranceS: 600 });
  const old = signed(new Date(now - 500_000));
  for (const wrong of [{ toleranceS: Number.NaN }, { now: Number.NaN }])
    await assert.rejects(verifyEvent(body, old, secret, { now, ...wrong }), is('stale_signature'));
});

test('during a key rotation both keys are valid, on both sides', async () => {
  const next = newKey();
  const at = new Date();
  const [one, other] = [signed(at), signed(at, next)];
  const both = { ...one, 'webhook-signature': `${other['webhook-signature']} ${one['webhook-signature']}` };
  await verifyEvent(body, both, secret);
  await verifyEvent(body, both, next);
  await verifyEvent(body, one, [next, secret]);
  await assert.rejects(verifyEvent(body, other, secret), is('invalid_signature'));
  await assert.rejects(verifyEvent(body, one, []), is('invalid_signature'));
  await assert.rejects(verifyEvent(body, one, 'whsec_'), { name: 'TypeError' });
});

test('the header of the brand is verified by its own name', async () => {
  const hex = createHmac('sha256', secret).update(body).digest('hex');
  const event = await verifyHmac(body, { 'X-Trellis-Hmac-Sha256': hex }, [newKey(), secret]);
  assert.equal(event.id, 'e1');
  await verifyHmac(body, { 'x-acme-hmac-sha256': hex }, secret, { brand: 'acme' });
  for (const [text, headers] of [
    [body, { 'x-trellis-hmac-sha256': hex.replace(/^./, (letter) => (letter === '0' ? '1' : '0')) }],
    [body.replace('dev', 'prod'), { 'x-trellis-hmac-sha256': hex }],
    [body, { 'x-trellis-hmac-sha256': hex.slice(2) }],
    [body, { 'x-trellis-hmac-sha256': 'zz' }],
    [body, {}],
  ] as const)
    await assert.rejects(verifyHmac(text, headers, secret), is('invalid_signature'));
});
