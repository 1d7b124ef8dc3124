import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { RefreshNode } from '../../test/support/refresh-node.ts';
import type { OAuth2Credentials } from '../auth-modes/oauth2-credentials.ts';
import { importConnection } from './import.ts';
import { codeOf, hour, name, refreshTests } from './refresh/refresh.fixture.ts';

/** Imports the tokens of a connection, with a provider that accepts each refresh token once. */
const t = refreshTests();

const site = { title: 'Site', description: 'The host.', required: true, secret: false, max_length: 63 };

async function importTokens(
  node: RefreshNode,
  credentials: OAuth2Credentials,
  connectionConfig: Record<string, unknown> = {},
) {
  const { integration: found, environmentId, connectionId } = await node.live(name);
  const integration = { ...found, provider: { ...found.provider, connection_config: { site } } };
  return t().bench.db.transaction((tx) =>
    importConnection(tx, {
      caller: { kind: 'key', environmentId, environment: 'dev', keyId: 1, scopes: new Set(['*']) },
      integration,
      id: connectionId,
      reading: node.reading,
      given: {
        credentials,
        connectionConfig,
        grant: {},
        metadata: { told: 'twice' },
        tags: {},
        at: t().now(),
      },
    }),
  );
}
const stored = async (node: RefreshNode) => (await node.live(name)).credentials as OAuth2Credentials;

describe('a refresh token that is imported once more', () => {
  test('after the provider has replaced it leaves its living successor where it is', async () => {
    await t().open('single_use');
    const node = t().node();
    const first = await stored(node);
    const { grantedAt } = await node.live(name);
    const second = await t().fresh(node);
    assert.notEqual(second.refresh_token, first.refresh_token);
    const imported = await importTokens(node, first);
    assert.deepEqual(imported.credentials, second);
    assert.deepEqual([imported.grantedAt, imported.metadata], [grantedAt, { told: 'twice' }]);
    assert.equal(imported.accessExpiresAt?.toISOString(), second.expires_at);
    t().time += 2 * hour;
    assert.equal(await codeOf(t().fresh(node)), 'success');
    assert.deepEqual(await t().bench.stateOf(name), { status: 'active', cause: null });
  });

  test('does not move its successor to another host', async () => {
    await t().open('single_use');
    const node = t().node();
    const first = await stored(node);
    await importTokens(node, first, { site: 'ada', note: 1 });
    const second = await t().fresh(node);
    const imported = await importTokens(node, first, { site: 'mallory', other: 2 });
    assert.deepEqual(imported.credentials, second);
    assert.deepEqual(imported.connectionConfig, { site: 'ada', other: 2 });
  });

  test('leaves the successor too where the connection was dead, which is then tried once more', async () => {
    await t().open('single_use');
    const node = t().node();
    const first = await stored(node);
    const second = await t().fresh(node);
    await t().bench.db.query("update connection set status = 'needs_reauth'");
    const imported = await importTokens(node, first);
    assert.deepEqual([imported.status, imported.credentials], ['active', second]);
  });

  test('but is another one than those that are known begins a grant of its own', async () => {
    await t().open('single_use');
    const node = t().node();
    await t().fresh(node);
    const { grantedAt } = await node.live(name);
    t().time += hour;
    const given = { type: 'OAUTH2', access_token: 'a', refresh_token: 'of another grant', raw: {} } as const;
    const imported = await importTokens(node, given);
    assert.deepEqual(imported.credentials, given);
    assert.ok(imported.grantedAt > grantedAt);
    assert.deepEqual(await t().bench.db.query('select 1 from connection where kept_tokens is not null'), []);
  });
});

test('an access token alone, imported over another, is not taken for the account of the one before', async () => {
  await t().open('single_use');
  const node = t().node();
  const given = { type: 'OAUTH2', access_token: 'a', raw: {} } as const;
  await importTokens(node, given);
  await t().bench.db.query("update connection set account_id = 'ada', account_email = 'ada@example.com'");
  const imported = await importTokens(node, { ...given, access_token: 'b' });
  assert.equal(imported.account, undefined);
});
