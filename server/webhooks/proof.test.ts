import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { describe, test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { webhookSchema } from '../providers/definition-webhook.ts';
import { faultOfProof } from './proof.ts';

const now = new Date('2026-11-21T12:00:00Z');
const seconds = String(now.getTime() / 1000);
const secret = 'what-the-provider-signs-with';
const body = Buffer.from('{"a":1}');
const hmac = (text: string | Buffer, digest = 'sha256') => createHmac(digest, secret).update(text);
const proofOf = (proof: object) => webhookSchema.parse({ proof, type: { body: 'type' } }).proof;
const judge = (
  proof: object,
  headers: Record<string, string>,
  more: { body?: Buffer; secret?: string | undefined; now?: Date } = {},
) => faultOfProof(proofOf(proof), { secret, now, ...more, sent: { headers, body: more.body ?? body } });

const plain = { scheme: 'hmac', key: 'webhook_secret', header: 'X-Sig', prefix: 'sha256=' };
const timed = { ...plain, prefix: 'v0=', timestamp_header: 'X-Time', signed: 'v0:{timestamp}:{body}' };
const listed = {
  ...plain,
  prefix: '',
  parts: { timestamp: 't', signature: 'v1' },
  signed: '{timestamp}.{body}',
};

describe('a signature', () => {
  const right = `sha256=${hmac(body).digest('hex')}`;

  test('is believed over exactly these bytes, in either case of its digits', () => {
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
    ['one of no secret', { 'x-sig': right }, { secret: undefined }],
  ] as [string, Record<string, string>, object][]) {
    test(`is not believed: ${what}`, () => {
      const fault = judge(plain, headers, more);
      assert.ok(fault !== undefined);
      assert.ok(!fault.includes(secret) && !fault.includes(right));
    });
  }

  test('in base64 has one spelling', () => {
    const proof = { ...plain, prefix: '', encoding: 'base64' };
    const text = hmac(body).digest('base64');
    assert.equal(judge(proof, { 'x-sig': text }), undefined);
    assert.ok(judge(proof, { 'x-sig': `${text.slice(0, 4)} ${text.slice(4)}` }));
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

test('Standard Webhooks are believed as their own library signs them', () => {
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

test('a secret that is sent as it is must be the whole one', () => {
  const proof = { scheme: 'token', key: 'webhook_secret', header: 'X-Token' };
  assert.equal(judge(proof, { 'x-token': secret }), undefined);
  for (const token of ['', secret.slice(1), `${secret} `, secret.toUpperCase()])
    assert.ok(judge(proof, { 'x-token': token }));
});

test('without a secret only a definition that says so takes what comes', () => {
  assert.equal(judge({ ...plain, required: 'unset' }, {}, { secret: undefined }), undefined);
  assert.ok(judge({ ...plain, required: 'unset' }, {}));
});
