import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
/** What reached the address that an attacker would choose. */
const taken: (string | undefined)[] = [];
const attacker = createServer((request, response) => {
  taken.push(request.headers.authorization);
  response.end('thanks');
});
let origin: string;

before(async () => {
  await once(attacker.listen(0, '127.0.0.1'), 'listening');
  origin = `http://127.0.0.1:${(attacker.address() as AddressInfo).port}`;
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: 'providers=127.0.0.0/8' });
});

after(async () => {
  attacker.closeAllConnections();
  attacker.close();
  await trellis.close();
});

async function made(path: string, body: object): Promise<void> {
  const answer = await trellis.call('POST', path, { body });
  assert.ok(answer.status === 200 || answer.status === 201, answer.text);
}

/** The settings that the key may give it, or the message that says why not. */
async function change(key: string, integration: string, integration_config: Record<string, string>) {
  const answer = await trellis.call('PATCH', `/integrations/${integration}`, {
    key,
    body: { integration_config },
  });
  if (answer.status === 200) return 'changed';
  const { code, message } = answer.body.error as { code: string; message: string };
  assert.deepEqual([answer.status, code], [403, 'forbidden'], answer.text);
  const read = await trellis.call('GET', `/integrations/${integration}`);
  const stored = (read.body.data as { integration_config: Record<string, string> }).integration_config;
  for (const [name, value] of Object.entries(integration_config)) assert.notEqual(stored[name], value);
  return message;
}

test('who may not read an access token cannot have it sent to an address of the own choice', async () => {
  const credentials = { type: 'OAUTH2', client_id: 'c', client_secret: 'a-client-secret-of-sheets' };
  await made('/integrations', { provider: 'google-sheet', unique_key: 'sheets', credentials });
  const token = { type: 'OAUTH2', access_token: 'an-access-token-of-ada' };
  await made('/connections', { provider_config_key: 'sheets', connection_id: 'ada', credentials: token });
  const config = { allowed_base_urls: origin };
  const narrow = await trellis.keyWith('integrations:write', 'proxy:read');
  const refusal = await change(narrow, 'sheets', config);
  assert.match(refusal, /"integration_config\.allowed_base_urls"/);
  assert.match(refusal, /lacks integrations:secrets and connections:credentials\.$/);
  const call = () =>
    trellis.call('GET', '/proxy/steal', {
      key: narrow,
      headers: { 'provider-config-key': 'sheets', 'connection-id': 'ada', 'base-url-override': origin },
    });
  assert.equal((await call()).headers.get('x-trellis-error'), 'base_url_override_not_allowed');
  assert.deepEqual(taken, []);
  const half = await trellis.keyWith('integrations:write', 'integrations:secrets');
  assert.match(await change(half, 'sheets', config), /lacks connections:credentials\.$/);
  const wide = await trellis.keyWith('integrations:write', 'integrations:secrets', 'connections:credentials');
  assert.equal(await change(wide, 'sheets', config), 'changed');
  assert.equal((await call()).status, 200, 'which a key with the scopes allows to all');
  assert.equal(await change(narrow, 'sheets', config), 'changed', 'to what it is already');
});

test('who may not read client secret and refresh tokens cannot move the addresses that get them', async () => {
  const credentials = { type: 'OAUTH2', client_id: 'c', client_secret: 'a-client-secret-of-okta' };
  const settings = { domain: 'acme.okta.com' };
  await made('/integrations', {
    provider: 'okta',
    unique_key: 'okta',
    credentials,
    integration_config: settings,
  });
  const write = await trellis.keyWith('integrations:write');
  const moved = { domain: 'evil.example.com' };
  assert.match(
    await change(write, 'okta', moved),
    /"integration_config\.domain".*lacks integrations:secrets and connections:credentials and connections:refresh_tokens\.$/,
  );
  const withOwnSecret = await trellis.call('PATCH', '/integrations/okta', {
    key: write,
    body: {
      integration_config: moved,
      credentials: { ...credentials, client_secret: 'a-secret-of-his-own' },
    },
  });
  assert.equal(withOwnSecret.status, 403, 'not even with a secret of its own: it would receive tokens');
  assert.equal(await change(write, 'okta', settings), 'changed');
  const named = await trellis.call('PATCH', '/integrations/okta', {
    key: write,
    body: { display_name: 'O' },
  });
  assert.equal(named.status, 200, 'all else is changed as before');
  const wide = await trellis.keyWith(
    'integrations:write',
    'integrations:secrets',
    'connections:credentials',
    'connections:refresh_tokens',
  );
  assert.equal(await change(wide, 'okta', moved), 'changed');
});

test('an address may be changed until a secret could be sent there, and so may fields that are no host', async () => {
  const write = await trellis.keyWith('integrations:write');
  const created = await trellis.call('POST', '/integrations', {
    key: write,
    body: {
      provider: 'private-api-key',
      unique_key: 'own',
      integration_config: { base_url: origin, allowed_base_urls: origin },
    },
  });
  assert.equal(created.status, 200, created.text);
  assert.equal(await change(write, 'own', { base_url: `${origin}/v1`, allowed_base_urls: '' }), 'changed');
  const credentials = { type: 'API_KEY', apiKey: 'an-api-key-of-ada' };
  await made('/connections', { provider_config_key: 'own', connection_id: 'ada', credentials });
  assert.match(
    await change(write, 'own', { base_url: `${origin}/v2` }),
    /"integration_config\.base_url".*lacks integrations:secrets and connections:credentials\.$/,
  );
  assert.match(
    await change(write, 'own', { header_name: 'X-Key' }),
    /"integration_config\.header_name".*lacks integrations:secrets and connections:credentials\.$/,
  );
  assert.equal(await change(write, 'own', { verification_path: 'me' }), 'changed');
});

test('a stored header name that servers return is refused at the call, and may be changed', async () => {
  const settings = { base_url: origin, header_name: 'X-Key' };
  await made('/integrations', {
    provider: 'private-api-key',
    unique_key: 'old',
    integration_config: settings,
  });
  const credentials = { type: 'API_KEY', apiKey: 'an-api-key-of-bob' };
  await made('/connections', { provider_config_key: 'old', connection_id: 'bob', credentials });
  await trellis.db.query(
    `update integration set integration_config = integration_config || '{"header_name": "X-Request-ID"}' where key = 'old'`,
  );
  const other = await trellis.serveAnother();
  try {
    const call = await other.call('GET', '/proxy/x', {
      headers: { 'provider-config-key': 'old', 'connection-id': 'bob' },
    });
    assert.deepEqual([call.status, call.headers.get('x-trellis-error')], [424, 'integration_misconfigured']);
    assert.match(call.text, /integrationConfig\.header_name: names a header that may not carry credentials/);
    assert.equal(await change(trellis.keys.dev, 'old', { header_name: 'X-Key' }), 'changed');
  } finally {
    await other.close();
  }
});

test("who may not read the secrets of connections' own clients cannot move the address that gets them", async () => {
  const settings = { base_url: `${origin}/api`, token_url: `${origin}/token` };
  await made('/integrations', {
    provider: 'private-client-credentials',
    unique_key: 'machine',
    integration_config: settings,
  });
  const [client_id, client_secret] = ['ada', 'a-client-secret-of-ada'];
  const token = { token: 'an-access-token-of-ada', expires_at: '2100-01-01T00:00:00Z' };
  const credentials = { type: 'OAUTH2_CC', client_id, client_secret, ...token };
  await made('/connections', { provider_config_key: 'machine', connection_id: 'ada', credentials });
  const moved = { token_url: `${origin}/elsewhere` };
  const reading = ['integrations:write', 'integrations:secrets', 'connections:credentials'];
  const max = await trellis.keyWith(...reading);
  assert.match(
    await change(max, 'machine', moved),
    /"integration_config\.token_url".*lacks connections:refresh_tokens\.$/,
  );
  assert.equal(await change(max, 'machine', { base_url: `${origin}/v2` }), 'changed');
  const wide = await trellis.keyWith(...reading, 'connections:refresh_tokens');
  assert.equal(await change(wide, 'machine', moved), 'changed');
});

test('an empty value clears a setting that is no address for a secret', async () => {
  await made('/integrations', {
    provider: 'private-client-credentials',
    unique_key: 'clearing',
    integration_config: {
      base_url: origin,
      token_url: `${origin}/token`,
      scope: 'all of it',
      allowed_base_urls: origin,
      quota: 'off',
    },
  });
  const cleared = await trellis.call('PATCH', '/integrations/clearing', {
    body: { integration_config: { scope: '', allowed_base_urls: '', quota: '' } },
  });
  assert.equal(cleared.status, 200, cleared.text);
  assert.deepEqual((cleared.body.data as { integration_config: object }).integration_config, {
    base_url: origin,
    token_url: `${origin}/token`,
  });
  const needed = await trellis.call('PATCH', '/integrations/clearing', {
    body: { integration_config: { base_url: '' } },
  });
  assert.equal(needed.status, 400, needed.text);
});
