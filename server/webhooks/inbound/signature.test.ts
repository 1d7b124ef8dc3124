import assert from 'node:assert/strict';
import { createHmac, createSecretKey, randomBytes } from 'node:crypto';
import { describe, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import { Webhook } from 'standardwebhooks';
import { shippedCatalog } from '../../../test/support/catalog.ts';
import { AppError } from '../../errors.ts';
import { readSettings } from '../../integrations/settings-input.ts';
import { webhookSchema } from '../../providers/definition.ts';
import { openVault } from '../../vault.ts';
import { faultOfSignature } from './signature.ts';

const now = new Date('2026-11-21T12:00:00Z');
const seconds = String(now.getTime() / 1000);
const secret = 'what-the-provider-signs-with';
const body = Buffer.from('{"a":1}');
const hmac = (text: string | Buffer, digest = 'sha256') => createHmac(digest, secret).update(text);
const proofOf = (proof: object) => webhookSchema.parse({ proof, type: { body: 'type' } }).proof;
const judge = (
  proof: object,
  headers: Record<string, string>,
  { secret: given, ...more }: { body?: Buffer; secret?: string | string[]; now?: Date } = { secret },
) =>
  faultOfSignature(proofOf(proof), {
    now,
    ...more,
    secrets: [given ?? secret].flat(),
    sent: { headers, body: more.body ?? body, url: 'https://trellis.example.com/webhook/dev/key' },
  });

const plain = { scheme: 'hmac', key: 'webhook_secret', header: 'X-Sig', prefix: 'sha256=' };
const timed = { ...plain, prefix: 'v0=', timestamp_header: 'X-Time', signed: 'v0:{timestamp}:{body}' };
const listed = {
  ...plain,
  prefix: '',
  parts: { timestamp: 't', signature: 'v1' },
  signed: '{timestamp}.{body}',
};

describe('a signature', () => {
  const emptyHmac = createHmac('sha256', '').update(body).digest('hex');
  const right = `sha256=${hmac(body).digest('hex')}`;

  test('is accepted over exactly these bytes, in either case of its digits', () => {
    assert.equal(judge(plain, { 'x-sig': right }), undefined);
    assert.equal(judge(plain, { 'x-sig': `sha256=${right.slice(7).toUpperCase()}` }), undefined);
  });

  for (const [what, headers, more] of [
    ['none', {}, {}],
    ['an empty one', { 'x-sig': '' }, {}],
    ['the prefix alone', { 'x-sig': 'sha256=' }, {}],
    ['one without its prefix', { 'x-sig': right.slice(7) }, {}],
    ['half of it', { 'x-sig': right.slice(0, 39) }, {}],
    ['one with more behind it', { 'x-sig': `${right}00` }, {}],
    ['one of another secret', { 'x-sig': right }, { secret: 'another' }],
    ['one of another body', { 'x-sig': right }, { body: Buffer.from('{"a":2}') }],
    ['one of no secret', { 'x-sig': right }, { secret: [] }],
    ['one of an empty secret', { 'x-sig': `sha256=${emptyHmac}` }, { secret: '' }],
    ['two at once', { 'x-sig': `${right}, ${right}` }, {}],
  ] as [string, Record<string, string>, object][]) {
    test(`is not accepted: ${what}`, () => {
      const fault = judge(plain, headers, more);
      assert.ok(fault !== undefined);
      assert.ok(!fault.includes(secret) && !fault.includes(right));
    });
  }

  test('of a list is one of the first ten', () => {
    const proof = { ...listed, parts: { signature: 'v1' }, signed: '{body}' };
    const list = (wrong: number) => `${'v1=00,'.repeat(wrong)}v1=${hmac(body).digest('hex')}`;
    assert.equal(judge(proof, { 'x-sig': list(9) }), undefined);
    assert.ok(judge(proof, { 'x-sig': list(10) }) !== undefined);
  });

  test('in base64 has one spelling', () => {
    const proof = { ...plain, prefix: '', encoding: 'base64' };
    const text = hmac(body).digest('base64');
    assert.equal(judge(proof, { 'x-sig': text }), undefined);
    assert.ok(judge(proof, { 'x-sig': `${text.slice(0, 4)} ${text.slice(4)}` }));
    // The last character before the padding carries bits that a lenient decoder drops.
    const digits = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
    const other = digits[digits.indexOf(text.at(-2)!) ^ 1];
    assert.ok(judge(proof, { 'x-sig': `${text.slice(0, -2)}${other}=` }));
  });

  test('with a time is good for five minutes around it', () => {
    const sign = (at: string) => ({ 'x-time': at, 'x-sig': `v0=${hmac(`v0:${at}:${body}`).digest('hex')}` });
    assert.equal(judge(timed, sign(seconds)), undefined);
    for (const at of [
      String(Number(seconds) - 301),
      String(Number(seconds) + 301),
      '',
      'x',
      '-1',
      '1e9',
      `${seconds}.5`,
    ])
      assert.ok(judge(timed, sign(at)), at);
    assert.ok(judge(timed, { ...sign(seconds), 'x-time': String(Number(seconds) + 1) }));
  });

  test('may be one of several in a list', () => {
    const right = hmac(`${seconds}.${body}`).digest('hex');
    assert.equal(judge(listed, { 'x-sig': `t=${seconds},v1=00ff,v1=${right},v0=aa` }), undefined);
    assert.ok(judge(listed, { 'x-sig': `t=${seconds},v0=${right}` }));
    assert.ok(judge(listed, { 'x-sig': `v1=${right}` }));
  });
});

test('Standard Webhooks are accepted as their own library signs them', () => {
  const key = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
  const proof = { scheme: 'standard', key: 'webhook_secret' };
  const signature = new Webhook(key).sign('msg_1', now, body.toString());
  const headers = {
    'webhook-id': 'msg_1',
    'webhook-timestamp': seconds,
    'webhook-signature': `v1,AAAA ${signature}`,
  };
  assert.equal(judge(proof, headers, { secret: key }), undefined);
  assert.ok(judge(proof, { ...headers, 'webhook-id': 'msg_2' }, { secret: key }));
  assert.ok(judge(proof, { ...headers, 'webhook-signature': signature.slice(3) }, { secret: key }));
});

test('a secret of Standard Webhooks that is not base64 of 16 bytes verifies no signature, whatever a decoder returns', () => {
  const proof = { scheme: 'standard', key: 'webhook_secret' };
  for (const [secret, decoded] of [
    ['whsec_', ''],
    ['whsec_!!!', ''],
    ['whsec_AAAA', Buffer.alloc(3)],
    [Buffer.alloc(15, 7).toString('base64'), Buffer.alloc(15, 7)],
    [`whsec_ ${Buffer.alloc(24, 7).toString('base64')}`, Buffer.alloc(24, 7)],
    [`whsec_${Buffer.alloc(23, 7).toString('base64').replace('=', '')}`, Buffer.alloc(23, 7)],
  ] as const) {
    const signed = createHmac('sha256', decoded).update(`msg_1.${seconds}.`).update(body).digest('base64');
    const headers = {
      'webhook-id': 'msg_1',
      'webhook-timestamp': seconds,
      'webhook-signature': `v1,${signed}`,
    };
    assert.match(judge(proof, headers, { secret }) ?? 'accepted', /16 bytes/, secret);
  }
});

test('such a secret is refused where it is set, by field, and an empty one is none', () => {
  const given = shippedCatalog.get('github');
  const proof = { scheme: 'standard', key: 'webhook_secret', headers: 'webhook' } as const;
  const provider = { ...given, webhook: { ...given.webhook!, proof } };
  const vault = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
  const reading = {
    vault,
    testClient: undefined,
    catalog: shippedCatalog,
  };
  const set = (body: Parameters<typeof readSettings>[0], by: typeof given = provider) =>
    readSettings(body, { provider: by, reading, before: undefined });
  const inCredentials = (webhook_secret: string) => ({
    credentials: { type: 'OAUTH2', client_id: 'a', client_secret: 'b', webhook_secret } as const,
  });
  for (const secret of ['whsec_', 'whsec_!!!', 'whsec_AAAA', 'a secret in words']) {
    const isAt = (path: string[]) => (error: unknown) =>
      error instanceof AppError &&
      error.code === 'invalid_body' &&
      isDeepStrictEqual(error.errors?.[0]?.path, path);
    assert.throws(() => set({ webhook_secret: secret }), isAt(['webhook_secret']));
    assert.throws(() => set(inCredentials(secret)), isAt(['credentials', 'webhook_secret']));
    assert.equal(
      set({ webhook_secret: secret }, given).webhookSecret,
      secret,
      'of another scheme it is any text',
    );
  }
  const good = `whsec_${Buffer.alloc(16, 7).toString('base64')}`;
  assert.equal(set(inCredentials(good)).webhookSecret, good);
  assert.equal(set({ webhook_secret: '' }).webhookSecret, '');
});

test('while a secret is changed both are good, and afterwards the new one alone', () => {
  const right = { 'x-sig': `sha256=${hmac(body).digest('hex')}` };
  assert.equal(judge(plain, right, { secret: ['the-next-one', secret] }), undefined);
  assert.equal(judge(plain, right, { secret: [secret, 'the-one-before'] }), undefined);
  assert.ok(judge(plain, right, { secret: ['the-next-one', ''] }));
  assert.ok(judge(plain, right, { secret: 'the-next-one' }));
});

test('a secret that is sent as it is must be the whole one', () => {
  const proof = { scheme: 'token', key: 'webhook_secret', header: 'X-Token' };
  assert.ok(judge(proof, {}, { secret: '' }), 'no header is not an empty secret');
  assert.ok(judge(proof, {}));
  assert.equal(judge(proof, { 'x-token': secret }), undefined);
  for (const token of ['', secret.slice(1), `${secret} `, secret.toUpperCase()])
    assert.ok(judge(proof, { 'x-token': token }));
});

test('a definition whose signature leaves out the time that it reads, or names one that it has not, is refused', () => {
  for (const wrong of [
    { ...timed, signed: '{body}' },
    { ...plain, signed: '{timestamp}.{body}' },
    { ...listed, signed: '{body}' },
  ])
    assert.throws(() => proofOf(wrong), /timestamp/);
});

test('without a secret a webhook is accepted only if the definition allows it', () => {
  for (const none of [[], '']) {
    assert.equal(judge({ ...plain, required: 'unset' }, {}, { secret: none }), undefined);
    assert.ok(judge(plain, {}, { secret: none }));
  }
  assert.ok(judge({ ...plain, required: 'unset' }, {}));
});
