import assert from 'node:assert/strict';
import test from 'node:test';
import { type Bench, openBench, openDataDir, readTokens, spreadsheets } from './testing.ts';

const mailScope = 'https://mail.google.com/';
const cloudScope = 'https://www.googleapis.com/auth/cloud-platform';
const builtInProject = '100000000001';

async function refused(
  bench: Bench,
  refreshToken: string | undefined,
): Promise<(string | number | undefined)[]> {
  const response = await bench.refresh(refreshToken ?? '');
  const { error, error_description: description } = await readTokens(response);
  return response.status === 200 ? [200] : [response.status, error, description];
}

async function pageOf(bench: Bench, parameters: Record<string, string> = {}): Promise<[number, string]> {
  const response = await fetch(bench.authorizationUrl({ prompt: undefined, ...parameters }), {
    redirect: 'manual',
  });
  return [response.status, await response.text()];
}

test('an external project in testing accepts only its test users, by script and by page', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /projects', {
    project_number: builtInProject,
    publishing: 'testing',
    test_users: ['Ada@Example.com'],
  });
  assert.ok((await bench.connect()).refresh_token);
  const response = await bench.ask('POST /authorize', {
    url: bench.authorizationUrl(),
    account: 'grace@example.com',
  });
  const { error } = (await response.json()) as { error: { code: string } };
  assert.deepEqual([response.status, error.code], [400, 'access_denied']);
  const [status, page] = await pageOf(bench, { login_hint: 'grace@example.com' });
  assert.equal(status, 403);
  assert.match(page, /currently being tested/);
});

test('tokens of a project in testing expire after seven days; production changes that for new tokens only', async (t) => {
  const bench = await openBench(t);
  const project = { project_number: builtInProject, test_users: ['ada@example.com'] };
  await bench.control('POST /projects', { ...project, publishing: 'testing' });
  const old = await bench.connect();
  const basic = await bench.connect({ scope: 'openid email profile' });
  assert.equal(old.refresh_token_expires_in, 604_799);
  assert.equal(basic.refresh_token_expires_in, undefined, 'sign-in scopes alone are exempt');
  await bench.control('POST /projects', { ...project, publishing: 'production' });
  const fresh = await bench.connect();
  assert.equal(fresh.refresh_token_expires_in, undefined);
  await bench.control('POST /clock', { advance_s: 604_800 });
  assert.deepEqual(await refused(bench, old.refresh_token), [
    400,
    'invalid_grant',
    'Token has been expired or revoked.',
  ]);
  assert.deepEqual(await refused(bench, basic.refresh_token), [200]);
  assert.deepEqual(await refused(bench, fresh.refresh_token), [200]);
});

test('an internal project accepts only accounts of its domain, at consent and at refresh', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /accounts', { email: 'w@firm.example', hosted_domain: 'firm.example' });
  const outsider = await bench.connect();
  const missing = await bench.ask('POST /projects', {
    project_number: builtInProject,
    audience: 'internal',
  });
  assert.equal(missing.status, 400);
  await bench.control('POST /projects', {
    project_number: builtInProject,
    audience: 'internal',
    domain: 'firm.example',
    publishing: 'testing',
  });
  const insider = await bench.connect({}, { account: 'w@firm.example' });
  assert.equal(insider.refresh_token_expires_in, undefined, 'the seven days are for external projects');
  assert.equal((await refused(bench, outsider.refresh_token))[1], 'org_internal');
  const [status, page] = await pageOf(bench, { login_hint: 'ada@example.com' });
  assert.equal(status, 403);
  assert.match(page, /org_internal/);
});

test('access granted for a limited time ends after it', async (t) => {
  const bench = await openBench(t);
  const { redirect } = await bench.control<{ redirect: string }>('POST /authorize', {
    url: bench.authorizationUrl(),
    account: 'ada@example.com',
    for_s: 3600,
  });
  const code = new URL(redirect).searchParams.get('code') ?? '';
  const tokens = await readTokens(await bench.exchange(code));
  assert.equal(tokens.refresh_token_expires_in, 3600);
  await bench.control('POST /clock', { advance_s: 3000 });
  assert.deepEqual(await refused(bench, tokens.refresh_token), [200]);
  await bench.control('POST /clock', { advance_s: 600 });
  assert.equal((await refused(bench, tokens.refresh_token))[1], 'invalid_grant');
});

test('a change of password ends the tokens that hold a mail scope and leaves the others', async (t) => {
  const bench = await openBench(t);
  const sheets = await bench.connect();
  const mail = await bench.connect({ scope: `openid ${mailScope}` });
  const ofGrace = await bench.connect({ scope: mailScope }, { account: 'grace@example.com' });
  assert.deepEqual(await bench.control('POST /password', { account: 'ada@example.com' }), { ended: 1 });
  assert.equal((await refused(bench, mail.refresh_token))[1], 'invalid_grant');
  assert.deepEqual(await refused(bench, sheets.refresh_token), [200]);
  assert.deepEqual(await refused(bench, ofGrace.refresh_token), [200]);
});

test('a session length ends tokens with Cloud scopes until the next consent, and no others', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /accounts', { email: 'ada@example.com', session_s: 3600 });
  const cloud = await bench.connect({ scope: cloudScope });
  const sheets = await bench.connect({ scope: spreadsheets });
  assert.deepEqual(await refused(bench, cloud.refresh_token), [200]);
  await bench.control('POST /clock', { advance_s: 3600 });
  const answer = await readTokens(await bench.refresh(cloud.refresh_token ?? ''));
  assert.deepEqual([answer.error, answer.error_subtype], ['invalid_grant', 'invalid_rapt']);
  assert.deepEqual(await refused(bench, sheets.refresh_token), [200]);
  assert.deepEqual(await refused(bench, (await bench.connect({ scope: cloudScope })).refresh_token), [200]);
  await bench.control('POST /accounts', { email: 'ada@example.com', session_s: null });
  assert.deepEqual(await refused(bench, cloud.refresh_token), [200]);
});

test('an account that its admin or the provider suspended is refused, and works again afterwards', async (t) => {
  const bench = await openBench(t);
  const { refresh_token: refreshToken, access_token: accessToken } = await bench.connect();
  const cases = [
    ['restricted', 'access_denied', 200],
    ['admin_policy', 'admin_policy_enforced', 200],
    ['disabled', 'access_denied', 401],
  ] as const;
  for (const [standing, error, userinfo] of cases) {
    await bench.control('POST /accounts', { email: 'ada@example.com', standing });
    assert.deepEqual((await refused(bench, refreshToken)).slice(0, 2), [400, error], standing);
    const headers = { authorization: `Bearer ${accessToken}` };
    assert.equal((await fetch(`${bench.sandbox.url}/v1/userinfo`, { headers })).status, userinfo, standing);
    const [status] = await pageOf(bench, { login_hint: 'ada@example.com' });
    assert.ok(status >= 400, standing);
    await bench.control('POST /accounts', { email: 'ada@example.com', standing: 'active' });
    assert.deepEqual(await refused(bench, refreshToken), [200], standing);
  }
});

test('a deleted account has its own error, and an account created again has none of its data', async (t) => {
  const bench = await openBench(t);
  const { refresh_token: refreshToken, access_token: accessToken } = await bench.connect();
  await bench.control('DELETE /accounts?account=ada@example.com');
  assert.deepEqual(await refused(bench, refreshToken), [
    400,
    'invalid_grant',
    'The account has been deleted',
  ]);
  const headers = { authorization: `Bearer ${accessToken}` };
  const userinfo = async () => (await fetch(`${bench.sandbox.url}/v1/userinfo`, { headers })).status;
  assert.equal(await userinfo(), 401);
  await bench.control('POST /accounts', { email: 'ada@example.com' });
  assert.deepEqual(await refused(bench, refreshToken), [
    400,
    'invalid_grant',
    'Token has been expired or revoked.',
  ]);
  assert.equal(await userinfo(), 401);
  assert.equal(
    (await bench.consent({ prompt: undefined })).get('prompt'),
    'consent',
    'the account must consent again',
  );
});

test('a revocation for one project leaves the other project of the same account alone', async (t) => {
  const bench = await openBench(t);
  const mine = await bench.connect();
  await bench.control('POST /clients', {
    redirect_uris: ['https://a.example/'],
    project_number: '200000000002',
  });
  await bench.control('POST /revoke', { account: 'ada@example.com', project_number: '200000000002' });
  assert.deepEqual(await refused(bench, mine.refresh_token), [200]);
  const unknown = await bench.ask('POST /revoke', {
    account: 'ada@example.com',
    project_number: '300000000003',
  });
  assert.equal(unknown.status, 400);
  await bench.control('POST /revoke', { account: 'ada@example.com' });
  assert.equal((await refused(bench, mine.refresh_token))[1], 'invalid_grant');
});

test('grants list the live tokens of each client with their age and end, and no token', async (t) => {
  const bench = await openBench(t);
  const tokens = await bench.connect();
  await bench.connect();
  const text = await (await bench.ask('GET /grants')).text();
  const { grants } = JSON.parse(text) as {
    grants: {
      account: string;
      refresh_tokens: { client_id: string; issued_at: string; dies_at: string }[];
    }[];
  };
  assert.equal(grants.length, 1);
  assert.equal(grants[0]?.account, 'ada@example.com');
  assert.equal(grants[0]?.refresh_tokens.length, 2);
  const [first] = grants[0]?.refresh_tokens ?? [];
  assert.equal(Date.parse(first!.dies_at) - Date.parse(first!.issued_at), 183 * 86_400_000);
  assert.ok(!text.includes(tokens.refresh_token ?? ''));
});

test('projects, standings and receivers survive a restart', async (t) => {
  const dataDir = await openDataDir(t);
  const before = await openBench(t, { dataDir });
  await before.control('POST /projects', {
    project_number: builtInProject,
    publishing: 'testing',
    test_users: ['grace@example.com'],
  });
  await before.control('POST /accounts', { email: 'ada@example.com', standing: 'restricted', session_s: 60 });
  await before.control('POST /receivers', { url: 'http://127.0.0.1:9/events' });
  const state = async (bench: Bench) => [
    await bench.control('GET /projects'),
    await bench.control('GET /accounts'),
    await bench.control('GET /receivers'),
  ];
  const saved = await state(before);
  await before.sandbox.close();
  assert.deepEqual(await state(await openBench(t, { dataDir })), saved);
});
