import assert from 'node:assert/strict';
import test, { type TestContext } from 'node:test';
import { type Bench, driveFile, openBench, readTokens, spreadsheets, testRedirectUri } from '../testing.ts';

/** A browser that keeps one cookie, follows nothing and fills in the sandbox's forms. */
class Browser {
  readonly bench: Bench;
  cookie = '';
  page = '';

  constructor(bench: Bench) {
    this.bench = bench;
  }

  async open(url: string): Promise<Response> {
    return this.#read(await fetch(url, { redirect: 'manual', headers: { cookie: this.cookie } }));
  }

  async post(fields: [string, string][], cookie = this.cookie): Promise<Response> {
    const body = new URLSearchParams([['ticket', this.ticket()], ...fields]);
    const url = `${this.bench.sandbox.url}/o/oauth2/v2/consent`;
    return this.#read(await fetch(url, { method: 'POST', redirect: 'manual', headers: { cookie }, body }));
  }

  ticket(): string {
    return /name="ticket" value="([^"]+)"/.exec(this.page)?.[1] ?? '';
  }

  async #read(response: Response): Promise<Response> {
    this.cookie = response.headers.get('set-cookie')?.split(';')[0] ?? this.cookie;
    this.page = await response.text();
    return response;
  }
}

function redirectOf(response: Response): URLSearchParams {
  assert.equal(response.status, 302);
  return new URL(response.headers.get('location') ?? '').searchParams;
}

async function openBrowser(t: TestContext): Promise<Browser> {
  return new Browser(await openBench(t));
}

test('a person picks an account, leaves a box empty and comes back with a code for the rest', async (t) => {
  const browser = await openBrowser(t);
  const { bench } = browser;
  const first = await browser.open(bench.authorizationUrl({ scope: `openid ${spreadsheets} ${driveFile}` }));
  assert.equal(first.status, 200);
  assert.match(first.headers.get('content-security-policy') ?? '', /frame-ancestors 'none'/);
  assert.match(browser.page, /Trellis sandbox, not Google/);
  assert.match(browser.page, /grace@example\.com/);

  assert.equal((await browser.post([['account', 'grace@example.com']])).status, 200);
  assert.match(browser.page, /See, edit, create and delete all your spreadsheets/);
  assert.equal(browser.page.match(/type="checkbox"/g)?.length, 2, 'sign-in scopes have no box');
  const redirect = redirectOf(
    await browser.post([
      ['account', 'grace@example.com'],
      ['scope', spreadsheets],
      ['decision', 'allow'],
    ]),
  );
  assert.deepEqual(Object.fromEntries([...redirect].filter(([name]) => name !== 'code')), {
    state: 'st',
    iss: bench.sandbox.url,
    scope: `${spreadsheets} openid`,
    authuser: '1',
    prompt: 'consent',
  });
  const tokens = await readTokens(await bench.exchange(redirect.get('code') ?? ''));
  assert.equal(tokens.scope, `${spreadsheets} openid`);
});

test('an e-mail address entered on the page becomes an account; an invalid one is requested again', async (t) => {
  const browser = await openBrowser(t);
  await browser.open(browser.bench.authorizationUrl());
  assert.equal((await browser.post([['account', '<b>']])).status, 400);
  assert.match(browser.page, /Enter an e-mail address/);
  assert.doesNotMatch(browser.page, /<b>"/);
  await browser.post([['account', 'New.Person@example.org']]);
  assert.match(browser.page, /new\.person@example\.org/);
  const { accounts } = await browser.bench.control<{ accounts: { name: string }[] }>('GET /accounts');
  assert.equal(accounts[2]?.name, 'New Person');
});

test('a user who declines is sent back with access_denied and the state', async (t) => {
  const browser = await openBrowser(t);
  await browser.open(browser.bench.authorizationUrl({ login_hint: 'ada@example.com' }));
  const redirect = redirectOf(
    await browser.post([
      ['account', 'ada@example.com'],
      ['decision', 'deny'],
    ]),
  );
  assert.deepEqual(
    [redirect.get('error'), redirect.get('state'), redirect.get('code')],
    ['access_denied', 'st', null],
  );
});

test('a form can be submitted once, and only by the browser that got it', async (t) => {
  const browser = await openBrowser(t);
  const { bench } = browser;
  const decision: [string, string][] = [
    ['account', 'ada@example.com'],
    ['decision', 'allow'],
  ];
  await browser.open(bench.authorizationUrl({ login_hint: 'ada@example.com' }));
  const page = browser.page;
  assert.equal(
    (await browser.post(decision, '')).status,
    400,
    'without the cookie, as another site would post',
  );
  browser.page = page;
  assert.equal((await browser.post(decision, `trellis_sandbox_browser=${'x'.repeat(32)}`)).status, 400);
  browser.page = page;
  assert.equal((await browser.post(decision)).status, 302);
  browser.page = page;
  assert.equal((await browser.post(decision)).status, 400, 'a second time');
});

test('without prompt, a project is asked for once; the chooser is skipped for a hint', async (t) => {
  const browser = await openBrowser(t);
  const { bench } = browser;
  await bench.connect();
  const quiet = await browser.open(
    bench.authorizationUrl({ prompt: undefined, login_hint: 'ada@example.com' }),
  );
  assert.equal(redirectOf(quiet).get('prompt'), 'none');
  const more = bench.authorizationUrl({
    prompt: undefined,
    login_hint: 'ada@example.com',
    scope: driveFile,
  });
  assert.equal((await browser.open(more)).status, 200, 'a new scope is asked for');
  await browser.open(bench.authorizationUrl({ prompt: 'select_account', login_hint: 'ada@example.com' }));
  assert.match(browser.page, /Choose an account/);
});

test('prompt=none never shows a page', async (t) => {
  const browser = await openBrowser(t);
  const { bench } = browser;
  const ask = async (parameters: Record<string, string>) =>
    redirectOf(await browser.open(bench.authorizationUrl({ prompt: 'none', ...parameters })));
  assert.equal((await ask({})).get('error'), 'login_required');
  assert.equal((await ask({ login_hint: 'ada@example.com' })).get('error'), 'consent_required');
  assert.equal(
    (await bench.consent({ prompt: 'none' })).get('error'),
    'consent_required',
    'for a script too',
  );
  await bench.connect();
  assert.ok((await ask({ login_hint: 'ada@example.com' })).get('code'));
});

test('a faulty request gets an error page and never a redirect', async (t) => {
  const browser = await openBrowser(t);
  const { bench } = browser;
  const cases: [Record<string, string | undefined>, number, string][] = [
    [{ client_id: undefined }, 400, 'Missing required parameter: client_id'],
    [{ client_id: 'x' }, 401, 'The OAuth client was not found.'],
    [{ redirect_uri: undefined }, 400, 'Missing required parameter: redirect_uri'],
    [{ redirect_uri: 'https://evil.example/oauth/callback' }, 400, 'redirect_uri_mismatch'],
    [{ redirect_uri: 'http://localhost.evil.example/oauth/callback' }, 400, 'redirect_uri_mismatch'],
    [{ redirect_uri: 'http://localhost:3003/elsewhere' }, 400, 'redirect_uri_mismatch'],
    [{ response_type: 'token' }, 400, 'unsupported_response_type'],
    [{ scope: undefined }, 400, 'Missing required parameter: scope'],
    [{ scope: 'openid nonsense' }, 400, 'invalid_scope'],
    [{ access_type: 'always' }, 400, 'Invalid parameter value for access_type'],
    [{ prompt: 'none consent' }, 400, 'Invalid parameter value for prompt'],
    [{ code_challenge: 'short' }, 400, 'Invalid parameter value for code_challenge'],
    [
      { code_challenge: 'c'.repeat(43), code_challenge_method: 'S512' },
      400,
      'Invalid parameter value for code_challenge_method',
    ],
  ];
  for (const [parameters, status, words] of cases) {
    const response = await browser.open(bench.authorizationUrl(parameters));
    assert.equal(response.status, status, words);
    assert.equal(response.headers.get('location'), null);
    assert.ok(browser.page.includes(words), words);
  }
  await browser.open(`${bench.authorizationUrl()}&scope=openid`);
  assert.match(browser.page, /can only have a single value: scope/);
});

test('the built-in client takes loopback addresses, and others once they are registered', async (t) => {
  const bench = await openBench(t, { redirectUris: ['https://first.example/oauth/callback'] });
  const second = 'https://second.example/oauth/callback';
  const status = async (redirectUri: string) =>
    (await fetch(bench.authorizationUrl({ redirect_uri: redirectUri }))).status;
  assert.equal(await status('http://127.0.0.1:8080/oauth/callback'), 200);
  assert.equal(await status('https://first.example/oauth/callback'), 200);
  assert.equal(await status(second), 400);
  await bench.control('POST /clients', { client_id: bench.sandbox.client.clientId, redirect_uris: [second] });
  assert.equal(await status(second), 200);
  const own = await bench.control<Record<string, string>>('POST /clients', { redirect_uris: [second] });
  const asOwn = bench.authorizationUrl({ client_id: own.client_id, redirect_uri: testRedirectUri });
  assert.equal((await fetch(asOwn)).status, 400, 'a registered client takes only its own');
});

test('a Workspace account names its domain', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /accounts', { email: 'w@firm.example', hosted_domain: 'firm.example' });
  assert.equal((await bench.consent({}, { account: 'w@firm.example' })).get('hd'), 'firm.example');
});

test('a script gets the same answers as a user: refusals, error pages and only requested scopes', async (t) => {
  const bench = await openBench(t);
  assert.equal((await bench.consent({}, { deny: true })).get('error'), 'access_denied');
  assert.equal((await bench.consent({ scope: spreadsheets }, { allow: [] })).get('error'), 'access_denied');
  const walk = async (body: object) => {
    const response = await bench.ask('POST /authorize', {
      url: bench.authorizationUrl(),
      account: 'ada@example.com',
      ...body,
    });
    return [
      response.status,
      ((await response.json()) as { error: { message: string } }).error.message,
    ] as const;
  };
  assert.match((await walk({ url: bench.authorizationUrl({ client_id: 'x' }) }))[1], /^url: .*401/);
  assert.match((await walk({ url: 'https://accounts.google.com/' }))[1], /^url: must be an address of/);
  assert.match((await walk({ account: 'nobody@example.com' }))[1], /^account: /);
  assert.match((await walk({ allow: [driveFile] }))[1], /^allow: /);
  assert.match((await walk({ allow: 'all' }))[1], /^allow: /);
});
