// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { accessKeyOf } from '../../sandbox/aws.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** An AWS access key: each call is signed when it is sent. The sandbox verifies the signatures on its own. */
const definition = `extends: aws
display_name: AWS of the sandbox
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
api:
  base_url: "\${integrationConfig.base_url}/aws/\${connectionConfig.service}/\${connectionConfig.region}"
verification:
  base_url: null
`;
let trellis: TestTrellis;
let directory: string;
let key: Key;
let connectionId: string;
type Key = { access_key_id: string; secret_access_key: string };

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'aws-sandbox.yaml'), definition);
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' }, { catalog });
  const made = await trellis.control('POST', 'clients', { redirect_uris: ['https://app.example/callback'] });
  trellis.watch.made('password', made.client_secret);
  key = { access_key_id: accessKeyOf(String(made.client_id)), secret_access_key: String(made.client_secret) };
  const integration = await trellis.call('POST', '/integrations', {
    body: {
      provider: 'aws-sandbox',
      unique_key: 'aws',
      integration_config: { base_url: trellis.sandbox.url },
    },
  });
  assert.equal(integration.status, 200, integration.text);
});
after(async () => {
  await trellis.close();
  await rm(directory, { recursive: true });
});

const errorOf = ({ body }: { body: Record<string, unknown> }) => (body.error as { code: string }).code;
async function submit(
  body: object,
  config: Record<string, string> = { service: 'sqs', region: 'eu-central-1' },
) {
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['aws'] },
  });
  const query = new URLSearchParams({
    connect_session_token: (session.body.data as { token: string }).token,
    ...Object.fromEntries(Object.entries(config).map(([name, value]) => [`params[${name}]`, value])),
  });
  return trellis.call('POST', `/auth/aws-sigv4/aws?${query}`, { key: undefined, body });
}
const proxied = (
  path: string,
  {
    method = 'GET',
    headers = {},
    body,
    id = connectionId,
  }: { method?: string; headers?: Record<string, string>; body?: unknown; id?: string } = {},
) =>
  trellis.call(method, `/proxy${path}`, {
    headers: { 'provider-config-key': 'aws', 'connection-id': id, ...headers },
    ...(body !== undefined && { body }),
  });

test('a key is verified by a signed call, and a wrong one is refused without a trace of it', async () => {
  for (const wrong of [
    { ...key, secret_access_key: 'another-secret-that-is-not-it' },
    { ...key, access_key_id: 'AKIA0000000000000000' },
  ]) {
    const refused = await submit(wrong);
    assert.deepEqual([refused.status, errorOf(refused)], [400, 'connection_test_failed'], refused.text);
    assert.match(refused.text, /refused these credentials \(status 403\)/);
    assert.ok(!refused.text.includes(wrong.secret_access_key));
  }
  for (const unfit of [
    {},
    { access_key_id: key.access_key_id },
    { ...key, role_arn: 'arn:aws:iam::1:role/a' },
  ]) {
    const refused = await submit(unfit);
    assert.deepEqual([refused.status, errorOf(refused)], [400, 'invalid_body'], refused.text);
  }
  for (const [service, region] of [
    ['sqs/../x', 'eu-central-1'],
    ['sqs', 'eu-central-1.evil.example'],
    ['${credentials.x}', 'eu-central-1'],
  ] as const) {
    const refused = await submit(key, { service, region });
    assert.deepEqual([refused.status, errorOf(refused)], [400, 'invalid_query_params'], refused.text);
  }
  const made = await submit({ ...key, session_token: '' });
  assert.equal(made.status, 200, made.text);
  connectionId = String(made.body.connectionId);
});

test('calls are signed with path, query, body and headers', async () => {
  const got = await proxied('/a%20b/c:d?Action=List&b=%2F&a=1&a=0');
  assert.equal(got.status, 200, got.text);
  const text = '{"QueueName":"ü"}';
  const target = 'AmazonSQS.CreateQueue';
  const posted = await proxied('/', {
    method: 'POST',
    headers: { 'x-amz-target': target },
    body: { QueueName: 'ü' },
  });
  assert.equal(posted.status, 200, posted.text);
  assert.partialDeepStrictEqual(posted.body, { target, sha256: hash('sha256', text) });
});

test('headers and parameters of another signature do not reach AWS', async () => {
  const headers = {
    'x-amz-security-token': 'a-token-of-somebody-else',
    'x-amz-date': '20200101T000000Z',
    'x-amz-content-sha256': 'UNSIGNED-PAYLOAD',
    'trellis-proxy-x-amz-security-token': 'another-token',
    'trellis-proxy-authorization': 'AWS4-HMAC-SHA256 Credential=AKIAOTHER',
  };
  const answer = await proxied('/?X-Amz-Signature=00&X-Amz-Credential=AKIAOTHER&a=1', { headers });
  assert.equal(answer.status, 200, answer.text);
});

test('a key that only reads may not choose another operation than the path names', async () => {
  const key = await trellis.keyWith('proxy:read');
  const read = (path: string, headers: Record<string, string> = {}) =>
    trellis.call('GET', `/proxy${path}`, {
      key,
      headers: { 'provider-config-key': 'aws', 'connection-id': connectionId, ...headers },
    });
  assert.equal((await read('/queue')).status, 200);
  for (const refused of [
    await read('/?Action=TerminateInstances&InstanceId.1=i-1'),
    await read('/', { 'x-amz-target': 'DynamoDB_20120810.DeleteTable' }),
    await read('/copy', { 'x-amz-copy-source': '/other/secret' }),
  ]) {
    assert.equal(refused.status, 403, refused.text);
    assert.equal(errorOf(refused), 'proxy_rule_denied');
  }
});

test('each retry has its own signature, and twenty calls at once are all accepted', async () => {
  await trellis.control('POST', 'faults', { case: 'api_503', times: 1 });
  const again = await proxied('/retried', { headers: { retries: '2' } });
  assert.equal(again.status, 200, again.text);
  const calls = await Promise.all(Array.from({ length: 20 }, (_, index) => proxied(`/${index}?a=${index}`)));
  assert.deepEqual([...new Set(calls.map(({ status }) => status))], [200]);
});

test('a body is hashed up to 6 MiB, and S3 takes a stream', async () => {
  const large = { data: 'x'.repeat(7 * 1024 * 1024) };
  // Just above the limit: a client that still sends may read a reset connection instead of the response.
  const refused = await proxied('/', { method: 'POST', body: { data: 'x'.repeat(6 * 1024 * 1024) } });
  assert.deepEqual([refused.status, errorOf(refused)], [400, 'invalid_body'], refused.text);
  assert.match(refused.text, /at most 6 MiB/);
  const fits = await proxied('/', { method: 'POST', body: { data: 'x'.repeat(3 * 1024 * 1024) } });
  assert.equal(fits.status, 200, fits.text);
  const made = await submit(key, { service: 's3', region: 'us-east-1' });
  assert.equal(made.status, 200, made.text);
  const id = String(made.body.connectionId);
  const stored = await proxied('/bucket/a%2Bb/%C3%BC.json?x-id=PutObject', {
    id,
    method: 'PUT',
    body: large,
  });
  assert.equal(stored.status, 200, stored.text);
  assert.ok(Number(stored.body.bytes) > 7 * 1024 * 1024);
});

test('bodies that are to be signed have a common limit of 64 MiB, until their calls end', async () => {
  const size = 6 * 1024 * 1024;
  const key = await trellis.keyWith('proxy:write');
  const upload = () => {
    const headers = {
      authorization: `Bearer ${key}`,
      'content-type': 'application/octet-stream',
      'provider-config-key': 'aws',
      'connection-id': connectionId,
      'content-length': size,
    };
    const call = request(`${trellis.baseUrl}/proxy/upload`, { method: 'POST', headers });
    call.on('error', () => {});
    // The last byte never arrives.
    call.write(Buffer.alloc(size - 1));
    return call;
  };
  const calls = Array.from({ length: 12 }, upload);
  const statuses = calls.map(
    async (call) => ((await once(call, 'response')) as [IncomingMessage])[0].statusCode,
  );
  assert.equal(await Promise.race(statuses), 503);
  for (const call of calls) call.destroy();
  await Promise.allSettled(statuses);
  const next = await proxied('/', { method: 'POST', body: { data: 'x'.repeat(1024 * 1024) } });
  assert.equal(next.status, 200, next.text);
});

test("AWS's own errors reach the caller, such as that of a clock that is wrong", async () => {
  await trellis.control('POST', 'clock', { advance_s: 3600 });
  const late = await proxied('/');
  assert.equal(late.status, 403);
  assert.match(late.text, /<Code>SignatureDoesNotMatch<\/Code><Message>Signature expired/);
});

test('the credentials are shown to keys that may read them', async () => {
  const { body } = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=aws`);
  assert.deepEqual(body.credentials, { type: 'AWS_SIGV4', ...key });
  const reader = await trellis.keyWith('connections:read');
  const hidden = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=aws`, {
    key: reader,
  });
  assert.ok(!hidden.text.includes(key.secret_access_key));
});
