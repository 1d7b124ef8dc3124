// `npm run test:postgres [-- test files]`: the tests on a PostgreSQL 15, then the same through PgBouncer in
// transaction mode. Both run from Debian's packages, on free ports and a temporary directory, and end with
// this process, whichever way it ends.

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
import { connect, createServer } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type Account, findAccount } from '../server/db/embedded-account.ts';
import { type Guarded, spawnGuarded } from '../server/db/embedded-server.ts';

const oldestMajor = 15;
const user = 'trellis';
const password = randomBytes(16).toString('hex');

interface Programs {
  /** Holds initdb and postgres. */
  binDir: string;
  pgbouncer: string;
}

const running: Guarded[] = [];
const stopping = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => stopping.abort(signal));

const programs = findPrograms();
const dir = mkdtempSync('/tmp/trellis-test-postgres-');
try {
  const account = findAccount(path.join(dir, 'data'));
  if (account.identity.uid !== undefined) chownSync(dir, account.uid, account.gid);
  const direct = await startPostgres(programs, account);
  const viaPgbouncer = await startPgbouncer(programs, { account, server: new URL(direct) });
  const outcomes = [
    await runTests(versionOf(path.join(programs.binDir, 'postgres')), { TEST_DATABASE_URL: direct }),
    await runTests(`${versionOf(programs.pgbouncer)}, transaction mode`, {
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
  for (const program of running.reverse()) {
    program.order('INT');
    const harder = setTimeout(() => program.order('KILL'), 3000);
    await program.exited.catch(() => {});
    clearTimeout(harder);
  }
  rmSync(dir, { recursive: true, force: true });
}

async function startPostgres({ binDir }: Programs, account: Account): Promise<string> {
  const clusterDir = path.join(dir, 'data');
  const passwordFile = path.join(dir, 'password');
  writeReadable(passwordFile, `${password}\n`, account);
  const initdb = start(account, [
    ...[path.join(binDir, 'initdb'), '--pgdata', clusterDir, '--username', user, '--pwfile', passwordFile],
    ...['--auth=scram-sha-256', '--encoding=UTF8', '--locale=C', '--no-sync', '--no-instructions'],
  ]);
  if ((await initdb.guarded.exited) !== 0) throw new Error(`initdb failed: ${initdb.output()}`);
  const port = await freePort();
  const settings = {
    listen_addresses: '127.0.0.1',
    port: String(port),
    unix_socket_directories: '',
    fsync: 'off',
    max_connections: '400',
  };
  const server = start(account, [
    ...[path.join(binDir, 'postgres'), '-D', clusterDir],
    ...Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]);
  running.push(server.guarded);
  const pidFile = path.join(clusterDir, 'postmaster.pid');
  await until(server, async () => existsSync(pidFile) && /^ready/m.test(readFileSync(pidFile, 'utf8')));
  return `postgresql://${user}:${password}@127.0.0.1:${port}/postgres`;
}

async function startPgbouncer(
  { pgbouncer }: Programs,
  { account, server }: { account: Account; server: URL },
): Promise<string> {
  const port = await freePort();
  const usersFile = path.join(dir, 'users.txt');
  writeReadable(usersFile, `"${user}" "${password}"\n`, account);
  const configFile = path.join(dir, 'pgbouncer.ini');
  // Round robin: the next transaction of a client seldom gets the server connection of its last one, so
  // that session state, where any is relied upon, is missed at once.
  const config = `
[databases]
* = host=${server.hostname} port=${server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${usersFile}
pool_mode = transaction
server_round_robin = 1
default_pool_size = 20
max_client_conn = 1000
query_wait_timeout = 15
log_connections = 0
log_disconnections = 0
`;
  writeReadable(configFile, config, account);
  const bouncer = start(account, [pgbouncer, configFile]);
  running.push(bouncer.guarded);
  await until(bouncer, () => isListening(port));
  return `postgresql://${user}:${password}@127.0.0.1:${port}/postgres`;
}

/** The `test` script of package.json, with the files given on our own command line in place of its patterns. */
async function runTests(
  title: string,
  databases: Record<string, string>,
): Promise<{ title: string; code: number | null }> {
  stopping.signal.throwIfAborted();
  console.log(`\n== ${title}`);
  const { scripts } = JSON.parse(readFileSync(path.join(import.meta.dirname, '../package.json'), 'utf8')) as {
    scripts: { test: string };
  };
  const words = scripts.test.split(/\s+/).map((word) => word.replace(/^(["'])(.*)\1$/, '$2'));
  const files = process.argv.slice(2);
  const options = words
    .slice(words.indexOf('--test'))
    .filter((word) => word.startsWith('-') || files.length === 0);
  const tests = spawn(process.execPath, [...options, ...files], {
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

function start(account: Account, command: string[]): { guarded: Guarded; output: () => string } {
  let output = '';
  const guarded = spawnGuarded({
    command,
    libraryPath: '',
    account,
    onOutput: (text) => {
      output = (output + text).slice(-4000);
    },
  });
  return { guarded, output: () => output };
}

async function until(
  program: { guarded: Guarded; output: () => string },
  isReady: () => Promise<boolean>,
): Promise<void> {
  let isEnded = false;
  program.guarded.exited
    .finally(() => {
      isEnded = true;
    })
    .catch(() => {});
  while (!(await isReady())) {
    stopping.signal.throwIfAborted();
    if (isEnded) throw new Error(`did not start: ${program.output()}`);
    await sleep(20);
  }
}

/** The lowest PostgreSQL from 15 on that is installed: the newest is what the embedded server is. */
function findPostgres(): string | undefined {
  const root = '/usr/lib/postgresql';
  const majors = existsSync(root) ? readdirSync(root).map(Number) : [];
  const [major] = majors
    .filter((found) => found >= oldestMajor && existsSync(`${root}/${found}/bin/initdb`))
    .sort((a, b) => a - b);
  return major === undefined ? undefined : `${root}/${major}/bin`;
}

function findPgbouncer(): string | undefined {
  const pgbouncer = ['/usr/sbin/pgbouncer', '/usr/bin/pgbouncer'].find((file) => existsSync(file));
  if (!pgbouncer) return undefined;
  const [, major, minor] = /(\d+)\.(\d+)/.exec(versionOf(pgbouncer)) ?? [];
  if (Number(major) * 1000 + Number(minor) >= 1018) return pgbouncer;
  throw new Error(`${versionOf(pgbouncer)} is too old: 1.18 or newer is needed`);
}

/** The programs, with what is missing installed where we may. Throws, naming the packages, where we may not. */
function findPrograms(): Programs {
  const missing = [...(findPostgres() ? [] : ['postgresql']), ...(findPgbouncer() ? [] : ['pgbouncer'])];
  if (missing.length > 0) install(missing);
  const [binDir, pgbouncer] = [findPostgres(), findPgbouncer()];
  if (!binDir || !pgbouncer) throw new Error(`${missing.join(' and ')}: installed, but not found`);
  return { binDir, pgbouncer };
}

/** Installs packages without the server and the pooler that they would start by themselves. */
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
    // The server's package asks this one's settings whether to make a cluster.
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

function versionOf(program: string): string {
  return execFileSync(program, ['--version'], { encoding: 'utf8' }).split('\n')[0]!;
}

function writeReadable(file: string, text: string, account: Account): void {
  writeFileSync(file, text, { mode: 0o600 });
  if (account.identity.uid !== undefined) chownSync(file, account.uid, account.gid);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, 'close');
  return port;
}

function isListening(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    socket.once('error', () => resolve(false)).once('connect', () => socket.end());
    socket.once('close', (hadError) => resolve(!hadError));
  });
}
