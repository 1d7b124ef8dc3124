import assert from 'node:assert/strict';
import * as shapes from './shapes.ts';
import { shaped } from './shapes.ts';
import { key, type MethodTests, refusal } from './subject.ts';

const credentials = {
  type: 'OAUTH2',
  client_id: 'the client',
  client_secret: 'the secret of the client',
  scopes: 'openid,email',
} as const;

/** Providers, integrations, and the functions that ship for a provider. */
export const integrationMethods: MethodTests = {
  async listProviders({ client }) {
    const { data } = await client.listProviders({ search: 'google' });
    for (const one of data) shaped(shapes.provider, one);
    const names = data.map(({ name }) => name);
    assert.ok(names.includes('google-drive') && names.includes('google-sheet'));
    assert.deepEqual(
      names.filter((name) => !name.startsWith('google-')),
      [],
    );
    const { data: all } = await client.listProviders({});
    assert.ok(all.length > data.length);
    for (const one of all) shaped(shapes.provider, one);
  },

  async getProvider({ client }) {
    const { data } = await client.getProvider({ provider: 'google-sheet' });
    const read = shaped(shapes.oauthProvider, data);
    assert.deepEqual(
      [read.auth_mode, read.scope_separator, read.token_url],
      ['OAUTH2', ' ', 'https://oauth2.googleapis.com/token'],
    );
    assert.equal(read.authorization_params.response_type, 'code');
    assert.deepEqual(await refusal(client.getProvider({ provider: 'nobody' })), [404, 'not_found']);
  },

  async getProviderTemplates({ client, trellis }) {
    const { data } = await client.getProviderTemplates({ provider: 'google-sheet' });
    const templates = data.map((one) => shaped(shapes.template, one));
    const rows = templates.find(({ name }) => name === 'rows');
    assert.ok(rows?.type === 'sync' && rows.runs.startsWith('every '));
    const { status } = await trellis.call('PUT', `/integrations/${key}/functions/rows/shipped`, {
      body: { type: 'sync' },
    });
    assert.equal(status, 200, 'what is listed can be put on an integration');
    assert.deepEqual((await client.getProviderTemplates({ provider: 'github' })).data, []);
    assert.deepEqual(await refusal(client.getProviderTemplates({ provider: 'nobody' })), [404, 'not_found']);
    await client.deleteFunction({ uniqueKey: key, name: 'rows' }, { type: 'sync' });
  },

  async createIntegration({ client, trellis }) {
    const given = {
      provider: 'google-drive',
      unique_key: 'drive',
      display_name: 'Our Drive',
      credentials,
      forward_webhooks: false,
      custom: { tier: 'one' },
    };
    const { data } = await client.createIntegration(given);
    const made = shaped(shapes.integration, data);
    assert.deepEqual(
      [made.unique_key, made.provider, made.display_name, made.forward_webhooks, made.credentials],
      ['drive', 'google-drive', 'Our Drive', false, undefined],
    );
    const { body } = await trellis.call('GET', '/integrations/drive?include=credentials');
    assert.deepEqual((body.data as { credentials: object }).credentials, {
      ...credentials,
      webhook_secret: null,
    });
    assert.deepEqual(await refusal(client.createIntegration(given)), [400, 'integration_exists']);
    assert.deepEqual(await refusal(client.createIntegration({ ...given, provider: 'nobody' })), [
      400,
      'invalid_body',
    ]);
    const none = client.createIntegration({ provider: 'google-drive', unique_key: 'without' });
    assert.deepEqual(await refusal(none), [400, 'invalid_body']);
  },

  async createQuickstartIntegration({ client }) {
    const body = { provider: 'google-sheet', unique_key: 'quick', display_name: 'Quick' };
    const { data } = await client.createQuickstartIntegration(body);
    assert.equal(shaped(shapes.integration, data).display_name, 'Quick');
    const again = await client.createQuickstartIntegration(body);
    assert.equal(again.data.created_at, data.created_at, 'it is the one that was made');
    await client.deleteIntegration('quick');
  },

  async getIntegration({ client, trellis }) {
    const plain = shaped(
      shapes.integration,
      (await client.getIntegration({ uniqueKey: 'drive' }, { include: [] })).data,
    );
    assert.deepEqual([plain.webhook_url, plain.credentials], [undefined, undefined]);
    const { data: withAddress } = await client.getIntegration(
      { uniqueKey: 'drive' },
      { include: ['webhook'] },
    );
    assert.ok(shaped(shapes.integration, withAddress).webhook_url?.startsWith(`${trellis.baseUrl}/webhook/`));
    const { data } = await client.getIntegration({ uniqueKey: 'drive' }, { include: ['credentials'] });
    assert.equal(shaped(shapes.integration, data).credentials?.client_secret, credentials.client_secret);
    assert.deepEqual(await refusal(client.getIntegration({ uniqueKey: 'nobody' })), [404, 'not_found']);
  },

  async updateIntegration({ client }) {
    const { data } = await client.updateIntegration(
      { uniqueKey: 'drive' },
      { unique_key: 'drive-2', display_name: 'D', forward_webhooks: true, custom: { tier: 'two' } },
    );
    const changed = shaped(shapes.integration, data);
    assert.deepEqual(
      [changed.unique_key, changed.display_name, changed.forward_webhooks, changed.custom],
      ['drive-2', 'D', true, { tier: 'two' }],
    );
    assert.deepEqual(await refusal(client.getIntegration({ uniqueKey: 'drive' })), [404, 'not_found']);
    const { data: touched } = await client.updateIntegration({ uniqueKey: 'drive-2' }, {});
    assert.ok(Date.parse(touched.updated_at) > Date.parse(data.updated_at), 'an empty change is one');
    const used = client.updateIntegration({ uniqueKey: key }, { unique_key: 'other' });
    assert.deepEqual(await refusal(used), [400, 'invalid_body'], 'it has connections');
  },

  async listIntegrations({ client }) {
    const { configs } = await client.listIntegrations();
    for (const one of configs) shaped(shapes.integration, one);
    assert.deepEqual(configs.map(({ unique_key }) => unique_key).sort(), ['drive-2', key, 'private']);
    assert.ok(configs.every((one) => one.credentials === undefined));
  },

  async deleteIntegration({ client }) {
    const answer = await client.deleteIntegration('drive-2');
    assert.deepEqual([answer.status, answer.data], [200, { success: true }]);
    assert.deepEqual(await refusal(client.getIntegration({ uniqueKey: 'drive-2' })), [404, 'not_found']);
    assert.deepEqual(await refusal(client.deleteIntegration('drive-2')), [404, 'not_found']);
  },
};
