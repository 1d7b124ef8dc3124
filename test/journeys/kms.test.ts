// Master keys that a command wraps: the service starts with them, and keeps its data when plain keys are replaced by them.
// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand, surroundings } from '../support/command.ts';
import { openEmptyDatabase, type TestDatabase, urlOf } from '../support/database.ts';
import { startRunningService } from '../support/service.ts';

const plain = `k1:${randomBytes(32).toString('base64')}`;
let bench: TestDatabase;
let directory: string;
let settings: { DATABASE_URL: string; TRELLIS_SANDBOX: string; DATA_DIR: string };
let TRELLIS_KMS_COMMAND: string;
before(async () => {
  bench = await openEmptyDatabase();
  directory = mkdtempSync(join(tmpdir(), 'trellis-kms-'));
  TRELLIS_KMS_COMMAND = join(directory, 'kms.sh');
  writeFileSync(join(directory, 'password'), randomBytes(16).toString('hex'));
  const password = `-pass file:${directory}/password`;
  writeFileSync(
    TRELLIS_KMS_COMMAND,
    `#!/bin/sh
case $1 in
  wrap) openssl enc -aes-256-cbc -pbkdf2 -a ${password} ;;
  unwrap) base64 -d | openssl enc -d -aes-256-cbc -pbkdf2 ${password} ;;
esac
`,
  );
  chmodSync(TRELLIS_KMS_COMMAND, 0o700);
  const DATA_DIR = join(directory, 'data');
  settings = { DATABASE_URL: urlOf(bench.target), TRELLIS_SANDBOX: 'off', DATA_DIR };
});
after(async () => {
  rmSync(directory, { recursive: true });
  await bench.drop();
});

const start = (env: Record<string, string>) =>
  startRunningService({ dataDir: settings.DATA_DIR, env: { ...settings, ...env }, ring: plain });
const main = join(import.meta.dirname, '../../server/cli/main.ts');
const wrap = (args: string[], input = '') =>
  execFileSync(process.execPath, [main, 'keys', 'wrap', ...args], {
    env: { ...surroundings, TRELLIS_KMS_COMMAND },
    input,
    encoding: 'utf8',
  }).trim();

test('plain master keys are replaced by wrapped ones, and the data stay readable', async () => {
  const first = await start({ TRELLIS_ENCRYPTION_KEYS: plain });
  await first.call('PUT', '/environment-variables', { body: { variables: [{ name: 'A', value: 'kept' }] } });
  assert.equal(await first.stop(), 0);
  const wrapped = wrap([], `${plain}\n`);
  assert.match(wrapped, /^k1:[^\s,]+$/);
  assert.ok(!wrapped.includes(plain.slice(3)));
  const second = await start({ TRELLIS_KMS_COMMAND, TRELLIS_ENCRYPTION_KEYS: wrapped });
  assert.deepEqual(await second.call('GET', '/environment-variables'), [{ name: 'A', value: 'kept' }]);
  assert.equal(await second.stop(), 0);
  const env = { ...settings, TRELLIS_KMS_COMMAND, TRELLIS_ENCRYPTION_KEYS: wrapped };
  const list = await runCommand(['keys', 'list'], env);
  assert.deepEqual([list.code, list.stderr], [0, '']);
});

test('a new key is wrapped by its id, and a start without the service of the keys is refused with the reason', async () => {
  assert.match(wrap(['--new', 'k2']), /^k2:[^\s,]+$/);
  const { code, stderr } = await runCommand(['start'], {
    ...settings,
    PORT: '0',
    TRELLIS_KMS_COMMAND: join(directory, 'absent'),
    TRELLIS_ENCRYPTION_KEYS: wrap([], plain),
  });
  assert.equal(code, 1);
  assert.match(stderr, /TRELLIS_KMS_COMMAND, unwrap of the master key "k1": it cannot be run \(ENOENT\)/);
});
