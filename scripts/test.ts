/**
 * Runs tests, the files of a group in one process (`test/support/group.ts`):
 *
 *     npm test                          all but the slow files
 *     npm test -- server/records FILE   the files below these paths
 *     npm run test:all                  all files
 *     npm run test:all -- --shard 1/3   the first of three parts of about the same duration
 *     npm run test:all -- --slow        the files that `npm test` leaves out
 *     npm run test:all -- --record      writes the durations of the files to `test/durations.json`
 */

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import {
  groupsOf,
  isSlow,
  listTestFiles,
  readDurations,
  shardOf,
  writeDurations,
  writeGroups,
} from '../test/support/group.ts';
import { makeScratch } from '../test/support/scratch.ts';

const { values: options, positionals: paths } = parseArgs({
  allowPositionals: true,
  options: {
    all: { type: 'boolean', default: false },
    slow: { type: 'boolean', default: false },
    record: { type: 'boolean', default: false },
    shard: { type: 'string' },
  },
});
const [, index = 1, count = 1] = (/^(\d+)\/(\d+)$/.exec(options.shard ?? '1/1') ?? []).map(Number);
if (options.shard !== undefined && !(index >= 1 && index <= count)) {
  console.error(
    `--shard ${options.shard} must be a number of a part and the number of all parts, such as 1/3.`,
  );
  process.exit(2);
}

const listed = listTestFiles(paths);
const slow = listed.filter(isSlow);
const isWhole = options.all || paths.length > 0;
const leftOut = isWhole ? [] : slow;
const files = options.slow ? slow : listed.filter((file) => !leftOut.includes(file));

const scratch = makeScratch();
process.once('exit', scratch.remove);
const groupsDirectory = join(scratch.path, 'groups');
mkdirSync(groupsDirectory);
const durationsLog = join(scratch.path, 'durations');

const child = spawn(
  process.execPath,
  [
    // The fastest on two cores, of 2, 3, 4 and 6: more groups at once take more processor time for the same tests.
    '--test',
    '--test-concurrency=3',
    '--test-timeout=180000',
    '--test-global-setup=test/support/global-setup.ts',
    ...writeGroups(shardOf(groupsOf(files), { index, count }), groupsDirectory),
  ],
  {
    cwd: join(import.meta.dirname, '..'),
    env: {
      ...process.env,
      TMPDIR: scratch.path,
      ...(options.record && { TRELLIS_TEST_DURATIONS: durationsLog }),
    },
    stdio: 'inherit',
  },
);
// Ctrl-C reaches the tests by themselves; they end, and then so does this.
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => child.kill(signal));
const [code] = await once(child, 'exit');
process.exitCode = code ?? 1;

if (options.record) recordDurations();
const seconds = Math.round(performance.now() / 1000);
console.log(`\n${seconds} s${tellProcessorTime()}`);
if (leftOut.length > 0)
  console.log(`${leftOut.length} slow files were left out: npm run test:all runs them.`);

function recordDurations(): void {
  const measured = readFileSync(durationsLog, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as { file: string; seconds: number });
  const all = new Set(listTestFiles());
  writeDurations({
    ...Object.fromEntries(Object.entries(readDurations()).filter(([file]) => all.has(file))),
    ...Object.fromEntries(measured.map((one) => [one.file, one.seconds])),
  });
}

/** Of this process and all that it started and that has ended, PostgreSQL and Chromium too. Linux alone tells it. */
function tellProcessorTime(): string {
  try {
    const fields = readFileSync('/proc/self/stat', 'utf8').split(') ')[1]?.split(' ') ?? [];
    const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
    return `, ${Math.round(ticks / 100)} s of processor time`;
  } catch {
    return '';
  }
}
