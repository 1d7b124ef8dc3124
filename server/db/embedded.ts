// The PostgreSQL that comes with the service, for whoever sets no DATABASE_URL.
//
// Owns: DATA_DIR/postgres and the life of the server in it: made, started, stopped, never two at once, never
// left behind. Does not own: the pool (pool.ts), the schema (migrate.ts). Its parts: whom the server runs as
// (embedded-account.ts), who may connect (embedded-access.ts), its programs (embedded-binaries.ts), its files
// (embedded-cluster.ts), one service per directory (embedded-lock.ts), the processes (embedded-server.ts).

import {
  accessSync,
  appendFileSync,
  constants,
  existsSync,
  mkdirSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { accessFiles, makeSocketDir } from './embedded-access.ts';
import { type Account, findAccount, openWayTo } from './embedded-account.ts';
import { type Binaries, prepareBinaries } from './embedded-binaries.ts';
import { checkVersion, makeCluster, removeDrafts, superuser } from './embedded-cluster.ts';
import { takeLock } from './embedded-lock.ts';
import { endOrphan, findServer, type Guarded, readServerFile, spawnGuarded } from './embedded-server.ts';

/** How to reach the server: `host` is the directory of its unix socket. There is no password and no TCP. */
export interface EmbeddedConnection {
  host: string;
  port: number;
  user: string;
  database: string;
}

export interface EmbeddedPostgres {
  connection: EmbeddedConnection;
  /** Fast shutdown, then harder ones; resolves when no process is left. May be called more than once. */
  stop(): Promise<void>;
  /** Resolves with the reason when the server ends without `stop`; else never. */
  exited: Promise<Error>;
}

type Log = (message: string) => void;

/** Only part of the socket's name. */
const port = 5432;
const fastShutdownMs = 3000;
/** Crash recovery replays up to max_wal_size; it is waited for, but not for ever. */
const readyLimitMs = 10 * 60_000;
const logLimitBytes = 1024 * 1024;

/** Given on the command line, so that they are those of this version whatever the cluster was made by. */
const settings: Record<string, string> = {
  listen_addresses: '',
  port: String(port),
  unix_socket_permissions: '0700',
  shared_buffers: '256MB',
  effective_cache_size: '1GB',
  random_page_cost: '1.1',
  // A query of one page must not take the few cores there are from all others; nor does it need /dev/shm then.
  max_parallel_workers_per_gather: '0',
  // After a checkpoint the first change of each page is logged whole: 95 % of a prune's WAL.
  max_wal_size: '4GB',
  checkpoint_timeout: '15min',
  // Statements, their values and the DETAIL of errors hold what is secret, and the service sees them anyway.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
  log_autovacuum_min_duration: '-1',
};

/**
 * Starts the PostgreSQL of `dataDir`, making it at the first start, and resolves when it takes connections.
 *
 * The server ends with this process, within about a second even after `kill -9`. It does not keep the process
 * alive. Throws where another service uses `dataDir` (nothing is touched then), where its cluster was made by
 * another major version, and where this machine cannot run it; each message says what to do. `log` is told
 * of what an operator may want to know.
 */
export async function startEmbedded(start: { dataDir: string; log?: Log }): Promise<EmbeddedPostgres> {
  const { dataDir, log = () => {} } = start;
  const dir = makeRoom(dataDir);
  const clusterDir = path.join(dir, 'data');
  const account = findAccount(clusterDir);
  const lock = await takeLock(dir, dataDir);
  try {
    openWayTo(dir, { account, log });
    const binaries = prepareBinaries(dir, account);
    await removeDrafts(dir);
    if (!existsSync(clusterDir)) await makeCluster(clusterDir, { binaries, account });
    checkVersion(clusterDir, binaries);
    await endOrphan(clusterDir, log);
    const socketDir = makeSocketDir(clusterDir, account);
    const server = await runServer(clusterDir, { dir, socketDir, binaries, account, log });
    const stop = async () => {
      await server.stop();
      rmSync(socketDir, { recursive: true, force: true });
      lock.release();
    };
    let stopped: Promise<void> | undefined;
    return {
      ...server,
      stop() {
        stopped ??= stop();
        return stopped;
      },
    };
  } catch (error) {
    lock.release();
    throw error;
  }
}

/**
 * The connection to the PostgreSQL that a service runs on `dataDir` at this moment, or undefined when none
 * does. Throws `EACCES` to a user who may not look into the cluster: be the user the service runs as.
 */
export async function findEmbedded(dataDir: string): Promise<EmbeddedConnection | undefined> {
  const clusterDir = path.resolve(dataDir, 'postgres', 'data');
  if (!existsSync(clusterDir)) return undefined;
  const server = readServerFile(clusterDir);
  if (!server?.isReady || findServer(realpathSync(clusterDir)) !== server.pid) return undefined;
  const isListening = await new Promise<boolean>((resolve) => {
    const socket = connect(path.join(server.socketDir, `.s.PGSQL.${server.port}`));
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
  return isListening ? connectionAt(server.socketDir) : undefined;
}

function connectionAt(socketDir: string): EmbeddedConnection {
  return { host: socketDir, port, user: superuser, database: 'postgres' };
}

/** The real path, since the server names its directory by it. */
function makeRoom(dataDir: string): string {
  const dir = path.resolve(dataDir, 'postgres');
  // A server that runs as another user must pass through.
  mkdirSync(dir, { recursive: true, mode: process.getuid?.() === 0 ? 0o711 : 0o700 });
  try {
    accessSync(dir, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new Error(
      `${dir} is not writable for uid ${process.getuid?.()}; give it to that user, ` +
        'or set DATA_DIR to another directory',
      { cause },
    );
  }
  return realpathSync(dir);
}

async function runServer(
  clusterDir: string,
  run: { dir: string; socketDir: string; binaries: Binaries; account: Account; log: Log },
): Promise<EmbeddedPostgres> {
  const { dir, socketDir, binaries, account, log } = run;
  const write = boundedFile(path.join(dir, 'postgres.log'));
  let lastLines = '';
  const options = { ...settings, ...accessFiles(dir), unix_socket_directories: socketDir };
  const before = readServerFile(clusterDir)?.text;
  const server = spawnGuarded({
    command: [
      binaries.postgres,
      '-D',
      clusterDir,
      ...Object.entries(options).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
    ],
    libraryPath: binaries.libraryPath,
    account,
    onOutput: (text) => {
      lastLines = (lastLines + text).slice(-2000);
      write(text);
    },
  });

  let isWanted = true;
  const exited = new Promise<Error>((resolve) => {
    const ended = async (how: string) => {
      if (!isWanted) return;
      // Where only the guard was killed, the server is still there.
      await endOrphan(clusterDir, log).catch((error: Error) => log(error.message));
      resolve(new Error(`the embedded PostgreSQL ended by itself (${how}): ${lastLines.trim()}`));
    };
    server.exited.then(
      (code) => ended(`code ${code}`),
      (error: Error) => ended(error.message),
    );
  });

  const stop = async () => {
    isWanted = false;
    server.ref();
    await endServer(server);
    await endOrphan(clusterDir, log);
  };
  try {
    await Promise.race([
      isReady(clusterDir, before),
      exited.then((error) => {
        throw error;
      }),
    ]);
  } catch (error) {
    await stop();
    throw error;
  }
  server.unref();
  return { connection: connectionAt(socketDir), stop, exited };
}

/** Fast shutdown rolls open transactions back; after 3 s the server is told to leave recovery to the next start. */
async function endServer(server: Guarded): Promise<void> {
  const ended = server.exited.catch(() => {});
  server.order('INT');
  const harder = [
    setTimeout(() => server.order('QUIT'), fastShutdownMs),
    setTimeout(() => server.order('KILL'), fastShutdownMs + 1000),
  ];
  await ended;
  for (const timer of harder) clearTimeout(timer);
}

/** `before` is the text of a dead server's file, which stands until the new one writes its own. */
async function isReady(clusterDir: string, before: string | undefined): Promise<void> {
  const deadline = performance.now() + readyLimitMs;
  while (performance.now() < deadline) {
    const file = readServerFile(clusterDir);
    if (file?.isReady && file.text !== before) return;
    await sleep(5);
  }
  throw new Error(`the embedded PostgreSQL was not ready after ${readyLimitMs / 60_000} minutes`);
}

/** Appends to a file that takes at most twice `logLimitBytes`, its older half under `.1`. */
function boundedFile(file: string): (text: string) => void {
  let size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  return (text) => {
    if (size > logLimitBytes) {
      renameSync(file, `${file}.1`);
      size = 0;
    }
    appendFileSync(file, text, { mode: 0o600 });
    size += Buffer.byteLength(text);
  };
}
