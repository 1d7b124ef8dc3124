import assert from 'node:assert/strict';
import { request } from 'node:http';
import test from 'node:test';
import { postcodesCsv } from '../test/support/postcodes.ts';
import { openBench, openDataDir, spreadsheets } from './testing.ts';

/** The status of a request whose Host header is not the address it went to, which fetch cannot send. */
function statusUnderHost(port: number, to: { host: string; path: string; method?: string }): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: '127.0.0.1',
        port,
        path: to.path,
        method: to.method ?? 'GET',
        headers: { host: to.host },
        agent: false,
      },
      (response) => {
        response.resume();
        response.on('end', () => resolve(response.statusCode ?? 0));
      },
    );
    sent.on('error', reject);
    sent.end();
  });
}

test('every route refuses a foreign Host header', async (t) => {
  const bench = await openBench(t, { url: 'https://sandbox.example.org' });
  const { port } = bench.sandbox;
  const paths = [
    '/',
    '/o/oauth2/v2/auth',
    '/oauth2/v3/certs',
    '/v4/spreadsheets/x',
    '/_sandbox/accounts',
    '/nothing',
  ];
  for (const path of paths) {
    for (const host of [
      'evil.example',
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      'sandbox.example.org:1',
    ]) {
      assert.equal(await statusUnderHost(port, { host, path }), 421, `${host} ${path}`);
    }
  }
  for (const host of [
    'localhost',
    'localhost:1',
    `127.0.0.1:${port}`,
    'sandbox.example.org',
    'Sandbox.Example.Org',
  ]) {
    assert.equal(await statusUnderHost(port, { host, path: '/oauth2/v3/certs' }), 200, host);
  }
  assert.equal(await statusUnderHost(port, { host: 'evil.example', path: '/token', method: 'POST' }), 421);
});

test('control bodies must be JSON, so that another site cannot send one unasked', async (t) => {
  const bench = await openBench(t);
  const url = `${bench.sandbox.url}/_sandbox/clock`;
  for (const type of ['text/plain', 'application/x-www-form-urlencoded', 'application/json-patch+json', '']) {
    const response = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': type },
      body: '{"advance_s":1}',
    });
    assert.equal(response.status, 415, type);
  }
  const preflight = await fetch(url, { method: 'OPTIONS', headers: { origin: 'https://evil.example' } });
  assert.equal(preflight.headers.get('access-control-allow-origin'), null);
  assert.equal((await bench.control<{ offset_s: number }>('GET /clock')).offset_s, 0);
});

test('with a key, the control routes demand it and the page shows nothing; OAuth stays open', async (t) => {
  const bench = await openBench(t, { key: 'open-sesame' });
  const { url } = bench.sandbox;
  const status = async (authorization?: string) =>
    (
      await fetch(
        `${url}/_sandbox/accounts`,
        authorization === undefined ? {} : { headers: { authorization } },
      )
    ).status;
  assert.deepEqual(
    [await status(), await status('Bearer open'), await status('Bearer open-sesame')],
    [401, 401, 200],
  );
  assert.doesNotMatch(await (await fetch(`${url}/`)).text(), /ada@example\.com/);
  assert.equal((await fetch(`${url}/.well-known/openid-configuration`)).status, 200);
});

test('accounts, client, grants and tokens survive a restart; call counts, faults and the clock do not', async (t) => {
  const dataDir = await openDataDir(t);
  const before = await openBench(t, { dataDir });
  await before.control('POST /accounts', { email: 'late@example.com', name: 'Late Comer' });
  const tokens = await before.connect({}, { account: 'late@example.com' });
  await before.control('POST /faults', { case: 'token_503' });
  await before.control('POST /clock', { advance_s: 60 });
  const certs = await (await fetch(`${before.sandbox.url}/oauth2/v3/certs`)).json();
  await before.sandbox.close();

  const after = await openBench(t, { dataDir });
  assert.deepEqual(after.sandbox.client, before.sandbox.client);
  assert.deepEqual(await (await fetch(`${after.sandbox.url}/oauth2/v3/certs`)).json(), certs);
  const headers = { authorization: `Bearer ${tokens.access_token}` };
  const userinfo = (await (await fetch(`${after.sandbox.url}/v1/userinfo`, { headers })).json()) as {
    email: string;
  };
  assert.equal(userinfo.email, 'late@example.com');
  assert.equal((await after.refresh(tokens.refresh_token ?? '')).status, 200);
  const quiet = await after.consent(
    { prompt: undefined, scope: spreadsheets },
    { account: 'late@example.com' },
  );
  assert.equal(quiet.get('prompt'), 'none', 'the grant is remembered');
  assert.deepEqual(await after.control('GET /calls'), {
    'GET /oauth2/v3/certs': 1,
    'GET /v1/userinfo': 1,
    'POST /token': 1,
  });
  assert.equal((await after.control<{ offset_s: number }>('GET /clock')).offset_s, 0);
});

test('tokens are on disk before they are answered', async (t) => {
  const dataDir = await openDataDir(t);
  const first = await openBench(t, { dataDir });
  const issued = await Promise.all(Array.from({ length: 20 }, () => first.connect()));
  // A second sandbox on the same files stands for one that starts after the first was killed.
  const second = await openBench(t, { dataDir });
  for (const { refresh_token: token } of issued)
    assert.equal((await second.refresh(token ?? '')).status, 200);
});

test('the clock moves forward only, and access tokens expire by it', async (t) => {
  const bench = await openBench(t);
  const { access_token: token } = await bench.connect();
  const status = async () =>
    (await fetch(`${bench.sandbox.url}/v1/userinfo`, { headers: { authorization: `Bearer ${token}` } }))
      .status;
  for (const advance of [0, -1, 'x', 1e12]) {
    assert.equal((await bench.ask('POST /clock', { advance_s: advance })).status, 400);
  }
  await bench.control('POST /clock', { advance_s: 3500 });
  assert.equal(await status(), 200);
  await bench.control('POST /clock', { advance_s: 101 });
  assert.equal(await status(), 401);
});

test('calls are counted by route, control routes are not', async (t) => {
  const bench = await openBench(t);
  const tokens = await bench.connect();
  await bench.refresh(tokens.refresh_token ?? '');
  await fetch(`${bench.sandbox.url}/no-such-route`);
  const paths = [
    '1a',
    '1a/values/A1:B2',
    "1a/values/'Q1'!A1:B2",
    '1a/values/%27Q1%2F24%27%21A1',
    '1a/nothing',
    '1a/%zz',
  ];
  for (const path of paths) await fetch(`${bench.sandbox.url}/v4/spreadsheets/${path}`);
  await fetch(`${bench.sandbox.url}/v4/spreadsheets/1a/:batchUpdate`, { method: 'POST' });
  assert.deepEqual(await bench.control('GET /calls'), {
    'GET /v4/spreadsheets/{spreadsheetId}': 1,
    'GET /v4/spreadsheets/{spreadsheetId}/values/{range}': 3,
    'GET /v4/{unknown}': 2,
    'POST /token': 2,
    'POST /v4/spreadsheets/{spreadsheetId}:batchUpdate': 1,
  });
});

test('a body larger than a route takes is refused, whether or not its length is announced', async (t) => {
  const bench = await openBench(t);
  const big = 'x'.repeat(200_000);
  const known = await fetch(`${bench.sandbox.url}/token`, { method: 'POST', body: big });
  assert.equal(known.status, 413);
  const chunks = new Blob([big]).stream();
  const streamed = await fetch(`${bench.sandbox.url}/token`, {
    method: 'POST',
    body: chunks,
    duplex: 'half',
  });
  assert.equal(streamed.status, 413);
});

test('bad control bodies name the field', async (t) => {
  const bench = await openBench(t);
  const cases: [string, unknown, RegExp][] = [
    ['POST /accounts', { email: 'nobody' }, /^email: /],
    ['POST /accounts', { email: 'a@b.example', nmae: 'x' }, /nmae/],
    ['POST /spreadsheets', { account: 'ada@example.com', title: 'T' }, /^csv: /],
    ['POST /spreadsheets', { account: 'ada@example.com', title: 'T', csv: '"' }, /^csv: line 1/],
    ['POST /spreadsheets', { account: 'ada@example.com', title: 'T', rows: [[{}]] }, /^rows\.0\.0: /],
    ['POST /spreadsheets', { account: 'x@example.com', title: 'T', rows: [] }, /^account: /],
    ['POST /clients', { redirect_uris: [] }, /^redirect_uris: /],
    ['POST /clients', { redirect_uris: ['javascript:alert(1)'] }, /^redirect_uris\.0: /],
    ['POST /clients', { client_id: 'x', redirect_uris: ['https://a.example/'] }, /^client_id: /],
    ['POST /faults', { case: 'token_503', account: 'x@example.com' }, /^account: /],
    ['POST /faults', { case: 'token_503', times: 0 }, /^times: /],
    ['POST /clock', [], /^body: /],
  ];
  for (const [route, body, words] of cases) {
    const response = await bench.ask(route, body);
    assert.equal(response.status, 400, route);
    assert.match(((await response.json()) as { error: { message: string } }).error.message, words);
  }
});

test('closing is prompt while an answer is being held back', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /faults', { case: 'token_slow', delay_ms: 3_600_000 });
  const held = bench.refresh('x');
  const refused = assert.rejects(held);
  // The fault leaves the count of calls before it waits.
  while (!('POST /token' in (await bench.control('GET /calls')))) await new Promise(setImmediate);
  await bench.sandbox.close();
  await refused;
});

test('the page at the root shows accounts, grants, faults and calls, and no secret', async (t) => {
  const bench = await openBench(t);
  const tokens = await bench.connect();
  await bench.control('POST /faults', { case: 'api_429_user', account: 'ada@example.com', times: 3 });
  const page = await (await fetch(`${bench.sandbox.url}/`)).text();
  for (const words of ['ada@example.com', 'api_429_user', 'POST /token', '<code>spreadsheets</code>'])
    assert.ok(page.includes(words), words);
  for (const secret of [tokens.access_token, tokens.refresh_token ?? '', bench.sandbox.client.clientSecret]) {
    assert.ok(!page.includes(secret));
  }
});

test('a spreadsheet of 42,049 rows is loaded from CSV, its postcodes kept as text, and read back by its owner only', async (t) => {
  const bench = await openBench(t);
  const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
    account: 'ada@example.com',
    title: 'Postcodes',
    sheet: 'zipcodes',
    csv: postcodesCsv(42_049),
  });
  const read = async (account: string) => {
    const { access_token: token } = await bench.connect({}, { account });
    const url = `${bench.sandbox.url}/v4/spreadsheets/${spreadsheetId}/values/zipcodes!A1:F42050?valueRenderOption=UNFORMATTED_VALUE`;
    return fetch(url, { headers: { authorization: `Bearer ${token}` } });
  };
  const { values } = (await (await read('ada@example.com')).json()) as { values: unknown[][] };
  assert.equal(values.length, 42_050);
  assert.deepEqual(values[1], ['00501', 40.900501, -72.600501, 'Town 00501', 'NY', 'Suffolk']);
  assert.equal(typeof values.at(-1)?.[0], 'string');
  assert.equal((await read('grace@example.com')).status, 403);
});
