import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { Nango } from '@nangohq/node';
import { actionCode, deployBody, flowConfig } from '../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** Every method of the published node client whose route exists, with the brand it expects. */
let trellis: TestTrellis;
let client: Nango;
let connectionId: string;
const key = 'google-sheet';

before(async () => {
  trellis = await openTrellis({ TRELLIS_BRAND: 'nango' });
  client = new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev });
  ({ connectionId } = await connect(trellis));
});
after(() => trellis.close());

/** What a failed call of the client carries. */
async function failure(call: Promise<unknown>): Promise<{ status: number; code: string }> {
  try {
    await call;
  } catch (error) {
    const { response } = error as { response: { status: number; data: { error: { code: string } } } };
    return { status: response.status, code: response.data.error.code };
  }
  throw new Error('the call did not fail');
}

describe('providers and integrations', () => {
  test('listProviders, getProvider', async () => {
    const { data } = await client.listProviders({ search: 'google' });
    const names = data.map(({ name }) => name);
    assert.ok(names.includes('google-drive') && names.includes('google-sheet'));
    assert.deepEqual(
      names.filter((name) => !name.startsWith('google-')),
      [],
    );
    const one = await client.getProvider({ provider: 'google-sheet' });
    assert.equal(one.data.auth_mode, 'OAUTH2');
    assert.deepEqual(await failure(client.getProvider({ provider: 'nobody' })), {
      status: 404,
      code: 'not_found',
    });
  });

  test('createIntegration, getIntegration, updateIntegration, listIntegrations, deleteIntegration', async () => {
    const credentials = {
      type: 'OAUTH2',
      client_id: 'id',
      client_secret: 'secret',
      scopes: 'openid,email',
    } as const;
    const made = await client.createIntegration({
      provider: 'google-drive',
      unique_key: 'drive',
      credentials,
    });
    assert.equal(made.data.unique_key, 'drive');
    const shown = await client.getIntegration(
      { uniqueKey: 'drive' },
      { include: ['webhook', 'credentials'] },
    );
    assert.deepEqual(shown.data.credentials, { ...credentials, webhook_secret: null });
    const renamed = await client.updateIntegration(
      { uniqueKey: 'drive' },
      { unique_key: 'drive-2', display_name: 'D' },
    );
    assert.equal(renamed.data.display_name, 'D');
    const { configs } = await client.listIntegrations();
    assert.deepEqual(configs.map(({ unique_key }) => unique_key).sort(), ['drive-2', key]);
    assert.deepEqual((await client.deleteIntegration('drive-2')).data, { success: true });
    assert.equal((await failure(client.getIntegration({ uniqueKey: 'drive-2' }))).status, 404);
  });

  test('createQuickstartIntegration', async () => {
    const body = { provider: 'google-sheet', unique_key: 'quick' };
    assert.equal((await client.createQuickstartIntegration(body)).data.unique_key, 'quick');
    assert.equal((await client.createQuickstartIntegration(body)).data.unique_key, 'quick');
  });
});

test('getEnvironmentVariables', async () => {
  assert.deepEqual(await client.getEnvironmentVariables(), []);
  const variables = [{ name: 'API_BASE', value: 'https://api.example.com' }];
  await trellis.call('PUT', '/environment-variables', { body: { variables } });
  assert.deepEqual(await client.getEnvironmentVariables(), variables);
});

describe('connections', () => {
  test('listConnections by each filter', async () => {
    const ids = async (filter: Parameters<Nango['listConnections']>[0]) =>
      (await client.listConnections(filter as never)).connections.map(({ connection_id }) => connection_id);
    assert.deepEqual(await ids({ connectionId } as never), [connectionId]);
    assert.deepEqual(await ids({ userId: 'ada', integrationId: [key] } as never), [connectionId]);
    assert.deepEqual(await ids({ tags: { End_User_Id: 'ada' } } as never), [connectionId]);
    assert.deepEqual(await ids({ tags: { end_user_id: 'bob' } } as never), []);
    assert.deepEqual(await ids({ search: connectionId.slice(0, 8), limit: 1 } as never), [connectionId]);
  });

  test('getConnection, getToken, getRawTokenResponse', async () => {
    const connection = await client.getConnection(key, connectionId);
    assert.equal(connection.credentials.type, 'OAUTH2');
    assert.ok(!JSON.stringify(connection).includes('refresh_token"'), 'no refresh token unless asked for');
    const token = await client.getToken(key, connectionId);
    assert.match(String(token), /^ya29\./);
    const forced = await client.getToken(key, connectionId, true);
    assert.notEqual(forced, token);
    const raw = (await client.getRawTokenResponse(key, connectionId)) as { access_token: string };
    assert.equal(raw.access_token, forced);
    const renewable = await client.getConnection(key, connectionId, false, true);
    assert.ok('refresh_token' in renewable.credentials && renewable.credentials.refresh_token);
    assert.deepEqual(await failure(client.getConnection(key, 'nobody')), { status: 404, code: 'not_found' });
  });

  test('setMetadata replaces, updateMetadata merges, getMetadata reads', async () => {
    assert.equal((await client.setMetadata(key, connectionId, { a: 1, b: { c: 1 } })).status, 201);
    assert.equal((await client.updateMetadata(key, connectionId, { b: { d: 2 } })).status, 200);
    assert.deepEqual(await client.getMetadata(key, connectionId), { a: 1, b: { d: 2 } });
    const missing = client.setMetadata(key, [connectionId, 'nobody'], { z: 1 });
    assert.deepEqual(await failure(missing), { status: 404, code: 'unknown_connection' });
    assert.deepEqual(await client.getMetadata(key, connectionId), { a: 1, b: { d: 2 } });
  });

  test('patchConnection', async () => {
    await client.patchConnection({ connectionId, provider_config_key: key }, { tags: { Team: 'x' } });
    assert.deepEqual((await client.getConnection(key, connectionId)).tags, { team: 'x' });
    await client.patchConnection(
      { connectionId, provider_config_key: key },
      { tags: { end_user_id: 'ada' } },
    );
  });

  test('createConnectSession, createReconnectSession', async () => {
    const session = await client.createConnectSession({ end_user: { id: 'bob', email: 'bob@example.com' } });
    assert.match(session.data.token, /^nango_connect_session_[0-9a-f]{64}$/);
    assert.ok(session.data.connect_link.includes(session.data.token));
    const again = await client.createReconnectSession({ connection_id: connectionId, integration_id: key });
    assert.notEqual(again.data.token, session.data.token);
  });

  test('deleteConnection', async () => {
    const { connectionId: other } = await connect(trellis, { account: 'grace@example.com' });
    assert.deepEqual((await client.deleteConnection(key, other)).data, {
      success: true,
      revocation: 'done',
    });
    assert.deepEqual(await failure(client.deleteConnection(key, other)), {
      status: 400,
      code: 'unknown_connection',
    });
  });
});

describe('records', () => {
  const at = {
    providerConfigKey: key,
    get connectionId() {
      return connectionId;
    },
    model: 'Airport',
  };

  test('listRecords, pruneRecords', async () => {
    await trellis.call('POST', '/records', {
      headers: { 'connection-id': connectionId, 'provider-config-key': key },
      body: {
        model: 'Airport',
        records: [
          { id: 1, city: 'Oslo' },
          { id: 2, city: 'Rome' },
          { id: 3, city: 'Bonn' },
        ],
      },
    });
    const all = await client.listRecords<{ id: string; city: string }>(at);
    assert.deepEqual(
      all.records.map(({ id, city }) => [id, city]),
      [
        ['1', 'Oslo'],
        ['2', 'Rome'],
        ['3', 'Bonn'],
      ],
    );
    assert.equal(all.next_cursor, null);
    const first = await client.listRecords({ ...at, limit: 1 });
    const rest = await client.listRecords({ ...at, cursor: first.next_cursor });
    assert.deepEqual(
      rest.records.map(({ id }) => id),
      ['2', '3'],
    );
    assert.deepEqual(
      (await client.listRecords({ ...at, ids: ['3', '1'] })).records.map(({ id }) => id),
      ['1', '3'],
    );
    const untilCursor = all.records[1]!._nango_metadata.cursor;
    assert.deepEqual(await client.pruneRecords({ ...at, untilCursor, limit: 1 }), {
      count: 1,
      has_more: true,
    });
    assert.deepEqual(await client.pruneRecords({ ...at, untilCursor }), { count: 1, has_more: false });
    const [pruned] = (await client.listRecords(at)).records;
    assert.ok(pruned?._nango_metadata.pruned_at);
    assert.deepEqual(Object.keys(pruned).sort(), ['_nango_metadata', 'id']);
  });
});

describe('proxy', () => {
  test('get, post, put, patch and delete pass on what is given and return what the provider answers', async () => {
    const at = { providerConfigKey: key, connectionId };
    const made = await client.post({
      ...at,
      endpoint: '/v4/spreadsheets',
      data: { properties: { title: 'T' } },
    });
    const { spreadsheetId } = made.data as { spreadsheetId: string };
    const values = `/v4/spreadsheets/${spreadsheetId}/values/A1:B2`;
    const put = await client.put({
      ...at,
      endpoint: values,
      params: { valueInputOption: 'RAW' },
      data: {
        values: [
          ['a', 'b'],
          ['c', 'd'],
        ],
      },
      headers: { 'X-Custom': 'yes' },
    });
    assert.equal((put.data as { updatedCells: number }).updatedCells, 4);
    const got = await client.get({ ...at, endpoint: values, retries: 2 });
    assert.deepEqual((got.data as { values: string[][] }).values, [
      ['a', 'b'],
      ['c', 'd'],
    ]);
    for (const method of ['patch', 'delete'] as const) {
      const answer = client[method]({ ...at, endpoint: values });
      await assert.rejects(
        answer,
        (error: { response: { status: number } }) => error.response.status === 404,
      );
    }
    const unknown = client.get({ ...at, connectionId: 'nobody', endpoint: values });
    await assert.rejects(unknown, (error: { response: { status: number } }) => error.response.status === 400);
  });
});

test('waitForConnection finds a connection that is there', async () => {
  const found = await client.waitForConnection(key, 'ada');
  assert.equal((found as { connection_id: string }).connection_id, connectionId);
});

test('triggerAction, triggerActionAsync, getAsyncActionResult', async () => {
  const code = actionCode();
  const fails = actionCode({ more: 'exec: async (nango) => { throw new nango.ActionError({ sku: 7 }); },' });
  const flows = [flowConfig({ name: 'double', code }), flowConfig({ name: 'fails', code: fails })];
  const deployed = await trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(deployed.status, 200, deployed.text);
  assert.deepEqual(await client.triggerAction(key, connectionId, 'double', { n: 21 }), { n: 42 });
  assert.deepEqual(await failure(client.triggerAction(key, connectionId, 'fails', { n: 1 })), {
    status: 500,
    code: 'action_script_runtime_error',
  });
  assert.deepEqual(await failure(client.triggerAction(key, connectionId, 'none', {})), {
    status: 404,
    code: 'not_found',
  });
  const queued = await client.triggerActionAsync(key, connectionId, 'double', { n: 4 });
  for (let left = 200; ; left--) {
    const answer = await client
      .getAsyncActionResult<object>({ statusUrl: queued.statusUrl })
      .catch((error) => {
        if (left === 0 || (error as { response: { status: number } }).response.status !== 404) throw error;
        return undefined;
      });
    if (answer !== undefined) {
      assert.deepEqual(answer, { n: 8 });
      break;
    }
    await pause(50);
  }
  assert.deepEqual(await client.getAsyncActionResult<object>({ id: queued.id }), { n: 8 });
});
