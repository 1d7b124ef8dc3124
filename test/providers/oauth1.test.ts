/** Each OAuth 1.0a definition of the catalogue walks its flow against a provider that verifies the signatures itself. */
import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import fc from 'fast-check';
import { type Habits, signatureOf, startOAuth1 } from '../../sandbox/profiles/oauth1.ts';
import { readAccount } from '../../server/auth-modes/account.ts';
import { oauth1 } from '../../server/auth-modes/oauth1.ts';
import { signedHeaders, signerOf, verificationRequest } from '../../server/auth-modes/place.ts';
import type { ProviderDefinition } from '../../server/providers/definition.ts';
import { catalog, client, exampleValues, redirectUri, wayTo } from './walk.ts';

const definitions = catalog.list().filter(({ auth_mode }) => auth_mode === 'OAUTH1');
/** What a provider's page says beside the addresses. */
const habits: Record<string, Partial<Habits>> = {
  trello: { refusals: 'text' },
  tumblr: { methods: { request: 'POST', token: 'GET' } },
  smugmug: {},
};
const key = { key: client.clientId, secret: client.clientSecret };

async function start(t: TestContext, definition: ProviderDefinition, more: Partial<Habits> = {}) {
  const { authorization, token, oauth1: section } = definition;
  const started = await startOAuth1({
    client: key,
    callback: redirectUri,
    endpoints: { request: section!.request_url, authorization: authorization!.url, token: token!.url },
    now: () => new Date(),
    habits: { ...habits[definition.name], ...more },
  });
  t.after(() => started.stop());
  const scopes = [...definition.scopes.default];
  const values = exampleValues(definition);
  const context = { definition, values, client: { ...client, scopes }, fetch: wayTo(started.origin) };
  return { ...started, context };
}

async function callback({ context }: Awaited<ReturnType<typeof start>>) {
  const begun = await oauth1.authorization!.begin({ ...context, redirectUri });
  assert.ok(begun.ok, JSON.stringify(begun));
  const answer = await context.fetch(begun.url, {
    method: 'GET',
    headers: {},
    redirect: 'manual',
    signal: AbortSignal.timeout(5000),
  });
  const callbackParams = new URL(answer.headers.get('location') ?? '').searchParams;
  return { callbackParams, redirectUri, expectedState: begun.state, kept: begun.kept };
}

describe('each OAuth 1.0a provider of the catalogue', () => {
  for (const definition of definitions) {
    test(`${definition.name} walks its flow`, async (t) => {
      const started = await start(t, definition);
      const { context } = started;
      const outcome = await oauth1.authorization!.finish({ ...context, ...(await callback(started)) });
      assert.ok(outcome.ok, JSON.stringify(outcome));
      const credentials = oauth1.authorization!.credentials(outcome.tokens, { ownClient: undefined });
      const connection = { definition, credentials, values: context.values, client };
      const request = verificationRequest(connection);
      assert.ok(request, 'the definition has no call that verifies credentials');
      const send = async () =>
        context.fetch(request.url, {
          method: request.method,
          headers: await signedHeaders(request),
          redirect: 'manual',
          signal: AbortSignal.timeout(5000),
        });
      assert.equal((await send()).status, 200);
      const read = await readAccount({ ...context, tokens: outcome.tokens, signer: signerOf(connection) });
      assert.ok(read.ok, JSON.stringify(read));
      assert.equal(read.account.subject, '77');
      started.provider.revokeAll();
      assert.equal((await send()).status, 401);
    });
  }

  for (const [what, more, change] of [
    ['the signature method', { signatureMethod: 'PLAINTEXT' }, 'PLAINTEXT'],
    ['the signature method', { signatureMethod: 'HMAC-SHA256' }, 'HMAC-SHA256'],
  ] as const) {
    test(`${what} ${change} is that of the definition`, async (t) => {
      const own = structuredClone(catalog.get('trello'));
      const started = await start(t, own, more);
      const refused = await oauth1.authorization!.begin({ ...started.context, redirectUri });
      assert.ok(!refused.ok);
      own.oauth1!.signature_method = change;
      const outcome = await oauth1.authorization!.finish({
        ...started.context,
        ...(await callback(started)),
      });
      assert.ok(outcome.ok, JSON.stringify(outcome));
    });
  }

  test('a state that the page returns is not in the callback address', async (t) => {
    const own = structuredClone(catalog.get('trello'));
    own.oauth1!.state_in = 'authorization';
    const started = await start(t, own, { denial: 'empty verifier' });
    const first = await callback(started);
    assert.equal(first.callbackParams.get('state'), first.expectedState);
    assert.ok((await oauth1.authorization!.finish({ ...started.context, ...first })).ok);
    started.provider.decision = 'refuses';
    const denied = await oauth1.authorization!.finish({ ...started.context, ...(await callback(started)) });
    assert.deepEqual(denied, { ok: false, fault: { kind: 'denied', error: 'access_denied' } });
  });

  test('a code of the definition has its meaning, and a refusal without one is of the client or of the token', async (t) => {
    const own = structuredClone(catalog.get('trello'));
    const started = await start(t, own, { refusals: 'json' });
    const wrong = { ...started.context, client: { ...started.context.client, clientSecret: 'wrong' } };
    const refused = async () => {
      const begun = await oauth1.authorization!.begin({ ...wrong, redirectUri });
      return begun.ok ? undefined : begun.fault;
    };
    assert.deepEqual(await refused(), { kind: 'client_misconfigured', error: 'status_401', httpStatus: 401 });
    own.token!.answer.error = 'errors.0.code';
    own.token!.errors = { 32: 'client_refused' };
    assert.deepEqual(await refused(), {
      kind: 'client_misconfigured',
      isOfClient: true,
      error: '32',
      httpStatus: 401,
    });
    const used = await callback(started);
    used.callbackParams.set('oauth_verifier', 'guessed');
    own.token!.errors = {};
    const outcome = await oauth1.authorization!.finish({ ...started.context, ...used });
    assert.equal(outcome.ok ? undefined : outcome.fault.kind, 'dead_grant');
  });
});

describe('signatures', () => {
  test('of the provider are those of RFC 5849 §1.2', () => {
    const parameters = Object.entries({
      oauth_consumer_key: 'dpf43f3p2l4k3l03',
      oauth_token: 'nnch734d00sl2jdk',
      oauth_signature_method: 'HMAC-SHA1',
      oauth_timestamp: '137131202',
      oauth_nonce: 'chapoH',
      file: 'vacation.jpg',
      size: 'original',
    });
    const url = 'http://photos.example.net/photos?file=vacation.jpg&size=original';
    const signed = signatureOf(
      { method: 'GET', url, parameters },
      { name: 'HMAC-SHA1', secrets: ['kd94hf93k423kf44', 'pfkkdhi9sl3r4s00'] },
    );
    assert.equal(signed, 'MdpQcU8iPSUjWoN/UDMsK2sui9I=');
  });

  test('of any query and form are those that the provider computes', async () => {
    const definition = catalog.get('trello');
    const credentials = { type: 'OAUTH1' as const, oauth_token: 't', oauth_token_secret: 's&%', raw: {} };
    const signer = signerOf({ definition, credentials, values: {}, client })!;
    const names = fc
      .string({ unit: 'grapheme' })
      .filter((name) => !name.startsWith('oauth_') && name !== '__proto__');
    const pairs = fc.array(fc.tuple(names, fc.string({ unit: 'grapheme' })), { maxLength: 6 });
    const property = fc.asyncProperty(pairs, pairs, fc.boolean(), async (query, form, isForm) => {
      const search = new URLSearchParams(query).toString();
      const url = `https://api.example.com/a%2Fb/!*'()${search && `?${search}`}`;
      const headers = isForm ? ['Content-Type', 'application/x-www-form-urlencoded;charset=utf-8'] : [];
      const body = Buffer.from(new URLSearchParams(form).toString());
      const { authorization = '' } = await signer.sign({ method: 'POST', url, headers, body });
      const own = [...authorization.matchAll(/(\w+)="([^"]*)"/g)].map(
        ([, name = '', value = '']) => [name, decodeURIComponent(value)] as const,
      );
      const parameters = [
        ...own.filter(([name]) => name !== 'oauth_signature'),
        ...new URLSearchParams(search),
        ...(isForm ? new URLSearchParams(body.toString()) : []),
      ];
      const secrets = [client.clientSecret, 's&%'] as const;
      const expected = signatureOf({ method: 'POST', url, parameters }, { name: 'HMAC-SHA1', secrets });
      assert.equal(new Map(own).get('oauth_signature'), expected);
    });
    await fc.assert(property, { numRuns: 200 });
  });
});
