import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { readAccount } from './account.ts';
import { authorizationRequest, exchangeCode } from './oauth2.ts';
import {
  type Answer,
  client,
  google,
  grant,
  json,
  now,
  provider,
  redirectUri,
} from './token-endpoint.fixture.ts';
import type { TokenFault } from './token-fault.ts';

function idToken(claims: Record<string, unknown>): string {
  const part = (value: unknown) => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part({ alg: 'RS256', kid: 'k' })}.${part(claims)}.${Buffer.from('signature').toString('base64url')}`;
}
const seconds = now.getTime() / 1000;
const claimsFor = (iss: string) => ({
  iss,
  aud: 'id:1',
  azp: 'id:1',
  sub: '1077',
  email: 'ada@example.com',
  email_verified: true,
  iat: seconds,
  exp: seconds + 3600,
});

describe('an authorization request', () => {
  test('requests offline access from Google, with PKCE', async () => {
    const { url, state, codeVerifier } = await authorizationRequest({
      definition: google,
      client,
      redirectUri,
    });
    const { origin, pathname, searchParams } = new URL(url);
    assert.equal(origin + pathname, 'https://accounts.google.com/o/oauth2/v2/auth');
    const { code_challenge, ...params } = Object.fromEntries(searchParams);
    assert.deepEqual(params, {
      access_type: 'offline',
      prompt: 'consent',
      include_granted_scopes: 'true',
      response_type: 'code',
      client_id: 'id:1',
      redirect_uri: redirectUri,
      scope: 'openid https://www.googleapis.com/auth/spreadsheets',
      state,
      code_challenge_method: 'S256',
    });
    const digest = await crypto.subtle.digest('SHA-256', Buffer.from(codeVerifier as string));
    assert.equal(code_challenge, Buffer.from(digest).toString('base64url'));
    assert.match(state, /^[\w-]{43}$/);
    assert.doesNotMatch(url, /\+/);
  });

  test('takes from the browser only what the definition lists and what fits', async () => {
    const extraParams = {
      login_hint: 'ada@example.com',
      prompt: 'none',
      hd: 'undefined',
      client_id: 'evil',
      redirect_uri: 'https://evil',
      state: 'evil',
      scope: 'everything',
      code_challenge: 'evil',
      response_type: 'token',
      access_type: 'online',
      other: 'x',
    };
    const { url } = await authorizationRequest({
      definition: google,
      client,
      redirectUri,
      state: 'mine',
      extraParams,
    });
    const params = new URL(url).searchParams;
    assert.equal(params.get('login_hint'), 'ada@example.com');
    assert.equal(params.get('prompt'), 'consent');
    assert.equal(params.get('hd'), null);
    assert.equal(params.get('client_id'), 'id:1');
    assert.equal(params.get('redirect_uri'), redirectUri);
    assert.equal(params.get('state'), 'mine');
    assert.equal(params.get('response_type'), 'code');
    assert.equal(params.get('access_type'), 'offline');
    assert.equal(params.get('other'), null);
    assert.doesNotMatch(url, /evil|everything|undefined/);
  });
});

describe('a callback', () => {
  async function callback(
    t: TestContext,
    params: Record<string, string>,
    answer: Answer = json({ ...grant, refresh_token: '1//r' }),
  ) {
    const { origin, calls, context } = await provider(t, answer);
    const filled = Object.fromEntries(
      Object.entries({ iss: origin, state: 's', ...params }).filter(([, value]) => value !== '-'),
    );
    const outcome = await exchangeCode({
      ...context,
      redirectUri,
      expectedState: 's',
      codeVerifier: 'v'.repeat(43),
      callbackParams: new URLSearchParams(filled),
    });
    return { outcome, calls, origin };
  }

  test('is exchanged with verifier, redirect URI and client', async (t) => {
    const { outcome, calls } = await callback(t, {
      code: '4/0A',
      scope: 'openid',
      authuser: '0',
      prompt: 'consent',
    });
    assert.ok(outcome.ok);
    assert.equal(outcome.tokens.accessToken, 'ya29.a');
    assert.equal(outcome.tokens.refreshToken, '1//r');
    assert.deepEqual(outcome.tokens.scopes, ['openid', 'email']);
    assert.equal(outcome.tokens.expiresAt?.toISOString(), '2026-11-21T09:59:59.000Z');
    assert.equal(calls[0]?.path, '/token');
    assert.deepEqual(calls[0]?.form, {
      grant_type: 'authorization_code',
      code: '4/0A',
      code_verifier: 'v'.repeat(43),
      redirect_uri: redirectUri,
      client_id: 'id:1',
      client_secret: 's3cr3t&',
    });
  });

  const refused: [name: string, params: Record<string, string>, fault: Partial<TokenFault>][] = [
    ['another state', { code: 'c', state: 'other' }, { kind: 'protocol', error: 'state_mismatch' }],
    ['no state', { code: 'c', state: '-' }, { kind: 'protocol', error: 'state_mismatch' }],
    [
      'another issuer',
      { code: 'c', iss: 'https://evil.example' },
      { kind: 'protocol', error: 'iss_mismatch' },
    ],
    ['no issuer', { code: 'c', iss: '-' }, { kind: 'protocol', error: 'iss_mismatch' }],
    ['no code', {}, { kind: 'protocol', error: 'code_missing' }],
    [
      'a refusal of the person',
      { error: 'access_denied', error_description: 'no\u0000' },
      { kind: 'denied', error: 'access_denied', description: 'no ' },
    ],
    [
      'a refusal of the administrator',
      { error: 'admin_policy_enforced' },
      { kind: 'blocked_by_admin', error: 'admin_policy_enforced' },
    ],
    ['an outage', { error: 'server_error' }, { kind: 'transient', error: 'server_error' }],
    [
      'a refusal with another state',
      { error: 'access_denied', state: 'other' },
      { kind: 'protocol', error: 'state_mismatch' },
    ],
    ['an unknown error', { error: '__proto__' }, { kind: 'protocol', error: '__proto__' }],
  ];
  for (const [name, params, fault] of refused) {
    test(`with ${name} reaches no token endpoint`, async (t) => {
      const { outcome, calls } = await callback(t, params);
      assert.deepEqual(outcome, { ok: false, fault });
      assert.equal(calls.length, 0);
    });
  }

  test('is compared with the issuer of the definition, although the token endpoint has another host', async () => {
    const fetch = () => assert.fail('nothing is to be sent');
    const errorFor = async (iss: string) => {
      const callbackParams = new URLSearchParams({ iss, state: 's' });
      const sent = {
        definition: google,
        client,
        fetch,
        redirectUri,
        expectedState: 's',
        codeVerifier: 'v',
        callbackParams,
      };
      const outcome = await exchangeCode(sent);
      return outcome.ok ? undefined : outcome.fault.error;
    };
    assert.equal(await errorFor('https://accounts.google.com'), 'code_missing');
    assert.equal(await errorFor('https://oauth2.googleapis.com'), 'iss_mismatch');
  });

  test('identifies the account by its id_token', async (t) => {
    const answer: Answer = (response, call) =>
      json({ ...grant, id_token: idToken(claimsFor(`http://${call.headers.host}`)) })(response, call);
    const { outcome, calls } = await callback(t, { code: 'c' }, answer);
    assert.ok(outcome.ok);
    const account = await readAccount({ definition: google, client, fetch, tokens: outcome.tokens });
    assert.deepEqual(account, {
      ok: true,
      account: { subject: '1077', email: 'ada@example.com', isEmailVerified: true },
    });
    assert.equal(calls.length, 1);
  });

  const forged: [string, Record<string, unknown>][] = [
    ['issuer', { iss: 'https://accounts.google.com' }],
    ['audience', { aud: 'other' }],
    ['end', { exp: seconds - 120 }],
    ['subject', { sub: undefined }],
  ];
  for (const [name, claims] of forged) {
    test(`whose id_token has a wrong ${name} makes no connection`, async (t) => {
      const answer: Answer = (response, call) =>
        json({
          ...grant,
          id_token: idToken({ ...claimsFor(`http://${call.headers.host}`), ...claims }),
        })(response, call);
      const { outcome } = await callback(t, { code: 'c' }, answer);
      assert.ok(!outcome.ok);
      assert.equal(outcome.fault.kind, 'protocol');
    });
  }

  test('without scope in the response grants the requested scopes', async (t) => {
    const { outcome } = await callback(t, { code: 'c' }, json({ access_token: 'a', token_type: 'bearer' }));
    assert.ok(outcome.ok);
    assert.deepEqual(outcome.tokens.scopes, client.scopes);
    assert.equal(outcome.tokens.expiresAt, undefined);
  });
});
