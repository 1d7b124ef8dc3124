// Slow: it compiles and deploys folders.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, test } from 'node:test';
import { type CommandEnd, callCommand, runCommand } from '../../test/support/command.ts';
import { openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { createRecorder, type Recording } from '../local/recording.ts';

let trellis: TestTrellis;
let folder: string;
/** What the provider was asked, and a key of it. */
const asked: string[] = [];
const apiKey = randomBytes(24).toString('hex');
const provider = createServer(async (request: IncomingMessage, response) => {
  const body = Buffer.concat(await request.toArray()).toString();
  asked.push(`${request.method} ${request.url} ${body}`);
  response.setHeader('set-cookie', 'session=abcdefgh');
  response.setHeader('x-next', '2');
  response.setHeader('content-type', 'application/json');
  response.end(JSON.stringify({ items: [{ id: 1, name: 'one' }] }));
});

before(async () => {
  provider.listen(0, '127.0.0.1');
  await once(provider, 'listening');
  const origin = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' });
  await trellis.call('POST', '/integrations', {
    body: { provider: 'private-api-key', unique_key: 'api', integration_config: { base_url: origin } },
  });
  const made = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'api',
      connection_id: 'acme',
      credentials: { type: 'API_KEY', apiKey },
      metadata: { since: 'monday' },
    },
  });
  assert.equal(made.status, 201, made.text);
  folder = await mkdtemp(join(tmpdir(), 'trellis-recordings-'));
});
after(async () => {
  provider.close();
  provider.closeAllConnections();
  await trellis.close();
  await rm(folder, { recursive: true, force: true });
});

const write = async (file: string, text: string) => {
  await mkdir(dirname(join(folder, file)), { recursive: true });
  await writeFile(join(folder, file), text);
};
const record = (target: string, ...more: string[]): Promise<CommandEnd> =>
  runCommand(['test', target, '--record', '--connection', 'acme', '--folder', folder, ...more], {
    TRELLIS_URL: trellis.baseUrl,
    TRELLIS_SECRET_KEY: trellis.keys.dev,
    // A day is another one there.
    TZ: 'Asia/Tokyo',
  });
/** Without a service, without a key. */
const play = (...targets: string[]): Promise<CommandEnd> =>
  callCommand(['test', ...targets, '--folder', folder]);
const things = ({ endpoint = '/things', name = 'thing.name', extra = '' } = {}) => `
import { createSync } from 'trellis';
import { z } from 'zod';
export default createSync({
  description: 'Saves things.',
  frequency: 'every hour',
  models: { Thing: z.object({ id: z.string(), name: z.string(), at: z.date(), next: z.string() }) },
  checkpoint: z.object({ at: z.string(), zone: z.number() }),
  exec: async (trellis) => {
    const { since } = await trellis.getMetadata();
    const now = new Date();
    const { data, headers } = await trellis.get({ endpoint: '${endpoint}', params: { until: now.toISOString(), since: String(since) } });
    await new Promise((done) => setTimeout(done, 5));
    ${extra}
    const next = String(headers['x-next']);
    const at = new Date(Date.now());
    await trellis.batchSave(data.items.map((thing: { id: number; name: string }) => ({ id: String(thing.id), name: ${name}, at, next })), 'Thing');
    await trellis.saveCheckpoint({ at: now.toISOString(), zone: now.getTimezoneOffset() });
  },
});
`;

test('a sync is recorded once and replayed without a service, at the recorded time', async () => {
  await write('api/syncs/things.ts', things());
  const recorded = await record('api/things');
  assert.equal(recorded.code, 0, recorded.stderr);
  assert.match(recorded.stdout, /Recorded 1 call\(s\) in .*things\.test\.json, with data of acme\./);
  const calls = asked.length;
  const played = await runCommand(['test', '--folder', folder], {});
  assert.deepEqual(
    [played.code, played.stdout],
    [0, 'ok      api/syncs/things\n1 passed, 0 failed.\n'],
    played.stderr,
  );
  assert.equal(asked.length, calls, 'the provider heard nothing');
});

test('a difference is reported: a value, a call that was not recorded or not made, an error and its location', async () => {
  const failures: [change: Parameters<typeof things>[0], message: RegExp][] = [
    [{ name: 'thing.name.toUpperCase()' }, /Thing 1\.saved\.name: recorded "one", now "ONE"/],
    [
      { endpoint: '/others' },
      /GET \/others\?.* was not recorded\.\n {2}GET \/things\?.* was recorded, and not made\.[\s\S]*at api\/syncs\/things\.ts:\d+:\d+/,
    ],
    [{ extra: "await trellis.get({ endpoint: '/more' }).catch(() => {});" }, /GET \/more was not recorded\./],
    [{ extra: "throw new Error('broken');" }, /error: recorded nothing, now \{"message":"broken"\}/],
  ];
  for (const [change, message] of failures) {
    await write('api/syncs/things.ts', things(change));
    const { code, stdout, stderr } = await play('api/things');
    assert.deepEqual([code, stdout], [1, '0 passed, 1 failed.\n']);
    assert.match(stderr, /^FAILED {2}api\/syncs\/things\n/);
    assert.match(stderr, message);
  }
  await write('api/syncs/things.ts', things());
  assert.equal((await play('api/things')).code, 0);
});

test('a recording has neither credentials nor their headers, even if the code repeats them', async () => {
  await write(
    'api/actions/echo.ts',
    `
import { createAction } from 'trellis';
import { z } from 'zod';
export default createAction({
  description: 'Says what it knows.',
  input: z.object({ word: z.string() }),
  output: z.any(),
  exec: async (trellis, { word }) => {
    const { credentials } = await trellis.getConnection();
    const { data } = await trellis.post({ endpoint: '/echo?key=' + encodeURIComponent(credentials.apiKey), data: { word, key: credentials.apiKey } });
    const basic = Buffer.from(credentials.apiKey).toString('base64');
    return { word, items: data.items.length, basic, plain: credentials.apiKey, variables: await trellis.getEnvironmentVariables() };
  },
});
`,
  );
  const secret = randomBytes(12).toString('hex');
  await trellis.call('PUT', '/environment-variables', {
    body: { variables: [{ name: 'SALT', value: secret }] },
  });
  const refused = await record('api/echo', '--input', '{"word": "hello"}');
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /requires --allow-writes[\s\S]*Nothing was recorded/);
  assert.deepEqual(await readdir(join(folder, 'api/actions')), ['echo.ts']);
  const recorded = await record(
    'api/echo',
    '--input',
    '{"word": "hello"}',
    '--allow-writes',
    '--case',
    'hello',
  );
  assert.equal(recorded.code, 0, recorded.stderr);
  const text = await readFile(join(folder, 'api/actions/echo.hello.test.json'), 'utf8');
  for (const hidden of [
    apiKey,
    secret,
    trellis.keys.dev,
    Buffer.from(apiKey).toString('base64'),
    'session=abc',
  ])
    assert.ok(!text.includes(hidden), text);
  const { outcome, calls } = JSON.parse(text) as Recording;
  const result = outcome.result as { basic: string; plain: string; variables: object[] };
  assert.equal(result.plain, 'SECRET-credentials.apiKey');
  assert.equal(result.basic, Buffer.from(result.plain).toString('base64'));
  assert.ok(!recorded.stdout.includes(apiKey));
  assert.deepEqual(result.variables, [{ name: 'SALT', value: 'SECRET-variable.SALT' }]);
  assert.equal(calls[0]?.answer.headers['x-next'], '2');
  const played = await play('api/echo', 'api/things');
  assert.deepEqual(
    [played.code, played.stdout.split('\n')[0]],
    [0, 'ok      api/actions/echo, hello'],
    played.stderr,
  );
  // The body of a call counts, too.
  const source = await readFile(join(folder, 'api/actions/echo.ts'), 'utf8');
  await write('api/actions/echo.ts', source.replace('data: { word,', "data: { word: word + '!',"));
  const other = await play('api/echo');
  assert.match(other.stderr, /POST \/echo\?.* was not recorded with this body\./);
});

test('a recording has no credentials from responses of the provider', async () => {
  const given = randomBytes(20).toString('hex');
  const answer = { echo: `Bearer ${apiKey}`, form: encodeURIComponent(`${apiKey}+/`), id: 'kept' };
  const inOtherForms = [
    ...['', 'a', 'ab', 'user:'].map((before) => Buffer.from(`${before}${apiKey}:`).toString('base64')),
    ...['', 'x', 'xy'].map((before) => Buffer.from(`${before}${apiKey}~~`).toString('base64url')),
    Buffer.from(apiKey).toString('hex'),
  ];
  const answers: object[] = [
    answer,
    inOtherForms,
    { access_token: given, expires_in: 10 },
    { seen: `for ${given}` },
  ];
  const { reads, addCredentials, finish } = createRecorder(
    {
      call: async () => ({
        value: { status: 200, statusText: 'OK', headers: { 'x-api-key': apiKey, 'x-page': '1' } },
        body: Buffer.from(JSON.stringify(answers.shift())),
      }),
      fact: async () => null,
    },
    { connection: { credentials: { apiKey: `${apiKey}`, nested: { pass: `${apiKey}+/` } } }, key: 'none' },
  );
  for (const _ of [...answers])
    await reads.call({ name: 'proxy', args: { method: 'GET', endpoint: '/me' }, body: undefined });
  addCredentials({ apiKey: 'renewed-meanwhile' });
  const about = {
    connectionId: 'acme',
    providerConfigKey: 'api',
    provider: 'x',
    environmentName: 'dev',
    variant: 'base',
  };
  const outcome = { records: {}, checkpoint: null, metadata: { last: 'renewed-meanwhile' } };
  const recording = finish({
    function: 'api/syncs/me',
    recorded_at: new Date().toISOString(),
    about,
    metadata: {},
    checkpoint: null,
    outcome,
  });
  const text = JSON.stringify(recording);
  for (const secret of [given, 'renewed-meanwhile']) assert.ok(!text.includes(secret));
  for (const form of inOtherForms) assert.ok(!text.includes(form.slice(8, -8)), form);
  const [call] = recording.calls;
  assert.deepEqual(call?.answer.headers, { 'x-page': '1' });
  assert.deepEqual(call.answer.body, {
    spaces: 0,
    end: '',
    json: { echo: 'Bearer SECRET-credentials.apiKey', form: 'SECRET-credentials.nested.pass', id: 'kept' },
  });
});

test('a run that is not reproducible or fails is not recorded', async () => {
  await cp(join(folder, 'api/syncs/things.ts'), join(folder, 'api/syncs/dice.ts'));
  await write('api/syncs/dice.ts', things({ name: 'String(Math.random())' }));
  const [dice, broken, none] = await Promise.all([
    record('api/dice'),
    record('api/things', '--metadata', '{"since": 1}', '--case', 'number').then(async () => {
      await write('api/syncs/broken.ts', things({ extra: "throw new Error('broken');" }));
      return record('api/broken');
    }),
    play('api/dice'),
  ]);
  assert.equal(dice.code, 1);
  assert.match(dice.stderr, /Thing 1\.saved\.name: recorded[\s\S]*may depend on random values/);
  assert.equal(broken.code, 1);
  assert.match(broken.stderr, /^api\/syncs\/broken\.ts:\d+:\d+: broken\nNothing was recorded/);
  assert.deepEqual([none.code, /There is no recording/.test(none.stderr)], [1, true]);
  const key = await trellis.keyWith('connections:read', 'integrations:read', 'proxy:read');
  const blind = await runCommand(
    ['test', 'api/things', '--record', '--connection', 'acme', '--folder', folder],
    {
      TRELLIS_URL: trellis.baseUrl,
      TRELLIS_SECRET_KEY: key,
    },
  );
  assert.match(blind.stderr, /lacks the scope connections:credentials/);
  assert.deepEqual(
    (await readdir(join(folder, 'api/syncs'))).filter((file) => file.endsWith('.json')).sort(),
    ['things.number.test.json', 'things.test.json'],
  );
});
