// `npm test [-- files]`: all tests, groups of files in a process each (`test/support/group.ts`), or the files alone.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { groupsOf, ungrouped } from '../test/support/group.ts';
import { makeScratch } from '../test/support/scratch.ts';

const named = process.argv.slice(2);
const files = named.length > 0 ? named : [...groupsOf().keys(), ...ungrouped()];
const scratch = makeScratch();
process.once('exit', () => scratch?.remove());
const child = spawn(
  process.execPath,
  [
    ...['--test', '--test-concurrency=3', '--test-timeout=180000'],
    ...['--test-global-setup=test/support/global-setup.ts', ...files],
  ],
  {
    cwd: join(import.meta.dirname, '..'),
    env: { ...process.env, ...(scratch && { TMPDIR: scratch.path }) },
    stdio: 'inherit',
  },
);
// Ctrl-C reaches the tests by themselves; they end, and then so does this.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal));
const [code] = await once(child, 'exit');
process.exitCode = code ?? 1;
