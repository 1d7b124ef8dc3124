// `npm run test:postgres [-- test files]`: the tests on a PostgreSQL 15, then the same through PgBouncer in
// transaction mode. Both run from Debian's packages, on free ports and a temporary directory, and end with
// this process.

import { execFileSync, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chownSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { findAccount } from '../server/db/embedded/account.ts';
import { findPgbouncer, startPgbouncer, versionOf } from '../test/support/pgbouncer.ts';
import { startPostgres } from '../test/support/postgres.ts';

const oldestMajor = 15;

interface Programs {
  /** The directory of initdb and postgres. */
  binDir: string;
  pgbouncer: string;
}

const running: { stop(): Promise<void> }[] = [];
const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort(signal));

const programs = findPrograms();
const dir = mkdtempSync('/tmp/trellis-test-postgres-');
try {
  const account = findAccount(path.join(dir, 'data'));
  if (account.identity.uid !== undefined) chownSync(dir, account.uid, account.gid);
  const { signal } = stopping;
  const { binDir, pgbouncer } = programs;
  const password = randomBytes(16).toString('hex');
  const server = await startPostgres({ binDir, dir, account, user: 'trellis', password, signal });
  running.push(server);
  const { url: direct } = server;
  const bouncer = await startPgbouncer({ pgbouncer, dir, account, server: direct, signal });
  running.push(bouncer);
  const { url: viaPgbouncer } = bouncer;
  const outcomes = [
    await runTests(versionOf(path.join(binDir, 'postgres')), { TEST_DATABASE_URL: direct }),
    await runTests(`${versionOf(pgbouncer)}, transaction mode`, {
      TEST_DATABASE_URL: viaPgbouncer,
      TEST_DATABASE_ADMIN_URL: direct,
    }),
  ];
  for (const { title, code } of outcomes) console.log(`${code === 0 ? 'passed' : 'FAILED'}: ${title}`);
  process.exitCode = outcomes.every(({ code }) => code === 0) ? 0 : 1;
} catch (error) {
  if (!stopping.signal.aborted) throw error;
  console.log('interrupted');
  process.exitCode = 130;
} finally {
  for (const program of running.reverse()) await program.stop();
  rmSync(dir, { recursive: true, force: true });
}

/** Like `npm test`, with the files on the command line if there are any. */
async function runTests(
  title: string,
  databases: Record<string, string>,
): Promise<{ title: string; code: number | null }> {
  stopping.signal.throwIfAborted();
  console.log(`\n== ${title}`);
  const tests = spawn(process.execPath, ['scripts/test.ts', ...process.argv.slice(2)], {
    cwd: path.join(import.meta.dirname, '..'),
    env: { ...process.env, ...databases },
    stdio: 'inherit',
  });
  const interrupt = () => tests.kill('SIGINT');
  stopping.signal.addEventListener('abort', interrupt);
  const [code] = (await once(tests, 'exit')) as [number | null];
  stopping.signal.removeEventListener('abort', interrupt);
  return { title, code };
}

/** The lowest installed PostgreSQL from 15 on: the embedded server is the newest. */
function findPostgres(): string | undefined {
  const root = '/usr/lib/postgresql';
  const majors = existsSync(root) ? readdirSync(root).map(Number) : [];
  const [major] = majors
    .filter((found) => found >= oldestMajor && existsSync(`${root}/${found}/bin/initdb`))
    .sort((a, b) => a - b);
  return major === undefined ? undefined : `${root}/${major}/bin`;
}

/** The programs; installs missing packages if permitted, else throws an error that names them. */
function findPrograms(): Programs {
  const missing = [...(findPostgres() ? [] : ['postgresql']), ...(findPgbouncer() ? [] : ['pgbouncer'])];
  if (missing.length > 0) install(missing);
  const [binDir, pgbouncer] = [findPostgres(), findPgbouncer()];
  if (!binDir || !pgbouncer) throw new Error(`${missing.join(' and ')}: installed, but not found`);
  return { binDir, pgbouncer };
}

/** Installs packages without starting their services. */
function install(packages: string[]): void {
  if (process.getuid?.() !== 0 || !existsSync('/usr/bin/apt-get')) {
    throw new Error(`install these packages first (PostgreSQL 15 or newer): ${packages.join(', ')}`);
  }
  const apt = (...words: string[]) =>
    execFileSync('apt-get', words, {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, DEBIAN_FRONTEND: 'noninteractive' },
    });
  const policy = '/usr/sbin/policy-rc.d';
  const isPolicyOurs = !existsSync(policy);
  if (isPolicyOurs) writeFileSync(policy, '#!/bin/sh\nexit 101\n', { mode: 0o755 });
  try {
    apt('update', '-qq');
    // The server's package reads this setting to decide whether to create a cluster.
    apt('install', '-y', '-qq', '--no-install-recommends', 'postgresql-common');
    const clusterSettings = '/etc/postgresql-common/createcluster.conf';
    const before = readFileSync(clusterSettings, 'utf8');
    writeFileSync(clusterSettings, `${before}\ncreate_main_cluster = false\n`);
    try {
      apt('install', '-y', '-qq', '--no-install-recommends', ...packages);
    } finally {
      writeFileSync(clusterSettings, before);
    }
  } finally {
    if (isPolicyOurs) rmSync(policy);
  }
}
