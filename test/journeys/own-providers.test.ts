// Provider definitions of the operator: two nodes read them at their start, and again when they are told to.
// Slow: nodes look for requests every five seconds, and each case is one request.

import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { runCommand } from '../support/command.ts';
import { openEmptyDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { type RunningService, startRunningService } from '../support/service.ts';

const definition = (title: string, more = '') => `extends: google-sheet
display_name: ${title}
logo: own-sheets.svg
${more}`;

let bench: TestDatabase;
let directory: string;
let settings: Record<string, string>;
let api: RunningService;
let worker: RunningService;
before(async () => {
  bench = await openEmptyDatabase();
  directory = await mkdtemp(join(tmpdir(), 'trellis-own-providers-'));
  await put('own-sheets.yaml', definition('Sheets of ours'));
  await mkdir(join(directory, 'logos'));
  await writeFile(join(directory, 'logos/own-sheets.svg'), '<svg xmlns="http://www.w3.org/2000/svg"/>');
  settings = {
    DATABASE_URL: urlOf(bench.target),
    TRELLIS_ENCRYPTION_KEYS: `k1:${randomBytes(32).toString('base64')}`,
    TRELLIS_PROVIDERS_DIR: directory,
  };
  api = await startRunningService({ env: { ...settings, TRELLIS_ROLE: 'api' } });
  worker = await startRunningService({
    dataDir: api.dataDir,
    env: { ...settings, TRELLIS_ROLE: 'worker', TRELLIS_SANDBOX: 'off' },
  });
});
after(async () => {
  await worker?.stop();
  await api?.stop();
  await rm(directory, { recursive: true });
  await bench.drop();
});

const put = (file: string, text: string) => writeFile(join(directory, file), text);
const reload = () => runCommand(['providers', 'reload'], settings);
async function titleOf(name: string): Promise<string> {
  const { data } = (await api.call('GET', `/providers/${name}`)) as { data: { display_name: string } };
  return data.display_name;
}
const isBodyOf = (text: string) => (error: Error) => error.message.includes(text);

test('an account connects by a definition of the operator, and calls reach its API', async () => {
  await api.call('POST', '/integrations', {
    body: { provider: 'own-sheets', unique_key: 'ours', credentials: { type: 'TEST' } },
  });
  const { spreadsheetId } = (await api.sandbox('POST', 'spreadsheets', {
    account: 'ada@example.com',
    title: 'Notes',
    sheet: 'notes',
    csv: 'a,b\n1,2\n',
  })) as { spreadsheetId: string };
  const { data } = (await api.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['ours'] },
  })) as { data: { token: string } };
  const begun = await fetch(`${api.baseUrl}/oauth/connect/ours?connect_session_token=${data.token}`, {
    redirect: 'manual',
  });
  const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const { redirect } = (await api.sandbox('POST', 'authorize', {
    url: begun.headers.get('location'),
    account: 'ada@example.com',
  })) as { redirect: string };
  const landed = await fetch(redirect, { headers: { cookie: cookie.join('; ') }, redirect: 'manual' });
  assert.equal(landed.status, 200, await landed.text());
  const { connections } = (await api.call('GET', '/connections')) as {
    connections: { connection_id: string; provider: string }[];
  };
  assert.deepEqual(
    connections.map(({ provider }) => provider),
    ['own-sheets'],
  );
  const sheet = await api.call('GET', `/proxy/v4/spreadsheets/${spreadsheetId}`, {
    headers: { 'connection-id': connections[0]!.connection_id, 'provider-config-key': 'ours' },
  });
  assert.partialDeepStrictEqual(sheet, { properties: { title: 'Notes' } });
  const logo = await fetch(`${api.baseUrl}/providers/logos/own-sheets.svg`);
  assert.equal(await logo.text(), '<svg xmlns="http://www.w3.org/2000/svg"/>');
});

test('all nodes read changed and new definitions when the command requests it', async () => {
  await put('own-sheets.yaml', definition('Sheets of ours, renamed'));
  await put('own-crm.yaml', definition('A CRM'));
  assert.equal(await titleOf('own-sheets'), 'Sheets of ours');
  const { code, stdout, stderr } = await reload();
  assert.deepEqual([code, stderr], [0, '']);
  assert.equal(stdout.match(/: the new definitions are in use$/gm)?.length, 2, stdout);
  assert.equal(await titleOf('own-sheets'), 'Sheets of ours, renamed');
  assert.equal(await titleOf('own-crm'), 'A CRM');
});

test('a wrong file changes nothing, and the command has its line and the reason', async () => {
  await put('own-crm.yaml', definition('Another CRM', 'api:\n  base_url: http://crm.example\n'));
  await put('own-new.yaml', definition('New'));
  const { code, stderr } = await reload();
  assert.equal(code, 1);
  assert.match(stderr, /the previous definitions stay in use/);
  assert.ok(stderr.includes(`${join(directory, 'own-crm.yaml')}:5: api.base_url: `), stderr);
  assert.equal(await titleOf('own-crm'), 'A CRM');
  await assert.rejects(titleOf('own-new'), isBodyOf('not_found'));
});

test('a definition that an integration uses can neither go nor change its auth mode', async () => {
  await put('own-crm.yaml', definition('A CRM'));
  await rm(join(directory, 'own-sheets.yaml'));
  const gone = await reload();
  assert.equal(gone.code, 1);
  assert.match(gone.stderr, /"own-sheets" has no definition, but integrations use it: ours/);
  await put(
    'own-sheets.yaml',
    'display_name: Ours\ncategories: [crm]\ndocs: https://example.com\nauth_mode: NONE\napi:\n  base_url: https://api.example.com\n',
  );
  const other = await reload();
  assert.equal(other.code, 1);
  assert.match(other.stderr, /"own-sheets" has integrations \(ours\), so its auth_mode must stay OAUTH2/);
  assert.equal(await titleOf('own-sheets'), 'Sheets of ours, renamed');
});

test('SIGHUP makes a node read its definitions again', async () => {
  await put('own-sheets.yaml', definition('Sheets by signal'));
  process.kill(api.pid, 'SIGHUP');
  while ((await titleOf('own-sheets')) !== 'Sheets by signal') await pause(20);
});

test('a start with a wrong file, without a definition in use, or without the folder is refused with its reason', async () => {
  const start = async (env: Record<string, string>) => {
    const { code, stderr } = await runCommand(['start'], {
      ...settings,
      PORT: '0',
      DATA_DIR: api.dataDir,
      TRELLIS_SANDBOX: 'off',
      ...env,
    });
    assert.equal(code, 1);
    return stderr;
  };
  await put('own-crm.yaml', definition('A CRM', 'colour: red\n'));
  const wrong = await start({});
  assert.ok(wrong.includes(`${join(directory, 'own-crm.yaml')}:4: colour: is no key`), wrong);
  const absent = join(directory, 'absent');
  assert.match(
    await start({ TRELLIS_PROVIDERS_DIR: absent }),
    /TRELLIS_PROVIDERS_DIR: the folder .*absent cannot be read \(ENOENT\)/,
  );
  await mkdir(absent);
  assert.match(await start({ TRELLIS_PROVIDERS_DIR: absent }), /"own-sheets" has no definition/);
  if (process.getuid?.() !== 0) {
    await chmod(join(directory, 'own-crm.yaml'), 0);
    assert.match(await start({}), /own-crm\.yaml:1: the file cannot be read \(EACCES\)/);
  }
});
