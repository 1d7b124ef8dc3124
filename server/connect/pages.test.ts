import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { html } from '../http/pages/page.ts';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';
import { people } from './consent.fixture.ts';

let bench: ConnectBench;
const person = people(() => bench);
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });
const ask = (route: string, token: string) => bench.call(route, undefined, bearer(token));

test('every value in a page is escaped', () => {
  const value = `<script>"'&`;
  assert.equal(
    html`<a title="${value}">${[html`<b>${value}</b>`]}${false}${undefined}${0}</a>`.text,
    '<a title="&#60;script&#62;&#34;&#39;&#38;"><b>&#60;script&#62;&#34;&#39;&#38;</b>0</a>',
  );
});

test('a session shows its end user and its choices, and reading them binds nothing', async () => {
  const token = await bench.session({
    end_user: { id: 'u1', display_name: 'Ada', email: 'ada@example.com' },
    allowed_integrations: ['sheets', 'private'],
  });
  const { status, body, headers } = await ask('GET /connect/session/choices', token);
  assert.equal(status, 200);
  assert.deepEqual(body.data.end_user, { name: 'Ada', email: 'ada@example.com', organization: null });
  assert.deepEqual(
    body.data.choices
      .map(({ unique_key, test }: { unique_key: string; test: boolean }) => [unique_key, test])
      .sort(),
    [
      ['private', false],
      ['sheets', true],
    ],
  );
  assert.equal(headers.get('set-cookie'), null);
  assert.equal(headers.get('cache-control'), 'no-store');
  const [row] = await bench.db.query('select browser_hash from connect_session order by id desc limit 1');
  assert.equal(row?.browser_hash, null);
});

test('a choice has the requested scopes and the required fields', async () => {
  const { choices } = await bench.choices(await bench.session({ tags: {} }));
  const choice = (key: string) =>
    choices.find(({ unique_key }: { unique_key: string }) => unique_key === key);
  const { translations, ...asked } = choice('sheets').scopes.at(-1)!;
  assert.deepEqual(asked, {
    scope: sheetsScope,
    description: 'See, edit, create and delete all spreadsheets of the account.',
  });
  assert.deepEqual(Object.keys(translations).sort(), ['ar', 'de', 'es', 'fr', 'ja']);
  assert.deepEqual(choice('private').fields, [
    {
      name: 'apiKey',
      title: 'API key',
      description: "The key that the API's owner has issued.",
      secret: true,
      required: true,
      example: null,
    },
  ]);
  assert.deepEqual(
    choice('own').fields.map(({ name, required }: { name: string; required: boolean }) => [name, required]),
    [
      ['params[base_url]', true],
      ['params[region]', false],
      ['username', null],
      ['password', null],
    ],
  );
});

test('behind https the addresses are those of the proxy in front', async () => {
  const secure = await openConnectBench({ publicUrl: 'https://trellis.example.com/base' });
  try {
    const token = await secure.session({ tags: {}, allowed_integrations: ['sheets'] });
    const answer = await secure.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
    const redirectUri = new URL(answer.location).searchParams.get('redirect_uri');
    assert.equal(redirectUri, 'https://trellis.example.com/base/oauth/callback');
    const { choices } = await secure.choices(token);
    assert.equal(choices[0].logo, '/base/providers/logos/google-sheet.svg');
  } finally {
    await secure.end();
  }
});

test('a fault of the service names the request and nothing else', async () => {
  const token = await bench.session();
  await bench.db.query("update integration set provider = 'gone' where key = 'drive'");
  try {
    const { status, text, headers } = await bench
      .browser()
      .visit(`/oauth/connect/drive?connect_session_token=${token}`);
    assert.equal(status, 500);
    assert.ok(text.includes(`request ${headers.get('x-request-id')}`));
    assert.ok(!text.includes('no provider is called'));
    const asked = await ask('GET /connect/session/choices', token);
    assert.deepEqual([asked.status, asked.body.error.code], [500, 'internal']);
  } finally {
    await bench.db.query("update integration set provider = 'google-drive' where key = 'drive'");
  }
});

test('the progress is reported for sessions that are open, used or expired, and for no other', async () => {
  const used = await bench.session();
  const made = await bench.call(`POST /auth/unauthenticated/open?connect_session_token=${used}`);
  const { state, connection } = await bench.progress(used);
  assert.equal(state, 'connected');
  assert.equal(connection.connection_id, made.body.connectionId);
  assert.equal((await ask('GET /connect/session/choices', used)).status, 401);
  const expired = await bench.session();
  await bench.db.query(
    "update connect_session set expires_at = now() - interval '1 s' where used_at is null",
  );
  assert.equal((await bench.progress(expired)).state, 'expired');
  assert.equal((await bench.progress(await bench.session())).state, 'open');
  for (const [token, code] of [
    ['x', 'invalid_connect_session_token_format'],
    [`${used.slice(0, -4)}0000`, 'unknown_connect_session_token'],
  ] as const) {
    for (const route of ['GET /connect/session/progress', 'POST /connect/session/rest']) {
      const { status, body } = await ask(route, token);
      assert.deepEqual([status, body.error.code], [401, code]);
    }
  }
});

test('the progress of a session has the URL to return to', async () => {
  const return_url = 'https://app.example.com/connected?x=1';
  const token = await bench.session({ end_user: { id: 'u1' }, return_url });
  assert.equal((await bench.progress(token)).return_url, return_url);
  assert.equal((await bench.progress(await bench.session())).return_url, null);
});

test('the look of the page is in the response to the request for it, and in no other', async () => {
  const token = await bench.session();
  const look = await ask('GET /connect/session/progress?settings=true', token);
  assert.equal(look.body.data.settings.theme, 'system');
  const { settings: _, ...rest } = look.body.data;
  assert.deepEqual((await ask('GET /connect/session/progress', token)).body.data, rest);
});

test('a failed authorization has its reason, once, until another one begins', async () => {
  await person.clear();
  const token = await bench.session({ tags: {}, allowed_integrations: ['sheets'] });
  const browser = bench.browser();
  await browser.visit(await bench.consent(await browser.begin(token), { deny: true }));
  const { state, failure } = await bench.progress(token);
  assert.equal(state, 'open');
  const { at, ...why } = failure;
  assert.ok(Date.parse(at) > 0);
  assert.deepEqual(why, {
    cause: 'access_denied',
    type: 'callback_err',
    evidence: { error: 'access_denied' },
  });
  await browser.begin(token);
  assert.equal((await bench.progress(token)).failure, null);
});

test('missing scopes are requested by the same session, in the same browser, for the same connection', async () => {
  await person.clear();
  const browser = bench.browser();
  const token = await bench.session({ tags: {}, allowed_integrations: ['sheets'] });
  assert.equal((await person.dance(token, { allow: ['openid', 'email'] }, browser)).status, 200);
  const before = await person.only();
  assert.equal((await ask('POST /connect/session/rest', token)).status, 204);
  assert.equal((await ask('POST /connect/session/rest', token)).status, 204);
  const stranger = await bench.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
  assert.match(stranger.text, /in use in another browser/);
  const url = await browser.begin(token);
  assert.equal(new URL(url).searchParams.get('scope'), sheetsScope);
  assert.equal((await browser.visit(await bench.consent(url, { account: 'grace@example.com' }))).status, 400);
  assert.equal((await browser.visit(await bench.consent(await browser.begin(token)))).status, 200);
  const now = await person.only();
  assert.equal(now.connectionId, before.connectionId);
  assert.ok(now.scopesGranted?.includes(sheetsScope));
  const { state, connection } = await bench.progress(token);
  assert.deepEqual([state, connection.missing_scopes], ['connected', []]);
  assert.equal((await ask('POST /connect/session/rest', token)).status, 401, 'nothing is missing');
});
