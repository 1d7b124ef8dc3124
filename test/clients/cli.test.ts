// What the official command line sends, version 0.71.10, against a service with its brand. The package itself is 220 MB with
// its dependencies, so its requests stand in cli-requests.json as a real run of it sent them: `deploy dev`, `dryrun` of a sync
// and of an action, and `pull`. IDs are replaced by names in braces; the key and lengths are left out.
// Slow: it drives published clients.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type Answer, connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

type Recorded = {
  step: string;
  method: string;
  path: string;
  headers: Record<string, string>;
  body?: Record<string, unknown> & {
    flowConfigs?: { syncName: string; fileBody: { ts: string } }[];
  };
};

let trellis: TestTrellis;
let recorded: Recorded[];
let headers: Record<string, string>;
let connectionId: string;
let spreadsheetId: string;
before(async () => {
  trellis = await openTrellis({ TRELLIS_BRAND: 'nango' });
  ({ headers, connectionId } = await connect(trellis));
  const made = await proxy('POST', '/v4/spreadsheets', { properties: { title: 'Cities' } });
  spreadsheetId = String(made.body.spreadsheetId);
  const values = [
    ['name', 'country'],
    ['Oslo', 'NO'],
    ['Rome', 'IT'],
  ];
  await proxy('PUT', `/v4/spreadsheets/${spreadsheetId}/values/A1?valueInputOption=RAW`, { values });
  await trellis.call('POST', '/connections/metadata', {
    body: { provider_config_key: 'google-sheet', connection_id: connectionId, metadata: { spreadsheetId } },
  });
  const text = await readFile(join(import.meta.dirname, 'cli-requests.json'), 'utf8');
  recorded = JSON.parse(
    text.replaceAll('{connection}', connectionId).replaceAll('{spreadsheet}', spreadsheetId),
  ) as Recorded[];
});
after(() => trellis.close());

const proxy = (method: string, path: string, body: unknown) =>
  trellis.call(method, `/proxy${path}`, { headers, body });

/** Sends what the command sent, in its order; answers by method and path. */
async function send(step: string): Promise<Map<string, Answer>> {
  const answers = new Map<string, Answer>();
  for (const { method, path, headers: sent, body } of recorded.filter((one) => one.step === step)) {
    const answer = await trellis.call(method, path, { headers: sent, ...(body && { body }) });
    answers.set(`${method} ${path.replace(/\?.*/, '')}`, answer);
  }
  return answers;
}

async function ended(name: string): Promise<Record<string, unknown>> {
  for (let left = 200; left > 0; left--) {
    const { body } = await trellis.call('GET', `/functions/runs?function=${name}`);
    const [run] = body.runs as { state: string }[];
    if (run !== undefined && !['waiting', 'running'].includes(run.state)) return run;
    await pause(50);
  }
  throw new Error(`no run of ${name} ended`);
}

test('deploy: the plan has all its lists, and a function of each kind runs unmodified', async () => {
  const answers = await send('deploy dev');
  assert.equal(answers.get('POST /cli/telemetry')?.status, 204);
  const plan = answers.get('POST /sync/deploy/confirmation')!;
  assert.equal(plan.status, 200, plan.text);
  const lists = ['Syncs', 'Actions', 'OnEventScripts'].flatMap((kind) =>
    ['new', 'updated', 'deleted'].map((how) => `${how}${kind}`),
  );
  // One that is missing ends the command line with a stack trace.
  assert.deepEqual(Object.keys(plan.body).sort(), [...lists, 'deletedModels'].sort());
  assert.deepEqual(plan.body.newSyncs, [
    {
      integration_id: 'google-sheet',
      providerConfigKey: 'google-sheet',
      name: 'cities',
      connections: 1,
      auto_start: false,
    },
  ]);
  const deployed = answers.get('POST /sync/deploy')!;
  assert.equal(deployed.status, 200, deployed.text);
  assert.deepEqual(
    (JSON.parse(deployed.text) as Record<string, unknown>[]).map(({ name, version, type }) => [
      name,
      version,
      type,
    ]),
    [
      ['cities', '1', 'sync'],
      ['add-city', '1', 'action'],
      ['greet', '1', 'on-event'],
    ],
  );
  const again = (await send('deploy dev')).get('POST /sync/deploy/confirmation')?.body ?? {};
  assert.deepEqual(Object.values(again).flat(), [], 'nothing would change');
  // It asks without `reconcile` what it then does with it.
  const asked = recorded.find(({ path }) => path === '/sync/deploy/confirmation')!.body!;
  const without = { ...asked, flowConfigs: asked.flowConfigs?.slice(1) };
  const less = await trellis.call('POST', '/sync/deploy/confirmation', { body: without });
  assert.deepEqual([asked.reconcile, less.body.deletedSyncs], [false, plan.body.newSyncs]);
  assert.deepEqual(less.body.deletedModels, ['City']);

  const place = { provider_config_key: 'google-sheet', connection_id: connectionId };
  await trellis.call('POST', '/sync/trigger', { body: { ...place, syncs: ['cities'] } });
  assert.equal((await ended('cities')).state, 'succeeded');
  const { body } = await trellis.call('GET', '/records?model=City', { headers });
  assert.deepEqual(
    (body.records as { id: string; name: string }[]).map(({ id, name }) => [id, name]),
    [
      ['2', 'Oslo'],
      ['3', 'Rome'],
    ],
  );
  const added = await trellis.call('POST', '/action/trigger', {
    headers,
    body: { action_name: 'add-city', input: { spreadsheetId, name: 'Kyiv', country: 'UA' } },
  });
  assert.deepEqual([added.status, typeof added.body.range], [200, 'string'], added.text);
  await connect(trellis, { account: 'grace@example.com' });
  assert.equal((await ended('greet')).state, 'succeeded');
});

test('dryrun: what it reads has what it needs, and its calls reach the provider', async () => {
  const sync = await send('dryrun cities');
  assert.deepEqual(
    [...sync.values()].map(({ status }) => status),
    [200, 200, 200, 200, 200],
  );
  // It looks for the integrations that have such a connection.
  const found = sync.get('GET /connections')!.body.connections as { provider_config_key: string }[];
  assert.deepEqual(
    found.map(({ provider_config_key }) => provider_config_key),
    ['google-sheet'],
  );
  const of = sync.get(`GET /connections/${connectionId}`)?.body ?? {};
  assert.deepEqual([of.metadata, typeof of.credentials], [{ spreadsheetId }, 'object']);
  const { data } = sync.get('GET /integrations/google-sheet')!.body as { data: { provider: string } };
  // It looks for the provider in a list of its own.
  assert.equal(data.provider, 'google-sheet');
  const { values } = sync.get(`GET /proxy/v4/spreadsheets/${spreadsheetId}/values/A2:B100`)!.body as {
    values: string[][];
  };
  assert.deepEqual(values[0], ['Oslo', 'NO']);
  const appended = (await send('dryrun add-city')).get(
    `POST /proxy/v4/spreadsheets/${spreadsheetId}/values/A1:append`,
  )!;
  assert.equal(appended.status, 200, appended.text);
});

test('pull: the source comes back as it was written', async () => {
  const answers = await send('pull google-sheet');
  const { body } = answers.get('GET /integrations/google-sheet/functions/cities/code')!;
  const source = recorded
    .flatMap((one) => one.body?.flowConfigs ?? [])
    .find(({ syncName }) => syncName === 'cities')?.fileBody.ts;
  assert.deepEqual(body, { type: 'sync', code: source });
});
