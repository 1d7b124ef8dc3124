import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import type { Credentials } from '../auth-modes/modes.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { AppError } from '../errors.ts';
import type { Integration } from '../integrations/store.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { readImported, tryImported } from './import.ts';
import type { GrantFacts } from './store/save.ts';

const now = new Date('2026-11-21T09:00:00Z');
const oauth = { type: 'OAUTH2', access_token: 'a-token', raw: {} } as const;
const renewable = { ...oauth, refresh_token: 'r' } as const;
const key = { type: 'API_KEY', apiKey: 'a-key' } as const;
const integrationOf = (provider: string, more: Partial<Integration> = {}) =>
  ({
    provider: catalog.get(provider),
    integrationConfig: { base_url: 'https://api.example.com', verification_path: 'me' },
    ...more,
  }) as unknown as Integration;

/** The stored credentials or the error, the verdict on the integration's client, and the number of calls, if the provider answers with this status. */
async function importOf(
  credentials: Credentials,
  {
    status = 200,
    integration,
    token,
  }: { status?: number | 'none'; integration: Integration; token?: object },
) {
  const calls: string[] = [];
  const said: string[] = [];
  const fetch: Fetch = async (url) => {
    calls.push(url);
    if (status === 'none') throw new TypeError('fetch failed');
    return new Response(token === undefined ? null : JSON.stringify(token), { status });
  };
  const given = { integration, credentials, connectionConfig: {} };
  const onClientResult = async (fault?: TokenFault) => void said.push(fault?.error ?? 'accepted');
  const tried = tryImported(given, { fetch, now, onClientResult });
  const outcome = await tried.then(
    ({ credentials }) => credentials,
    (error: AppError) => error,
  );
  const { grant } = await tried.catch((): { grant: GrantFacts } => ({ grant: {} }));
  return { outcome, grant, calls, said };
}

for (const [name, credentials, integration, refusals] of [
  ['an OAuth token', oauth, integrationOf('google-drive'), [401]],
  ['a key', key, integrationOf('private-api-key'), [401, 403]],
] as const) {
  describe(`the import of ${name}`, () => {
    for (const status of [200, 302, 401, 403, 404, 429, 500, 'none'] as const) {
      const isRefused = (refusals as readonly unknown[]).includes(status);
      test(`${isRefused ? 'is refused by' : 'continues after'} ${status}, tried once`, async () => {
        const { outcome, grant, calls } = await importOf(credentials, { status, integration });
        if (isRefused) assert.equal((outcome as AppError).code, 'connection_test_failed');
        else assert.deepEqual(outcome, credentials);
        if (!isRefused) assert.equal(grant.isUnverified, status !== 200);
        assert.equal(calls.length, 1);
      });
    }
  });
}

test('an OAuth token that has ended is not tried, so that its refresh token is not spent', async () => {
  const ended = { ...renewable, expires_at: '2026-11-21T08:59:59.000Z' };
  const { outcome, calls } = await importOf(ended, {
    status: 401,
    integration: integrationOf('google-drive'),
  });
  assert.deepEqual([outcome, calls], [ended, []]);
});

test('an OAuth token that is refused beside a refresh token is due, and its refresh token is not spent', async () => {
  for (const expires_at of [undefined, '2026-11-21T12:00:00.000Z']) {
    const stale = { ...renewable, ...(expires_at && { expires_at }) };
    const { outcome, calls } = await importOf(stale, {
      status: 401,
      integration: integrationOf('google-drive'),
    });
    assert.deepEqual(outcome, { ...renewable, expires_at: now.toISOString() });
    assert.equal(calls.length, 1);
  }
});

for (const [what, verification, isUnverified] of [
  ['that a call tests is verified', { method: 'GET', path: '/me' }, false],
  ['that nothing tests is unverified', undefined, true],
] as const) {
  test(`a token that the service signs itself and ${what}`, async () => {
    const provider = {
      ...catalog.get('ghost-admin'),
      api: { ...catalog.get('ghost-admin').api, base_url: 'https://api.example.com' },
      verification,
    };
    const credentials = { type: 'JWT', privateKey: `abcd:${'0f'.repeat(32)}`, raw: {} } as const;
    const { outcome, grant } = await importOf(credentials, {
      integration: integrationOf('ghost-admin', { provider: provider as Integration['provider'] }),
    });
    assert.match((outcome as { token: string }).token, /^ey/);
    assert.equal(grant.isUnverified, isUnverified);
  });
}

describe("an import for the integration's client", () => {
  const integration = integrationOf('private-client-credentials', {
    client: { clientId: 'i', clientSecret: 's' },
    integrationConfig: { base_url: 'https://api.example.com', token_url: 'https://api.example.com/token' },
  });
  const none = { type: 'OAUTH2_CC', raw: {} } as const;
  const token = { access_token: 'at', token_type: 'bearer', expires_in: 600, scope: 'a b' };

  test('stores the grant of the token response, and reports that the client is accepted', async () => {
    const { grant, said } = await importOf(none, { integration, token });
    const accessExpiresAt = new Date(now.getTime() + 600_000);
    assert.deepEqual(
      [grant, said],
      [{ account: undefined, isUnverified: false, accessExpiresAt, scopesGranted: ['a', 'b'] }, ['accepted']],
    );
  });

  test("that is refused reports the client's fault", async () => {
    const { outcome, said } = await importOf(none, {
      status: 401,
      integration,
      token: { error: 'invalid_client' },
    });
    assert.deepEqual([(outcome as AppError).code, said], ['integration_misconfigured', ['invalid_client']]);
  });

  test('reports nothing if another client is used, or none', async () => {
    const own = { ...none, client_id: 'own', client_secret: 'its' };
    assert.deepEqual((await importOf(own, { integration, token })).said, []);
    const brought = { ...none, token: 't', expires_at: '2026-11-21T12:00:00.000Z' };
    const { calls, said } = await importOf(brought, { integration, token });
    assert.deepEqual([calls, said], [[], []]);
  });
});

test('a configuration that the address of the API lacks is named', async () => {
  const verification = { method: 'GET', path: '/me' } as const;
  const provider = { ...catalog.get('zendesk'), verification };
  const { outcome, calls } = await importOf(oauth, { integration: integrationOf('zendesk', { provider }) });
  const { code, errors } = outcome as AppError;
  assert.equal(code, 'invalid_body');
  assert.deepEqual(errors?.[0]?.path, ['connection_config', 'subdomain']);
  assert.deepEqual(calls, []);
});

test('a client is needed where the integration has none, and not where it has one', () => {
  const integration = integrationOf('private-client-credentials');
  assert.throws(
    () => readImported(integration, { type: 'OAUTH2_CC' }),
    ({ code, errors }: AppError) =>
      code === 'invalid_body' &&
      errors?.map(({ path }) => path.join('.')).join() === 'credentials.client_id,credentials.client_secret',
  );
  const client = { clientId: 'i', clientSecret: 's' };
  const read = readImported({ ...integration, client }, { type: 'OAUTH2_CC' });
  assert.deepEqual(read, { type: 'OAUTH2_CC', raw: {} });
});
