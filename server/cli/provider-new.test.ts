import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import { runCommand } from '../../test/support/command.ts';

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
  for (const mode of ['OAUTH2_CC', 'API_KEY', 'BASIC', 'TWO_STEP', 'JWT']) {
    const name = `own-${mode.toLowerCase().replace('_', '-')}`;
    const isWithoutToken = mode === 'API_KEY' || mode === 'BASIC';
    const { code, stdout, stderr } = await run(name, '--mode', mode, ...(isWithoutToken ? [] : token));
    assert.deepEqual([code, stderr], [0, ''], mode);
    assert.match(stdout, /A call of https:\/\/api\.acme\.example\/v1 has the header Authorization: /);
    assert.equal(catalog.read({ name, text: await textOf(name) }).definition.auth_mode, mode);
  }
  const keyed = await run('own-keyed', '--mode', 'API_KEY', '--header', 'X-Key');
  assert.match(keyed.stdout, /has the header X-Key: \$\{credentials\.apiKey\}/);
});

test('answers that are missing or wrong are named', async () => {
  const missing = await run('own-less', '--mode', 'OAUTH2');
  assert.equal(missing.code, 1);
  assert.match(missing.stderr, /Missing: --authorization, --token\./);
  const wrong = await run('own-plain', '--mode', 'OAUTH2_CC', '--token', 'http://acme.example/token');
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /own-plain\.yaml:\d+: token\.url: the address must be https/);
});
