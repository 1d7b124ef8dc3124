// A server process on a cluster: how it is set, when it is ready, how it ends.

import { setTimeout as sleep } from 'node:timers/promises';
import { accessFiles, port } from './embedded-access.ts';
import type { Account } from './embedded-account.ts';
import type { Binaries } from './embedded-binaries.ts';
import { superuser } from './embedded-cluster.ts';
import { endOrphan, type Guarded, readServerFile, spawnGuarded } from './embedded-server.ts';

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

export type Log = (message: string) => void;

const fastShutdownMs = 3000;
/** Crash recovery replays up to max_wal_size; it is waited for, but not for ever. */
const readyLimitMs = 10 * 60_000;

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
  // What a killed service has asked for is ended where it waits for a lock, which goes with it.
  client_connection_check_interval: '10s',
  // Nothing is replicated by it: it costs memory when idle.
  max_logical_replication_workers: '0',
  // After a checkpoint the first change of each page is logged whole: 95 % of a prune's WAL.
  max_wal_size: '4GB',
  checkpoint_timeout: '15min',
  // So much is in it that a copy of the running cluster can be recovered (server/backup/).
  wal_level: 'replica',
  // Statements, their values and the DETAIL of errors hold what is secret, and the service sees them anyway.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
  log_autovacuum_min_duration: '-1',
};

/** What older programs do not know, by which a cluster is upgraded. */
const settingsSince18: Record<string, string> = {
  // One process reads ahead well enough for one service: each costs memory when idle.
  io_workers: '1',
};

/**
 * Starts a server on a cluster and resolves when it takes connections. It ends with this process and does not keep it
 * alive. `write` gets what it prints; `accessDir` holds the files that say who may connect. Throws, with its last words,
 * where it does not start.
 */
export async function runServer(
  clusterDir: string,
  run: {
    accessDir: string;
    socketDir: string;
    binaries: Binaries;
    account: Account;
    log: Log;
    write?: (text: string) => void;
    /** Beside ours, or in their place. */
    settings?: Record<string, string>;
  },
): Promise<EmbeddedPostgres> {
  const { accessDir, socketDir, binaries, account, log, write = () => {} } = run;
  let lastLines = '';
  const options = {
    ...settings,
    ...(Number(binaries.major) >= 18 && settingsSince18),
    ...run.settings,
    ...accessFiles(accessDir),
    unix_socket_directories: socketDir,
  };
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
  const waiting = new AbortController();
  try {
    await Promise.race([
      isReady(clusterDir, { before, signal: waiting.signal }),
      exited.then((error) => {
        throw error;
      }),
    ]);
  } catch (error) {
    await stop();
    throw error;
  } finally {
    // Nothing keeps the process alive for a server that is not there.
    waiting.abort();
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
async function isReady(
  clusterDir: string,
  { before, signal }: { before: string | undefined; signal: AbortSignal },
): Promise<void> {
  const deadline = performance.now() + readyLimitMs;
  while (performance.now() < deadline && !signal.aborted) {
    const file = readServerFile(clusterDir);
    if (file?.isReady && file.text !== before) return;
    await sleep(5);
  }
  if (signal.aborted) return;
  throw new Error(`the embedded PostgreSQL was not ready after ${readyLimitMs / 60_000} minutes`);
}

/** How the server whose socket lies in this directory is reached. */
export function connectionAt(socketDir: string): EmbeddedConnection {
  return { host: socketDir, port, user: superuser, database: 'postgres' };
}
