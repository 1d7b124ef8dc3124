import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { shippedCatalog } from '../../test/support/catalog.ts';
import { awsRole } from './aws-role.ts';

const definition = shippedCatalog.get('aws-role');
const secret = () => randomBytes(30).toString('base64url');
const now = new Date('2026-01-31T12:00:00Z');
const values = {
  connectionConfig: {
    service: 'sqs',
    region: 'eu-central-1',
    role_arn: 'arn:aws:iam::123456789012:role/app',
  },
};
const right = {
  AccessKeyId: 'ASIAEXAMPLEEXAMPLE12',
  SecretAccessKey: secret(),
  SessionToken: secret(),
  Expiration: '2026-01-31T13:00:00Z',
};
const textOf = (fields: object) =>
  `<AssumeRoleResponse><Credentials>${Object.entries(fields)
    .map(([name, value]) => `<${name}>${value}</${name}>`)
    .join('')}</Credentials></AssumeRoleResponse>`;
const requested = (text: string, status = 200) =>
  awsRole.renewal.request({
    definition,
    values,
    now,
    secret: '',
    credentials: { type: 'AWS_ROLE', raw: {} },
    client: { clientId: 'AKIAEXAMPLEEXAMPLE12', clientSecret: secret(), scopes: [] },
    fetch: async () => new Response(text, { status }),
  });

test('keys that STS issues sign the next request', async () => {
  const outcome = await requested(textOf(right));
  assert.ok(outcome.ok);
  const previous = { type: 'AWS_ROLE', raw: {} } as const;
  const credentials = awsRole.renewal.after(outcome.tokens, { previous, secret: '' });
  const signer = awsRole.signer!(credentials, { definition, values, client: undefined });
  const url = 'https://sqs.eu-central-1.amazonaws.com/';
  const signed = await signer.sign({ method: 'GET', url, headers: [], body: Buffer.alloc(0) });
  assert.equal(signed['x-amz-security-token'], right.SessionToken);
});

test('an answer of STS that is not that of a role is a fault, and stores nothing', async () => {
  for (const [what, text, error] of [
    [
      'a token that no header can carry',
      textOf({ ...right, SessionToken: `\u{1f511}${secret()}` }),
      'invalid_answer',
    ],
    ['a secret of other characters', textOf({ ...right, SecretAccessKey: `é${secret()}` }), 'invalid_answer'],
    [
      'an ID that would end the scope',
      textOf({ ...right, AccessKeyId: 'ASIA/x/y,Signature=1' }),
      'invalid_answer',
    ],
    [
      'a token with a line break',
      textOf({ ...right, SessionToken: `${secret()}\r\nx: ${secret()}` }),
      'invalid_answer',
    ],
    ['a token without end', textOf({ ...right, SessionToken: 'a'.repeat(9_000) }), 'invalid_answer'],
    ['an end in the past', textOf({ ...right, Expiration: '2026-01-31T11:59:00Z' }), 'invalid_answer'],
    ['an end that is no time', textOf({ ...right, Expiration: 'never' }), 'invalid_answer'],
    ['a page', '<html></html>', 'invalid_answer'],
    ['nothing', '', 'invalid_answer'],
    ['too much', 'x'.repeat(1024 * 1024 + 1), 'too_large'],
  ] as const) {
    const outcome = await requested(text);
    assert.ok(!outcome.ok, what);
    assert.deepEqual([outcome.fault.kind, outcome.fault.error], ['protocol', error], what);
  }
});
