import assert from 'node:assert/strict';
import test from 'node:test';
import { type Bench, openBench, readTokens, spreadsheets } from '../testing.ts';
import { faultCases } from './cases.ts';

async function connected(bench: Bench, account = 'ada@example.com') {
  const tokens = await bench.connect({}, { account });
  const { spreadsheetId } = await bench.control<{ spreadsheetId: string }>('POST /spreadsheets', {
    account,
    title: 'Numbers',
    sheet: 'First',
    csv: 'n\n1\n2\n',
  });
  const read = (token = tokens.access_token, path = 'values/First!A1:A3') =>
    fetch(`${bench.sandbox.url}/v4/spreadsheets/${spreadsheetId}/${path}`, {
      headers: { authorization: `Bearer ${token}` },
    });
  const append = () =>
    fetch(
      `${bench.sandbox.url}/v4/spreadsheets/${spreadsheetId}/values/First!A1:append?valueInputOption=RAW`,
      {
        method: 'POST',
        headers: { authorization: `Bearer ${tokens.access_token}`, 'content-type': 'application/json' },
        body: '{"values":[[3]]}',
      },
    );
  return { refreshToken: tokens.refresh_token!, accessToken: tokens.access_token, read, append };
}

test('a fault applies once, n times or until it is cleared', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const statuses = async (count: number) => {
    const seen: number[] = [];
    for (let round = 0; round < count; round += 1) seen.push((await bench.refresh(refreshToken)).status);
    return seen;
  };
  await bench.control('POST /faults', { case: 'token_503', times: 1 });
  assert.deepEqual(await statuses(2), [503, 200]);
  await bench.control('POST /faults', { case: 'token_503', times: 3 });
  assert.deepEqual(await statuses(4), [503, 503, 503, 200]);
  await bench.control('POST /faults', { case: 'token_503' });
  assert.deepEqual(await statuses(5), [503, 503, 503, 503, 503]);
  const { faults } = await bench.control<{ faults: { times_applied: number; times_left: null }[] }>(
    'GET /faults',
  );
  assert.deepEqual([faults.length, faults[0]?.times_applied, faults[0]?.times_left], [1, 5, null]);
  assert.deepEqual(await bench.control('DELETE /faults'), { cleared: 1 });
  assert.deepEqual(await statuses(2), [200, 200]);
});

test('twenty concurrent refreshes under a fault for one request meet it once', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  await bench.control('POST /faults', { case: 'refresh_revoked', times: 1 });
  const answers = await Promise.all(Array.from({ length: 20 }, () => bench.refresh(refreshToken)));
  assert.equal(answers.filter(({ status }) => status === 400).length, 1);
});

test('a fault may be for one account or one client', async (t) => {
  const bench = await openBench(t);
  const ada = await connected(bench);
  const grace = await connected(bench, 'grace@example.com');
  await bench.control('POST /faults', { case: 'refresh_revoked', account: 'grace@example.com' });
  await bench.control('POST /faults', { case: 'api_500', account: 'grace@example.com' });
  assert.deepEqual([(await bench.refresh(ada.refreshToken)).status, (await ada.read()).status], [200, 200]);
  assert.deepEqual(
    [(await bench.refresh(grace.refreshToken)).status, (await grace.read()).status],
    [400, 500],
  );
  await bench.control('DELETE /faults?account=grace@example.com&case=api_500');
  assert.deepEqual(
    [(await bench.refresh(grace.refreshToken)).status, (await grace.read()).status],
    [400, 200],
  );

  const other = await bench.control<{ client_id: string }>('POST /clients', {
    redirect_uris: ['https://a.example/'],
  });
  await bench.control('POST /faults', { case: 'token_503', client_id: other.client_id });
  assert.equal((await bench.refresh(ada.refreshToken)).status, 200);
});

test('an unknown fault is refused with the list of known ones', async (t) => {
  const bench = await openBench(t);
  const response = await bench.ask('POST /faults', { case: 'constructor' });
  assert.equal(response.status, 400);
  const { error } = (await response.json()) as { error: { message: string } };
  for (const name of Object.keys(faultCases)) assert.ok(error.message.includes(name), name);
});

test('a refresh answers as each fault defines, and works again afterwards', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const cases: [string, number, string][] = [
    ['refresh_revoked', 400, 'invalid_grant'],
    ['refresh_invalid_rapt', 400, 'invalid_grant'],
    ['refresh_admin_policy', 400, 'admin_policy_enforced'],
    ['refresh_account_restricted', 400, 'access_denied'],
    ['token_invalid_client', 401, 'invalid_client'],
    ['token_503', 503, 'internal_failure'],
  ];
  for (const [name, status, code] of cases) {
    await bench.control('POST /faults', { case: name, times: 1 });
    const response = await bench.refresh(refreshToken);
    const body = await readTokens(response);
    assert.deepEqual([response.status, body.error], [status, code], name);
    assert.equal(body.error_subtype, name === 'refresh_invalid_rapt' ? 'invalid_rapt' : undefined);
    assert.equal((await bench.refresh(refreshToken)).status, 200);
  }
  await bench.control('POST /faults', { case: 'token_html_403', times: 1 });
  const page = await bench.refresh(refreshToken);
  assert.equal(page.status, 403);
  assert.match(page.headers.get('content-type') ?? '', /^text\/html/);
  assert.match(await page.text(), /automated queries/);
});

test('a slow token endpoint answers late; a broken one does not answer; a lost answer has taken effect', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  await bench.control('POST /faults', { case: 'token_slow', times: 1, delay_ms: 20 });
  assert.equal((await bench.refresh(refreshToken)).status, 200);
  await bench.control('POST /faults', { case: 'token_reset', times: 1 });
  await assert.rejects(bench.refresh(refreshToken));

  await bench.control('POST /faults', { case: 'refresh_rotates' });
  await bench.control('POST /faults', { case: 'token_reset_after', times: 1 });
  await assert.rejects(bench.refresh(refreshToken));
  const lost = await readTokens(await bench.refresh(refreshToken));
  assert.equal(lost.error, 'invalid_grant', 'the token was rotated although the reply never came');
});

test('rotation issues a new refresh token each time and revokes the used one', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  await bench.control('POST /faults', { case: 'refresh_rotates' });
  const first = await readTokens(await bench.refresh(refreshToken));
  const second = await readTokens(await bench.refresh(first.refresh_token ?? ''));
  assert.notEqual(second.refresh_token, first.refresh_token);
  assert.equal((await bench.refresh(refreshToken)).status, 400);
  assert.equal((await bench.refresh(first.refresh_token ?? '')).status, 400);
  assert.equal((await bench.refresh(second.refresh_token ?? '')).status, 200);
});

test('a refresh with fewer scopes leaves the sign-in scopes, and the API refuses it', async (t) => {
  const bench = await openBench(t);
  const { refreshToken, read } = await connected(bench);
  await bench.control('POST /faults', { case: 'refresh_fewer_scopes', times: 1 });
  const tokens = await readTokens(await bench.refresh(refreshToken));
  assert.equal(tokens.scope, 'https://www.googleapis.com/auth/userinfo.email openid');
  assert.equal((await read(tokens.access_token)).status, 403);
  assert.ok((await readTokens(await bench.refresh(refreshToken))).scope.includes(spreadsheets));
});

test('in testing mode the refresh token has a stated lifetime of seven days, and expires then', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /faults', { case: 'testing_mode', times: 1 });
  const tokens = await bench.connect();
  assert.equal(tokens.refresh_token_expires_in, 604_799);
  await bench.control('POST /clock', { advance_s: 604_000 });
  const refreshed = await readTokens(await bench.refresh(tokens.refresh_token!));
  assert.ok(refreshed.refresh_token_expires_in! <= 799);
  await bench.control('POST /clock', { advance_s: 800 });
  assert.equal((await readTokens(await bench.refresh(tokens.refresh_token!))).error, 'invalid_grant');
});

test('consent may be denied, stopped on a page of the provider, or bring no refresh token', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /faults', { case: 'consent_denied', times: 1 });
  assert.equal((await bench.consent()).get('error'), 'access_denied');
  await bench.control('POST /faults', { case: 'no_refresh_token', times: 1 });
  assert.equal((await bench.connect()).refresh_token, undefined);
  for (const [name, status] of [
    ['error_page', 400],
    ['error_page_org_internal', 403],
    ['error_page_untested_user', 403],
  ] as const) {
    await bench.control('POST /faults', { case: name, times: 1 });
    const response = await fetch(bench.authorizationUrl(), { redirect: 'manual' });
    assert.equal(response.status, status);
  }
  assert.equal((await fetch(bench.authorizationUrl())).status, 200);
});

test('an access token ended early stays dead; a 401 for a good token passes', async (t) => {
  const bench = await openBench(t);
  const { read, refreshToken, accessToken } = await connected(bench);
  await bench.control('POST /faults', { case: 'api_401', times: 1 });
  const refused = await read();
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get('www-authenticate') ?? '', /error="invalid_token"/);
  assert.equal((await read()).status, 200);

  await bench.control('POST /faults', { case: 'access_token_ended', times: 1 });
  assert.equal((await read()).status, 401);
  assert.equal((await read(accessToken)).status, 401);
  const { access_token: fresh } = await readTokens(await bench.refresh(refreshToken));
  assert.equal((await read(fresh)).status, 200);
});

test('the API answers as each fault defines', async (t) => {
  const bench = await openBench(t);
  const { read } = await connected(bench);
  const cases: [string, number, string, string?][] = [
    ['api_service_disabled', 403, 'PERMISSION_DENIED', 'SERVICE_DISABLED'],
    ['api_scope_insufficient', 403, 'PERMISSION_DENIED', 'ACCESS_TOKEN_SCOPE_INSUFFICIENT'],
    ['api_403', 403, 'PERMISSION_DENIED'],
    ['api_404', 404, 'NOT_FOUND'],
    ['api_429_user', 429, 'RESOURCE_EXHAUSTED', 'RATE_LIMIT_EXCEEDED'],
    ['api_429_project', 429, 'RESOURCE_EXHAUSTED', 'RATE_LIMIT_EXCEEDED'],
    ['api_500', 500, 'INTERNAL'],
    ['api_503', 503, 'UNAVAILABLE'],
  ];
  for (const [name, code, status, reason] of cases) {
    await bench.control('POST /faults', { case: name, times: 1 });
    const response = await read();
    const { error } = (await response.json()) as {
      error: { code: number; status: string; details?: { reason?: string }[] };
    };
    assert.deepEqual([response.status, error.code, error.status], [code, code, status], name);
    assert.equal(error.details?.[0]?.reason, reason, name);
    assert.equal((await read()).status, 200);
  }
  for (const [name, reason] of [
    ['api_403_user_rate', 'userRateLimitExceeded'],
    ['api_403_project_rate', 'rateLimitExceeded'],
  ]) {
    await bench.control('POST /faults', { case: name, times: 1 });
    const response = await read();
    const { error } = (await response.json()) as { error: { errors: { domain: string; reason: string }[] } };
    assert.deepEqual(
      [response.status, error.errors[0]?.domain, error.errors[0]?.reason],
      [403, 'usageLimits', reason],
    );
  }
  await bench.control('POST /faults', { case: 'api_429_html', times: 1 });
  const page = await read();
  assert.deepEqual([page.status, page.headers.get('content-type')], [429, 'text/html; charset=utf-8']);
});

test('an append whose answer is lost has been done; one that was reset has not; half an answer is an error', async (t) => {
  const bench = await openBench(t);
  const { read, append } = await connected(bench);
  const rows = async () =>
    ((await (await read(undefined, 'values/First!A1:A9')).json()) as { values: unknown[] }).values.length;
  await bench.control('POST /faults', { case: 'api_reset', times: 1 });
  await assert.rejects(append());
  assert.equal(await rows(), 3);
  await bench.control('POST /faults', { case: 'api_reset_after', times: 1 });
  await assert.rejects(append());
  assert.equal(await rows(), 4);

  await bench.control('POST /faults', { case: 'api_truncated', times: 1 });
  const half = await read();
  assert.equal(half.status, 200);
  await assert.rejects(half.text());
  await bench.control('POST /faults', { case: 'api_slow', times: 1, delay_ms: 20 });
  assert.equal((await read()).status, 200);
});

test('revocation may fail for a while', async (t) => {
  const bench = await openBench(t);
  const { refreshToken } = await connected(bench);
  const revoke = async () =>
    (
      await fetch(`${bench.sandbox.url}/revoke`, {
        method: 'POST',
        body: new URLSearchParams({ token: refreshToken }),
      })
    ).status;
  await bench.control('POST /faults', { case: 'revoke_503', times: 1 });
  assert.deepEqual([await revoke(), await revoke(), await revoke()], [503, 200, 400]);
});
