// Addresses of their own for callbacks and webhooks, beside BASE_URL.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { freePort } from '../support/ports.ts';
import { openTrellis, type TestTrellis, visit } from '../support/trellis.ts';

let trellis: TestTrellis;
let callbackBaseUrl: string;
before(async () => {
  const port = await freePort();
  callbackBaseUrl = `http://127.0.0.1:${port}`;
  trellis = await openTrellis({
    PORT: String(port),
    TRELLIS_CALLBACK_BASE_URL: `${callbackBaseUrl}/`,
    TRELLIS_WEBHOOK_BASE_URL: 'https://hooks.example.com/trellis',
  });
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'sheets' },
  });
});
after(() => trellis.close());

async function consent() {
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['sheets'] },
  });
  const { token } = session.body.data as { token: string };
  const url = `${trellis.baseUrl}/oauth/connect/sheets?connect_session_token=${token}`;
  const begun = await visit(trellis, url);
  const location = begun.headers.get('location') ?? '';
  const cookie = begun.headers
    .getSetCookie()
    .map((line) => line.split(';', 1)[0])
    .join('; ');
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: location,
    account: 'ada@example.com',
  });
  return { location, cookie, redirect: String(redirect) };
}

test('the provider sends the browser to the address for callbacks, and that to BASE_URL, which has its cookie', async () => {
  const { location, cookie, redirect } = await consent();
  assert.equal(new URL(location).searchParams.get('redirect_uri'), `${callbackBaseUrl}/oauth/callback`);
  assert.ok(redirect.startsWith(`${callbackBaseUrl}/oauth/callback?`), redirect);
  const sent = await visit(trellis, redirect);
  assert.equal(sent.status, 302);
  assert.equal(sent.headers.get('cache-control'), 'no-store');
  assert.equal(sent.headers.get('referrer-policy'), 'no-referrer');
  const onward = sent.headers.get('location') ?? '';
  assert.equal(onward, trellis.baseUrl + redirect.slice(callbackBaseUrl.length));
  const landed = await visit(trellis, onward, cookie);
  assert.equal(landed.status, 200, landed.text);
  const { body } = await trellis.call('GET', '/connections');
  assert.equal((body.connections as unknown[]).length, 1);
});

test('a browser that did not begin is refused, also by way of the address for callbacks', async () => {
  const { redirect } = await consent();
  const sent = await visit(trellis, redirect);
  const landed = await visit(trellis, sent.headers.get('location') ?? '');
  assert.equal(landed.status, 400);
  assert.match(landed.text, /Open this page in the browser in which you started/);
});

test('providers and integrations show the addresses to register', async () => {
  const provider = await trellis.call('GET', '/providers/google-sheet');
  assert.equal(
    (provider.body.data as { redirect_uri: string }).redirect_uri,
    `${callbackBaseUrl}/oauth/callback`,
  );
  const key = await trellis.call('GET', '/providers/private-api-key');
  assert.ok(!('redirect_uri' in (key.body.data as object)));
  const integration = await trellis.call('GET', '/integrations/sheets?include=webhook');
  assert.equal(
    (integration.body.data as { webhook_url: string }).webhook_url,
    'https://hooks.example.com/trellis/webhook/dev/sheets',
  );
});
