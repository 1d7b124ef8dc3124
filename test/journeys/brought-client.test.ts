import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, test } from 'node:test';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** A connection that has an OAuth client of its own, in place of the integration's, from its import to its end. */
let trellis: TestTrellis;
let own: { client_id: string; client_secret: string; project_number: string };
const key = 'google-sheet';
const id = 'own';
const path = `/connections/${id}?provider_config_key=${key}`;

before(async () => {
  trellis = await openTrellis();
  await connect(trellis);
  own = await newClient();
});
after(() => trellis.close());

async function newClient() {
  const redirect_uris = ['https://app.example/callback'];
  const made = await trellis.control('POST', 'clients', { redirect_uris });
  const client = {
    client_id: String(made.client_id),
    client_secret: String(made.client_secret),
    project_number: String(made.project_number),
  };
  trellis.watch.made('client_secret', client.client_secret);
  return client;
}

/** A grant of ada's to the client, as an application has it that did the dance itself. */
async function grant({ client_id, client_secret }: typeof own) {
  const asked = new URL(`${trellis.sandbox.url}/o/oauth2/v2/auth`);
  for (const [name, value] of Object.entries({
    client_id,
    redirect_uri: 'https://app.example/callback',
    response_type: 'code',
    scope: 'openid email https://www.googleapis.com/auth/spreadsheets',
    access_type: 'offline',
    prompt: 'consent',
  }))
    asked.searchParams.set(name, value);
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: asked.href,
    account: 'ada@example.com',
  });
  const code = new URL(String(redirect)).searchParams.get('code') ?? '';
  const answer = await fetch(`${trellis.sandbox.url}/token`, {
    method: 'POST',
    body: new URLSearchParams({
      client_id,
      client_secret,
      grant_type: 'authorization_code',
      code,
      redirect_uri: 'https://app.example/callback',
    }),
  });
  assert.equal(answer.status, 200);
  const { access_token, refresh_token } = (await answer.json()) as Record<string, string>;
  trellis.watch.made('access_token', access_token!);
  trellis.watch.made('refresh_token', refresh_token!);
  return { access_token, refresh_token };
}

async function importOwn({ client_id, client_secret } = own) {
  const config_override = { client_id, client_secret };
  const credentials = { type: 'OAUTH2', ...(await grant(own)), config_override };
  const body = { provider_config_key: key, connection_id: id, credentials };
  const { status, text } = await trellis.call('POST', '/connections', { body });
  assert.equal(status, 201, text);
}
const refresh = () => trellis.call('POST', `/connections/${id}/refresh?provider_config_key=${key}`);
const health = async (of = id) =>
  (await trellis.call('GET', `/connections/${of}/health?provider_config_key=${key}`)).body;
const integration = async () =>
  (await trellis.call('GET', `/integrations/${key}`)).body.data as { fault: unknown };
/** Of refreshes by this client, how many the provider has accepted. */
async function accepted(clientId: string): Promise<number> {
  const { refreshes } = (await trellis.control('GET', 'refreshes')) as {
    refreshes: { client_id: string; accepted: number }[];
  };
  return refreshes
    .filter(({ client_id }) => client_id === clientId)
    .reduce((sum, one) => sum + one.accepted, 0);
}

describe('a connection with a client of its own', () => {
  beforeEach(() => importOwn());

  test('is renewed by that, and shows its secret to who may renew alone', async () => {
    const before = await accepted(own.client_id);
    const { status, body } = await refresh();
    assert.deepEqual([status, body.status], [200, 'active']);
    assert.equal(await accepted(own.client_id), before + 1);
    const plain = (await trellis.call('GET', path)).body.credentials as Record<string, unknown>;
    assert.deepEqual(plain.config_override, { client_id: own.client_id });
    const whole = (await trellis.call('GET', `${path}&refresh_token=true`)).body.credentials;
    assert.deepEqual((whole as Record<string, unknown>).config_override, {
      client_id: own.client_id,
      client_secret: own.client_secret,
    });
    const headers = { 'connection-id': id, 'provider-config-key': key };
    const called = await trellis.call('POST', '/proxy/v4/spreadsheets', { headers, body: {} });
    assert.equal(called.status, 200, called.text);
  });

  test('needs its user where the provider refuses the client, and no other connection does', async () => {
    await importOwn({ ...own, client_secret: 'another-secret' });
    const { status } = await refresh();
    assert.equal(status, 424);
    const { cause, kind } = await health();
    assert.deepEqual([cause, kind], ['credentials_refused', 'connection']);
    assert.equal((await integration()).fault, null);
    const { body } = await trellis.call('GET', `/connections?integrationId=${key}&status=active`);
    assert.equal((body.connections as unknown[]).length, 1);
  });

  test('has a dead grant as its cause if its user has revoked it', async () => {
    const { project_number } = own;
    await trellis.control('POST', 'revoke', { account: 'ada@example.com', project_number });
    await refresh();
    assert.equal((await health()).cause, 'grant_dead');
  });

  test('is revoked by that client when it is deleted, even if the integration’s client has a grant', async () => {
    const { body } = await trellis.call('DELETE', path);
    assert.deepEqual(body, { success: true, revocation: 'done' });
    const { grants } = (await trellis.control('GET', 'grants')) as { grants: { client_id: string }[] };
    assert.ok(grants.every(({ client_id }) => client_id !== own.client_id));
  });
});

test('half a client is refused by name', async () => {
  const credentials = { type: 'OAUTH2', access_token: 'a', config_override: { client_id: 'a' } };
  const { status, body } = await trellis.call('POST', '/connections', {
    body: { provider_config_key: key, connection_id: id, credentials },
  });
  const { code, errors } = body.error as { code: string; errors: { path: string[] }[] };
  assert.deepEqual(
    [status, code, errors[0]?.path],
    [400, 'invalid_body', ['credentials', 'config_override', 'client_secret']],
  );
});
