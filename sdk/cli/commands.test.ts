// Slow: it installs, deploys and runs folders.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttpServer } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { type CommandEnd, callCommand, runCommand } from '../../test/support/command.ts';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { isRead, type OutgoingCall } from '../local/reads.ts';
import { createApi } from './api.ts';
import { escapeControls } from './arguments.ts';
import { findPaginate } from './live-reads.ts';
import { followRun } from './run-deployed.ts';

let trellis: TestTrellis;
let connectionId: string;
let headers: Record<string, string>;
let spreadsheetId: string;
/** Takes connections, and answers none. */
const silent = createServer(() => {});
let silentPort: number;
let home: string;
/** What `init` makes. */
let folder: string;

before(async () => {
  silent.listen(0, '127.0.0.1');
  await once(silent, 'listening');
  silentPort = (silent.address() as AddressInfo).port;
  trellis = await openTrellis();
  ({ connectionId, headers } = await connect(trellis));
  const made = await proxy('POST', '/v4/spreadsheets', { properties: { title: 'Cities' } });
  spreadsheetId = String(made.body.spreadsheetId);
  const values = [
    ['name', 'country'],
    ['Oslo', 'NO'],
    ['Rome', 'IT'],
  ];
  await proxy('PUT', `/v4/spreadsheets/${spreadsheetId}/values/A1?valueInputOption=RAW`, { values });
  const place = { provider_config_key: 'google-sheet', connection_id: connectionId };
  await trellis.call('POST', '/connections/metadata', { body: { ...place, metadata: { spreadsheetId } } });
  home = await mkdtemp(join(tmpdir(), 'trellis-cli-'));
  folder = join(home, 'functions');
});
after(async () => {
  silent.close();
  await trellis.close();
  await rm(home, { recursive: true, force: true });
});

const proxy = (method: string, path: string, body?: unknown) =>
  trellis.call(method, `/proxy${path}`, { headers, ...(body !== undefined && { body }) });
const settings = () => ({ TRELLIS_URL: trellis.baseUrl, TRELLIS_SECRET_KEY: trellis.keys.dev });
const cli = (args: string[], env: Record<string, string> = settings()): Promise<CommandEnd> =>
  runCommand(args, env);
const write = async (file: string, text: string) => {
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), text);
};
const on = () => ['--connection', connectionId];
const here = () => ['--folder', folder];
const cells = async () =>
  (await proxy('GET', `/v4/spreadsheets/${spreadsheetId}/values/A1:B100`)).body.values as string[][];
const action = (exec: string) => `import { createAction } from 'trellis';
import { z } from 'zod';
export default createAction({
  description: 'Tries something.',
  input: z.object({ n: z.number() }),
  output: z.object({ n: z.number() }),
  exec: async (trellis, { n }) => {
    ${exec}
  },
});
`;

test('the files of init can be deployed unchanged, and are never overwritten', async () => {
  const made = await cli(['init', folder], {});
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /\+ .*google-sheet\/syncs\/sheet-rows\.ts/);
  assert.match(made.stdout, /trellis dev /);
  // The folder's own settings, as an editor reads them.
  const tsc = spawn(process.execPath, ['node_modules/typescript/bin/tsc', '-p', folder]);
  const [exitCode] = (await once(tsc, 'exit')) as [number];
  assert.equal(exitCode, 0);
  await rm(join(folder, 'google-sheet/actions/append-row.ts'));
  await write('google-sheet/syncs/sheet-rows.ts', '// mine');
  const again = await cli(['init', folder], {});
  assert.equal(again.code, 1);
  assert.match(
    again.stderr,
    /Nothing was written: .* already has README\.md, .*google-sheet\/syncs\/sheet-rows\.ts/,
  );
  assert.equal(await readFile(join(folder, 'google-sheet/syncs/sheet-rows.ts'), 'utf8'), '// mine');
  await assert.rejects(readFile(join(folder, 'google-sheet/actions/append-row.ts')));
  await rm(folder, { recursive: true });
  await cli(['init', folder], {});
  const env = join(home, 'dev.env');
  await writeFile(env, `TRELLIS_URL=http://127.0.0.1:1\nTRELLIS_SECRET_KEY=${trellis.keys.dev}\n`);
  const deployed = await cli(['deploy', folder, '--env-file', env, '--url', trellis.baseUrl], {
    TRELLIS_SECRET_KEY: 'another',
  });
  assert.equal(deployed.code, 0, deployed.stderr);
  assert.deepEqual(deployed.stdout.trim().split('\n'), [
    '+ google-sheet/syncs/sheet-rows',
    '+ google-sheet/actions/append-row',
    '+ google-sheet/on-events/first-look',
    `Deployed to ${trellis.baseUrl}.`,
  ]);
});

test('run follows a sync and an action to the end, and the exit code reports it', async () => {
  const sync = await cli(['run', 'google-sheet/sheet-rows', ...on()]);
  assert.equal(sync.code, 0, sync.stderr);
  assert.match(sync.stdout, /Read 2 rows\.\nRow: .*\nThe run succeeded\./);
  const input = JSON.stringify({ spreadsheetId, values: ['Bonn', 'DE'] });
  const done = await cli(['run', 'google-sheet/append-row', ...on(), '--input', input]);
  assert.equal(done.code, 0, done.stderr);
  assert.match(done.stdout, /The run succeeded\.\n\{\n {2}"range": "Sheet1!A4:B4"\n\}/);
  assert.deepEqual((await cells()).at(-1), ['Bonn', 'DE']);
  const failed = await cli(['run', 'google-sheet/append-row', ...on(), '--input', '{"values": []}']);
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /spreadsheetId/);
  const event = await cli(['run', 'google-sheet/first-look', ...on()]);
  assert.deepEqual([event.code, event.stdout], [1, '']);
  assert.match(event.stderr, /runs when its event happens/);
  const none = await cli(['run', 'google-sheet/sheet-rows', '--connection', 'none']);
  assert.equal(none.code, 1);
  assert.match(none.stderr, /unknown_connection/);
});

test('a dry run reads from the connection and writes nothing, whatever the code calls', async () => {
  await write(
    'google-sheet/syncs/all.ts',
    `import { createSync } from 'trellis';
import { z } from 'zod';
export default createSync({
  description: 'Does all that there is.',
  frequency: 'every hour',
  models: { Row: z.object({ id: z.string(), at: z.date().optional() }) },
  metadata: z.object({ spreadsheetId: z.string(), seen: z.boolean().optional() }),
  checkpoint: z.object({ page: z.number() }),
  exec: async (trellis) => {
    await trellis.log('From', await trellis.getCheckpoint(), (await trellis.getMetadata()).spreadsheetId);
    console.warn(typeof process, typeof fetch, trellis.environmentName, trellis.provider);
    const known = await trellis.getRecordsByIds(['2', 'x'], 'Row');
    await trellis.log('Known: ' + [...known.keys()].join());
    if (!(await trellis.tryAcquireLock({ key: 'one', ttlMs: 1000 }))) throw new Error('no lock');
    await trellis.trackDeletesStart('Row');
    const token = await trellis.getToken();
    const { data } = await trellis.get({ endpoint: '/v4/spreadsheets/${spreadsheetId}', params: { fields: 'properties' } });
    await trellis.batchSave([{ id: 'new', at: new Date(0) }], 'Row');
    await trellis.batchUpdate([{ id: '2', at: new Date(0) }], 'Row');
    await trellis.saveCheckpoint({ page: data.properties.title.length + (typeof token === 'string' ? 1 : 0) });
    await trellis.updateMetadata({ seen: true });
    await trellis.saveState('état');
    await trellis.log('State: ' + (await trellis.getState()));
    await trellis.schemaChanged('Row', [{ change: 'added', field: 'at' }]);
    const { deletedKeys } = await trellis.trackDeletesEnd('Row');
    const left: string[] = [];
    for await (const row of trellis.listRecords('Row')) left.push(row.id);
    await trellis.log('Gone: ' + deletedKeys.join() + '; left: ' + left.join());
  },
});
`,
  );
  const rows = () => trellis.call('GET', '/records?model=Row', { headers });
  const state = async () => [
    (await rows()).body,
    (await trellis.call('GET', `/connections/${connectionId}?provider_config_key=google-sheet`)).body
      .metadata,
    await trellis.db.query('select count(*) from function_checkpoint'),
    await trellis.db.query('select count(*) from function_lock'),
    await trellis.db.query('select count(*) from tracked'),
    await trellis.db.query('select count(*) from run'),
    await cells(),
  ];
  // Nothing but the dry run may write meanwhile. Its schedule may have run the sync once more, behind the row that was appended.
  const paused = { provider_config_key: 'google-sheet', connection_id: connectionId, syncs: ['sheet-rows'] };
  assert.equal((await trellis.call('POST', '/functions/syncs/pause', { body: paused })).status, 200);
  const open = `select 1 from run where state in ('waiting', 'running')`;
  while ((await trellis.db.query(open)).length > 0) await pause(50);
  const { records } = (await rows()).body as { records: { id: string }[] };
  const gone = records.map(({ id }) => id).filter((id) => id !== '2');
  assert.ok(gone.includes('3'));
  const before = await state();
  const dry = await cli(['dryrun', 'google-sheet/all', ...on(), ...here(), '--checkpoint', '{"page": 7}']);
  assert.equal(dry.code, 0, dry.stderr);
  const lines = dry.stdout.split('\n');
  for (const line of [
    `  From {"page":7} ${spreadsheetId}`,
    '  warn: undefined undefined dev google-sheet',
    '  Known: 2',
    `  GET /v4/spreadsheets/${spreadsheetId}?fields=properties 200`,
    `  Gone: ${gone.join()}; left: 2,new`,
    '  State: état',
    'State would be 4 characters.',
    'Changes of the fields of Row would be reported: [{"change":"added","field":"at"}].',
    `Row: 1 would be saved, 1 updated, ${gone.length} deleted`,
    '  save {"id":"new","at":"1970-01-01T00:00:00.000Z"}',
    '  update {"id":"2","at":"1970-01-01T00:00:00.000Z"}',
    ...gone.map((id) => `  delete ${id}`),
    'Lock "one" would be taken.',
    'Checkpoint would be {"page":7}.',
    `Metadata would be {"spreadsheetId":"${spreadsheetId}","seen":true}.`,
    'Nothing was written.',
  ])
    assert.ok(lines.includes(line), `${line}\n${dry.stdout}`);
  assert.deepEqual(await state(), before);
  await write(
    'google-sheet/actions/looks.ts',
    action(`const [found] = await trellis.getStoredRecords<{ cells: { name: string } }>({ model: 'Row', ids: ['2', 'x'] });
    await trellis.log(found?.record.cells.name, found?.metadata.last_action);
    return { n };`),
  );
  const looks = await cli(['dryrun', 'google-sheet/looks', ...on(), ...here(), '--input', '{"n": 1}']);
  assert.match(looks.stdout, / {2}Oslo ADDED\nOutput: /, looks.stderr);
});

test('a dry run reports invalid records, and makes calls that write only with --allow-writes', async () => {
  const input = ['--input', JSON.stringify({ spreadsheetId, values: ['Kyiv', 'UA'] })];
  const before = await cells();
  const append = ['dryrun', 'google-sheet/append-row', ...on(), ...here(), ...input];
  const refused = await cli(append);
  assert.equal(refused.code, 1);
  assert.match(
    refused.stderr,
    /^google-sheet\/actions\/append-row\.ts:\d+:\d+: POST \/v4\/.* requires --allow-writes/,
  );
  assert.deepEqual(await cells(), before);
  await write(
    'google-sheet/syncs/misfit.ts',
    `import { createSync } from 'nango';
import { z } from 'zod';
export default createSync({
  description: 'Saves what does not fit.',
  frequency: 'every hour',
  models: { Row: z.object({ id: z.string(), size: z.number() }) },
  exec: async (nango) => {
    const found: { id: string; size: number }[] = JSON.parse('[{"id": "1", "size": 1}, {"id": "2", "size": "two"}]');
    await nango.batchSave(found, 'Row');
  },
});
`,
  );
  await write('google-sheet/actions/stalls.ts', action('await new Promise(() => {}); return { n };'));
  await write('google-sheet/actions/typed.ts', action("return { n: 'text' };"));
  await write(
    'google-sheet/actions/leaves.ts',
    action(`setInterval(() => {}, 1000);
    if ('process' in globalThis && globalThis.process) throw new Error('process');
    void trellis.uncontrolledFetch({ url: new URL('http://127.0.0.1:${silentPort}/') });
    await new Promise((sent) => setTimeout(sent, 50));
    throw { reason: '\\u001b[31mred' };`),
  );
  const [allowed, misfit, badInput, stalls, typed, leaves] = await Promise.all([
    cli([...append, '--allow-writes']),
    cli(['dryrun', 'google-sheet/misfit', ...on(), ...here()]),
    cli(['dryrun', 'google-sheet/append-row', ...on(), ...here(), '--input', '{"values": 1}']),
    cli(['dryrun', 'google-sheet/stalls', ...on(), ...here(), '--input', '{"n": 1}']),
    cli(['dryrun', 'google-sheet/typed', ...on(), ...here(), '--input', '{"n": 1}']),
    cli(['dryrun', 'google-sheet/leaves', ...on(), ...here(), '--input', '{"n": 1}']),
  ]);
  // It ends although a timer and a call go on, and says what was thrown.
  assert.deepEqual([leaves.code, leaves.stderr.trim()], [1, String.raw`{"reason":"\u001b[31mred"}`]);
  assert.equal(allowed.code, 0, allowed.stderr);
  assert.match(allowed.stdout, /Output: \{\n {2}"range": "Sheet1!/);
  assert.equal((await cells()).length, before.length + 1);
  assert.equal(misfit.code, 1);
  assert.match(misfit.stderr, /Row: 1 record\(s\) do not match the model\n {2}2: size: Invalid input/);
  assert.equal(badInput.code, 1);
  assert.match(badInput.stderr, /The input does not fit at spreadsheetId/);
  assert.equal(stalls.code, 1);
  assert.match(stalls.stderr, /waits for a promise that no call and no timer can settle/);
  assert.equal(typed.code, 1);
  assert.match(typed.stderr, /^google-sheet\/actions\/typed\.ts:\d+:\d+: TS2322: /);
  for (const name of ['misfit', 'stalls', 'typed', 'leaves'])
    await rm(join(folder, `google-sheet/${name === 'misfit' ? 'syncs' : 'actions'}/${name}.ts`));
});

test('a call that a server could treat as another method is not a read', () => {
  const reads = (args: Partial<OutgoingCall['args']>) =>
    isRead({ name: 'proxy', args: { method: 'GET', ...args }, body: undefined });
  for (const args of [
    {},
    { endpoint: '/pay?payment_method=card&methods=all', query: 'shipping-method=post_office' },
    { headers: { accept: 'x', 'x-request-id': 'y' }, query: 'method=card' },
  ])
    assert.ok(reads(args), JSON.stringify(args));
  for (const args of [
    { method: 'POST' },
    { headers: { 'X-HTTP-Method-Override': 'DELETE' } },
    { headers: { x_method_override: 'DELETE' } },
    { headers: { 'x-original-url': '/other' } },
    { query: '_method=DELETE' },
    { query: '%24httpMethod=POST' },
    { query: '$httpHeaders=x' },
    { endpoint: '/a?x-http-method-override=PUT' },
    { url: 'https://example.com/a?verb=delete' },
  ])
    assert.ok(!reads(args), JSON.stringify(args));
});

test('a run is followed through an outage of the service', async (t) => {
  let refused = 0;
  const service = createHttpServer((request, response) => {
    if (refused < 2) {
      refused += 1;
      request.socket.destroy();
      return;
    }
    const run = { id: '1', state: 'succeeded', counts: {}, error: null };
    response.end(JSON.stringify(request.url?.includes('/lines') ? { lines: [], has_more: false } : run));
  });
  service.listen(0, '127.0.0.1');
  await once(service, 'listening');
  t.after(() => service.close());
  const { port } = service.address() as AddressInfo;
  const printed: string[] = [];
  const api = createApi({ TRELLIS_URL: `http://127.0.0.1:${port}`, TRELLIS_SECRET_KEY: 'any' });
  const run = await followRun(api, '1', { print: (line) => void printed.push(line) });
  assert.deepEqual([run.state, printed.length], ['succeeded', 1]);
  refused = 0;
  await assert.rejects(
    followRun(api, '1', { print: () => {}, signal: AbortSignal.abort() }),
    /cannot be reached/,
  );
});

test('printed text cannot move the cursor of a terminal', () => {
  assert.equal(escapeControls('a\u001b[2J\u009bK\r\n\tb\u0007é'), 'a\\x1b[2J\\x9bK\\x0d\n\tb\\x07é');
});

test('a local run paginates according to the definition of the provider', async () => {
  const api = createApi(settings());
  assert.equal((await findPaginate(api, 'github'))?.type, 'link');
  assert.equal(await findPaginate(api, 'private-api-key'), undefined);
});

test('invalid arguments are reported, and the command exits with 2', async () => {
  for (const [args, message] of [
    [['dryrun', 'google-sheet/sheet-rows', ...here()], /required option '--connection <id>'/],
    [['dryrun', 'rows', ...on(), ...here()], /write <integration>\/<function>/],
    [
      ['dryrun', 'google-sheet/none', ...on(), ...here()],
      /no function google-sheet\/none .*google-sheet\/syncs\/sheet-rows/,
    ],
    [['run', 'google-sheet/sheet-rows', ...on(), '--input', '{'], /--input is not JSON/],
    [
      ['dryrun', 'google-sheet/sheet-rows', ...on(), ...here(), '--metadata', '[]'],
      /--metadata must be a JSON object/,
    ],
    [['dev', folder, ...on()], /--connection requires --run/],
    [['dev', join(folder, 'README.md')], /README\.md is not a folder/],
    [['deploy', join(folder, 'README.md')], /README\.md is not a folder/],
    [['deploy', folder, '--env-file', join(home, 'none.env')], /cannot be read: ENOENT/],
  ] as const) {
    const { code, stderr } = await callCommand([...args], settings());
    assert.deepEqual([code, message.test(stderr)], [2, true], stderr);
  }
});

test('dev deploys each save, runs one function, shows the changed records, and ends on SIGINT', async () => {
  const child = spawn(
    process.execPath,
    [
      join(import.meta.dirname, '../../server/cli/main.ts'),
      'dev',
      folder,
      '--run',
      'google-sheet/saves',
      ...on(),
    ],
    { env: { PATH: process.env.PATH, ...settings() }, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  const exited = once(child, 'exit');
  const seen: string[] = [];
  let told = () => {};
  for (const stream of [child.stdout, child.stderr])
    createInterface({ input: stream }).on('line', (line) => {
      seen.push(line);
      told();
    });
  /** All that comes up to a line. */
  const until = async (wanted: RegExp): Promise<string> => {
    for (;;) {
      const at = seen.findIndex((line) => wanted.test(line));
      if (at >= 0) return seen.splice(0, at + 1).join('\n');
      if (child.exitCode !== null) throw new Error(`it ended:\n${seen.join('\n')}`);
      await new Promise<void>((resolve) => {
        told = resolve;
      });
    }
  };
  const saves = (model: string) => `import { createSync } from 'trellis';
import { z } from 'zod';
export default createSync({
  description: 'Saves.',
  frequency: 'every hour',
  autoStart: false,
  models: { Thing: z.object({ id: z.string(), size: z.number() }) },
  exec: async (trellis) => {
    await trellis.log('saving');
    await trellis.batchSave([${model}], 'Thing');
  },
});
`;
  const missing = await until(/^Waiting/);
  assert.match(missing, /The integration has no function "saves"/);
  await write('google-sheet/syncs/saves.ts', saves("{ id: 'a', size: 1 }, { id: 'b', size: 1 }"));
  const first = await until(/^Waiting/);
  assert.match(first, /\+ google-sheet\/syncs\/saves\nDeployed to /);
  assert.match(first, / {2}saving\nThing: 2 added, 0 updated, 0 deleted, 0 unchanged\nThe run succeeded\./);
  assert.match(first, /Thing a ADDED \{"id":"a","size":1\}\n {2}Thing b ADDED \{"id":"b","size":1\}/);
  await write('google-sheet/syncs/saves.ts', saves("{ id: 'a', size: 'big' }"));
  const wrong = await until(/^Waiting/);
  assert.match(wrong, /^google-sheet\/syncs\/saves\.ts:\d+:\d+: TS2322: [\s\S]*Nothing was deployed/);
  await write('google-sheet/syncs/saves.ts', saves("{ id: 'a', size: 2 }"));
  const second = await until(/^Waiting/);
  assert.match(second, /~ google-sheet\/syncs\/saves/);
  assert.match(second, /Thing a UPDATED \{"id":"a","size":2\}/);
  assert.doesNotMatch(second, /Thing b/);
  child.kill('SIGINT');
  assert.deepEqual(await exited, [0, null]);
  assert.equal(seen.at(-1), 'Ended.');
});
