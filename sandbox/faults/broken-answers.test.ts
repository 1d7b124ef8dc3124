import assert from 'node:assert/strict';
import test from 'node:test';
import { type Bench, openBench, readTokens } from '../testing.ts';

async function once(bench: Bench, name: string, more: object = {}): Promise<void> {
  await bench.control('POST /faults', { case: name, times: 1, ...more });
}

async function connected(bench: Bench) {
  const tokens = await bench.connect();
  const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
    account: 'ada@example.com',
    title: 'Numbers',
    rows: [['n'], [1]],
  });
  const read = (signal?: AbortSignal) =>
    fetch(`${bench.sandbox.url}/v4/spreadsheets/${spreadsheetId}/values/A1:A2`, {
      headers: { authorization: `Bearer ${tokens.access_token}` },
      ...(signal === undefined ? {} : { signal }),
    });
  return { refreshToken: tokens.refresh_token!, read };
}

test('a refresh may be refused for each reason Google has, and works again afterwards', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const cases: [string, number, string, string][] = [
    ['refresh_bad_request', 400, 'invalid_grant', 'Bad Request'],
    ['refresh_account_deleted', 400, 'invalid_grant', 'The account has been deleted'],
    ['refresh_rapt_required', 400, 'invalid_grant', 'reauth related error (rapt_required)'],
    [
      'refresh_org_internal',
      403,
      'org_internal',
      'This client is restricted to users within its organization.',
    ],
    ['token_wrong_secret', 401, 'invalid_client', 'Unauthorized'],
    ['token_deleted_client', 401, 'deleted_client', 'The OAuth client was deleted.'],
    ['token_unauthorized_client', 401, 'unauthorized_client', 'Unauthorized'],
    ['token_500', 500, 'internal_failure', 'Backend Error'],
  ];
  for (const [name, ...expected] of cases) {
    await once(bench, name);
    const response = await bench.refresh(refreshToken);
    const { error, error_description: description } = await readTokens(response);
    assert.deepEqual([response.status, error, description], expected, name);
    assert.equal((await bench.refresh(refreshToken)).status, 200, name);
  }
});

test('a token answer may be odd in its expires_in and its refresh_token', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const answer = async (name: string) => {
    await once(bench, name);
    return (await (await bench.refresh(refreshToken)).json()) as Record<string, unknown>;
  };
  assert.equal('expires_in' in (await answer('token_expires_in_absent')), false);
  assert.equal((await answer('token_expires_in_string')).expires_in, '3599');
  assert.equal((await answer('token_refresh_token_number')).refresh_token, 7);
  const tiny = await answer('token_expires_in_tiny');
  assert.equal(tiny.expires_in, 5);
  const headers = { authorization: `Bearer ${tiny.access_token}` };
  const userinfo = async () => (await fetch(`${bench.sandbox.url}/v1/userinfo`, { headers })).status;
  assert.equal(await userinfo(), 200);
  await bench.control('POST /clock', { advance_s: 6 });
  assert.equal(await userinfo(), 401, 'the token does die then');

  await once(bench, 'token_expires_in_absent');
  assert.equal((await bench.refresh('x')).status, 400, 'an error stays what it is');
});

test('a token answer may be a page, half an answer, late, or never come', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  await once(bench, 'token_html_200');
  const page = await bench.refresh(refreshToken);
  assert.deepEqual([page.status, page.headers.get('content-type')], [200, 'text/html; charset=utf-8']);
  await once(bench, 'token_truncated');
  await assert.rejects((await bench.refresh(refreshToken)).text());
  await once(bench, 'token_slow_after', { delay_ms: 20 });
  assert.equal((await bench.refresh(refreshToken)).status, 200);

  await once(bench, 'token_timeout');
  await assert.rejects(bench.refresh(refreshToken, {}, AbortSignal.timeout(100)));
  assert.equal((await bench.refresh(refreshToken)).status, 200);
});

test('with rotation until used, the old token is valid until a successor is used, so a lost answer has no effect', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  await bench.control('POST /faults', { case: 'refresh_rotates_until_used' });
  await bench.control('POST /faults', { case: 'token_reset_after', times: 1 });
  await assert.rejects(bench.refresh(refreshToken));
  const successor = (await readTokens(await bench.refresh(refreshToken))).refresh_token!;
  assert.notEqual(successor, refreshToken);
  assert.equal((await bench.refresh(refreshToken)).status, 200, 'not used yet, so the old one is good');
  const third = (await readTokens(await bench.refresh(successor))).refresh_token!;
  const dead = await readTokens(await bench.refresh(refreshToken));
  assert.deepEqual(
    [dead.error, dead.error_description],
    ['invalid_grant', 'Token has been expired or revoked.'],
  );
  assert.equal((await bench.refresh(successor)).status, 200);
  assert.equal((await bench.refresh(third)).status, 200);
  assert.equal((await bench.refresh(successor)).status, 400);
});

test('a fault can apply to each n-th request only, and end at a time', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const statuses = async (count: number) => {
    const seen: number[] = [];
    for (let round = 0; round < count; round += 1) seen.push((await bench.refresh(refreshToken)).status);
    return seen;
  };
  await bench.control('POST /faults', { case: 'token_500', every: 3 });
  await bench.control('POST /faults', { case: 'token_503', for_s: 21_600 });
  assert.deepEqual(await statuses(6), [503, 503, 500, 503, 503, 500]);
  await bench.control('POST /clock', { advance_s: 21_600 });
  assert.deepEqual(await statuses(3), [200, 200, 500]);
  const { faults } = await bench.control<{ faults: { id: string; case: string }[] }>('GET /faults');
  assert.deepEqual(
    faults.map((fault) => fault.case),
    ['token_500'],
  );
  assert.deepEqual(await bench.control(`DELETE /faults?id=${faults[0]?.id}`), { cleared: 1 });
  assert.deepEqual(await statuses(3), [200, 200, 200]);
});

test('refreshes are counted by account and client: asked, accepted, most at once', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  type Counts = { refreshes: { under_way: number }[] };
  const counts = async () => (await bench.control<Counts>('GET /refreshes')).refreshes;
  await bench.control('POST /faults', { case: 'token_timeout', times: 3 });
  const gone = new AbortController();
  const held = [1, 2, 3].map(() => bench.refresh(refreshToken, {}, gone.signal));
  const ended = Promise.allSettled(held);
  while ((await counts())[0]?.under_way !== 3) await new Promise(setImmediate);
  gone.abort();
  await ended;
  while ((await counts())[0]?.under_way !== 0) await new Promise(setImmediate);
  await bench.refresh(refreshToken);
  await once(bench, 'token_503');
  await bench.refresh(refreshToken);
  await once(bench, 'token_reset_after');
  await assert.rejects(bench.refresh(refreshToken));
  await bench.refresh('never issued');
  const { clientId } = bench.sandbox.client;
  assert.deepEqual(await counts(), [
    { account: 'ada@example.com', client_id: clientId, asked: 6, accepted: 2, under_way: 0, most_at_once: 3 },
  ]);
});

test('the last calls have their account, their outcome, and the faults that applied', async (t) => {
  const bench = await openBench(t);
  const { refreshToken, read } = await connected(bench);
  await once(bench, 'token_reset_after');
  await assert.rejects(bench.refresh(refreshToken));
  await once(bench, 'refresh_fewer_scopes');
  await bench.refresh(refreshToken);
  await once(bench, 'api_429_user');
  await read();
  const { calls } = await bench.control<{ calls: Record<string, unknown>[] }>('GET /calls/last');
  const { clientId } = bench.sandbox.client;
  assert.deepEqual(
    calls.slice(0, 3).map(({ at: _, ...call }) => call),
    [
      {
        route: 'GET /v4/spreadsheets/{spreadsheetId}/values/{range}',
        account: 'ada@example.com',
        client_id: clientId,
        outcome: 429,
        faults: ['api_429_user'],
      },
      {
        route: 'POST /token',
        account: 'ada@example.com',
        client_id: clientId,
        outcome: 200,
        faults: ['refresh_fewer_scopes'],
      },
      {
        route: 'POST /token',
        account: 'ada@example.com',
        client_id: clientId,
        outcome: 'reset',
        faults: ['token_reset_after'],
      },
    ],
  );
});

test('a revocation may be refused as done already, or break', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const revoke = () =>
    fetch(`${bench.sandbox.url}/revoke`, {
      method: 'POST',
      body: new URLSearchParams({ token: refreshToken }),
    });
  await once(bench, 'revoke_invalid_token');
  const refused = await revoke();
  assert.deepEqual([refused.status, (await readTokens(refused)).error], [400, 'invalid_token']);
  await once(bench, 'revoke_reset');
  await assert.rejects(revoke());
  await once(bench, 'revoke_slow', { delay_ms: 20 });
  assert.equal((await bench.refresh(refreshToken)).status, 200, 'nothing was done so far');
  assert.equal((await revoke()).status, 200);
  assert.equal((await bench.refresh(refreshToken)).status, 400);
});

test('consent may come from another account, or with the sign-in scopes alone', async (t) => {
  const bench = await openBench(t);
  await once(bench, 'consent_other_account');
  const { access_token: token } = await bench.connect({}, { account: 'ada@example.com' });
  const headers = { authorization: `Bearer ${token}` };
  const userinfo = (await (await fetch(`${bench.sandbox.url}/v1/userinfo`, { headers })).json()) as {
    email: string;
  };
  assert.equal(userinfo.email, 'grace@example.com');
  await once(bench, 'consent_fewer_scopes');
  assert.equal((await bench.connect()).scope, 'https://www.googleapis.com/auth/userinfo.email openid');
});

test('the consent flow can end on each page of the provider', async (t) => {
  const bench = await openBench(t);
  for (const [name, status, words] of [
    ['error_page_redirect_mismatch', 400, /redirect_uri_mismatch/],
    ['error_page_deleted_client', 401, /deleted_client/],
    ['error_page_rate_limited', 403, /rate_limit_exceeded/],
  ] as const) {
    await once(bench, name);
    const response = await fetch(bench.authorizationUrl(), { redirect: 'manual' });
    assert.equal(response.status, status);
    assert.match(await response.text(), words);
  }
});

test('an API answer may be refused as wrong, be no JSON, no gzip, huge, or never come', async (t) => {
  const bench = await openBench(t);
  const { read } = await connected(bench);
  for (const [name, status] of [
    ['api_bad_range', 'INVALID_ARGUMENT'],
    ['api_grid_limits', 'INVALID_ARGUMENT'],
    ['api_protected_range', 'INVALID_ARGUMENT'],
    ['api_unknown_field', 'INVALID_ARGUMENT'],
    ['api_office_file', 'FAILED_PRECONDITION'],
  ] as const) {
    await once(bench, name);
    const response = await read();
    const { error } = (await response.json()) as { error: { status: string } };
    assert.deepEqual([response.status, error.status], [400, status], name);
  }
  for (const [name, status] of [
    ['api_403_html', 403],
    ['api_html_200', 200],
  ] as const) {
    await once(bench, name);
    const response = await read();
    assert.equal(response.status, status);
    assert.match(await response.text(), /<html/);
  }
  await once(bench, 'api_gzip_broken');
  await assert.rejects(read().then((response) => response.text()));
  await once(bench, 'api_huge');
  assert.ok((await (await read()).arrayBuffer()).byteLength > 48 * 1024 * 1024);
  await once(bench, 'api_timeout');
  await assert.rejects(read(AbortSignal.timeout(100)));
  assert.equal((await read()).status, 200);
});
