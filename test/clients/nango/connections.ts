import assert from 'node:assert/strict';
import type { Nango } from '@nangohq/node';
import { connect, visit } from '../../support/trellis.ts';
import * as shapes from './shapes.ts';
import { shaped } from './shapes.ts';
import { failure, key, type MethodTests, type NodeSubject, refusal } from './subject.ts';

/** Connections, their credentials and metadata. */
export const connectionMethods: MethodTests = {
  async listConnections({ client, connectionId, privatePlace }) {
    const { connections } = await client.listConnections();
    for (const one of connections) shaped(shapes.listedConnection, one);
    assert.deepEqual(
      connections.map(({ connection_id }) => connection_id),
      [privatePlace.connectionId, connectionId],
      'newest first',
    );
    assert.equal(connections[1]?.end_user?.id, 'ada');
    const ids = async (...given: unknown[]) =>
      (
        await (client.listConnections as (...given: unknown[]) => ReturnType<Nango['listConnections']>)(
          ...given,
        )
      ).connections.map(({ connection_id }) => connection_id);
    assert.deepEqual(await ids({ connectionId }), [connectionId]);
    assert.deepEqual(await ids({ userId: 'ada', integrationId: [key, 'private'] }), [connectionId]);
    assert.deepEqual(await ids({ integrationId: 'private' }), [privatePlace.connectionId]);
    assert.deepEqual(await ids({ tags: { End_User_Id: 'ada' } }), [connectionId]);
    assert.deepEqual(await ids({ tags: { end_user_id: 'bob' } }), []);
    assert.deepEqual(await ids({ tags: { email: 'ada@example.com' } }), []);
    assert.deepEqual(await ids({ limit: 1 }), [privatePlace.connectionId]);
    assert.deepEqual(await ids({ limit: 1, page: 1 }), [connectionId]);
    // The older form: an ID, a part of one, and the rest.
    assert.deepEqual(await ids(connectionId), [connectionId]);
    assert.deepEqual(await ids(undefined, connectionId.slice(0, 8)), [connectionId]);
    assert.deepEqual(await ids(undefined, undefined, { endUserId: 'ada', limit: 1 }), [connectionId]);
    assert.deepEqual(await ids(undefined, undefined, { endUserOrganizationId: 'nobody' }), []);
  },

  async getConnection({ client, trellis, connectionId, privatePlace }) {
    const found = shaped(shapes.connection, await client.getConnection(key, connectionId));
    assert.deepEqual(
      [found.connection_id, found.provider_config_key, found.provider, found.errors],
      [connectionId, key, 'google-sheet', []],
    );
    shaped(shapes.oauth2Credentials, found.credentials);
    assert.ok(!JSON.stringify(found).includes('refresh_token"'), 'no refresh token unless asked for');
    const renewable = await client.getConnection(key, connectionId, false, true);
    const { refresh_token: token } = shaped(shapes.oauth2Credentials, renewable.credentials);
    assert.equal(typeof token, 'string');
    const [row] = await trellis.db.query<{ at: Date }>(
      'select last_fetched_at as at from connection where connection_id = $1',
      [connectionId],
    );
    assert.ok(row && Date.now() - row.at.getTime() < 60_000, 'each reading is noted');
    const { credentials } = await client.getConnection(
      privatePlace.providerConfigKey,
      privatePlace.connectionId,
    );
    assert.deepEqual(credentials, { type: 'API_KEY', apiKey: 'the key of the provider' });
    assert.deepEqual(await refusal(client.getConnection(key, 'nobody')), [404, 'not_found']);
    assert.deepEqual(await refusal(client.getConnection('nobody', connectionId)), [
      400,
      'unknown_provider_config',
    ]);
  },

  async getToken({ client, connectionId, privatePlace }) {
    const token = await client.getToken(key, connectionId);
    assert.match(String(token), /^ya29\./);
    assert.equal(await client.getToken(key, connectionId), token, 'one that lives is not renewed');
    const forced = await client.getToken(key, connectionId, true);
    assert.match(String(forced), /^ya29\./);
    assert.notEqual(forced, token);
    const ofKey = await client.getToken(privatePlace.providerConfigKey, privatePlace.connectionId);
    assert.deepEqual(ofKey, { type: 'API_KEY', apiKey: 'the key of the provider' });
  },

  async getRawTokenResponse({ client, connectionId }) {
    const raw = await client.getRawTokenResponse<{ access_token: string; token_type: string }>(
      key,
      connectionId,
    );
    assert.deepEqual(
      [raw.access_token, raw.token_type],
      [await client.getToken(key, connectionId), 'Bearer'],
    );
    assert.ok(!('refresh_token' in raw));
  },

  async setMetadata({ client, connectionId }) {
    const answer = await client.setMetadata(key, connectionId, { a: 1, b: { c: 1 } });
    assert.equal(answer.status, 201);
    assert.deepEqual(answer.data, {
      metadata: { a: 1, b: { c: 1 } },
      connection_id: connectionId,
      provider_config_key: key,
      integration_id: key,
    });
    assert.equal((await client.setMetadata(key, [connectionId], { z: 1 })).status, 201);
    assert.deepEqual(await client.getMetadata(key, connectionId), { z: 1 }, 'it takes the place of all');
    const one = client.setMetadata(key, [connectionId, 'nobody'], { y: 1 });
    assert.deepEqual(await refusal(one), [404, 'unknown_connection']);
    assert.deepEqual(await client.getMetadata(key, connectionId), { z: 1 }, 'all or none');
  },

  async updateMetadata({ client, connectionId }) {
    await client.setMetadata(key, connectionId, { a: 1, b: { c: 1 } });
    const answer = await client.updateMetadata(key, connectionId, { b: { d: 2 } });
    assert.deepEqual(
      [answer.status, answer.data.metadata],
      [200, { b: { d: 2 } }],
      'what was sent comes back',
    );
    assert.deepEqual(await client.getMetadata(key, connectionId), { a: 1, b: { d: 2 } }, 'one level deep');
    const one = client.updateMetadata(key, 'nobody', { y: 1 });
    assert.deepEqual(await refusal(one), [404, 'unknown_connection']);
  },

  async getMetadata({ client, connectionId }) {
    await client.setMetadata(key, connectionId, {});
    assert.deepEqual(await client.getMetadata(key, connectionId), {});
    assert.deepEqual(await refusal(client.getMetadata(key, 'nobody')), [404, 'not_found']);
  },

  async patchConnection({ client, connectionId }) {
    const at = { connectionId, provider_config_key: key };
    const before = await client.getConnection(key, connectionId);
    const answer = await client.patchConnection(at, {
      tags: { Team: 'x' },
      end_user: { id: 'bob', email: 'bob@example.com', display_name: 'Bob', tags: { plan: 'free' } },
      webhook_url_override: 'http://127.0.0.1:1/hook',
    });
    assert.deepEqual(answer, { success: true });
    const found = shaped(shapes.connection, await client.getConnection(key, connectionId));
    assert.deepEqual(found.tags, { team: 'x' });
    assert.deepEqual(found.end_user, {
      id: 'bob',
      email: 'bob@example.com',
      display_name: 'Bob',
      tags: { plan: 'free' },
      organization: null,
    });
    assert.equal(found.webhook_url_override, 'http://127.0.0.1:1/hook');
    await client.patchConnection(at, {
      tags: before.tags,
      end_user: { id: 'ada' },
      webhook_url_override: '',
    });
    const after = await client.getConnection(key, connectionId);
    assert.deepEqual([after.tags, after.webhook_url_override], [before.tags, null]);
    const nobody = client.patchConnection({ ...at, connectionId: 'nobody' }, { tags: {} });
    assert.deepEqual(await refusal(nobody), [404, 'not_found']);
    const wrong = await failure(client.patchConnection(at, { tags: { end_user_email: 'none' } }));
    assert.deepEqual(
      [wrong.status, wrong.code, wrong.errors?.[0]?.path],
      [400, 'invalid_body', ['tags', 'end_user_email']],
    );
  },

  async waitForConnection({ client, connectionId }) {
    const found = await client.waitForConnection(key, 'ada');
    assert.equal(shaped(shapes.listedConnection, found).connection_id, connectionId);
    // It would ask again in ten seconds.
    const nobody = client.waitForConnection(key, 'nobody', { signal: AbortSignal.timeout(500) });
    await assert.rejects(nobody, /aborted/);
  },

  async deleteConnection({ client, trellis }) {
    const { connectionId } = await connect(trellis, { account: 'grace@example.com' });
    const answer = await client.deleteConnection(key, connectionId);
    assert.deepEqual([answer.status, answer.data], [200, { success: true, revocation: 'done' }]);
    assert.deepEqual((await client.listConnections({ connectionId })).connections, []);
    assert.deepEqual(await refusal(client.deleteConnection(key, connectionId)), [400, 'unknown_connection']);
  },

  async createConnectSession(subject) {
    const { client } = subject;
    const { data } = shaped(
      shapes.session,
      await client.createConnectSession({
        end_user: { id: 'bob', email: 'bob@example.com', display_name: 'Bob', tags: { plan: 'free' } },
        organization: { id: 'acme', display_name: 'Acme' },
        tags: { project: 'blue' },
        allowed_integrations: [key],
        integrations_config_defaults: {
          [key]: {
            user_scopes: 'openid,email',
            authorization_params: { prompt: 'consent' },
            connection_config: {},
          },
        },
        overrides: { [key]: { docs_connect: 'https://example.com/help' } },
        webhook_url_override: 'http://127.0.0.1:1/hook',
      }),
    );
    assert.ok(data.connect_link.endsWith(`?session_token=${data.token}`));
    const lifeMs = Date.parse(data.expires_at) - Date.now();
    assert.ok(lifeMs > 25 * 60_000 && lifeMs <= 30 * 60_000);
    const { asked, made } = await walk(subject, { token: data.token, account: 'grace@example.com' });
    assert.deepEqual([asked.get('scope'), asked.get('prompt')], ['openid email', 'consent']);
    const { end_user, tags, webhook_url_override } = await client.getConnection(key, made);
    assert.deepEqual(end_user, {
      id: 'bob',
      email: 'bob@example.com',
      display_name: 'Bob',
      tags: { plan: 'free' },
      organization: { id: 'acme', display_name: 'Acme' },
    });
    assert.equal(tags.project, 'blue');
    assert.equal(webhook_url_override, 'http://127.0.0.1:1/hook');
    await client.deleteConnection(key, made);
    shaped(shapes.session, await client.createConnectSession({ tags: {} }));
    const unknown = await failure(
      client.createConnectSession({ end_user: { id: 'bob' }, allowed_integrations: ['nobody'] }),
    );
    assert.deepEqual(
      [unknown.status, unknown.code, unknown.errors?.[0]?.path],
      [400, 'invalid_body', ['allowed_integrations', '0']],
    );
    assert.deepEqual(await refusal(client.createConnectSession({} as never)), [400, 'invalid_body']);
  },

  async createReconnectSession(subject) {
    const { client, connectionId } = subject;
    const before = await client.getToken(key, connectionId);
    const { data } = shaped(
      shapes.session,
      await client.createReconnectSession({ connection_id: connectionId, integration_id: key }),
    );
    const { made } = await walk(subject, { token: data.token, account: 'ada@example.com' });
    assert.equal(made, connectionId);
    assert.notEqual(await client.getToken(key, connectionId), before);
    const unknown = client.createReconnectSession({ connection_id: 'nobody', integration_id: key });
    assert.deepEqual(await refusal(unknown), [400, 'invalid_body']);
  },
};

/** A browser takes the trip with this token, and this account consents: what it was asked, and what came of it. */
async function walk(
  { trellis }: NodeSubject,
  { token, account }: { token: string; account: string },
): Promise<{ asked: URLSearchParams; made: string }> {
  const address = `${trellis.baseUrl}/oauth/connect/${key}?connect_session_token=${token}`;
  const begun = await visit(trellis, address);
  const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const url = begun.headers.get('location') ?? '';
  const { redirect } = await trellis.control('POST', 'authorize', { url, account });
  const landed = await visit(trellis, String(redirect), cookie.join('; '));
  assert.equal(landed.status, 200, landed.text);
  const { body } = await trellis.call('GET', '/connect/session/progress', { key: token });
  const { connection } = body.data as { connection: { connection_id: string } };
  return { asked: new URL(url).searchParams, made: connection.connection_id };
}
