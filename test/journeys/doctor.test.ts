// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { runCommand } from '../support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../support/database.ts';

type Finding = { check: string; state: string; message: string; fix?: string };

let database: TestDatabase;
let dataDir: string;
before(async () => {
  database = await openTestDatabase();
  dataDir = await mkdtemp(join(tmpdir(), 'trellis-doctor-'));
});
after(async () => {
  await database.drop();
  await rm(dataDir, { recursive: true });
});

const key = `k1:${Buffer.alloc(32, 7).toString('base64')}`;

/** What the command finds, by the name of the check. */
async function examined(env: Record<string, string>) {
  const { code, stdout } = await runCommand(['doctor', '--json'], { DATA_DIR: dataDir, PORT: '0', ...env });
  const { result, findings } = JSON.parse(stdout) as { result: string; findings: Finding[] };
  assert.equal(code, result === 'ok' ? 0 : 1);
  return { result, findings, of: (check: string) => findings.find((one) => one.check === check) };
}

test('doctor looks at a database of the service, and every check it has is on its page', async () => {
  const { findings, of } = await examined({
    DATABASE_URL: urlOf(database.target),
    TRELLIS_ENCRYPTION_KEYS: key,
  });
  assert.equal(of('database')?.state, 'ok');
  assert.equal(of('migrations')?.state, 'ok');
  assert.equal(of('key-ring')?.state, 'ok');
  const page = await readFile(join(import.meta.dirname, '../../docs/operations/doctor.md'), 'utf8');
  const documented = [...page.matchAll(/^\| `([a-z-]+)` \|/gm)].map(([, name]) => name);
  assert.deepEqual(
    findings.map(({ check }) => check),
    documented,
  );
  for (const { check, state, fix } of findings) {
    assert.equal(fix !== undefined, state === 'warn' || state === 'fail', check);
  }
});

test('doctor names an unreachable database, and never its password', async () => {
  const { result, of, findings } = await examined({
    DATABASE_URL: 'postgres://boss:hidden-word@127.0.0.1:1/trellis',
    TRELLIS_ENCRYPTION_KEYS: key,
  });
  assert.equal(result, 'fail');
  assert.equal(of('database')?.state, 'fail');
  assert.match(of('database')?.fix ?? '', /DATABASE_URL/);
  assert.doesNotMatch(JSON.stringify(findings), /hidden-word/);
});

test('doctor reports all faults of the settings, and checks the machine nevertheless', async () => {
  const { of } = await examined({ PORT: 'x', LOG_LEVEL: 'loud' });
  assert.equal(of('settings')?.state, 'fail');
  assert.match(of('settings')?.message ?? '', /PORT.*LOG_LEVEL/);
  assert.equal(of('node')?.state, 'ok');
});
