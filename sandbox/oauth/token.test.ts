import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import test from 'node:test';
import { type Bench, driveFile, openBench, readTokens, spreadsheets, testRedirectUri } from '../testing.ts';

async function refusal(response: Response): Promise<[number, string, string]> {
  const { error = '', error_description: description = '' } = await readTokens(response);
  return [response.status, error, description];
}

async function code(bench: Bench, parameters: Record<string, string | undefined> = {}): Promise<string> {
  return (await bench.consent(parameters)).get('code') ?? '';
}

test('the answer names what was granted by full scope names and cannot be cached', async (t) => {
  const bench = await openBench(t);
  const response = await bench.exchange(
    await code(bench, { scope: `email ${driveFile} profile ${spreadsheets}` }),
  );
  const tokens = await readTokens(response);
  assert.deepEqual(Object.keys(tokens), [
    'access_token',
    'expires_in',
    'refresh_token',
    'scope',
    'token_type',
    'id_token',
  ]);
  assert.match(tokens.access_token, /^ya29\./);
  assert.match(tokens.refresh_token ?? '', /^1\/\/0/);
  assert.equal(
    tokens.scope,
    `${driveFile} ${spreadsheets} https://www.googleapis.com/auth/userinfo.email https://www.googleapis.com/auth/userinfo.profile openid`,
  );
  assert.equal(response.headers.get('cache-control'), 'no-cache, no-store, max-age=0, must-revalidate');
  assert.equal(response.headers.get('content-type'), 'application/json; charset=utf-8');
});

test('a code works once, for ten minutes, and is distinguished from a code that was never issued', async (t) => {
  const bench = await openBench(t);
  const used = await code(bench);
  assert.match(used, /^4\/0A/);
  assert.ok(Buffer.byteLength(used) <= 256);
  assert.equal((await bench.exchange(used)).status, 200);
  assert.deepEqual(await refusal(await bench.exchange(used)), [400, 'invalid_grant', 'Bad Request']);

  const expired = await code(bench);
  await bench.control('POST /clock', { advance_s: 601 });
  assert.deepEqual(await refusal(await bench.exchange(expired)), [400, 'invalid_grant', 'Bad Request']);
  assert.deepEqual(await refusal(await bench.exchange('4/0Anever')), [
    400,
    'invalid_grant',
    'Malformed auth code.',
  ]);
});

test('twenty exchanges of one code at once issue one set of tokens', async (t) => {
  const bench = await openBench(t);
  const contested = await code(bench);
  const answers = await Promise.all(Array.from({ length: 20 }, () => bench.exchange(contested)));
  assert.equal(answers.filter(({ status }) => status === 200).length, 1);
});

test('once a challenge was sent, the verifier is demanded and checked; a wrong one does not use up the code', async (t) => {
  const bench = await openBench(t);
  const verifier = 'v'.repeat(43);
  const challenge = createHash('sha256').update(verifier).digest('base64url');
  for (const [method, value] of [
    ['S256', challenge],
    ['plain', verifier],
  ] as const) {
    const text = await code(bench, { code_challenge: value, code_challenge_method: method });
    assert.deepEqual(await refusal(await bench.exchange(text)), [
      400,
      'invalid_grant',
      'Missing code verifier.',
    ]);
    const wrong = await bench.exchange(text, { code_verifier: 'w'.repeat(43) });
    assert.deepEqual(await refusal(wrong), [400, 'invalid_grant', 'Invalid code verifier.']);
    assert.equal((await bench.exchange(text, { code_verifier: verifier })).status, 200);
  }
});

test('each fault of a token request has the status and the message of Google', async (t) => {
  const bench = await openBench(t);
  const tokens = await bench.connect();
  const other = await bench.control<Record<string, string>>('POST /clients', {
    redirect_uris: [testRedirectUri],
  });
  const asOther = { client_id: other.client_id!, client_secret: other.client_secret! };
  const refreshToken = tokens.refresh_token!;
  const cases: [string, Record<string, string>, [number, string, string]][] = [
    ['no client', { client_id: '' }, [400, 'invalid_request', 'Could not determine client ID from request.']],
    ['unknown client', { client_id: 'x' }, [401, 'invalid_client', 'The OAuth client was not found.']],
    ['no secret', { client_secret: '' }, [400, 'invalid_request', 'client_secret is missing.']],
    ['wrong secret', { client_secret: 'x' }, [401, 'invalid_client', 'Unauthorized']],
    ['unknown grant', { grant_type: 'x' }, [400, 'unsupported_grant_type', 'Invalid grant_type: x']],
    [
      'inherited name',
      { grant_type: 'toString' },
      [400, 'unsupported_grant_type', 'Invalid grant_type: toString'],
    ],
    [
      'no code',
      { grant_type: 'authorization_code' },
      [400, 'invalid_request', 'Missing required parameter: code'],
    ],
    [
      'garbage token',
      { grant_type: 'refresh_token', refresh_token: 'x' },
      [400, 'invalid_grant', 'Bad Request'],
    ],
    [
      'access token',
      { grant_type: 'refresh_token', refresh_token: tokens.access_token },
      [400, 'invalid_grant', 'Bad Request'],
    ],
    [
      "another client's",
      { grant_type: 'refresh_token', refresh_token: refreshToken, ...asOther },
      [401, 'unauthorized_client', 'Unauthorized'],
    ],
    [
      'wider scope',
      { grant_type: 'refresh_token', refresh_token: refreshToken, scope: driveFile },
      [400, 'invalid_scope', `Some requested scopes were invalid. {invalid=[${driveFile}]}`],
    ],
    [
      'another redirect',
      { grant_type: 'authorization_code', code: await code(bench), redirect_uri: `${testRedirectUri}/` },
      [400, 'redirect_uri_mismatch', 'Bad Request'],
    ],
    [
      "another client's code",
      {
        grant_type: 'authorization_code',
        code: await code(bench),
        redirect_uri: testRedirectUri,
        ...asOther,
      },
      [401, 'unauthorized_client', 'Unauthorized'],
    ],
  ];
  for (const [name, form, expected] of cases)
    assert.deepEqual(await refusal(await bench.token(form)), expected, name);
});

test('the client may authenticate by HTTP Basic, and send JSON', async (t) => {
  const bench = await openBench(t);
  const { clientId, clientSecret } = bench.sandbox.client;
  const basic = await fetch(`${bench.sandbox.url}/token`, {
    method: 'POST',
    headers: { authorization: `Basic ${Buffer.from(`${clientId}:${clientSecret}`).toString('base64')}` },
    body: new URLSearchParams({
      grant_type: 'authorization_code',
      code: await code(bench),
      redirect_uri: testRedirectUri,
    }),
  });
  const { refresh_token: refreshToken } = await readTokens(basic);
  const json = await fetch(`${bench.sandbox.url}/token`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({
      grant_type: 'refresh_token',
      refresh_token: refreshToken,
      client_id: clientId,
      client_secret: clientSecret,
    }),
  });
  assert.equal(json.status, 200);
});

test('a refresh token is issued only for offline access after a consent page', async (t) => {
  const bench = await openBench(t);
  const has = async (parameters: Record<string, string | undefined>) =>
    (await bench.connect(parameters)).refresh_token !== undefined;
  assert.equal(await has({ access_type: undefined }), false);
  assert.equal(await has({ prompt: undefined }), false, 'granted before, so nobody was asked');
  assert.equal(await has({ prompt: 'consent' }), true);
  assert.equal(
    await has({ prompt: undefined, scope: `${spreadsheets} ${driveFile}` }),
    true,
    'a new scope is asked for',
  );
});

test('the hundred-and-first refresh token of an account and client ends the oldest', async (t) => {
  const bench = await openBench(t);
  const tokens: string[] = [];
  for (let count = 0; count < 100; count += 1) tokens.push((await bench.connect()).refresh_token!);
  const grace = await bench.connect({}, { account: 'grace@example.com' });
  assert.equal((await bench.refresh(tokens[0]!)).status, 200);
  tokens.push((await bench.connect()).refresh_token!);
  assert.deepEqual(await refusal(await bench.refresh(tokens[0]!)), [
    400,
    'invalid_grant',
    'Token has been expired or revoked.',
  ]);
  for (const alive of [tokens[1]!, tokens[100]!, grace.refresh_token!])
    assert.equal((await bench.refresh(alive)).status, 200);
});

test('a refresh token expires after six months without use', async (t) => {
  const bench = await openBench(t);
  const { refresh_token: refreshToken } = await bench.connect();
  const months = (count: number) => bench.control('POST /clock', { advance_s: count * 30 * 86_400 });
  for (let round = 0; round < 3; round += 1) {
    await months(5);
    assert.equal((await bench.refresh(refreshToken!)).status, 200);
  }
  await months(7);
  assert.deepEqual(await refusal(await bench.refresh(refreshToken!)), [
    400,
    'invalid_grant',
    'Token has been expired or revoked.',
  ]);
});

test('revocation by any token ends all tokens of the project for that account, and of no other account', async (t) => {
  const bench = await openBench(t);
  const { url, client } = bench.sandbox;
  const add = (body: object) =>
    bench.control<Record<string, string>>('POST /clients', { redirect_uris: [testRedirectUri], ...body });
  const sibling = await add({ project_number: client.clientId.split('-')[0] });
  const stranger = await add({});
  const connectAs = async (who: Record<string, string>) => {
    const form = { client_id: who.client_id!, client_secret: who.client_secret! };
    const text = await code(bench, { client_id: form.client_id });
    return { form, tokens: await readTokens(await bench.exchange(text, form)) };
  };
  const first = await bench.connect();
  const second = await bench.connect();
  const ofSibling = await connectAs(sibling);
  const ofStranger = await connectAs(stranger);
  const ofGrace = await bench.connect({}, { account: 'grace@example.com' });

  const revoked = await fetch(`${url}/revoke?token=${encodeURIComponent(first.access_token)}`, {
    method: 'POST',
  });
  assert.deepEqual([revoked.status, await revoked.json()], [200, {}]);
  const dead = [400, 'invalid_grant', 'Token has been expired or revoked.'];
  assert.deepEqual(await refusal(await bench.refresh(first.refresh_token!)), dead);
  assert.deepEqual(await refusal(await bench.refresh(second.refresh_token!)), dead);
  assert.deepEqual(await refusal(await bench.refresh(ofSibling.tokens.refresh_token!, ofSibling.form)), dead);
  assert.equal((await bench.refresh(ofStranger.tokens.refresh_token!, ofStranger.form)).status, 200);
  assert.equal((await bench.refresh(ofGrace.refresh_token!)).status, 200);

  const again = await fetch(`${url}/revoke`, {
    method: 'POST',
    body: new URLSearchParams({ token: second.refresh_token! }),
  });
  assert.deepEqual(await refusal(again), [400, 'invalid_token', 'Token expired or revoked']);
  assert.ok((await bench.connect({ prompt: undefined })).refresh_token, 'the project must ask again');
});

test('include_granted_scopes adds earlier grants of the project; without it the token has only the requested scopes', async (t) => {
  const bench = await openBench(t);
  await bench.connect({ scope: spreadsheets });
  const narrow = await bench.connect({ scope: driveFile });
  assert.equal(narrow.scope, driveFile);
  const wide = await bench.connect({ scope: driveFile, include_granted_scopes: 'true' });
  assert.equal(wide.scope, `${driveFile} ${spreadsheets}`);
  const unticked = await bench.connect(
    { scope: `openid ${spreadsheets}`, include_granted_scopes: 'true' },
    { allow: [] },
  );
  assert.equal(unticked.scope, `${driveFile} openid`);
});

test('client credentials give a token of the client, without an ID token', async (t) => {
  const bench = await openBench(t);
  const ask = (form: Record<string, string>) => bench.token({ grant_type: 'client_credentials', ...form });
  const tokens = await readTokens(await ask({ scope: spreadsheets }));
  assert.deepEqual(Object.keys(tokens), ['access_token', 'expires_in', 'scope', 'token_type']);
  assert.equal(tokens.scope, spreadsheets);
  const headers = { authorization: `Bearer ${tokens.access_token}`, 'content-type': 'application/json' };
  const made = await fetch(`${bench.sandbox.url}/v4/spreadsheets`, { method: 'POST', headers, body: '{}' });
  assert.equal(made.status, 200);
  const { accounts } = await bench.control<{ accounts: { email: string }[] }>('GET /accounts');
  assert.ok(!accounts.some(({ email }) => email === bench.sandbox.client.clientId));

  assert.equal((await readTokens(await ask({}))).scope, '');
  assert.equal((await refusal(await ask({ scope: 'openid' })))[1], 'invalid_scope');
  assert.equal((await refusal(await ask({ scope: 'nothing.known' })))[1], 'invalid_scope');
  assert.equal((await refusal(await ask({ client_secret: 'wrong' })))[1], 'invalid_client');
  const { refreshes } = await bench.control<{ refreshes: { asked: number; accepted: number }[] }>(
    'GET /refreshes',
  );
  assert.deepEqual(
    refreshes.map(({ asked, accepted }) => [asked, accepted]),
    [[4, 2]],
  );
});
