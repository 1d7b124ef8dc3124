import assert from 'node:assert/strict';
import { describe, type TestContext, test } from 'node:test';
import { makeSelfSigned } from '../../test/support/certificate.ts';
import { type ClientCredentials, clientCredentials } from './client-credentials.ts';
import { ownClientOf, renewalOf } from './modes.ts';
import { placeCredentials } from './place.ts';
import { type Answer, json, now, provider, type Token, text } from './token-endpoint.fixture.ts';

const secret = 's3cr3t/+&-of-the-connection';
const plain = 'hunter2-very-secret-thing';
const own: ClientCredentials = { type: 'OAUTH2_CC', client_id: 'own-id', client_secret: secret, raw: {} };
const none: ClientCredentials = { type: 'OAUTH2_CC', raw: {} };
const granted = { access_token: 'at', token_type: 'Bearer', expires_in: 600 };

/** Asks a provider that gives this answer. */
async function ask(
  t: TestContext,
  answer: Answer,
  {
    credentials = own,
    scopes = ['a', 'b'],
    token = {},
    integrationConfig = {},
    timeoutMs,
  }: {
    credentials?: ClientCredentials;
    scopes?: string[];
    token?: Partial<Token>;
    integrationConfig?: Record<string, string>;
    timeoutMs?: number;
  } = {},
) {
  const { context, calls } = await provider(t, answer);
  const outcome = await renewalOf(credentials).request({
    ...context,
    definition: { ...context.definition, token: { ...(context.definition.token as Token), ...token } },
    client: { ...(ownClientOf(credentials) ?? context.client), scopes },
    values: { integrationConfig },
    credentials,
    secret: '',
    ...(timeoutMs !== undefined && { timeoutMs }),
  });
  assert.ok(!JSON.stringify(outcome.ok ? {} : outcome.fault).includes(secret));
  return { outcome, calls };
}

describe('a request by the client alone', () => {
  test('contains the grant type, the client and the scopes, and nothing else', async (t) => {
    const { outcome, calls } = await ask(t, json(granted));
    assert.deepEqual(calls[0]?.form, {
      grant_type: 'client_credentials',
      scope: 'a b',
      client_id: 'own-id',
      client_secret: secret,
    });
    assert.ok(outcome.ok);
    assert.deepEqual(outcome.tokens.scopes, ['a', 'b']);
    const after = renewalOf(own).after(outcome.tokens, { previous: { ...own, token: 'old' }, secret: '' });
    const expires_at = new Date(now.getTime() + 600_000).toISOString();
    assert.deepEqual(after, { ...own, token: 'at', expires_at, raw: granted });
  });

  test('authenticates by Basic, and contains the parameters of the form', async (t) => {
    const { outcome, calls } = await ask(t, json(granted), {
      scopes: [],
      token: {
        auth_method: 'client_secret_basic',
        params: {
          // biome-ignore lint/suspicious/noTemplateCurlyInString: templates of the service
          audience: '${integrationConfig.audience}',
          // biome-ignore lint/suspicious/noTemplateCurlyInString: as above
          resource: '${integrationConfig.resource}',
          tenant: 'fixed',
        },
      },
      integrationConfig: { audience: 'https://api.example.com/?a=1&b', resource: '' },
    });
    assert.deepEqual(calls[0]?.form, {
      grant_type: 'client_credentials',
      audience: 'https://api.example.com/?a=1&b',
      tenant: 'fixed',
    });
    const basic = calls[0]?.headers.authorization?.replace('Basic ', '') ?? '';
    assert.equal(Buffer.from(basic, 'base64').toString(), 'own-id:s3cr3t%2F%2B%26-of-the-connection');
    assert.ok(outcome.ok && outcome.tokens.scopes === undefined);
  });

  test('stores no unexpected refresh token, and expires after an hour if the response has no lifetime', async (t) => {
    const answer = { access_token: 'at', token_type: 'bearer', refresh_token: 'r', scope: 'a' };
    const { outcome } = await ask(t, json(answer));
    assert.ok(outcome.ok);
    assert.equal(outcome.tokens.refreshToken, undefined);
    assert.equal(outcome.tokens.expiresAt?.getTime(), now.getTime() + 3_600_000);
    assert.deepEqual(outcome.tokens.scopes, ['a']);
    const shown = clientCredentials.toWire(
      renewalOf(own).after(outcome.tokens, { previous: own, secret: '' }) as ClientCredentials,
    );
    assert.deepEqual(shown.raw, { access_token: 'at', token_type: 'bearer', scope: 'a' });
  });
});

describe('an error of the provider about a client', () => {
  const said = [
    [401, 'invalid_client', 'dead_grant', 'client_misconfigured'],
    [400, 'unauthorized_client', 'dead_grant', 'client_misconfigured'],
    [401, 'access_denied', 'dead_grant', 'client_misconfigured'],
    [400, 'invalid_grant', 'dead_grant', 'client_misconfigured'],
    [401, 'deleted_client', 'dead_grant', 'client_misconfigured'],
    // Nobody who connects can mend these.
    [400, 'unsupported_grant_type', 'client_misconfigured', 'client_misconfigured'],
    [400, 'invalid_scope', 'client_misconfigured', 'client_misconfigured'],
    [401, 'invalid_scope', 'client_misconfigured', 'client_misconfigured'],
    [400, 'invalid_request', 'protocol', 'protocol'],
    [429, 'invalid_client', 'transient', 'transient'],
    [503, 'invalid_client', 'transient', 'transient'],
  ] as const;
  for (const [status, error, ofOwn, ofIntegration] of said) {
    test(`${status} ${error} is ${ofOwn} of its own client, ${ofIntegration} of the integration's`, async (t) => {
      const answer = json({ error, error_description: `no ${secret}` }, status);
      for (const [credentials, kind] of [
        [own, ofOwn],
        [none, ofIntegration],
      ] as const) {
        const { context } = await provider(t, answer);
        const client = { ...context.client, scopes: [] };
        const token = { ...(context.definition.token as Token), errors: {} };
        const definition = { ...context.definition, token };
        const request = { ...context, definition, client, credentials, secret: '' };
        const outcome = await renewalOf(credentials).request(request);
        assert.equal(outcome.ok ? 'granted' : outcome.fault.kind, kind);
      }
    });
  }

  for (const [status, body, isOfOne] of [
    [401, { error: 'invalid_client' }, false],
    [401, { error: 'deleted_client' }, false],
    [401, { error: 'access_denied' }, true],
    [400, { error: 'invalid_grant' }, true],
    [401, { message: 'Unauthorized' }, true],
    [400, { error: 'unsupported_grant_type' }, true],
  ] as const) {
    const said = 'error' in body ? body.error : 'without a code';
    test(`${status} ${said} is of ${isOfOne ? 'the one connection' : 'all'} where its settings stand in the request`, async (t) => {
      const { context } = await provider(t, json(body, status));
      const known = context.definition.token as Token;
      const askBy = async (token: Partial<Token>, credentials = none) => {
        const definition = {
          ...context.definition,
          token: { ...known, errors: { deleted_client: 'client_misconfigured' as const }, ...token },
        };
        const values = { connectionConfig: { tenant: 'token' } };
        const request = { ...context, definition, values, credentials, secret: '' };
        const outcome = await renewalOf(credentials).request(request);
        assert.ok(!outcome.ok && outcome.fault.kind === 'client_misconfigured');
        return outcome.fault.isOfOneGrant ?? false;
      };
      // biome-ignore-start lint/suspicious/noTemplateCurlyInString: templates of the service
      const tenant = '${connectionConfig.tenant}';
      // biome-ignore-end lint/suspicious/noTemplateCurlyInString: templates of the service
      assert.equal(await askBy({}), false);
      assert.equal(await askBy({ params: { tenant } }), isOfOne);
      assert.equal(await askBy({ url: `${new URL(known.url).origin}/${tenant}` }), isOfOne);
      if (said === 'unsupported_grant_type') assert.ok(await askBy({}, own));
    });
  }

  test('is reported by its code alone, and by no code that repeats sent values', async (t) => {
    for (const [error, reported] of [
      [`bad_secret_${plain}`, 'unknown_error'],
      [`BAD_${plain.toUpperCase()}`, 'unknown_error'],
      ['no such client, sorry', 'unknown_error'],
      ['x'.repeat(65), 'unknown_error'],
      ['AADSTS7000215.b-1', 'AADSTS7000215.b-1'],
    ] as const) {
      for (const auth_method of ['client_secret_basic', 'client_secret_post'] as const) {
        const answer = json(
          { error, error_description: `it was ${plain}`, error_subtype: `of_${plain}` },
          400,
        );
        const credentials = { ...own, client_secret: plain };
        const { outcome } = await ask(t, answer, { credentials, token: { auth_method } });
        assert.ok(!outcome.ok);
        const { error: code, subtype, description } = outcome.fault;
        assert.deepEqual([code, subtype, description], [reported, 'unknown_error', undefined]);
      }
    }
  });

  test('is nothing where the answer is none that can be read', async (t) => {
    const cases: [Answer, string, string][] = [
      [text('<html>Sign in</html>', 'text/html'), 'transient', 'html'],
      [text('<html>Sign in</html>', 'text/html', 401), 'transient', 'html'],
      [(response) => void response.writeHead(302, { location: '/login' }).end(), 'protocol', 'redirect'],
      [(response) => void response.destroy(), 'transient', 'network'],
      [() => {}, 'transient', 'timeout'],
      [text('Unauthorized', 'text/plain', 401), 'protocol', 'not_json'],
      [json({ token: 'elsewhere' }), 'protocol', 'invalid_answer'],
      [json({ message: 'Unauthorized' }, 401), 'dead_grant', 'invalid_answer'],
      [json({ ...granted, token_type: 'mac' }), 'protocol', 'invalid_answer'],
    ];
    for (const [answer, kind, error] of cases) {
      // Only the answer that never comes may take as long as the limit, however slow the machine is.
      const { outcome } = await ask(t, answer, error === 'timeout' ? { timeoutMs: 300 } : {});
      assert.deepEqual(outcome.ok || [outcome.fault.kind, outcome.fault.error], [kind, error]);
    }
  });
});

describe('imported client credentials', () => {
  const read = (given: object) => clientCredentials.importSchema.safeParse({ type: 'OAUTH2_CC', ...given });

  test('are a client, a token, or both', () => {
    const client = { client_id: 'i', client_secret: 's' };
    assert.deepEqual(read(client).data, { type: 'OAUTH2_CC', ...client, raw: {} });
    const expires_at = '2026-11-21T10:00:00+01:00';
    assert.deepEqual(read({ ...client, token: 't', expires_at }).data, {
      type: 'OAUTH2_CC',
      ...client,
      token: 't',
      expires_at: '2026-11-21T09:00:00.000Z',
      raw: { token: 't', expires_at: '2026-11-21T09:00:00.000Z' },
    });
    assert.deepEqual(read({}).data, none);
  });

  test('are refused by the name of the field that does not fit', () => {
    for (const [given, field] of [
      [{ client_id: 'i' }, 'client_secret'],
      [{ client_secret: 's' }, 'client_id'],
      [{ client_id: '', client_secret: 's' }, 'client_id'],
      [{ client_id: 'i', client_secret: 'ü' }, 'client_secret'],
      [{ client_id: 'i', client_secret: 's\r\nX: y' }, 'client_secret'],
      [{ client_id: 'i', client_secret: 's'.repeat(4097) }, 'client_secret'],
      [{ client_id: 1, client_secret: 's' }, 'client_id'],
      [{ client_id: 'i', client_secret: 's', token: 'a\nb' }, 'token'],
      [{ client_id: 'i', client_secret: 's', expires_at: 'soon' }, 'expires_at'],
      [{ client_id: 'i', client_secret: 's', certificate: 'c' }, undefined],
      [{ client_certificate: 'c' }, 'client_id'],
    ] as const) {
      const { error } = read(given);
      assert.deepEqual(error?.issues[0]?.path[0], field, JSON.stringify(given));
    }
  });

  test('are shown without the secret, but to who may have what renews them', () => {
    const stored = {
      ...own,
      token: 'at',
      expires_at: '2026-11-21T09:00:00.000Z',
      raw: { access_token: 'at' },
    };
    const { client_secret: _secret, ...shown } = stored;
    assert.deepEqual(clientCredentials.toWire(stored), shown);
    assert.deepEqual(renewalOf(own).toWireWithSecret(stored), stored);
  });

  test('go to the API as a bearer token, and nowhere before there is one', async (t) => {
    const { definition } = await provider(t, json(granted));
    const { headers } = placeCredentials({ definition, credentials: { ...own, token: 'at' }, values: {} });
    assert.equal(headers.Authorization, 'Bearer at');
    assert.throws(() => placeCredentials({ definition, credentials: own, values: {} }), /lacks a value/);
  });

  test('are not sent with a certificate that has expired', async (t) => {
    const { definition } = await provider(t, json(granted));
    const { cert, key } = makeSelfSigned();
    const credentials = { ...own, token: 'at', client_certificate: cert + key };
    const place = () => placeCredentials({ definition, credentials, values: {} }).clientCertificate;
    assert.equal(place()?.cert.trim(), cert.trim());
    t.mock.timers.enable({ apis: ['Date'], now: Date.now() + 3 * 86_400_000 });
    assert.throws(place, { code: 'connection_needs_reauth', message: /expired on/ });
  });
});
