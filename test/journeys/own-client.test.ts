import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** Changing parts of an integration's own client, as somebody does who was never shown its secret. */
let trellis: TestTrellis;
const secret = 'GOCSPX-a-secret-of-our-own';
const readonlyScope = 'https://www.googleapis.com/auth/spreadsheets.readonly';

before(async () => {
  trellis = await openTrellis();
  trellis.watch.made('client_secret', secret);
});
after(() => trellis.close());

const change = (key: string, credentials: object) =>
  trellis.call('PATCH', `/integrations/${key}`, { body: { credentials } });
const stored = async (key: string) =>
  (await trellis.call('GET', `/integrations/${key}?include=credentials`)).body.data as {
    test: boolean;
    client_id: string | null;
    scopes: string[];
    credentials: { client_secret: string; scopes: string };
  };

test('scopes change without the secret, which stays as it is', async () => {
  const credentials = { type: 'OAUTH2', client_id: 'ours', client_secret: secret };
  await trellis.call('POST', '/integrations', {
    body: { provider: 'google-sheet', unique_key: 'own', credentials },
  });
  const before = await stored('own');
  assert.equal(before.client_id, 'ours');
  assert.deepEqual(before.scopes, ['openid', 'email', 'https://www.googleapis.com/auth/spreadsheets']);
  const changed = await change('own', {
    type: 'OAUTH2',
    client_id: 'ours',
    scopes: `openid,${readonlyScope}`,
  });
  assert.equal(changed.status, 200, changed.text);
  assert.deepEqual((changed.body.data as { scopes: string[] }).scopes, ['openid', readonlyScope]);
  assert.ok(!changed.text.includes(secret));
  const after = await stored('own');
  assert.equal(after.credentials.client_secret, secret);
  assert.equal(after.credentials.scopes, `openid,${readonlyScope}`);
});

test('a new secret leaves the scopes alone', async () => {
  const next = `${secret}-2`;
  trellis.watch.made('client_secret', next);
  await change('own', { type: 'OAUTH2', client_id: 'ours', client_secret: next });
  const { credentials, scopes } = await stored('own');
  assert.equal(credentials.client_secret, next);
  assert.deepEqual(scopes, ['openid', readonlyScope]);
});

test('where none is stored the secret is missed, and the test client’s is never taken for one', async () => {
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'tried' },
  });
  const { status, body } = await change('tried', { type: 'OAUTH2', client_id: 'ours' });
  assert.equal(status, 400);
  const { errors } = body.error as { errors: { path: string[] }[] };
  assert.deepEqual(errors[0]?.path, ['credentials', 'client_secret']);
  const { test: isTest, client_id } = await stored('tried');
  assert.equal(isTest, true);
  assert.equal(client_id, null);
});

test('an end user’s browser does not get the client', async () => {
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['own'] },
  });
  const { token } = session.body.data as { token: string };
  const { body } = await trellis.call('GET', '/integrations/own', { key: token });
  assert.equal((body.data as { client_id: string | null }).client_id, null);
});
