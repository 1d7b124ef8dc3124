/** Each OAuth 2.0 definition of the catalogue walks its whole flow against a provider with the real one's habits. */
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { profileOf } from '../../sandbox/profiles/profiles.ts';
import { allowed, refreshLifeS, startProfile } from '../../sandbox/profiles/provider.ts';
import { readAccount } from '../../server/auth-modes/account.ts';
import { authorizationRequest, exchangeCode, refreshToken } from '../../server/auth-modes/oauth2.ts';
import { credentialsFrom } from '../../server/auth-modes/oauth2-credentials.ts';
import { placeCredentials, withQuery } from '../../server/auth-modes/place.ts';
import { revokeToken } from '../../server/auth-modes/revocation.ts';
import { isExpired } from '../../server/connections/refresh/refresh-due.ts';
import type { ProviderDefinition } from '../../server/providers/definition.ts';
import { missingScopes } from '../../server/providers/scopes.ts';
import {
  catalog,
  client,
  endpointsOf,
  exampleValues,
  now,
  oauthProviders,
  redirectUri,
  wayTo,
} from './walk.ts';

/** Google's products are told apart by their APIs alone. */
function profileNameOf({ name, authorization }: ProviderDefinition): string {
  return authorization?.url.startsWith('https://accounts.google.com/') === true ? 'google' : name;
}

async function start(t: TestContext, definition: ProviderDefinition) {
  const profile = profileOf(profileNameOf(definition));
  assert.ok(profile, 'the sandbox has no profile of it');
  const scopes = [...definition.scopes.default, ...client.scopes];
  const context = { definition, values: exampleValues(definition), client: { ...client, scopes }, now };
  const endpoints = endpointsOf({ ...context, definition: catalog.get(definition.name) });
  const provider = await startProfile(profile, {
    client: { id: client.clientId, secret: client.clientSecret, redirectUri },
    endpoints,
    now,
  });
  t.after(() => provider.stop());
  return { profile, provider, endpoints, context: { ...context, fetch: wayTo(provider.origin) } };
}

type Started = Awaited<ReturnType<typeof start>>;

async function authorize({ context }: Started) {
  const asked = await authorizationRequest({ ...context, redirectUri });
  const answer = await context.fetch(asked.url, {
    method: 'GET',
    headers: {},
    redirect: 'manual',
    signal: AbortSignal.timeout(5000),
  });
  const location = answer.headers.get('location');
  assert.ok(location, `refused with ${answer.status}`);
  const callbackParams = new URL(location).searchParams;
  assert.equal(callbackParams.get('error'), null);
  return { callbackParams, redirectUri, expectedState: asked.state, codeVerifier: asked.codeVerifier };
}

async function callApi({ context, endpoints }: Started, accessToken: string): Promise<number> {
  const { definition, values } = context;
  const { headers, query } = placeCredentials({
    definition,
    values,
    credentials: { type: 'OAUTH2', access_token: accessToken, raw: {} },
  });
  const answer = await context.fetch(withQuery(`${endpoints.api}/any`, query), {
    method: 'GET',
    headers,
    redirect: 'manual',
    signal: AbortSignal.timeout(5000),
  });
  return answer.status;
}

function endAt(lifeS: number): Date {
  return new Date(now.getTime() + lifeS * 1000);
}

async function walk(t: TestContext, definition: ProviderDefinition): Promise<void> {
  const started = await start(t, definition);
  const { profile, provider, context } = started;
  const exchanged = await exchangeCode({ ...context, ...(await authorize(started)) });
  assert.ok(exchanged.ok, JSON.stringify(exchanged));
  const { tokens } = exchanged;
  const { scopes } = context.client;
  const isSilent = profile.grantedScopes === 'absent' || profile.grantedScopes === 'null';
  const told = isSilent ? scopes : allowed(scopes).filter((scope) => scope !== profile.unnamedScope);
  const granted = profile.grantedScopes === 'empty' ? [] : told;
  assert.deepEqual([...(tokens.scopes ?? [])].sort(), [...granted].sort());
  if (profile.grantedScopes !== 'empty') {
    const missing = missingScopes(definition, { wanted: scopes, granted: tokens.scopes ?? [] });
    assert.deepEqual(missing, isSilent ? [] : scopes.slice(-1));
  }
  const isRefreshable = profile.refresh !== 'none';
  assert.equal(tokens.refreshToken !== undefined, isRefreshable, 'a refresh token');
  const isTold = profile.life !== 'absent' && profile.life !== 'zero';
  const lifeS = isTold ? provider.lifeS : definition.refresh.default_expires_in_s;
  assert.deepEqual(tokens.expiresAt, isTold || isRefreshable ? endAt(lifeS) : undefined);
  assert.deepEqual(
    tokens.refreshExpiresAt,
    profile.refreshLifeIn === undefined ? undefined : endAt(refreshLifeS),
  );
  assert.equal(await callApi(started, tokens.accessToken), 200);

  const read = await readAccount({ ...context, tokens });
  assert.ok(read.ok, JSON.stringify(read));
  assert.equal(read.account.subject, definition.userinfo === undefined ? undefined : '77');

  let latest = tokens.refreshToken;
  let accessToken = tokens.accessToken;
  if (latest !== undefined) {
    const refreshed = await refreshToken({ ...context, refreshToken: latest });
    assert.ok(refreshed.ok, JSON.stringify(refreshed));
    let next = refreshed.tokens;
    assert.equal(await callApi(started, accessToken), 401);
    accessToken = next.accessToken;
    assert.equal(await callApi(started, accessToken), 200);
    assert.deepEqual(next.expiresAt, endAt(lifeS));
    assert.equal(next.refreshToken !== undefined, profile.refresh !== 'silent');
    if (profile.refresh === 'rotates') {
      assert.ok(definition.refresh.rotates, 'the definition says that refresh tokens stay');
      assert.notEqual(next.refreshToken, latest);
      const again = await refreshToken({ ...context, refreshToken: latest });
      assert.ok(!again.ok);
      assert.equal(again.fault.kind, 'dead_grant', JSON.stringify(again.fault));
    }
    if (profile.refresh === 'overlaps') {
      assert.ok(definition.refresh.rotates, 'the definition says that refresh tokens stay');
      // The answer could have been lost; once the successor is used, the token before it is over.
      const again = await refreshToken({ ...context, refreshToken: latest });
      assert.ok(again.ok, JSON.stringify(again));
      const used = await refreshToken({ ...context, refreshToken: again.tokens.refreshToken ?? '' });
      assert.ok(used.ok, JSON.stringify(used));
      const late = await refreshToken({ ...context, refreshToken: latest });
      assert.equal(late.ok ? undefined : late.fault.kind, 'dead_grant');
      next = used.tokens;
      accessToken = next.accessToken;
    }
    latest = next.refreshToken ?? latest;
  }

  if (definition.revocation !== undefined) {
    const revoked = await revokeToken({ ...context, token: latest ?? accessToken });
    assert.ok(revoked.ok, JSON.stringify(revoked));
    assert.equal(await callApi(started, accessToken), 401);
  }
  if (latest !== undefined) {
    const dead = await refreshToken({ ...context, refreshToken: 'dead' });
    assert.ok(!dead.ok);
    assert.equal(dead.fault.kind, 'dead_grant', JSON.stringify(dead.fault));
  }
}

describe('each provider of the catalogue', { concurrency: 4 }, () => {
  for (const definition of oauthProviders) {
    test(`${definition.name} walks its flow`, (t) => walk(t, definition));
  }
});

describe('a definition that does not match its provider', { concurrency: 4 }, () => {
  type Change = (definition: ProviderDefinition) => unknown;
  const token = (definition: ProviderDefinition) => definition.token as NonNullable<typeof definition.token>;
  const authorization = (definition: ProviderDefinition) =>
    definition.authorization as NonNullable<typeof definition.authorization>;
  const changes: [string, string, Change][] = [
    ['slack', 'the type of its tokens', (d) => (token(d).answer.bearer_token_types = [])],
    ['slack', 'the comma between scopes', (d) => (d.scopes.separator = ' ')],
    ['slack', 'the code of a dead token', (d) => (token(d).errors = {})],
    ['slack', 'how the client proves itself', (d) => (token(d).auth_method = 'client_secret_post')],
    ['slack-user', 'where the token lies', (d) => delete token(d).answer.token_path],
    ['slack-user', 'the name of the scopes', (d) => delete authorization(d).scope_param],
    ['github', 'the comma between granted scopes', (d) => delete d.scopes.granted_separator],
    ['notion', 'that requests are JSON', (d) => delete token(d).body],
    ['notion', 'a parameter it insists on', (d) => (authorization(d).params = {})],
    ['basecamp', 'a parameter of a refresh', (d) => (d.refresh.params = {})],
    ['basecamp', 'that answers name no type', (d) => delete token(d).answer.default_token_type],
    ['dropbox', 'what makes a refresh token come', (d) => (authorization(d).params = {})],
    ['airtable', 'that PKCE is required', (d) => (authorization(d).pkce = 'none')],
    ['airtable', 'the life of refresh tokens', (d) => delete token(d).answer.refresh_expires_in],
    ['square', 'the date of the end', (d) => delete token(d).answer.expires_at],
    ['stack-exchange', 'the name of the life', (d) => delete token(d).answer.expires_in],
    ['stack-exchange', 'that answers are form-encoded', (d) => (token(d).answer.format = 'json')],
    ['stack-exchange', 'where a call has its token', (d) => (d.placement = [])],
    ['bitbucket', 'the name of granted scopes', (d) => delete token(d).answer.scope],
    ['twitch', 'where errors stand', (d) => delete token(d).answer.error],
    ['figma', 'where tokens are refreshed', (d) => delete d.refresh.url],
    ['outlook', 'the scope that is never named', (d) => delete d.scopes.unnamed],
    ['zoho-crm', 'the word before a token', (d) => (d.placement = [])],
    ['box', 'that refresh tokens rotate', (d) => (d.refresh.rotates = false)],
    ['asana', 'where the account is told', (d) => (d.userinfo = { ...d.userinfo!, subject: 'sub' })],
    ['hubspot', 'the endpoint that stays', (d) => (token(d).url = 'https://api.hubapi.com/oauth/v1/token')],
    ['shopify', 'what gives tokens an end', (d) => (token(d).params = {})],
    ['zendesk', 'what gives tokens an end', (d) => (token(d).params = {})],
    ['zendesk', 'what gives refreshed tokens an end', (d) => (d.refresh.params = {})],
    ['google-sheet', 'what makes a refresh token come', (d) => (authorization(d).params = {})],
  ];
  for (const [name, what, change] of changes) {
    test(`${name} without ${what} does not get through`, async (t) => {
      const changed = structuredClone(catalog.get(name));
      change(changed);
      await assert.rejects(walk(t, changed), assert.AssertionError);
    });
  }
});

describe('connections of an earlier definition continue', () => {
  const exchanged = async (
    t: TestContext,
    name: string,
    change: (token: { url: string; params: object }) => void,
  ) => {
    const earlier = structuredClone(catalog.get(name));
    change(earlier.token!);
    const started = await start(t, earlier);
    const outcome = await exchangeCode({ ...started.context, ...(await authorize(started)) });
    assert.ok(outcome.ok, JSON.stringify(outcome));
    return { started, tokens: outcome.tokens };
  };

  for (const name of ['shopify', 'zendesk']) {
    test(`a token of ${name} without an end is used and not refreshed`, async (t) => {
      const { started, tokens } = await exchanged(t, name, (token) => Object.assign(token, { params: {} }));
      assert.deepEqual([tokens.expiresAt, tokens.refreshToken], [undefined, undefined]);
      const context = { ...started.context, definition: catalog.get(name) };
      assert.equal(await callApi({ ...started, context }, tokens.accessToken), 200);
      assert.equal(isExpired(credentialsFrom(tokens), endAt(10 * 365 * 86_400)), false);
    });
  }

  test('a refresh token of hubspot’s endpoint before is taken by the one that stays', async (t) => {
    const { token } = catalog.get('hubspot');
    const profile = profileOf('hubspot')!;
    const context = { definition: catalog.get('hubspot'), client, now };
    const endpoints = endpointsOf(context);
    const v1 = 'https://api.hubapi.com/oauth/v1/token';
    const provider = await startProfile(profile, {
      client: { id: client.clientId, secret: client.clientSecret, redirectUri },
      endpoints: { ...endpoints, token: v1, refresh: token!.url },
      now,
    });
    t.after(() => provider.stop());
    const started = {
      profile,
      provider,
      endpoints,
      context: { ...context, values: {}, fetch: wayTo(provider.origin) },
    };
    const earlier = structuredClone(catalog.get('hubspot'));
    earlier.token!.url = v1;
    const first = await exchangeCode({
      ...started.context,
      definition: earlier,
      ...(await authorize(started)),
    });
    assert.ok(first.ok, JSON.stringify(first));
    const second = await refreshToken({ ...started.context, refreshToken: first.tokens.refreshToken! });
    assert.ok(second.ok, JSON.stringify(second));
    assert.equal(await callApi(started, second.tokens.accessToken), 200);
  });
});

test('a code that is used twice, or with another secret, gives no tokens anywhere', async (t) => {
  for (const name of ['google-sheet', 'slack-user', 'github', 'twitch', 'notion', 'etsy']) {
    const started = await start(t, catalog.get(name));
    const callback = await authorize(started);
    const wrong = { ...started.context.client, clientSecret: 'wrong' };
    const other = await exchangeCode({ ...started.context, client: wrong, ...(await authorize(started)) });
    // A public client has none.
    assert.equal(other.ok, name === 'etsy', name);
    assert.ok((await exchangeCode({ ...started.context, ...callback })).ok);
    const second = await exchangeCode({ ...started.context, ...callback });
    assert.ok(!second.ok);
  }
});

test('there is no profile without a provider, and quirks of every kind are among them', () => {
  const all = oauthProviders.map((definition) => profileOf(profileNameOf(definition)));
  const some = (pick: (profile: NonNullable<(typeof all)[number]>) => boolean) =>
    assert.ok(
      all.some((profile) => profile && pick(profile)),
      pick.toString(),
    );
  some(({ answer }) => answer === 'form');
  some(({ tokenIn }) => tokenIn !== undefined);
  some(({ faults }) => faults === 'in_200');
  some(({ faults }) => faults === 'message');
  some(({ refresh }) => refresh === 'rotates');
  some(({ refresh }) => refresh === 'silent');
  some(({ life }) => life === 'absent');
  some(({ life }) => life === 'text');
  some(({ life }) => life === 'date');
  some(({ life }) => life === 'unix');
  some(({ requestedScopes }) => requestedScopes.separator === ',');
  some(({ grantedScopes }) => grantedScopes === 'list');
  some(({ tokenRequest }) => tokenRequest === 'json');
  some(({ clientAuth }) => clientAuth === 'public');
  some(({ refreshLifeIn }) => refreshLifeIn !== undefined);
  some(({ tokenType }) => tokenType === '');
});
