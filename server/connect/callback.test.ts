import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { type ConnectBench, openConnectBench, sheetsScope } from './connect.fixture.ts';
import { people } from './consent.fixture.ts';

let bench: ConnectBench;
const person = people(() => bench);
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());
beforeEach(() => person.clear());

function resultOf(text: string): {
  message: { type: string; payload?: { message: string; errorType: string } };
} {
  const [, json = ''] = /data-result="([^"]*)"/.exec(text) ?? [];
  return JSON.parse(json.replace(/&#(\d+);/g, (_, code) => String.fromCharCode(code)));
}

async function refusal(answer: { status: number; text: string }): Promise<string | undefined> {
  assert.equal(answer.status, 400);
  const { message } = resultOf(answer.text);
  assert.equal(message.type, 'trellis_oauth_callback_error');
  return message.payload?.errorType;
}

test('consent makes a connection with its tokens, scopes, account, end user and tags, and one event', async () => {
  await bench.control('POST /faults', { case: 'testing_mode', times: 1 });
  const token = await bench.session({
    end_user: { id: 'u1', email: 'u1@example.com', display_name: 'U One' },
    organization: { id: 'o1' },
    tags: { Plan: 'gold' },
  });
  const answer = await person.dance(token);
  assert.equal(answer.status, 200);
  assert.equal(resultOf(answer.text).message.type, 'trellis_oauth_callback_success');
  const connection = await person.only();
  assert.match(connection.credentials.access_token, /^ya29\./);
  assert.ok(connection.credentials.refresh_token);
  assert.equal(connection.account?.email, 'ada@example.com');
  assert.deepEqual(connection.scopesRequested, ['openid', 'email', sheetsScope]);
  assert.ok(connection.scopesGranted?.includes(sheetsScope));
  assert.ok(
    connection.refreshExpiresAt && connection.refreshExpiresAt.getTime() > Date.now() + 6 * 86_400_000,
  );
  assert.deepEqual(connection.tags, {
    end_user_id: 'u1',
    end_user_email: 'u1@example.com',
    end_user_display_name: 'U One',
    organization_id: 'o1',
    plan: 'gold',
  });
  assert.equal(connection.endUser?.organization?.id, 'o1');
  assert.deepEqual(await bench.events(), ['connection.created']);
  const [audit] = await bench.db.query("select actor, target from audit where action = 'connection.created'");
  assert.equal(audit?.target, `sheets/${connection.connectionId}`);
});

test('the authorization request has PKCE, the exact redirect URI and a state of 256 bits', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const answer = await browser.visit(`/oauth/connect/sheets?connect_session_token=${token}`);
  const url = new URL(answer.location);
  assert.equal(url.searchParams.get('redirect_uri'), `${bench.baseUrl}/oauth/callback`);
  assert.equal(url.searchParams.get('code_challenge_method'), 'S256');
  assert.equal(Buffer.from(url.searchParams.get('state') ?? '', 'base64url').length, 32);
  assert.equal(answer.headers.get('referrer-policy'), 'no-referrer');
  assert.equal(answer.headers.get('cache-control'), 'no-store');
});

test('a replayed callback fails and makes nothing', async () => {
  const browser = bench.browser();
  const callback = await bench.consent(await browser.begin(await bench.session()));
  assert.equal((await browser.visit(callback)).status, 200);
  assert.equal(await refusal(await browser.visit(callback)), 'state_err');
  assert.equal((await bench.connections()).length, 1);
});

test('twenty callbacks at once with one state make one connection', async () => {
  const browser = bench.browser();
  const callback = await bench.consent(await browser.begin(await bench.session()));
  const answers = await Promise.all(Array.from({ length: 20 }, () => browser.visit(callback)));
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
  assert.equal((await bench.connections()).length, 1);
});

test('a state from another browser fails, and is spent', async () => {
  const browser = bench.browser();
  const callback = await bench.consent(await browser.begin(await bench.session()));
  assert.equal(await refusal(await bench.browser().visit(callback)), 'state_cookie_err');
  const other = bench.browser();
  await other.begin(await bench.session());
  assert.equal(await refusal(await other.visit(callback)), 'state_err');
  assert.equal(await refusal(await browser.visit(callback)), 'state_err');
  assert.deepEqual(await bench.connections(), []);
});

test('who only checks links with HEAD neither takes the session nor spends the state', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const head = (url: string) => fetch(new URL(url, bench.baseUrl), { method: 'HEAD', redirect: 'manual' });
  assert.equal((await head(`/oauth/connect/sheets?connect_session_token=${token}`)).status, 404);
  const callback = await bench.consent(await browser.begin(token));
  assert.equal((await head(callback)).status, 404);
  assert.equal((await browser.visit(callback)).status, 200);
});

test('no token, state, code or cookie is logged, whatever happens', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  await bench.control('POST /faults', { case: 'token_invalid_client', times: 1 });
  const callbacks = [
    await bench.consent(await browser.begin(token)),
    await bench.consent(await browser.begin(token)),
  ];
  for (const callback of [...callbacks, ...callbacks]) await browser.visit(callback);
  const { credentials } = await person.only();
  const secrets = [
    token,
    ...browser.secrets,
    ...callbacks.flatMap((url) => ['state', 'code'].map((name) => new URL(url).searchParams.get(name))),
    credentials.access_token,
    credentials.refresh_token,
  ];
  const log = bench.logged.join('');
  assert.ok(log.includes('invalid_client') && log.includes('/oauth/callback'));
  for (const secret of secrets) {
    assert.ok(secret);
    assert.ok(!log.includes(secret) && !log.includes(encodeURIComponent(secret)));
  }
});

test('a callback without a state, or with two, is refused', async () => {
  assert.equal(await refusal(await bench.browser().visit('/oauth/callback?code=x')), 'state_err');
  assert.equal(
    await refusal(await bench.browser().visit('/oauth/callback?state=a&state=b&code=x')),
    'state_err',
  );
});

test('an answer of another issuer is refused before its code is used', async () => {
  await bench.control('POST /faults', { case: 'wrong_iss', times: 1 });
  const exchanges = async () =>
    ((await (await fetch(`${bench.sandbox.url}/_sandbox/calls`)).json()) as Record<string, number>)[
      'POST /token'
    ];
  const before = await exchanges();
  assert.equal(await refusal(await person.dance(await bench.session())), 'callback_err');
  assert.equal(await exchanges(), before);
  assert.deepEqual(await bench.connections(), []);
});

test('a user who declines sees this, and may try again with the same session', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const denied = await person.dance(token, { deny: true }, browser);
  assert.equal(await refusal(denied), 'callback_err');
  assert.match(denied.text, /access_denied/);
  assert.equal((await person.dance(token, {}, browser)).status, 200);
});

test('texts of the provider are escaped', async () => {
  const browser = bench.browser();
  const url = new URL(await browser.begin(await bench.session()));
  const answer = await browser.visit(
    `/oauth/callback?${new URLSearchParams({
      state: url.searchParams.get('state') ?? '',
      iss: bench.sandbox.url,
      error: 'server_error',
      error_description: '</script><script>alert(1)</script>"\'',
    })}`,
  );
  assert.equal(await refusal(answer), 'token_err');
  assert.ok(!answer.text.includes('<script>alert'));
  assert.ok(answer.text.includes('&#60;script&#62;alert(1)&#60;/script&#62;'));
});

test('a box that was not ticked makes a connection and is named on the page', async () => {
  const token = await bench.session();
  const answer = await person.dance(token, { allow: ['openid', 'email'] });
  assert.equal(answer.status, 200);
  assert.match(answer.text, /This box was not ticked/);
  assert.ok(answer.text.includes(sheetsScope));
  assert.ok(!(await person.only()).scopesGranted?.includes(sheetsScope));
  const { state, connection } = await bench.progress(token);
  assert.equal(state, 'connected');
  assert.deepEqual(
    connection.missing_scopes.map(({ scope }: { scope: string }) => scope),
    [sheetsScope],
  );
});

test('a session makes one connection', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const [first, second] = [await browser.begin(token), await browser.begin(token)];
  assert.equal((await browser.visit(await bench.consent(first))).status, 200);
  assert.equal(
    await refusal(await browser.visit(await bench.consent(second))),
    'unknown_connect_session_token',
  );
  const again = await browser.visit(`/oauth/connect/sheets?connect_session_token=${token}`);
  assert.equal(again.status, 401);
  assert.match(again.headers.get('content-type') ?? '', /text\/html/);
  assert.equal((await bench.connections()).length, 1);
});

test('two trips of one session that end at once make one connection', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const callbacks = await Promise.all(
    [await browser.begin(token), await browser.begin(token)].map((url) => bench.consent(url)),
  );
  const answers = await Promise.all(callbacks.map((url) => browser.visit(url)));
  assert.deepEqual(answers.map(({ status }) => status).sort(), [200, 400]);
  assert.equal((await bench.connections()).length, 1);
});

test('a session belongs to the first browser that begins, whichever browser opened its page before', async () => {
  const token = await bench.session();
  assert.equal((await bench.choices(token)).choices.length > 0, true);
  const browser = bench.browser();
  await browser.begin(token);
  const other = await bench.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
  assert.equal(await refusal(other), 'session_in_other_browser');
  await browser.begin(token);
});

test('a session that ends while its user is at the provider still makes its connection', async () => {
  const browser = bench.browser();
  const callback = await bench.consent(await browser.begin(await bench.session()));
  await bench.db.query("update connect_session set expires_at = now() - interval '1 minute'");
  await bench.sweep();
  assert.equal((await browser.visit(callback)).status, 200);
});

test('an attempt that has expired is refused, and swept away', async () => {
  const browser = bench.browser();
  const callback = await bench.consent(await browser.begin(await bench.session()));
  await bench.db.query("update auth_attempt set expires_at = now() - interval '1 second'");
  assert.equal(await refusal(await browser.visit(callback)), 'state_err');
  await browser.begin(await bench.session());
  await bench.db.query("update auth_attempt set expires_at = now() - interval '1 second'");
  await bench.db.query("update connect_session set expires_at = now() - interval '1 day'");
  await bench.sweep();
  for (const table of ['auth_attempt', 'connect_session']) {
    assert.deepEqual(await bench.db.query(`select 1 from ${table}`), []);
  }
});

test('a session that was ended takes its trips with it', async () => {
  const browser = bench.browser();
  const token = await bench.session();
  const callback = await bench.consent(await browser.begin(token));
  const ended = await bench.call('DELETE /connect/session', undefined, { authorization: `Bearer ${token}` });
  assert.equal(ended.status, 204);
  assert.equal(await refusal(await browser.visit(callback)), 'state_err');
});

test('reconnecting renews the connection and keeps its ID, metadata, tags and refresh token', async () => {
  await person.dance(await bench.session({ end_user: { id: 'u1' }, tags: { plan: 'gold' } }));
  const before = await person.only();
  await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
  const answer = await person.dance(await bench.reconnectSession(before.connectionId));
  assert.equal(answer.status, 200);
  const now = await person.only();
  assert.equal(now.connectionId, before.connectionId);
  assert.equal(now.status, 'active');
  assert.deepEqual(now.tags, before.tags);
  assert.notEqual(now.credentials.access_token, before.credentials.access_token);
  assert.equal(now.credentials.refresh_token, before.credentials.refresh_token);
  assert.deepEqual(await bench.events(), ['connection.created', 'connection.reconnected']);
});

test('reconnecting with another account is refused, and the connection stays as it was', async () => {
  await person.dance(await bench.session());
  const before = await person.only();
  const browser = bench.browser();
  const token = await bench.reconnectSession(before.connectionId);
  const answer = await person.dance(token, { account: 'grace@example.com' }, browser);
  assert.equal(await refusal(answer), 'another_account');
  assert.match(answer.text, /a…@example\.com/);
  const now = await person.only();
  assert.deepEqual(now.credentials, before.credentials);
  assert.deepEqual(await bench.events(), ['connection.created', 'connection.connect_failed']);
  assert.equal((await person.dance(token, {}, browser)).status, 200);
});

test('a session for the same account refuses one with another e-mail address', async () => {
  const body = { end_user: { id: 'u1', email: 'Ada@example.com' }, require_same_account: true };
  assert.equal(
    await refusal(await person.dance(await bench.session(body), { account: 'grace@example.com' })),
    'another_account',
  );
  assert.deepEqual(await bench.connections(), []);
  assert.equal((await person.dance(await bench.session(body))).status, 200);
});

test('a connection that was deleted cannot be renewed', async () => {
  await person.dance(await bench.session());
  const { connectionId } = await person.only();
  const token = await bench.reconnectSession(connectionId);
  await bench.db.query('update connection set data_key = null, credentials = null, deleted_at = now()');
  const answer = await bench.browser().visit(`/oauth/connect/sheets?connect_session_token=${token}`);
  assert.equal(answer.status, 400);
  assert.match(answer.text, /to renew was deleted/);
});

test('an outage of the provider is reported as such, not as an error of the service', async () => {
  await bench.control('POST /faults', { case: 'token_503', times: 1 });
  const browser = bench.browser();
  const token = await bench.session();
  assert.equal(await refusal(await person.dance(token, {}, browser)), 'token_err');
  assert.equal((await person.dance(token, {}, browser)).status, 200);
});
