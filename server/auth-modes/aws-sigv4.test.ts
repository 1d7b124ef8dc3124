import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { signatureOf } from '../../sandbox/aws.ts';
import { shippedCatalog } from '../../test/support/catalog.ts';
import { TemplateError } from '../providers/template.ts';
import { awsSigV4 } from './aws-sigv4.ts';
import { apiBase, placeCredentials, verificationRequest } from './place.ts';

const definition = shippedCatalog.get('aws');
const credentials = {
  type: 'AWS_SIGV4' as const,
  access_key_id: 'AKIAEXAMPLEEXAMPLE12',
  secret_access_key: 'not-a-key/of+anybody-in-the-world-12',
};
const connection = (service: string, region = 'eu-central-1', more: { session_token?: string } = {}) => ({
  definition,
  credentials: { ...credentials, ...more },
  values: { connectionConfig: { service, region } },
});
const signerOf = (of: ReturnType<typeof connection>) => placeCredentials(of).signer!;
const request = {
  method: 'GET',
  url: 'https://sqs.eu-central-1.amazonaws.com/',
  headers: [] as string[],
  body: Buffer.alloc(0),
};

describe('a signature', () => {
  for (const [host, service, region] of [
    ['sqs.eu-central-1.amazonaws.com', 'sqs', 'eu-central-1'],
    ['email.us-west-2.amazonaws.com', 'ses', 'us-west-2'],
    ['bucket.s3.us-east-1.amazonaws.com', 's3', 'us-east-1'],
    ['iam.amazonaws.com', 'iam', 'us-east-1'],
    // Only AWS has hosts that name the service.
    ['sqs.us-west-2.amazonaws.com.example.com', 'dynamodb', 'eu-central-1'],
  ] as const) {
    test(`for ${host} is of ${service} in ${region}`, async () => {
      const signed = await signerOf(connection('dynamodb')).sign({ ...request, url: `https://${host}/` });
      assert.match(
        signed.authorization!,
        new RegExp(`^AWS4-HMAC-SHA256 Credential=\\w+/\\d{8}/${region}/${service}/aws4_request,`),
      );
      assert.ok(!JSON.stringify(signed).includes(credentials.secret_access_key));
    });
  }

  test('covers method, path, query, body and the headers of AWS, as the algorithm says', async () => {
    const body = Buffer.from('{"a":"ü"}');
    const url = 'https://lambda.eu-central-1.amazonaws.com/2015-03-31/functions/a%3Ab/x?b=2%2F&a=%20z&a=1';
    const headers = [
      'X-Amz-Target',
      'Some.Target',
      'Accept',
      '*/*',
      'X-Amz-Date',
      'old',
      'x-amz-security-token',
      'of another',
    ];
    const signed = await signerOf(connection('lambda')).sign({ method: 'POST', url, headers, body });
    const names = /SignedHeaders=([^,]+),/.exec(signed.authorization!)![1]!;
    assert.equal(names, 'host;x-amz-content-sha256;x-amz-date;x-amz-target');
    const [, scope = ''] = /Credential=\w+\/([^,]+),/.exec(signed.authorization!)!;
    const { host, pathname, search } = new URL(url);
    const received = { method: 'POST', rawUrl: pathname + search, headers: { ...signed, host }, body };
    const expected = signatureOf(received, { secret: credentials.secret_access_key, scope, names });
    assert.equal(/Signature=(\w+)$/.exec(signed.authorization!)![1], expected);
    assert.equal(signed['x-amz-security-token'], undefined);
  });

  test('of temporary credentials covers their session token', async () => {
    const session_token = 'a-session-token-of-a-role';
    const signed = await signerOf(connection('sqs', 'us-east-1', { session_token })).sign(request);
    assert.equal(signed['x-amz-security-token'], session_token);
    assert.match(signed.authorization!, /SignedHeaders=[^,]*x-amz-security-token/);
  });

  test('leaves out a body for S3 only', async () => {
    const s3 = signerOf(connection('s3'));
    assert.equal(s3.coversBody([]), false);
    const streamed = { ...request, method: 'PUT', body: undefined };
    const signed = await s3.sign({ ...streamed, url: 'https://s3.eu-central-1.amazonaws.com/bucket/a%20b' });
    assert.equal(signed['x-amz-content-sha256'], 'UNSIGNED-PAYLOAD');
    await assert.rejects(s3.sign({ ...streamed, url: request.url }), { code: 'invalid_body' });
    assert.equal(signerOf(connection('sqs')).coversBody([]), true);
  });
});

test('a setting cannot leave the hosts of AWS', () => {
  assert.equal(apiBase(connection('s3')), 'https://s3.eu-central-1.amazonaws.com');
  for (const [service, region] of [
    ['s3.evil.example/', 'us-east-1'],
    ['s3', 'us-east-1.evil.example#'],
    ['a@evil', 'us-east-1'],
    ['s3', 'us-east-1\r\nHost: evil.example'],
    ['', 'us-east-1'],
  ] as const)
    assert.throws(() => apiBase(connection(service, region)), TemplateError);
  const { url, method } = verificationRequest(connection('s3'))!;
  assert.deepEqual(
    [method, url],
    ['GET', 'https://sts.eu-central-1.amazonaws.com/?Action=GetCallerIdentity&Version=2011-06-15'],
  );
});

test('a key must be one, and an empty session token is none', () => {
  const read = (more: object) => awsSigV4.importSchema.safeParse({ ...credentials, ...more });
  assert.deepEqual(read({ session_token: '' }).data, credentials);
  for (const more of [
    { access_key_id: 'short' },
    { access_key_id: 'AKIA/us-east-1/s3/aws4' },
    { secret_access_key: 'with a space in the key' },
    { secret_access_key: 'x'.repeat(300) },
    { session_token: 'line\r\nbreak-in-the-token' },
    { role: 'x' },
  ])
    assert.equal(read(more).success, false, JSON.stringify(more));
});
