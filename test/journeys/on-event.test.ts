import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { deployBody } from '../support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
  for (const key of ['google-sheet', 'open']) {
    const provider = key === 'open' ? 'unauthenticated' : key;
    const body = { provider, unique_key: key, integration_config: { base_url: 'https://api.example.com' } };
    const answer = await (key === 'open'
      ? trellis.call('POST', '/integrations', { body })
      : trellis.call('POST', '/integrations/quickstart', { body: { provider, unique_key: key } }));
    assert.equal(answer.status, 200, answer.text);
  }
});
after(() => trellis.close());

type Scripts = Record<string, { event: string; exec: string; integration?: string }>;
/** These and no other. */
async function deploy(scripts: Scripts): Promise<void> {
  const entries = Object.entries(scripts).map(([name, { event, exec, integration = 'google-sheet' }]) => ({
    providerConfigKey: integration,
    scripts: [
      {
        name,
        event,
        fileBody: {
          js: `exports.default = { type: 'onEvent', description: '', event: '${event}', exec: async (nango) => { ${exec} } };`,
          ts: '',
        },
      },
    ],
  }));
  const answer = await trellis.call('POST', '/sync/deploy', {
    body: deployBody([], { onEventScriptsByProvider: entries }),
  });
  assert.equal(answer.status, 200, answer.text);
}
const importInto = (connectionId: string, more: object = {}) =>
  trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'open',
      connection_id: connectionId,
      credentials: { type: 'NONE' },
      ...more,
    },
  });
const find = async (connectionId: string, key = 'open') =>
  trellis.call('GET', `/connections/${connectionId}?provider_config_key=${key}`);
const remove = (connectionId: string) =>
  trellis.call('DELETE', `/connections/${connectionId}?provider_config_key=open`);
const runsOf = (name: string) =>
  trellis.db.query<{ id: string; state: string; error: { code: string } | null; trigger: string }>(
    `select run.id, state, error, trigger from run join function on function.id = run.function_id
     where name = $1 order by run.id`,
    [name],
  );
async function ended(name: string): Promise<string[]> {
  for (let left = 200; left > 0; left--) {
    const states = (await runsOf(name)).map(({ state }) => state);
    if (states.length > 0 && states.every((state) => state !== 'waiting' && state !== 'running'))
      return states;
    await pause(50);
  }
  throw new Error(`${name} does not end`);
}

test('functions for a new connection run once, for imports and for users who connect', async () => {
  const exec = 'await nango.updateMetadata({ noted: nango.connectionId })';
  await deploy({
    noted: { event: 'post-connection-creation', exec, integration: 'open' },
    noted_too: { event: 'post-connection-creation', exec },
  });
  assert.equal((await importInto('fresh', { metadata: { kept: 1 } })).status, 201);
  assert.deepEqual(await ended('noted'), ['succeeded']);
  assert.deepEqual((await find('fresh')).body.metadata, { kept: 1, noted: 'fresh' });
  assert.equal((await importInto('fresh')).status, 201);
  const { connectionId } = await connect(trellis);
  assert.deepEqual(await ended('noted_too'), ['succeeded']);
  assert.deepEqual((await find(connectionId, 'google-sheet')).body.metadata, { noted: connectionId });
  assert.deepEqual(await ended('noted'), ['succeeded']);
});

test('what fails after a connection was made leaves the connection alone', async () => {
  await deploy({
    broken: { event: 'post-connection-creation', exec: 'throw new Error("no")', integration: 'open' },
  });
  assert.equal((await importInto('unharmed')).status, 201);
  assert.deepEqual(await ended('broken'), ['failed']);
  assert.equal((await find('unharmed')).status, 200);
});

test('a connection that its own code refuses is not made, and its caller reads why', async () => {
  const exec = `const { tags, credentials } = await nango.getConnection();
    if (tags.team !== 'good') throw new Error('Only the good team connects: ' + nango.connectionId);`;
  await deploy({ judge: { event: 'validate-connection', exec, integration: 'open' } });
  const events = async () =>
    (await trellis.db.query<{ id: string }>("select id from event where data ->> 'connection_id' = 'judged'"))
      .length;
  const refused = await importInto('judged', { tags: { team: 'bad' } });
  assert.equal(refused.status, 400, refused.text);
  const { code, message } = refused.body.error as { code: string; message: string };
  assert.equal(code, 'connection_validation_failed');
  assert.equal(message, 'The connection was refused by judge: Only the good team connects: judged');
  assert.equal((await find('judged')).status, 404);
  assert.equal(await events(), 0);
  assert.equal((await importInto('judged', { tags: { team: 'good' } })).status, 201);
  // What is there goes on as it was where its renewal is refused.
  assert.equal((await importInto('judged', { tags: { team: 'bad' } })).status, 400);
  assert.deepEqual((await find('judged')).body.tags, { team: 'good' });
  assert.deepEqual(
    (await runsOf('judge')).map(({ state }) => state),
    ['failed', 'succeeded', 'failed'],
  );
});

test('code that judges a connection calls the provider with its credentials, before it is stored', async () => {
  await deploy({
    asks: {
      event: 'validate-connection',
      exec: `const error = await nango.get({ endpoint: '/v4/spreadsheets/none' }).catch((error) => error);
        if (error.response?.status !== 404) throw new Error('status ' + error.response?.status + ' ' + error.message);
        await nango.setMetadata({ a: 1 }).then(() => { throw new Error('stored') }, () => {});`,
    },
  });
  const { connectionId } = await connect(trellis);
  assert.deepEqual((await find(connectionId, 'google-sheet')).body.metadata, {});
  assert.deepEqual(
    (await runsOf('asks')).map(({ state }) => state),
    ['succeeded'],
  );
  await deploy({ refuses: { event: 'validate-connection', exec: 'throw new Error("Not today.")' } });
  await assert.rejects(connect(trellis), /Not today/);
  const [reported] = await trellis.db.query<{ data: { cause: string; evidence: object } }>(
    "select data from event where type = 'connection.connect_failed'",
  );
  assert.equal(reported?.data.cause, 'not_completed');
  assert.deepEqual(reported?.data.evidence, { error: 'connection_validation_failed' });
});

test('functions before a deletion run while the connection exists, and their failure does not stop it', async () => {
  const exec = `const { metadata } = await nango.getConnection();
    await nango.log('leaving ' + metadata.kept); if (metadata.kept === 2) throw new Error('no');`;
  await deploy({ parting: { event: 'pre-connection-deletion', exec, integration: 'open' } });
  for (const kept of [1, 2]) {
    assert.equal((await importInto(`leaver-${kept}`, { metadata: { kept } })).status, 201);
    assert.equal((await remove(`leaver-${kept}`)).status, 200);
    assert.equal((await find(`leaver-${kept}`)).status, 404);
  }
  assert.deepEqual(
    (await runsOf('parting')).map(({ state }) => state),
    ['succeeded', 'failed'],
  );
  // What it wrote went with the connection.
  for (const { id } of await runsOf('parting')) {
    const { body } = await trellis.call('GET', `/functions/runs/${id}/lines`);
    const [line] = body.lines as { message: string; deleted: boolean }[];
    assert.deepEqual([line?.message, line?.deleted], ['Deleted with the connection.', true]);
  }
  assert.equal((await remove('never-there')).status, 400);
  assert.equal((await runsOf('parting')).length, 2);
});

test('functions that are turned off do nothing to connections', async () => {
  const off = await openTrellis({ TRELLIS_FUNCTIONS: 'off' });
  try {
    const { connectionId, headers } = await connect(off);
    const call = await off.call('POST', '/action/trigger', { headers, body: { action_name: 'any' } });
    assert.deepEqual([call.status, (call.body.error as { code: string }).code], [403, 'functions_off']);
    assert.equal((await off.call('POST', '/mcp', { headers, body: {} })).status, 403);
    const path = `/connections/${connectionId}?provider_config_key=google-sheet`;
    assert.equal((await off.call('DELETE', path)).status, 200);
  } finally {
    await off.close();
  }
});
