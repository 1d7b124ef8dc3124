// Updates of the definitions: a signed file is applied to a running service, refused, and rolled back.
// Slow: nodes look for requests every five seconds, and each case is one request.

import assert from 'node:assert/strict';
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand } from '../support/command.ts';
import { openEmptyDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

let bench: TestDatabase;
let directory: string;
let providers: string;
let settings: Record<string, string>;
let node: RunningService;
const keys = generateKeyPairSync('ed25519');
before(async () => {
  bench = await openEmptyDatabase();
  directory = await mkdtemp(join(tmpdir(), 'trellis-provider-updates-'));
  providers = join(directory, 'providers');
  await mkdir(providers);
  await writeKey('key.pem', keys.privateKey);
  settings = {
    DATABASE_URL: urlOf(bench.target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_PROVIDERS_DIR: providers,
    TRELLIS_PROVIDERS_SIGNED_BY: keys.publicKey.export({ format: 'der', type: 'spki' }).toString('base64'),
  };
  node = await startRunningService({ env: settings });
});
after(async () => {
  await node?.stop();
  await rm(directory, { recursive: true });
  await bench.drop();
});

const writeKey = (name: string, key: typeof keys.privateKey) =>
  writeFile(join(directory, name), key.export({ type: 'pkcs8', format: 'pem' }));

/** A signed file with these definitions. */
async function signed(definitions: Record<string, string>, key = 'key.pem'): Promise<string> {
  const folder = await mkdtemp(join(directory, 'sources-'));
  for (const [name, text] of Object.entries(definitions)) await writeFile(join(folder, `${name}.yaml`), text);
  const out = `${folder}.signed`;
  const { code, stderr } = await runCommand(
    ['providers', 'sign', folder, '--key-file', join(directory, key), '--out', out],
    settings,
  );
  assert.deepEqual([code, stderr], [0, '']);
  return out;
}
const update = (file: string, env = {}) => runCommand(['providers', 'update', file], { ...settings, ...env });
const rollback = () => runCommand(['providers', 'rollback'], settings);
const renamed = (title: string) => ({
  'google-sheet': `extends: google-sheet\ndisplay_name: ${title}\n`,
  'new-crm': `extends: private-api-key\ndisplay_name: ${title} CRM\n`,
});
async function titles(): Promise<(string | undefined)[]> {
  return Promise.all(
    ['google-sheet', 'new-crm'].map(async (name) => {
      const answer = await node.call('GET', `/providers/${name}`).catch(() => undefined);
      return (answer as { data: { display_name: string } } | undefined)?.data.display_name;
    }),
  );
}

test('an update replaces and adds definitions in a running service', async () => {
  const { code, stdout, stderr } = await update(await signed(renamed('First')));
  assert.deepEqual([code, stderr], [0, '']);
  assert.match(stdout, /^Applied 2 definitions, made \d{4}-/);
  assert.deepEqual(await titles(), ['First', 'First CRM']);
});

test('a file that was changed, signed by another key, or is no update is refused, and nothing changes', async () => {
  const good = await signed(renamed('Other'));
  const changed = join(directory, 'changed.signed');
  await writeFile(changed, (await readFile(good, 'utf8')).replace('Other', 'Evil!'));
  await writeKey('other.pem', generateKeyPairSync('ed25519').privateKey);
  const foreign = await signed(renamed('Other'), 'other.pem');
  for (const file of [changed, foreign]) {
    const { code, stderr } = await update(file);
    assert.equal(code, 1);
    assert.match(stderr, /The signature is not valid for the key in TRELLIS_PROVIDERS_SIGNED_BY/);
  }
  const plain = join(directory, 'plain.yaml');
  await writeFile(plain, 'display_name: X\n');
  assert.match((await update(plain)).stderr, /not an update of definitions/);
  const unset = await update(good, { TRELLIS_PROVIDERS_SIGNED_BY: '' });
  assert.match(unset.stderr, /TRELLIS_PROVIDERS_SIGNED_BY must be set/);
  const wrong = await update(good, { TRELLIS_PROVIDERS_SIGNED_BY: 'AAAA' });
  assert.match(wrong.stderr, /must be an Ed25519 public key in base64/);
  assert.deepEqual(await titles(), ['First', 'First CRM']);
});

test('a wrong definition is refused with its line before it is in use', async () => {
  const { code, stderr } = await update(
    await signed({ 'new-crm': 'extends: private-api-key\ncolour: red\n' }),
  );
  assert.equal(code, 1);
  assert.match(stderr, /new-crm\.yaml:2: colour: is no key that is known here/);
  const mode = await update(await signed({ 'google-sheet': 'extends: google-sheet\nauth_mode: NONE\n' }));
  assert.equal(mode.code, 1);
  assert.match(mode.stderr, /auth_mode: must be OAUTH2/);
  assert.deepEqual(await titles(), ['First', 'First CRM']);
  assert.deepEqual((await readdir(providers)).sort(), ['updates', 'updates.previous']);
});

test('an update or a rollback that removes a definition in use is refused before a node reads it', async () => {
  await node.call('POST', '/integrations', {
    body: { provider: 'new-crm', unique_key: 'crm', integration_config: { base_url: 'https://a.example' } },
  });
  const { 'new-crm': _gone, ...others } = renamed('Second');
  for (const { code, stdout, stderr } of [await update(await signed(others)), await rollback()]) {
    assert.deepEqual([code, stdout], [1, '']);
    assert.match(stderr, /"new-crm" has no definition, but integrations use it: crm\nNothing was changed\./);
  }
  assert.deepEqual(await titles(), ['First', 'First CRM']);
  await node.call('DELETE', '/integrations/crm');
});

test('an update that a node refuses is rolled back', async () => {
  const elsewhere = join(directory, 'elsewhere');
  await mkdir(elsewhere);
  const dataDir = join(directory, 'data');
  await mkdir(dataDir);
  await writeFile(join(dataDir, 'dev.key'), node.secretKey);
  const env = { ...settings, TRELLIS_PROVIDERS_DIR: elsewhere };
  const other = await startRunningService({ env, dataDir });
  try {
    await writeFile(join(elsewhere, 'own-broken.yaml'), 'colour: red\n');
    const { code, stderr } = await update(await signed(renamed('Second')));
    assert.equal(code, 1);
    assert.match(stderr, /own-broken\.yaml:1: colour: is no key that is known here/);
    assert.match(stderr, /the update is rolled back/);
    assert.deepEqual(await titles(), ['First', 'First CRM']);
  } finally {
    await other.stop();
  }
});

test('a rollback returns to the update before, and an older update is not applied again', async () => {
  const older = await signed(renamed('Older'));
  assert.equal((await update(await signed(renamed('Third')))).code, 0);
  assert.deepEqual(await titles(), ['Third', 'Third CRM']);
  const refused = await update(older);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /is not newer than the applied one/);
  const back = await rollback();
  assert.deepEqual([back.code, back.stderr], [0, '']);
  assert.deepEqual(await titles(), ['First', 'First CRM']);
  const shipped = await rollback();
  assert.deepEqual([shipped.code, shipped.stderr], [0, '']);
  assert.match(shipped.stdout, /The definitions that ship are in use again/);
  assert.deepEqual(await titles(), ['Google Sheets', undefined]);
  const none = await rollback();
  assert.deepEqual([none.code, none.stderr.trim()], [1, 'No update is applied.']);
});
