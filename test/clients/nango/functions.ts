import assert from 'node:assert/strict';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig, syncCode } from '../../support/functions.ts';
import * as shapes from './shapes.ts';
import { shaped } from './shapes.ts';
import { failure, key, type MethodTests, refusal } from './subject.ts';

/** Deployed functions, and actions. */
export const functionMethods: MethodTests = {
  async listFunctions({ client }) {
    const { data, pagination } = await client.listFunctions({ uniqueKey: key });
    for (const one of data) shaped(shapes.deployedFunction, one);
    assert.deepEqual(
      data.map(({ type, name }) => `${type} ${name}`),
      ['action double', 'action fails', 'sync things'],
    );
    assert.deepEqual(pagination, { total: 3, page: 0, limit: 20 });
    const page = await client.listFunctions({ uniqueKey: key }, { type: 'action', limit: 1, page: 1 });
    assert.deepEqual(
      [page.data.map(({ name }) => name), page.pagination],
      [['fails'], { total: 2, page: 1, limit: 1 }],
    );
    const found = await client.listFunctions({ uniqueKey: key }, { search: 'thin' });
    assert.deepEqual(
      found.data.map(({ name }) => name),
      ['things'],
    );
    assert.deepEqual(await refusal(client.listFunctions({ uniqueKey: 'nobody' })), [404, 'not_found']);
  },

  async getFunction({ client }) {
    const { data: action } = await client.getFunction({ uniqueKey: key, name: 'double' });
    shaped(shapes.deployedFunction, action);
    assert.ok(action.type === 'action');
    assert.deepEqual([action.enabled, action.input, action.returns], [true, 'DoubleInput', ['DoubleOutput']]);
    const { data: sync } = await client.getFunction({ uniqueKey: key, name: 'things' }, { type: 'sync' });
    shaped(shapes.deployedFunction, sync);
    assert.ok(sync.type === 'sync');
    assert.deepEqual([sync.runs, sync.auto_start, sync.returns], ['every hour', false, ['Thing']]);
    assert.deepEqual(await refusal(client.getFunction({ uniqueKey: key, name: 'none' })), [404, 'not_found']);
  },

  async getFunctionCode({ client }) {
    const code = await client.getFunctionCode({ uniqueKey: key, name: 'double' }, { type: 'action' });
    assert.deepEqual(code, { type: 'action', code: '// as it was written' });
    const none = client.getFunctionCode({ uniqueKey: key, name: 'none' });
    assert.deepEqual(await refusal(none), [404, 'not_found']);
  },

  async getScriptsConfig({ client }) {
    const all = await client.getScriptsConfig();
    assert.ok(Array.isArray(all));
    const [{ providerConfigKey, provider, syncs, actions } = assert.fail()] = all.map((one) =>
      shaped(shapes.config, one),
    );
    assert.deepEqual([providerConfigKey, provider], [key, 'google-sheet']);
    assert.deepEqual(
      [syncs, actions].map((kind) => kind.map(({ name, runs }) => [name, runs])),
      [
        [['things', 'every hour']],
        [
          ['double', null],
          ['fails', null],
        ],
      ],
    );
    const tools = await client.getScriptsConfig('openai');
    assert.ok('data' in tools);
    const [first] = tools.data.map((one) => shaped(shapes.tool, one));
    assert.deepEqual([first?.name, first?.parameters.required], ['double', ['n']]);
  },

  async deleteFunction({ client, trellis }) {
    const both = [
      flowConfig({ name: 'twice', code: actionCode() }),
      flowConfig({ name: 'twice', code: syncCode({ more: 'autoStart: false,' }), type: 'sync' }),
    ];
    const { status, text } = await trellis.call('POST', '/sync/deploy', {
      body: deployBody(both, { reconcile: false }),
    });
    assert.equal(status, 200, text);
    const at = { uniqueKey: key, name: 'twice' };
    assert.deepEqual(await refusal(client.getFunction(at)), [409, 'ambiguous_function']);
    const answer = await client.deleteFunction(at, { type: 'action' });
    assert.deepEqual(answer.data, { success: true });
    assert.equal((await client.getFunction(at)).data.type, 'sync', 'the other one stays');
    await client.deleteFunction(at, { type: 'sync' });
    assert.deepEqual(await refusal(client.deleteFunction(at, { type: 'sync' })), [404, 'not_found']);
  },

  async triggerAction({ client, connectionId }) {
    assert.deepEqual(await client.triggerAction(key, connectionId, 'double', { n: 21 }), { n: 42 });
    const thrown = await client.triggerAction(key, connectionId, 'fails', { n: 1 }).catch(bodyOf);
    assert.deepEqual(thrown, {
      error: {
        code: 'action_script_runtime_error',
        message: (thrown as { error: { message: string } }).error.message,
        payload: { sku: 7 },
      },
    });
    const none = client.triggerAction(key, connectionId, 'none', {});
    assert.deepEqual(await refusal(none), [404, 'not_found']);
    assert.deepEqual(await refusal(client.triggerAction(key, 'nobody', 'double', { n: 1 })), [
      400,
      'unknown_connection',
    ]);
    const unfit = await failure(client.triggerAction(key, connectionId, 'double', { n: 'one' }));
    assert.deepEqual([unfit.status, unfit.code], [400, 'invalid_action_input']);
    assert.deepEqual(unfit.errors?.[0]?.path, ['input', 'n']);
  },

  async triggerActionAsync({ client, connectionId }) {
    const queued = await client.triggerActionAsync(key, connectionId, 'double', { n: 4 });
    assert.match(queued.id, /^[0-9a-f-]{36}$/);
    assert.deepEqual(queued, { id: queued.id, statusUrl: `/action/${queued.id}` });
    const none = client.triggerActionAsync(key, connectionId, 'none', {});
    assert.deepEqual(await refusal(none), [404, 'not_found']);
  },

  async getAsyncActionResult({ client, connectionId }) {
    const outcome = async (action: string, n: number) => {
      const { id, statusUrl } = await client.triggerActionAsync(key, connectionId, action, { n });
      for (let left = 400; left > 0; left--) {
        const answer = await client.getAsyncActionResult<object>({ statusUrl }).catch((error) => {
          const { status } = (error as { response: { status: number } }).response;
          return status === 404 ? undefined : bodyOf(error);
        });
        if (answer !== undefined) return { id, answer };
        await pause(50);
      }
      throw new Error(`${action} did not end`);
    };
    const { id, answer } = await outcome('double', 4);
    assert.deepEqual(answer, { n: 8 });
    assert.deepEqual(await client.getAsyncActionResult<object>({ id }), { n: 8 });
    const failed = (await outcome('fails', 1)).answer as { error: { code: string; payload: unknown } };
    assert.deepEqual(
      [failed.error.code, failed.error.payload],
      ['action_script_runtime_error', { sku: 7 }],
      'told as it is to who waits',
    );
    const unknown = client.getAsyncActionResult({ id: crypto.randomUUID() });
    assert.deepEqual(await refusal(unknown), [404, 'not_found']);
  },

  async getEnvironmentVariables({ client, trellis }) {
    assert.deepEqual(await client.getEnvironmentVariables(), []);
    const variables = [{ name: 'API_BASE', value: 'https://api.example.com' }];
    await trellis.call('PUT', '/environment-variables', { body: { variables } });
    assert.deepEqual(await client.getEnvironmentVariables(), variables);
  },
};

/** What came back with a failure. */
function bodyOf(error: unknown): unknown {
  const { response } = error as { response?: { data: unknown } };
  if (response === undefined) throw error;
  return response.data;
}
