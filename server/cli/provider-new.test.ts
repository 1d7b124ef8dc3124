// Slow: it starts processes of its own.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { stripVTControlCharacters } from 'node:util';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import { runCommand, surroundings } from '../../test/support/command.ts';
import { authModes } from '../auth-modes/modes.ts';
import { newProviderModes } from './commands.ts';

const main = join(import.meta.dirname, 'main.ts');

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-provider-new-'));
});
after(() => rm(directory, { recursive: true }));

const basics = [
  '--title',
  'Acme',
  '--docs',
  'https://acme.example/docs',
  '--api',
  'https://api.acme.example/v1',
];
const token = ['--token', 'https://acme.example/token'];
const scope = ['--service', 'sqs', '--region', 'eu-west-1'];
/** Modes whose calls have no credentials at a fixed place. */
const signed = ['OAUTH1', 'AWS_SIGV4', 'AWS_ROLE', 'NONE'];
const hasScript = spawnSync('script', ['--version']).status === 0;

/** Runs a command at a pseudo-terminal, and answers each question after it is shown. */
async function typeAt(args: string[], answers: string[]): Promise<{ code: number | null; shown: string }> {
  const line = [process.execPath, main, ...args].map((arg) => `'${arg}'`).join(' ');
  const child = spawn('script', ['--quiet', '--return', '--command', line, '/dev/null'], {
    env: surroundings,
  });
  const left = [...answers];
  let shown = '';
  let asked = '';
  child.stdout.on('data', (bytes: Buffer) => {
    shown += bytes;
    asked += bytes;
    // A prompt ends with a colon and a space, perhaps before codes that move the cursor.
    const isPrompt = stripVTControlCharacters(asked).endsWith(': ');
    if (!isPrompt || left.length === 0) return;
    asked = '';
    child.stdin.write(`${left.shift()}\n`);
  });
  const [code] = (await once(child, 'close')) as [number | null];
  return { code, shown: stripVTControlCharacters(shown) };
}
const run = (name: string, ...more: string[]) =>
  runCommand(['provider', 'new', name, ...basics, '--out', directory, ...more], {});
const textOf = (name: string) => readFile(join(directory, `${name}.yaml`), 'utf8');

test('an OAuth definition is written, its flow is tested, and missing parts are named', async () => {
  const page = ['--authorization', 'https://acme.example/authorize'];
  const { code, stdout, stderr } = await run('own-acme', '--mode', 'OAUTH2', ...token, ...page);
  assert.deepEqual([code, stderr], [0, '']);
  for (const step of ['authorization', 'code exchange', 'API call', 'refresh'])
    assert.ok(stdout.includes(`ok: ${step}\n`), stdout);
  for (const part of ['source', 'verification', 'scopes', 'revocation', 'userinfo', 'setup'])
    assert.match(stdout, new RegExp(`missing: .*\`${part}\``));
  const { definition } = catalog.read({ name: 'own-acme', text: await textOf('own-acme') });
  assert.equal(definition.authorization?.url, 'https://acme.example/authorize');
  const again = await run('own-acme', '--mode', 'OAUTH2', ...token, ...page);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /exists already/);
});

test('the definition of each other mode is valid, and shows where credentials go', async () => {
  const more: Record<string, string[]> = {
    OAUTH2_CC: token,
    OAUTH1: [
      '--request',
      'https://acme.example/request',
      '--authorization',
      'https://acme.example/authorize',
      ...token,
    ],
    TWO_STEP: token,
    JWT: token,
    AWS_SIGV4: scope,
    AWS_ROLE: ['--token', 'https://sts.eu-west-1.amazonaws.com/', ...scope],
  };
  const modes = [...authModes.keys()];
  assert.deepEqual([...newProviderModes].toSorted(), modes.toSorted());
  for (const mode of modes.filter((name) => name !== 'OAUTH2')) {
    const name = `own-${mode.toLowerCase().replace('_', '-')}`;
    const { code, stdout, stderr } = await run(name, '--mode', mode, ...(more[mode] ?? []));
    assert.deepEqual([code, stderr], [0, ''], mode);
    if (!signed.includes(mode))
      assert.match(stdout, /A call of https:\/\/api\.acme\.example\/v1 has the header Authorization: /);
    assert.equal(catalog.read({ name, text: await textOf(name) }).definition.auth_mode, mode);
  }
  const keyed = await run('own-keyed', '--mode', 'API_KEY', '--header', 'X-Key');
  assert.match(keyed.stdout, /has the header X-Key: \$\{credentials\.apiKey\}/);
});

test('a person at a terminal types what the options lack', {
  skip: hasScript ? false : 'no script(1)',
}, async () => {
  const answers = [
    'OAUTH1',
    'Acme classic',
    'https://acme.example/docs',
    'https://api.acme.example',
    'https://acme.example/request',
    'https://acme.example/authorize',
    ' https://acme.example/token ',
  ];
  const { code, shown } = await typeAt(['provider', 'new', 'own-typed', '--out', directory], answers);
  assert.equal(code, 0, shown);
  assert.match(shown, /Auth mode \(OAUTH2, .*, NONE\): /);
  assert.match(shown, /endpoint for temporary credentials: /);
  assert.doesNotMatch(shown, /Region/, 'only what the mode has');
  const { definition } = catalog.read({ name: 'own-typed', text: await textOf('own-typed') });
  assert.deepEqual(
    [definition.display_name, definition.oauth1?.request_url, definition.token?.url],
    ['Acme classic', 'https://acme.example/request', 'https://acme.example/token'],
  );
  const unknown = await typeAt(['provider', 'new', 'own-unknown', '--out', directory], ['SAML']);
  assert.equal(unknown.code, 1, unknown.shown);
  assert.match(unknown.shown, /Missing: --mode, --title, --docs, --api\./);
});

test('answers that are missing or wrong are named', async () => {
  for (const name of ['Own_Acme', '../own-outside']) {
    const { code, stderr } = await run(name, '--mode', 'NONE');
    assert.deepEqual([code, stderr], [1, 'The name must be lower-case with hyphens.\n']);
    await assert.rejects(textOf(name), { code: 'ENOENT' });
  }
  const missing = await run('own-less', '--mode', 'OAUTH2');
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /Missing: --authorization, --token\./);
  const wrong = await run('own-plain', '--mode', 'OAUTH2_CC', '--token', 'http://acme.example/token');
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /own-plain\.yaml:\d+: token\.url: the address must be https/);
});
