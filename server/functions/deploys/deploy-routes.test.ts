// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { type Compiled, compile } from '../../../sdk/compile/compile.ts';
import {
  actionCode,
  deployBody,
  deployBodyOf,
  flowConfig,
  syncCode,
} from '../../../test/support/functions.ts';
import { openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let samples: Compiled[];
before(async () => {
  trellis = await openTrellis();
  ({ functions: samples } = await compile(join(import.meta.dirname, '../../../test/functions/samples')));
  const made = [
    await trellis.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet' },
    }),
    await trellis.call('POST', '/integrations', {
      body: {
        provider: 'github',
        unique_key: 'github',
        credentials: { type: 'OAUTH2', client_id: 'a-client', client_secret: 'not-a-secret-of-anybody' },
      },
    }),
  ];
  assert.deepEqual(
    made.map(({ status }) => status),
    [200, 200],
  );
});
after(() => trellis.close());

type Fn = Record<string, unknown> & { name: string; version: number; type: string };
type Fault = { code: string; message: string; errors?: { message: string; path: string[] }[] };
const deploy = (body: object, key?: string) =>
  trellis.call('POST', '/sync/deploy', { body, ...(key && { key }) });
const confirm = (body: object) => trellis.call('POST', '/sync/deploy/confirmation', { body });
const deployed = (answer: { text: string }) =>
  JSON.parse(answer.text) as { name: string; version: string; providerConfigKey: string; type: string }[];
const faultOf = ({ body }: { body: Record<string, unknown> }) => body.error as Fault;
const functionsOf = async (integration: string, query = '') =>
  (await trellis.call('GET', `/integrations/${integration}/functions?limit=100${query}`)).body.data as Fn[];
const audits = async () =>
  (
    (await trellis.call('GET', '/audit?limit=100')).body.entries as { action: string; target: string }[]
  ).filter(({ action }) => action.startsWith('function.'));

test('ten functions written for another service are deployed, listed with their schemas, and their source is returned', async () => {
  const body = deployBodyOf(samples);
  const asked = await confirm(body);
  assert.equal(asked.status, 200, asked.text);
  const named = (list: unknown) => (list as { name: string }[]).map(({ name }) => name).toSorted();
  assert.deepEqual(
    Object.entries(asked.body).map(([field, list]) => [
      field,
      field === 'deletedModels' ? list : named(list),
    ]),
    [
      ['newSyncs', ['changed-rows', 'issues', 'rows', 'tabs']],
      ['updatedSyncs', []],
      ['deletedSyncs', []],
      ['newActions', ['append-row', 'create-spreadsheet', 'read-range', 'remember-range']],
      ['updatedActions', []],
      ['deletedActions', []],
      ['newOnEventScripts', ['check-account', 'first-look']],
      ['updatedOnEventScripts', []],
      ['deletedOnEventScripts', []],
      ['deletedModels', []],
    ],
  );
  assert.deepEqual(await functionsOf('google-sheet'), []);

  const answer = await deploy(body);
  assert.equal(answer.status, 200, answer.text);
  assert.deepEqual(
    deployed(answer).map(({ name, version, providerConfigKey, type }) => [
      providerConfigKey,
      type,
      name,
      version,
    ]),
    [
      ['github', 'sync', 'issues', '1'],
      ['google-sheet', 'sync', 'changed-rows', '1'],
      ['google-sheet', 'sync', 'rows', '1'],
      ['google-sheet', 'sync', 'tabs', '1'],
      ['google-sheet', 'action', 'append-row', '1'],
      ['google-sheet', 'action', 'create-spreadsheet', '1'],
      ['google-sheet', 'action', 'read-range', '1'],
      ['google-sheet', 'action', 'remember-range', '1'],
      ['google-sheet', 'on-event', 'check-account', '1'],
      ['google-sheet', 'on-event', 'first-look', '1'],
    ],
  );

  const byName = new Map((await functionsOf('google-sheet')).map((one) => [one.name, one]));
  const rows = byName.get('rows')!;
  assert.deepEqual(
    [
      rows.type,
      rows.runs,
      rows.frequency_s,
      rows.auto_start,
      rows.track_deletes,
      rows.returns,
      rows.version_label,
    ],
    ['sync', 'every 5 minutes', 300, true, false, ['Row'], '1.2.0'],
  );
  assert.deepEqual((rows.json_schema as { definitions: object }).definitions, {
    Row: {
      type: 'object',
      properties: {
        id: { type: 'string' },
        cells: {
          type: 'object',
          propertyNames: { type: 'string' },
          additionalProperties: { type: 'string' },
        },
      },
      required: ['id', 'cells'],
      additionalProperties: false,
    },
  });
  const tabs = byName.get('tabs')!;
  assert.deepEqual(
    [tabs.track_deletes, tabs.scopes, tabs.runs],
    [true, ['https://www.googleapis.com/auth/spreadsheets.readonly'], 'every half hour'],
  );
  const changed = byName.get('changed-rows')!;
  assert.deepEqual([changed.auto_start, changed.webhook_subscriptions], [false, ['drive.changed']]);
  assert.deepEqual((changed.checkpoint_schema as { required: string[] }).required, ['done']);
  const append = byName.get('append-row')!;
  assert.deepEqual(
    [append.input, append.returns, append.read_only],
    ['AppendRowInput', ['AppendRowOutput'], false],
  );
  const { AppendRowInput } = (append.json_schema as { definitions: Record<string, { required: string[] }> })
    .definitions;
  assert.deepEqual(AppendRowInput!.required, ['spreadsheetId', 'values']);
  assert.equal(byName.get('read-range')!.read_only, true);
  assert.equal(byName.get('first-look')!.event, 'post-connection-creation');

  const code = await trellis.call('GET', '/integrations/google-sheet/functions/rows/code');
  assert.deepEqual(code.body, { type: 'sync', code: samples.find(({ name }) => name === 'rows')!.source });

  assert.deepEqual(
    deployed(await deploy(body)).map(({ version }) => version),
    Array(10).fill('1'),
  );
  assert.equal((await audits()).length, 10);
});

test('a changed function gets a new version, which can be rolled back, and a missing one is removed', async () => {
  const one = (more: string) => flowConfig({ name: 'double', code: actionCode({ more }) });
  const pinned = flowConfig({ name: 'pinned', code: syncCode({ model: 'Pinned' }), type: 'sync' });
  await deploy(deployBody([one(''), pinned], { deployMode: 'integration' }));
  const versions = async () =>
    (await trellis.call('GET', '/integrations/google-sheet/functions/double/versions')).body.data as Fn[];

  const second = deployBody([one('version: "2.0.0",')], { deployMode: 'integration' });
  const asked = (await confirm(second)).body as Record<string, unknown[]>;
  const integration = { integration_id: 'google-sheet', providerConfigKey: 'google-sheet' };
  assert.deepEqual(asked.updatedActions, [{ ...integration, name: 'double' }]);
  assert.deepEqual(asked.deletedSyncs, [
    { ...integration, name: 'pinned', connections: 0, auto_start: true },
  ]);
  assert.deepEqual(asked.deletedModels, ['Pinned']);
  const [result] = deployed(await deploy(second));
  assert.equal(result!.version, '2');
  assert.deepEqual(
    (await functionsOf('google-sheet')).map(({ name }) => name),
    ['double'],
  );
  // Of another integration nothing was said.
  assert.deepEqual(
    (await functionsOf('github')).map(({ name }) => name),
    ['issues'],
  );

  const rollBack = (version: number) =>
    trellis.call('POST', '/integrations/google-sheet/functions/double/rollback', { body: { version } });
  const back = await rollBack(1);
  assert.deepEqual([back.status, (back.body.data as Fn).version], [200, 1]);
  assert.deepEqual(
    (await versions()).map(({ version, current, version_label }) => [version, current, version_label]),
    [
      [2, false, '2.0.0'],
      [1, true, '0.0.1'],
    ],
  );
  assert.equal(faultOf(await rollBack(3)).code, 'invalid_body');
  // The text that runs stays the same: no version. The other one is new to what runs: a third.
  assert.equal(deployed(await deploy(deployBody([one('')], { deployMode: 'single' })))[0]!.version, '1');
  assert.equal(deployed(await deploy(second))[0]!.version, '3');
  const actions = (await audits())
    .filter(({ target }) => target.endsWith('/double'))
    .map(({ action }) => action);
  assert.deepEqual(actions, [
    'function.deployed',
    'function.rolled_back',
    'function.deployed',
    'function.deployed',
  ]);
});

test('a plan names what would be removed, also for a command line that names removals only at the deploy', async () => {
  const all = [
    flowConfig({ name: 'staying', code: actionCode() }),
    flowConfig({ name: 'going', code: syncCode({ model: 'Gone' }), type: 'sync' }),
  ];
  assert.equal((await deploy(deployBody(all, { reconcile: false }))).status, 200);
  const left = (more: object) => deployBody(all.slice(0, 1), { deployMode: 'integration', ...more });
  for (const reconcile of [false, true, undefined]) {
    const { body } = await confirm(left({ reconcile }));
    assert.ok(
      (body.deletedSyncs as { name: string }[]).some(({ name }) => name === 'going'),
      `${reconcile}`,
    );
    assert.ok((body.deletedModels as string[]).includes('Gone'));
  }
  const { body: single } = await confirm(left({ deployMode: 'single', reconcile: false }));
  assert.deepEqual(single.deletedSyncs, []);
  const path = '/integrations/google-sheet/functions';
  assert.equal((await trellis.call('DELETE', `${path}/going?type=sync`)).status, 200);
  assert.equal((await trellis.call('DELETE', `${path}/staying?type=action`)).status, 200);
});

test('an application gets an event when the models of a sync change, by a deploy or a rollback', async () => {
  const sync = (fields: string, frequency = 'every hour') =>
    deployBody(
      [
        flowConfig({
          name: 'shaped',
          type: 'sync',
          code: `const { z } = require('zod');
            exports.default = {
              type: 'sync', description: '', frequency: '${frequency}', exec: async () => {},
              models: { Thing: z.object({ id: z.string(), ${fields} }) },
            };`,
        }),
      ],
      { deployMode: 'single' },
    );
  for (const body of [
    sync('a: z.string(), b: z.string()'),
    sync('b: z.string().optional(), c: z.number()'),
    sync('b: z.string().optional(), c: z.number()', 'every day'),
  ])
    assert.equal((await deploy(body)).status, 200);
  const at = '/integrations/google-sheet/functions/shaped';
  await trellis.call('POST', `${at}/rollback`, { body: { version: 1 } });
  const reported = await trellis.db.query<{ data: Record<string, unknown> }>(
    `select data from event where type = 'function.models_changed' order by created_at, id`,
  );
  const of = { provider_config_key: 'google-sheet', function: 'shaped' };
  assert.deepEqual(
    reported.map(({ data }) => data),
    [
      {
        ...of,
        version: 2,
        previous_version: 1,
        models: [{ model: 'Thing', change: 'changed', added: ['c'], removed: ['a'], changed: ['b'] }],
      },
      {
        ...of,
        version: 1,
        previous_version: 3,
        models: [{ model: 'Thing', change: 'changed', added: ['a'], removed: ['c'], changed: ['b'] }],
      },
    ],
  );
  await trellis.call('DELETE', `${at}?type=sync`);
});

test('a function is turned off and on, found by a part of its name, and removed', async () => {
  const both = [
    flowConfig({ name: 'twice', code: actionCode() }),
    flowConfig({ name: 'twice', code: syncCode(), type: 'sync' }),
  ];
  await deploy(deployBody(both, { reconcile: false }));
  const path = '/integrations/google-sheet/functions/twice';
  const ambiguous = await trellis.call('GET', path);
  assert.deepEqual([ambiguous.status, faultOf(ambiguous).code], [409, 'ambiguous_function']);
  const off = await trellis.call('PATCH', `${path}?type=sync`, { body: { enabled: false } });
  assert.deepEqual([off.status, (off.body.data as Fn).enabled], [200, false]);
  const states = async () =>
    (await functionsOf('google-sheet', '&search=WIC')).map((one) => [one.type, one.enabled]);
  assert.deepEqual(await states(), [
    ['action', true],
    ['sync', false],
  ]);
  // A deploy leaves it off.
  await deploy(
    deployBody([flowConfig({ name: 'twice', code: syncCode({ model: 'Other' }), type: 'sync' })], {
      reconcile: false,
    }),
  );
  assert.deepEqual(await states(), [
    ['action', true],
    ['sync', false],
  ]);
  assert.equal((await trellis.call('DELETE', path)).status, 400);
  assert.equal((await trellis.call('DELETE', `${path}?type=sync`)).status, 200);
  assert.deepEqual(await states(), [['action', true]]);
  assert.equal((await trellis.call('GET', path)).status, 200);
  assert.equal((await trellis.call('DELETE', `${path}?type=sync`)).status, 404);
});

test('a bundle that requires forbidden modules is refused with its place, and nothing of the deploy is done', async () => {
  const before = await functionsOf('google-sheet');
  const fine = flowConfig({ name: 'fine', code: actionCode() });
  const bad: Record<string, [string, RegExp]> = {
    files: [
      actionCode({ before: 'const fs = require("fs");' }),
      /files: A function cannot use "fs".*\(line 3, column 20\)/,
    ],
    native: [
      actionCode({ before: 'const x = await import("node:net");' }),
      /native: (A function cannot use "node:net"|is not JavaScript)/,
    ],
    computed: [
      actionCode({ before: 'require(["f", "s"].join(""));' }),
      /computed: cannot be loaded: .*cannot require "fs"/,
    ],
    broken: ['exports.default = {', /broken: is not JavaScript/],
    thrower: ['throw new TypeError("at the start");', /thrower: cannot be loaded: TypeError: at the start/],
    empty: ['exports.other = 1;', /empty: cannot be loaded: .*no export "default"/],
    old: [
      'exports.default = async function fetchData(nango) {};',
      /old: cannot be loaded: .*createSync, createAction or createOnEvent/,
    ],
    disguised: [syncCode(), /disguised: is sent as action, but its definition is of the kind sync/],
    hostile: [actionCode({ more: 'scopes: [1], type: "root",' }), /hostile: /],
  };
  const answer = await deploy(
    deployBody([fine, ...Object.entries(bad).map(([name, [code]]) => flowConfig({ name, code }))]),
  );
  const error = faultOf(answer);
  assert.deepEqual([answer.status, error.code], [400, 'invalid_function'], answer.text);
  for (const [name, [, reason]] of Object.entries(bad)) {
    const fault = error.errors!.find(({ message }) => message.startsWith(`google-sheet/actions/${name}:`));
    assert.match(fault?.message ?? 'none', reason);
    assert.equal(fault!.path[0], 'flowConfigs');
  }
  assert.equal(error.errors!.length, Object.keys(bad).length);
  assert.equal((await confirm(deployBody([flowConfig({ name: 'files', code: bad.files![0] })]))).status, 400);
  assert.deepEqual(await functionsOf('google-sheet'), before);
});

test('what a sync says of itself is judged', async () => {
  const of = (more: string) => flowConfig({ name: 'judged', code: syncCode({ more }), type: 'sync' });
  const wrong: Record<string, RegExp> = {
    'frequency: "every 10s",': /frequency "every 10s" is too often/,
    'frequency: "*/5 * * * *",': /frequency .*is no/,
    'models: {},': /models names no model/,
    'models: { "a b": z.object({ id: z.string() }) },': /models/,
    'webhookSubscriptions: "all",': /webhookSubscriptions/,
  };
  for (const [more, reason] of Object.entries(wrong)) {
    const answer = await deploy(deployBody([of(more)], { reconcile: false }));
    assert.equal(answer.status, 400, answer.text);
    assert.match(faultOf(answer).message, reason);
  }
});

test('an integration that is missing, a name twice and a body of another kind are refused', async () => {
  const code = actionCode();
  const missing = await deploy(deployBody([flowConfig({ name: 'a', code, integration: 'none' })]));
  assert.deepEqual([missing.status, faultOf(missing).code], [400, 'unknown_provider_config']);
  const twice = await deploy(deployBody([flowConfig({ name: 'a', code }), flowConfig({ name: 'a', code })]));
  assert.match(faultOf(twice).message, /google-sheet\/actions\/a: appears twice/);
  for (const body of [{}, { flowConfigs: {} }, deployBody([{ syncName: '../up' }])]) {
    assert.deepEqual([(await deploy(body)).status, faultOf(await deploy(body)).code], [400, 'invalid_body']);
  }
});

test('twenty deploys at once are each whole, and number their versions one after the other', async () => {
  const of = (n: number) =>
    ['left', 'right'].map((name) =>
      flowConfig({ name: `race-${name}`, code: actionCode({ more: `version: "${n}",` }) }),
    );
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, n) => deploy(deployBody(of(n), { reconcile: false }))),
  );
  assert.deepEqual([...new Set(answers.map(({ status, text }) => (status === 200 ? 200 : text)))], [200]);
  const numbers = answers.map((answer) => deployed(answer).map(({ version }) => Number(version)));
  // Both functions of a deploy go the same way.
  assert.deepEqual(
    numbers.toSorted(([a = 0], [b = 0]) => a - b),
    Array.from({ length: 20 }, (_, at) => [at + 1, at + 1]),
  );
  const labels = (await functionsOf('google-sheet', '&search=race')).map((one) => one.version_label);
  assert.equal(new Set(labels).size, 1);
});

test('another environment sees no part of it, and deploys nothing into it', async () => {
  const key = trellis.keys.prod;
  await deploy(deployBody([flowConfig({ name: 'own', code: actionCode() })], { reconcile: false }));
  const path = '/integrations/google-sheet/functions';
  for (const [method, at, body] of [
    ['GET', path],
    ['GET', `${path}/own`],
    ['GET', `${path}/own/code`],
    ['GET', `${path}/own/versions`],
    ['PATCH', `${path}/own`, { enabled: false }],
    ['POST', `${path}/own/rollback`, { version: 1 }],
    ['DELETE', `${path}/own?type=action`],
  ] as const) {
    assert.equal(
      (await trellis.call(method, at, { key, ...(body && { body }) })).status,
      404,
      `${method} ${at}`,
    );
  }
  assert.equal((await trellis.call('GET', '/scripts/config', { key })).text, '[]');
  assert.equal(
    (await deploy(deployBody([flowConfig({ name: 'own', code: actionCode() })]), key)).status,
    400,
  );
  await trellis.call('POST', '/integrations/quickstart', {
    key,
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
  // As if all of the environment should go.
  assert.equal((await deploy(deployBody([]), key)).status, 200);
  assert.ok((await functionsOf('google-sheet')).some(({ name }) => name === 'own'));
});

test('the complete configuration is returned in the formats of official clients and of OpenAI', async () => {
  const own = flowConfig({ name: 'only', code: actionCode() });
  const sync = flowConfig({ name: 'only-sync', code: syncCode(), type: 'sync', integration: 'github' });
  await deploy(deployBody([own, sync]));
  const [first, second, ...more] = JSON.parse((await trellis.call('GET', '/scripts/config')).text);
  assert.deepEqual(more, []);
  assert.deepEqual(
    [first.providerConfigKey, first.provider, first.syncs[0].name],
    ['github', 'github', 'only-sync'],
  );
  assert.deepEqual(
    [first.syncs[0].runs, first.syncs[0].returns, first.actions],
    ['every hour', ['Thing'], []],
  );
  assert.equal(second.actions[0].input, 'OnlyInput');
  const { body } = await trellis.call('GET', '/scripts/config?format=openai');
  assert.deepEqual(body.data, [
    {
      name: 'only',
      description: 'Doubles a number.',
      parameters: { type: 'object', properties: { n: { type: 'number' } }, required: ['n'] },
    },
  ]);
});

test('a text that no version names any more is removed an hour later', async () => {
  const count = async () =>
    (await trellis.db.query<{ count: number }>('select count(*) as count from function_bundle'))[0]!.count;
  await deploy(deployBody([]));
  assert.ok((await count()) > 0);
  await trellis.runJob('functions.bundles');
  assert.ok((await count()) > 0);
  await deploy(deployBody([flowConfig({ name: 'kept', code: actionCode() })]));
  await trellis.db.query("update function_bundle set touched_at = touched_at - interval '2 hours'");
  await trellis.runJob('functions.bundles');
  assert.equal(await count(), 1);
  assert.equal((await trellis.call('GET', '/integrations/google-sheet/functions/kept/code')).status, 200);
});

test('a command line may report its steps, and nothing is kept of them', async () => {
  const answer = await trellis.call('POST', '/cli/telemetry', {
    key: undefined,
    body: { deviceId: 'x', event: 'deploy' },
  });
  assert.equal(answer.status, 204);
});

test('with functions turned off, every route reports this', async () => {
  const off = await openTrellis({ TRELLIS_FUNCTIONS: 'off' });
  try {
    await off.call('POST', '/integrations/quickstart', {
      body: { provider: 'google-sheet', unique_key: 'google-sheet' },
    });
    for (const [method, path, body] of [
      ['POST', '/sync/deploy', deployBody([])],
      ['POST', '/sync/deploy/confirmation', deployBody([])],
      ['GET', '/integrations/google-sheet/functions'],
      ['GET', '/scripts/config'],
    ] as const) {
      const answer = await off.call(method, path, body ? { body } : {});
      assert.deepEqual([answer.status, faultOf(answer).code], [403, 'functions_off'], path);
    }
    assert.equal(
      (await off.call('GET', '/scripts/config', { key: 'trs_dev_00000000000000000000' })).status,
      401,
    );
  } finally {
    await off.close();
  }
});
