import assert from 'node:assert/strict';
import test from 'node:test';
import { createRemoteJWKSet, jwtVerify } from 'jose';
import * as oauth from 'oauth4webapi';
import { openBench, spreadsheets, testRedirectUri } from '../testing.ts';

const insecure = { [oauth.allowInsecureRequests]: true };

test('a strict OAuth client completes the flow with discovery, PKCE, iss, nonce and a verified ID token', async (t) => {
  const bench = await openBench(t);
  const issuer = new URL(bench.sandbox.url);
  const as = await oauth.processDiscoveryResponse(
    issuer,
    await oauth.discoveryRequest(issuer, { ...insecure }),
  );
  const client = { client_id: bench.sandbox.client.clientId };
  const authentication = oauth.ClientSecretPost(bench.sandbox.client.clientSecret);
  const verifier = oauth.generateRandomCodeVerifier();
  const nonce = oauth.generateRandomNonce();
  const state = oauth.generateRandomState();

  const url = bench.authorizationUrl({
    scope: `openid email profile ${spreadsheets}`,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    nonce,
    state,
  });
  assert.equal(url.startsWith(as.authorization_endpoint ?? 'missing'), true);
  const { redirect } = await bench.control<{ redirect: string }>('POST /authorize', {
    url,
    account: 'ada@example.com',
  });
  const callback = oauth.validateAuthResponse(as, client, new URL(redirect), state);
  const exchanged = await oauth.authorizationCodeGrantRequest(
    as,
    client,
    authentication,
    callback,
    testRedirectUri,
    verifier,
    insecure,
  );
  const tokens = await oauth.processAuthorizationCodeResponse(as, client, exchanged, {
    expectedNonce: nonce,
  });
  const claims = oauth.getValidatedIdTokenClaims(tokens);
  assert.ok(claims);
  assert.equal(claims.email, 'ada@example.com');
  assert.match(claims.sub, /^1\d{20}$/);
  assert.equal(tokens.expires_in, 3599);
  assert.ok(tokens.refresh_token);

  const keys = createRemoteJWKSet(new URL(as.jwks_uri ?? ''));
  const verified = await jwtVerify(tokens.id_token ?? '', keys, {
    issuer: bench.sandbox.url,
    audience: client.client_id,
  });
  assert.equal(verified.payload.sub, claims.sub);

  const userinfo = await oauth.processUserInfoResponse(
    as,
    client,
    claims.sub,
    await oauth.userInfoRequest(as, client, tokens.access_token, insecure),
  );
  assert.deepEqual(
    [userinfo.email, userinfo.email_verified, userinfo.name, userinfo.given_name],
    ['ada@example.com', true, 'Ada Example', 'Ada'],
  );

  const refreshed = await oauth.processRefreshTokenResponse(
    as,
    client,
    await oauth.refreshTokenGrantRequest(as, client, authentication, tokens.refresh_token, insecure),
  );
  assert.equal(refreshed.refresh_token, undefined);
  assert.notEqual(refreshed.access_token, tokens.access_token);

  await oauth.processRevocationResponse(
    await oauth.revocationRequest(as, client, authentication, refreshed.access_token, insecure),
  );
  await assert.rejects(
    oauth
      .userInfoRequest(as, client, tokens.access_token, insecure)
      .then((response) => oauth.processUserInfoResponse(as, client, claims.sub, response)),
    oauth.WWWAuthenticateChallengeError,
  );
});

test('a client that checks iss refuses the redirect under the fault wrong_iss', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /faults', { case: 'wrong_iss', times: 1 });
  const as = { issuer: bench.sandbox.url, authorization_response_iss_parameter_supported: true };
  const client = { client_id: bench.sandbox.client.clientId };
  const check = async () => oauth.validateAuthResponse(as, client, await bench.consent(), 'st');
  await assert.rejects(check, /iss/);
  assert.ok((await check()).get('code'));
});

test('tokeninfo and the older userinfo describe a live token and refuse a dead one', async (t) => {
  const bench = await openBench(t);
  const { url, client } = bench.sandbox;
  const { access_token: token } = await bench.connect();
  const info = (await (await fetch(`${url}/tokeninfo?access_token=${token}`)).json()) as Record<
    string,
    string
  >;
  assert.equal(info.aud, client.clientId);
  assert.equal(info.email, 'ada@example.com');
  assert.equal(info.access_type, 'offline');
  const headers = { authorization: `Bearer ${token}` };
  const older = (await (await fetch(`${url}/oauth2/v2/userinfo`, { headers })).json()) as Record<
    string,
    unknown
  >;
  assert.deepEqual([older.id, older.verified_email], [info.sub, true]);

  await bench.control('POST /clock', { advance_s: 3601 });
  const dead = await fetch(`${url}/tokeninfo?access_token=${token}`);
  assert.equal(dead.status, 400);
  assert.deepEqual(await dead.json(), { error: 'invalid_token', error_description: 'Invalid Value' });
  const refused = await fetch(`${url}/v1/userinfo`, { headers });
  assert.equal(refused.status, 401);
  assert.match(refused.headers.get('www-authenticate') ?? '', /^Bearer realm=/);
});
