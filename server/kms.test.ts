import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { ConfigError, loadConfig } from './config/config.ts';
import { unwrapMasterKeys, wrapMasterKey } from './kms.ts';

/** A script that encrypts with openssl, as a key management service would, unless `lines` replace that. */
function commandOf(t: TestContext, lines?: string): { command: string; directory: string } {
  const directory = mkdtempSync(join(tmpdir(), 'kms-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const command = join(directory, 'kms.sh');
  writeFileSync(join(directory, 'password'), randomBytes(16).toString('hex'));
  const encrypts = `case $1 in
  wrap) openssl enc -aes-256-cbc -pbkdf2 -a -pass file:${directory}/password ;;
  unwrap) base64 -d | openssl enc -d -aes-256-cbc -pbkdf2 -pass file:${directory}/password ;;
esac`;
  writeFileSync(command, `#!/bin/sh\n${lines ?? encrypts}\n`);
  chmodSync(command, 0o700);
  return { command, directory };
}
const kmsOf = (command: string, more: Record<string, string> = {}) => {
  const PATH = process.env.PATH ?? '';
  return loadConfig({ PATH, TRELLIS_KMS_COMMAND: command, ...more }, false).kms!;
};
const masterKey = () => {
  const text = `k1:${randomBytes(32).toString('base64')}`;
  return { text, key: loadConfig({ TRELLIS_ENCRYPTION_KEYS: text }, false).encryptionKeys![0]! };
};
const faultOf = (promise: Promise<unknown>) =>
  promise.then(
    () => assert.fail('it was accepted'),
    (error: unknown) => {
      assert.ok(error instanceof ConfigError);
      return error.faults.join();
    },
  );

test('a master key comes back as it was wrapped, in one line without the key', async (t) => {
  const kms = kmsOf(commandOf(t).command);
  const { key, text } = masterKey();
  const wrapped = await wrapMasterKey(kms, key);
  assert.match(wrapped.wrapped, /^[^\s,]+$/);
  assert.ok(!wrapped.wrapped.includes(text.slice(3)));
  const [unwrapped] = await unwrapMasterKeys(kms, [wrapped]);
  assert.ok(unwrapped!.key.equals(key.key));
  assert.equal(unwrapped!.id, 'k1');
});

test('the settings hold wrapped keys with a command, and none of them is checked as a key', () => {
  const config = loadConfig(
    {
      TRELLIS_KMS_COMMAND: '/bin/kms --region eu',
      TRELLIS_ENCRYPTION_KEYS: 'k2:vault:v1:abc=, k1:def',
      DATABASE_URL: 'postgres://u:p@db/x',
    },
    false,
  );
  assert.deepEqual(config.wrappedKeys, [
    { id: 'k2', wrapped: 'vault:v1:abc=' },
    { id: 'k1', wrapped: 'def' },
  ]);
  assert.equal(config.encryptionKeys, undefined);
  assert.deepEqual(config.kms?.command, ['/bin/kms', '--region', 'eu']);
});

test('the command gets the environment without the secrets of the settings', async (t) => {
  const { command, directory } = commandOf(t, 'env > "$0.env"; cat');
  const kms = kmsOf(command, {
    AWS_PROFILE: 'trellis',
    DATABASE_URL: 'postgres://u:p@db/x',
    TRELLIS_ENCRYPTION_KEYS: 'k1:abc',
    TRELLIS_SECRET_KEY: 'a-secret-key-of-the-app',
    TRELLIS_EXPORT_PASSPHRASE: 'a passphrase',
  });
  await wrapMasterKey(kms, masterKey().key);
  const env = readFileSync(join(directory, 'kms.sh.env'), 'utf8');
  assert.match(env, /^AWS_PROFILE=trellis$/m);
  assert.doesNotMatch(env, /DATABASE_URL|ENCRYPTION_KEYS|SECRET_KEY|PASSPHRASE/);
});

test('a failure names the operation, the key and the reason, and contains no key', async (t) => {
  const { key, text } = masterKey();
  const base64 = text.slice(3);
  const failing = kmsOf(
    commandOf(t, 'key=$(cat); echo "denied for $key by policy" >&2; echo "$key"; exit 3').command,
  );
  assert.equal(
    await faultOf(wrapMasterKey(failing, key)),
    'TRELLIS_KMS_COMMAND, wrap of the master key "k1": it ended with 3: denied for ... by policy',
  );
  for (const [lines, reason] of [
    ['exit 0', /its output is empty/],
    ['echo a,b', /contains a comma/],
    ['kill -9 $$', /it ended with SIGKILL/],
    ['head -c 100000 /dev/zero | tr "\\0" x', /its output is too long/],
  ] as const) {
    const fault = await faultOf(wrapMasterKey(kmsOf(commandOf(t, lines).command), key));
    assert.match(fault, reason);
    assert.ok(!fault.includes(base64));
  }
  const short = kmsOf(commandOf(t, 'echo c2hvcnQ=').command);
  assert.match(
    await faultOf(unwrapMasterKeys(short, [{ id: 'k1', wrapped: 'w' }])),
    /unwrap of the master key "k1": its output is not the base64 of 32 bytes/,
  );
  assert.match(await faultOf(wrapMasterKey(kmsOf('/nowhere/kms'), key)), /it cannot be run \(ENOENT\)/);
});

test('a command that hangs is ended with the programs that it started', async (t) => {
  const { command, directory } = commandOf(t, 'sleep 60 & echo $! > "$0.pid"; wait');
  const { key } = masterKey();
  const fault = await faultOf(wrapMasterKey(kmsOf(command), key, { limitMs: 500 }));
  assert.match(fault, /it did not end within 0\.5 s/);
  const pid = Number(readFileSync(join(directory, 'kms.sh.pid'), 'utf8'));
  const isGone = () => {
    try {
      // A zombie that nobody has waited for is gone, too.
      return /^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return true;
    }
  };
  while (!isGone()) await new Promise(setImmediate);
});
