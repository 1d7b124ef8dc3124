import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Nango } from '@nangohq/node';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What the published node client reads of functions. */
let trellis: TestTrellis;
let client: Nango;
const uniqueKey = 'google-sheet';

before(async () => {
  trellis = await openTrellis({ TRELLIS_BRAND: 'nango' });
  client = new Nango({ host: trellis.baseUrl, secretKey: trellis.keys.dev });
  await client.createQuickstartIntegration({ provider: 'google-sheet', unique_key: uniqueKey });
  const both = [
    flowConfig({ name: 'both', code: actionCode(), source: '// as it was written' }),
    flowConfig({ name: 'both', code: syncCode(), type: 'sync' }),
  ];
  const { status, text } = await trellis.call('POST', '/sync/deploy', { body: deployBody(both) });
  assert.equal(status, 200, text);
});
after(() => trellis.close());

test('listFunctions, getFunction, getFunctionCode, getScriptsConfig, deleteFunction', async () => {
  const { data, pagination } = await client.listFunctions({ uniqueKey }, { limit: 1, page: 1 });
  assert.deepEqual([data.map(({ type }) => type), pagination], [['sync'], { total: 2, page: 1, limit: 1 }]);
  const { data: action } = await client.getFunction({ uniqueKey, name: 'both' }, { type: 'action' });
  assert.ok(action.type === 'action');
  assert.deepEqual([action.enabled, action.input, action.returns], [true, 'BothInput', ['BothOutput']]);
  const code = await client.getFunctionCode({ uniqueKey, name: 'both' }, { type: 'action' });
  assert.deepEqual(code, { type: 'action', code: '// as it was written' });

  const config = await client.getScriptsConfig();
  assert.ok(Array.isArray(config));
  const [{ syncs, actions } = { syncs: [], actions: [] }] = config;
  assert.deepEqual([syncs[0]?.runs, actions[0]?.name], ['every hour', 'both']);
  const tools = await client.getScriptsConfig('openai');
  assert.ok('data' in tools);
  assert.deepEqual(tools.data[0]?.parameters.required, ['n']);

  await client.deleteFunction({ uniqueKey, name: 'both' }, { type: 'action' });
  const left = await client.listFunctions({ uniqueKey });
  assert.deepEqual(
    left.data.map(({ type }) => type),
    ['sync'],
  );
  await assert.rejects(
    client.getFunction({ uniqueKey, name: 'none' }),
    (error: { response: { status: number } }) => error.response.status === 404,
  );
});
