// The Python clients of docs/guides/provider-clients.md, installed by pip at the versions that the page names. It needs a Python 3
// with venv (TEST_PYTHON names one) and pip's registry.

import assert from 'node:assert/strict';
import { execFile, spawnSync } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';

const root = join(import.meta.dirname, '../..');
const run = promisify(execFile);
const python = process.env.TEST_PYTHON ?? 'python3';
const skip =
  spawnSync(python, ['-c', 'import venv, ensurepip']).status === 0
    ? false
    : `there is no ${python} with venv`;
const minutes = 60_000;

let directory: string;
before(async () => {
  directory = await mkdtemp(join(tmpdir(), 'trellis-python-'));
});
after(() => rm(directory, { recursive: true, force: true }));

test('the Python clients of the page work through the proxy', { skip, timeout: 30 * minutes }, async (t) => {
  const venv = join(directory, 'venv');
  await run(python, ['-m', 'venv', venv]);
  const requirements = join(root, 'test/clients/requirements.txt');
  const install = ['-m', 'pip', 'install', '--no-input', '--disable-pip-version-check', '-r', requirements];
  await run(join(venv, 'bin/python'), install, { maxBuffer: 1e8, timeout: 15 * minutes });
  // A process of this one's kind would tell it what its own tests did.
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  const files = ['provider-clients', 'gspread'].map((name) => `test/clients/${name}.test.ts`);
  const { stdout } = await run(
    process.execPath,
    [
      '--test',
      '--test-reporter=tap',
      '--test-timeout=180000',
      '--test-global-setup=test/support/global-setup.ts',
      ...files,
    ],
    { cwd: root, env: { ...env, TEST_PYTHON: join(venv, 'bin/python') }, maxBuffer: 1e8 },
  );
  const count = (what: string) => Number(new RegExp(`^# ${what} (\\d+)$`, 'm').exec(stdout)?.[1]);
  t.diagnostic(`${count('pass')} passed`);
  assert.deepEqual([count('fail'), count('skipped')], [0, 0], stdout);
});
