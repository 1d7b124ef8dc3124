// Slow: it starts embedded databases.

import assert from 'node:assert/strict';
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { socketPlace } from '../../../test/support/scratch.ts';
import { openDb } from '../pool.ts';
import { canEnter, findAccount } from './account.ts';
import { type EmbeddedConnection, findEmbedded, startEmbedded } from './embedded.ts';

const isRoot = process.getuid?.() === 0;
const base = realpathSync(mkdtempSync(path.join(socketPlace, 'trellis-embedded-test-')));
chmodSync(base, 0o755);
/** Started once and stopped: what the other tests copy, to save them initdb. */
const made = path.join(base, 'made');
const nobody = { uid: 65534, gid: 65534, name: 'nobody', identity: { uid: 65534, gid: 65534 } };
const needsRoot = isRoot ? false : 'needs root';
const needsReachableClone =
  isRoot && canEnter(import.meta.dirname, nobody) ? false : 'needs root and a clone that others can enter';

before(async () => {
  const server = await startEmbedded({ dataDir: made });
  await query(server.connection, 'create table note (text text)');
  await server.stop();
});

after(() => rmSync(base, { recursive: true, force: true }));

test('a server keeps its data over a restart, and reports where it is only while it runs', async () => {
  const dataDir = copyOfMade('restart');
  const first = await startEmbedded({ dataDir });
  assert.deepEqual(await findEmbedded(dataDir), first.connection);
  await query(first.connection, "insert into note values ('kept')");
  await first.stop();
  assert.equal(await findEmbedded(dataDir), undefined);
  assert.deepEqual(processesIn(dataDir), []);

  const second = await startEmbedded({ dataDir });
  assert.deepEqual(await query(second.connection, 'select text from note'), [{ text: 'kept' }]);
  await second.stop();
  assert.equal(existsSync(second.connection.host), false);
});

test('a server writes beside its cluster through no link', async () => {
  const dataDir = copyOfMade('links');
  const victim = path.join(base, 'victim');
  writeFileSync(victim, 'mine');
  const put = (name: string) => symlinkSync(victim, path.join(dataDir, 'postgres', name));
  put('service.pid');
  const server = await startEmbedded({ dataDir });
  await server.stop();
  for (const name of ['service.lock', 'postgres.log']) {
    rmSync(path.join(dataDir, 'postgres', name));
    put(name);
    await assert.rejects(startEmbedded({ dataDir }), new RegExp(`${name} is not a regular file`));
    rmSync(path.join(dataDir, 'postgres', name));
  }
  assert.equal(readFileSync(victim, 'utf8'), 'mine');
});

test('stopping twice does not stop the server of the next process', async () => {
  const dataDir = copyOfMade('twice');
  const first = await startEmbedded({ dataDir });
  await Promise.all([first.stop(), first.stop()]);
  const second = await startEmbedded({ dataDir });
  await first.stop();
  await query(second.connection, 'select 1');
  await second.stop();
});

test('the server is durable, in UTF-8 by code point, and has no TCP', async () => {
  const server = await startEmbedded({ dataDir: copyOfMade('settings') });
  const shown = await query(
    server.connection,
    `select current_setting('fsync') fsync, current_setting('listen_addresses') tcp,
       current_setting('server_encoding') encoding, datcollate as locale
     from pg_database where datname = current_database()`,
  );
  await server.stop();
  assert.deepEqual(shown, [{ fsync: 'on', tcp: '', encoding: 'UTF8', locale: 'C' }]);
});

test('a server whose service is killed stops automatically', async () => {
  const dataDir = copyOfMade('orphan');
  const service = await startService(dataDir);
  await kill(service.child);
  while (processesIn(dataDir).length > 0) await sleep(20);
  assert.deepEqual(readdirSync(service.connection.host), []);
  rmSync(service.connection.host, { recursive: true });
});

test('a service killed and started again at once has all its data', async () => {
  const dataDir = copyOfMade('killed');
  const service = await startService(dataDir);
  await query(service.connection, "insert into note values ('acknowledged')");
  await kill(service.child);

  const next = await startEmbedded({ dataDir });
  assert.deepEqual(await query(next.connection, 'select text from note'), [{ text: 'acknowledged' }]);
  await next.stop();
  assert.deepEqual(processesIn(dataDir), []);
});

test('a server that lost its service and all guards is ended by the next start', async () => {
  const dataDir = copyOfMade('unguarded');
  const service = await startService(dataDir);
  // A service that lives would end the server when it sees the guard go.
  service.child.kill('SIGSTOP');
  for (const pid of processesIn(dataDir)) {
    if (readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('postgres-guard')) process.kill(pid, 'SIGKILL');
  }
  await kill(service.child);
  assert.notEqual(await findEmbedded(dataDir), undefined);

  const next = await startEmbedded({ dataDir });
  await query(next.connection, 'select 1');
  await next.stop();
  assert.deepEqual(processesIn(dataDir), []);
});

test('an unexpected exit of the server is reported, and nothing of it stays', async () => {
  const dataDir = copyOfMade('died');
  for (const victim of ['server', 'guard']) {
    const server = await startEmbedded({ dataDir });
    const pid = serverPid(dataDir);
    process.kill(victim === 'server' ? pid : parentOf(pid), 'SIGKILL');
    // The server does not keep a process alive that only waits for it.
    const alive = setInterval(() => {}, 1000);
    const reason = await server.exited;
    assert.match(reason.message, /ended unexpectedly/);
    await server.stop();
    clearInterval(alive);
    while (processesIn(dataDir).length > 0) await sleep(20);
  }
});

test('a second service on the same data directory is refused by name and pid, and disturbs nothing', async () => {
  const dataDir = copyOfMade('second');
  const service = await startService(dataDir);
  const pid = serverPid(dataDir);
  await assert.rejects(startEmbedded({ dataDir }), (error: Error) => {
    assert.match(error.message, new RegExp(`\\(pid ${service.child.pid}\\)`));
    assert.ok(error.message.includes(dataDir));
    return true;
  });
  assert.equal(serverPid(dataDir), pid);
  await query(service.connection, 'select 1');
  await service.end();
});

test('no other user can hold the lock of a data directory, also one made by an earlier version', async () => {
  const dataDir = copyOfMade('lock');
  const lockFile = path.join(dataDir, 'postgres/service.lock');
  const modeOf = () => statSync(lockFile).mode & 0o777;
  for (const prepare of [() => chmodSync(lockFile, 0o644), () => rmSync(lockFile)]) {
    prepare();
    const server = await startEmbedded({ dataDir });
    assert.equal(modeOf(), 0o600);
    // The lock holds for another process, also after a second start was refused in this one.
    await assert.rejects(startEmbedded({ dataDir }), /another service/);
    const other = spawnService(dataDir);
    assert.match(await firstLine(other), /another service/);
    other.stdin!.end();
    await once(other, 'close');
    await server.stop();
  }
});

test('of twenty services started at once on a new data directory one wins', async () => {
  const dataDir = path.join(base, 'twenty');
  const children = Array.from({ length: 20 }, () => spawnService(dataDir));
  const outcomes = children.map((child) => firstLine(child));
  const lines = await Promise.all(outcomes);
  const winner = lines.findIndex((line) => line.startsWith('{'));
  const refusal = new RegExp(`another service .*${children[winner]?.pid}`);
  for (const [at, line] of lines.entries()) if (at !== winner) assert.match(line, refusal);
  children[winner]!.stdin!.end();
  await once(children[winner]!, 'close');
  assert.deepEqual(processesIn(dataDir), []);
});

test('a service killed while it makes the database makes it again', async () => {
  const dataDir = path.join(base, 'half-made');
  const dir = path.join(dataDir, 'postgres');
  const child = spawnService(dataDir);
  const drafts = () => (existsSync(dir) ? readdirSync(dir).filter((name) => name.startsWith('draft-')) : []);
  while (!drafts().some((name) => existsSync(path.join(dir, name, 'PG_VERSION')))) await sleep(2);
  await kill(child);
  assert.equal(existsSync(path.join(dir, 'data')), false);

  const server = await startEmbedded({ dataDir });
  await query(server.connection, 'select 1');
  await server.stop();
  assert.deepEqual(drafts(), []);
});

test("a pid file that names another program's pid does not stop the start", async () => {
  const dataDir = copyOfMade('stale');
  const clusterDir = path.join(dataDir, 'postgres/data');
  const account = findAccount(clusterDir);
  const stranger = spawn('sleep', ['60'], { ...account.identity, stdio: 'ignore' });
  const pidFile = path.join(clusterDir, 'postmaster.pid');
  writeFileSync(pidFile, `${stranger.pid}\n${clusterDir}\n1700000000\n5432\n/tmp\n\n\nready\n`);
  chownSync(pidFile, account.uid, account.gid);
  assert.equal(await findEmbedded(dataDir), undefined);

  const server = await startEmbedded({ dataDir });
  assert.notEqual(serverPid(dataDir), stranger.pid);
  await server.stop();
  assert.equal(stranger.exitCode, null);
  await kill(stranger);
});

test('a database of another major version is refused and left alone', async () => {
  const dataDir = copyOfMade('older');
  writeFileSync(path.join(dataDir, 'postgres/data/PG_VERSION'), '16\n');
  await assert.rejects(startEmbedded({ dataDir }), /was made by PostgreSQL 16, .* includes PostgreSQL 18/);
  assert.deepEqual(processesIn(dataDir), []);
});

test('a service whose database cannot start reports the reason and exits', async () => {
  const dataDir = copyOfMade('broken');
  rmSync(path.join(dataDir, 'postgres/data/global/pg_control'));
  const service = spawnService(dataDir);
  const exited = once(service, 'exit');
  assert.match(await firstLine(service), /^the embedded PostgreSQL ended unexpectedly \(code \d+\): /);
  // By itself: nothing tells it to.
  const [code] = await exited;
  assert.equal(code, 0);
  assert.deepEqual(processesIn(dataDir), []);
});

test('a service as an ordinary user owns all its files', { skip: needsReachableClone }, async () => {
  const dataDir = path.join(base, 'ordinary');
  mkdirSync(dataDir, { mode: 0o700 });
  chownSync(dataDir, nobody.uid, nobody.gid);
  const service = await startService(dataDir, nobody.identity);
  assert.equal(statSync(path.join(dataDir, 'postgres/data')).uid, nobody.uid);
  await kill(service.child);
  const next = await startService(dataDir, nobody.identity);
  await next.end();
  assert.deepEqual(processesIn(dataDir), []);
});

test('no other user of the machine can connect', { skip: needsReachableClone }, async () => {
  const server = await startEmbedded({ dataDir: copyOfMade('private') });
  const { host, port } = server.connection;
  const attempt = `require('net').connect(${JSON.stringify(path.join(host, `.s.PGSQL.${port}`))})
    .on('connect', () => console.log('connected')).on('error', (error) => console.log(error.code))`;
  const outcome = execFileSync(process.execPath, ['-e', attempt], {
    uid: 54321,
    gid: 54321,
    encoding: 'utf8',
  });
  assert.equal(outcome.trim(), 'EACCES');
  // The user the server runs as can enter, but is not whom it serves.
  const account = findAccount(path.join(base, 'private/postgres/data'));
  const query = `import { openDb } from ${JSON.stringify(path.join(import.meta.dirname, '../pool.ts'))};
    await openDb(${JSON.stringify(server.connection)}).query('select 1').catch((error) => console.log(error.message))`;
  const refusal = execFileSync(process.execPath, ['--input-type=module', '-e', query], {
    ...account.identity,
    encoding: 'utf8',
  });
  assert.match(refusal, /Peer authentication failed/i);
  await server.stop();
});

test('as root, only search permission is added, and only where it is missing', {
  skip: needsRoot,
}, async () => {
  const home = path.join(base, 'home');
  const open = path.join(home, 'open');
  mkdirSync(open, { recursive: true });
  chmodSync(home, 0o750);
  chmodSync(open, 0o755);
  const told: string[] = [];
  const dataDir = path.join(open, 'data');
  execFileSync('cp', ['-a', made, dataDir]);
  const server = await startEmbedded({ dataDir, log: (message) => told.push(message) });
  await server.stop();
  assert.equal(statSync(home).mode & 0o777, 0o751);
  assert.equal(statSync(open).mode & 0o777, 0o755);
  assert.equal(told.length, 1);
  assert.ok(told[0]?.startsWith(`${home}: added o+x`));
});

function copyOfMade(name: string): string {
  const dataDir = path.join(base, name);
  execFileSync('cp', ['-a', made, dataDir]);
  return dataDir;
}

async function query(connection: EmbeddedConnection, text: string): Promise<object[]> {
  const db = openDb(connection);
  try {
    return await db.query(text);
  } finally {
    await db.end();
  }
}

/** A process that owns a server as the service does, until its standard input ends. */
function spawnService(dataDir: string, identity: { uid?: number; gid?: number } = {}): ChildProcess {
  const script = `
    import { startEmbedded } from ${JSON.stringify(path.join(import.meta.dirname, 'embedded.ts'))};
    try {
      const server = await startEmbedded({ dataDir: ${JSON.stringify(dataDir)} });
      console.log(JSON.stringify(server.connection));
      process.stdin.resume().on('end', () => server.stop());
    } catch (error) {
      console.log(error.message);
    }`;
  return spawn(process.execPath, ['--input-type=module', '-e', script], {
    ...identity,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
}

async function firstLine(child: ChildProcess): Promise<string> {
  for await (const line of createInterface({ input: child.stdout! })) return line;
  return '';
}

async function startService(dataDir: string, identity?: { uid?: number; gid?: number }) {
  const child = spawnService(dataDir, identity);
  const connection = JSON.parse(await firstLine(child)) as EmbeddedConnection;
  const end = async () => {
    child.stdin!.end();
    await once(child, 'close');
  };
  return { child, connection, end };
}

async function kill(child: ChildProcess): Promise<void> {
  child.kill('SIGKILL');
  await once(child, 'exit');
}

function serverPid(dataDir: string): number {
  return Number.parseInt(readFileSync(path.join(dataDir, 'postgres/data/postmaster.pid'), 'utf8'), 10);
}

/** From `/proc/<pid>/stat`: after the name in brackets come state and parent. */
function parentOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ').at(-1)?.split(' ')[1]);
}

/** Pids of the processes at work in the data directory, or started with its path (a guard, initdb). */
function processesIn(dataDir: string): number[] {
  return readdirSync('/proc')
    .map(Number)
    .filter((pid) => pid > 0 && pid !== process.pid)
    .filter((pid) => {
      try {
        const isAtWork = readlinkSync(`/proc/${pid}/cwd`).startsWith(`${dataDir}/`);
        return isAtWork || readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`${dataDir}/postgres`);
      } catch {
        return false;
      }
    });
}
