// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { accessKeyOf } from '../../sandbox/aws.ts';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** A role at AWS: STS issues keys for it, which sign each call and are renewed. The sandbox verifies the signatures. */
const definition = `extends: aws-role
display_name: AWS of the sandbox
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri }
api:
  base_url: "\${integrationConfig.base_url}/aws/\${connectionConfig.service}/\${connectionConfig.region}"
signature:
  assume_role: { url: "\${integrationConfig.base_url}/aws/sts/\${connectionConfig.region}/" }
verification:
  base_url: "\${integrationConfig.base_url}/aws/sqs/\${connectionConfig.region}"
  path: /
`;
const config = { service: 'sqs', region: 'eu-central-1' };
const roleOf = (name: string) => `arn:aws:iam::123456789012:role/${name}`;
const ofApp = { ...config, role_arn: roleOf('app'), external_id: 'of-app' };
let trellis: TestTrellis;
let directory: string;
let key: { access_key_id: string; secret_access_key: string };

before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, directory, { recursive: true });
  await writeFile(join(directory, 'aws-sandbox.yaml'), definition);
  const catalog = loadCatalog(directory, authModes);
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' }, { catalog });
  const made = await trellis.control('POST', 'clients', { redirect_uris: ['https://app.example/callback'] });
  trellis.watch.made('client_secret', made.client_secret);
  key = { access_key_id: accessKeyOf(String(made.client_id)), secret_access_key: String(made.client_secret) };
  const credentials = { type: 'OAUTH2', client_id: key.access_key_id, client_secret: key.secret_access_key };
  for (const [unique_key, more] of [
    ['operator', { credentials }],
    ['own', {}],
  ] as const) {
    const { status, text } = await trellis.call('POST', '/integrations', {
      body: {
        provider: 'aws-sandbox',
        unique_key,
        ...more,
        integration_config: { base_url: trellis.sandbox.url },
      },
    });
    assert.equal(status, 200, text);
  }
});
after(async () => {
  await trellis.close();
  await rm(directory, { recursive: true });
});

const errorOf = ({ body }: { body: Record<string, unknown> }) =>
  body.error as { code: string; message: string };
/** `fixed` is set by the application, `wished` by the end user. */
async function submit(
  integration: string,
  body: object,
  { fixed = {}, wished = {} }: { fixed?: Record<string, string>; wished?: Record<string, string> },
) {
  const session = await trellis.call('POST', '/connect/sessions', {
    body: {
      end_user: { id: 'ada' },
      allowed_integrations: [integration],
      integrations_config_defaults: { [integration]: { connection_config: fixed } },
    },
  });
  assert.equal(session.status, 201, session.text);
  const query = new URLSearchParams({
    connect_session_token: (session.body.data as { token: string }).token,
    ...Object.fromEntries(Object.entries(wished).map(([name, value]) => [`params[${name}]`, value])),
  });
  return trellis.call('POST', `/auth/aws-role/${integration}?${query}`, { key: undefined, body });
}
const proxied = (integration: string, id: string, path = '/queue') =>
  trellis.call('GET', `/proxy${path}`, {
    headers: { 'provider-config-key': integration, 'connection-id': id },
  });
const credentialsOf = async (integration: string, id: string, more = '') =>
  (await trellis.call('GET', `/connections/${id}?provider_config_key=${integration}${more}`)).body
    .credentials as Record<string, string>;

test('a role is assumed with the key of the connection, and only who may renew sees that key', async () => {
  const made = await submit('own', key, { wished: ofApp });
  assert.equal(made.status, 200, made.text);
  const id = String(made.body.connectionId);
  const called = await proxied('own', id);
  assert.equal(called.status, 200, called.text);
  const shown = await credentialsOf('own', id);
  assert.deepEqual(Object.keys(shown).sort(), [
    'access_key_id',
    'expires_at',
    'secret_access_key',
    'session_token',
    'type',
  ]);
  assert.match(shown.access_key_id!, /^ASIA/);
  const whole = await credentialsOf('own', id, '&refresh_token=true');
  assert.deepEqual(whole.own_key, key);
});

test('a role is assumed with the key of the integration, and the application alone names it', async () => {
  const chosen = await submit('operator', {}, { fixed: config, wished: { role_arn: roleOf('app') } });
  assert.deepEqual([chosen.status, errorOf(chosen).code], [400, 'invalid_query_params'], chosen.text);
  const made = await submit('operator', {}, { fixed: ofApp });
  assert.equal(made.status, 200, made.text);
  assert.equal((await proxied('operator', String(made.body.connectionId))).status, 200);
});

test('a refusal by STS names its code, and no secret', async () => {
  const strange = await submit('own', key, { wished: { ...ofApp, external_id: 'of-another' } });
  assert.deepEqual([strange.status, errorOf(strange).code], [400, 'connection_test_failed'], strange.text);
  assert.match(errorOf(strange).message, /AccessDenied/);
  const wrong = { ...key, secret_access_key: 'another-secret-that-is-not-it' };
  const refused = await submit('own', wrong, { wished: ofApp });
  assert.match(errorOf(refused).message, /SignatureDoesNotMatch/);
  assert.ok(!refused.text.includes(wrong.secret_access_key));
  const untrusted = await submit('operator', {}, { fixed: { ...ofApp, external_id: 'of-another' } });
  assert.deepEqual([untrusted.status, errorOf(untrusted).code], [400, 'integration_misconfigured']);
  assert.match(errorOf(untrusted).message, /AccessDenied/);
  for (const unfit of [{}, { access_key_id: key.access_key_id }, { ...key, role_arn: roleOf('app') }]) {
    const { status, text } = await submit('own', unfit, { wished: ofApp });
    assert.equal(status, 400, text);
  }
  for (const wished of [
    { ...ofApp, role_arn: 'arn:aws:iam::1:user/x' },
    { ...ofApp, region: 'eu-central-1.evil.example' },
    config,
  ]) {
    const { status, text } = await submit('own', key, { wished });
    assert.equal(status, 400, text);
    assert.match(text, /invalid_query_params/);
  }
});

test('twenty renewals at once share one session, which signs the next calls', async () => {
  const made = await submit('own', key, { wished: ofApp });
  const id = String(made.body.connectionId);
  const before = (await credentialsOf('own', id)).access_key_id;
  const path = `/connections/${id}/refresh?provider_config_key=own`;
  const renewed = await Promise.all(Array.from({ length: 20 }, () => trellis.call('POST', path)));
  assert.deepEqual([...new Set(renewed.map(({ status }) => status))], [200], renewed[0]!.text);
  assert.notEqual((await credentialsOf('own', id)).access_key_id, before);
  assert.equal((await proxied('own', id)).status, 200);
});

test('after the end of a session the next call has another one', async () => {
  const made = await submit('own', key, { wished: ofApp });
  const id = String(made.body.connectionId);
  const before = await credentialsOf('own', id);
  await trellis.advance(3700);
  // The call itself is late for the sandbox, whose clock is ahead of the one that signs it.
  await proxied('own', id);
  const after = await credentialsOf('own', id);
  assert.notEqual(after.access_key_id, before.access_key_id);
  assert.ok(after.expires_at! > before.expires_at!);
});
