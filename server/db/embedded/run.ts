// A server process on a cluster: its settings, its start and its end.

import { setTimeout as sleep } from 'node:timers/promises';
import { accessFiles, port } from './access.ts';
import type { Account } from './account.ts';
import type { Binaries } from './binaries.ts';
import { superuser } from './cluster.ts';
import { endOrphan, type Guarded, readServerFile, spawnGuarded } from './server.ts';

/** The connection to a server: `host` is the directory of its unix socket. There is no password and no TCP. */
export interface EmbeddedConnection {
  host: string;
  port: number;
  user: string;
  database: string;
}

export interface EmbeddedPostgres {
  connection: EmbeddedConnection;
  /** A fast shutdown, then an immediate one, then a kill; resolves when no process is left. May be called more than once. */
  stop(): Promise<void>;
  /** Resolves with the reason if the server ends without `stop`. */
  exited: Promise<Error>;
}

export type Log = (message: string) => void;

const fastShutdownMs = 3000;
/** The time limit for a crash recovery, which replays up to max_wal_size. */
const readyLimitMs = 10 * 60_000;

/** On the command line, so they are those of this version for every cluster. */
const settings: Record<string, string> = {
  listen_addresses: '',
  port: String(port),
  unix_socket_permissions: '0700',
  shared_buffers: '256MB',
  effective_cache_size: '1GB',
  random_page_cost: '1.1',
  // One query must not take the few cores from all others; without parallel workers it does not need /dev/shm either.
  max_parallel_workers_per_gather: '0',
  // Ends statements of a killed service, even if they wait for a lock.
  client_connection_check_interval: '10s',
  // There is no logical replication, and idle workers cost memory.
  max_logical_replication_workers: '0',
  // After a checkpoint the first change of each page is logged whole: 95 % of a prune's WAL.
  max_wal_size: '4GB',
  checkpoint_timeout: '15min',
  // The WAL must suffice to recover a copy of the running cluster (ops/backup/).
  wal_level: 'replica',
  // Statements, their values and the DETAIL of errors may hold secrets; the service receives these errors itself.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
  log_autovacuum_min_duration: '-1',
};

/** Settings that older programs, which upgrades use, do not have. */
const settingsSince18: Record<string, string> = {
  // One process is enough for one service, and idle ones cost memory.
  io_workers: '1',
};

/**
 * Starts a server on a cluster and resolves when it accepts connections. It ends with this process and does not keep it alive.
 * `write` receives its output; `accessDir` is for the files of `accessFiles`. Throws with its last output if it does not
 * start.
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
    /** Added to the settings above, or instead of them. */
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
      // If only the guard was killed, the server still runs.
      await endOrphan(clusterDir, log).catch((error: Error) => log(error.message));
      resolve(new Error(`the embedded PostgreSQL ended unexpectedly (${how}): ${lastLines.trim()}`));
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
    // Otherwise the wait would keep the process alive without a server.
    waiting.abort();
  }
  server.unref();
  return { connection: connectionAt(socketDir), stop, exited };
}

/** A fast shutdown rolls back open transactions; after 3 s an immediate one leaves the recovery to the next start. */
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

/** `before` is the text of a dead server's file, which exists until the new server writes its own. */
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

/** The connection to the server with its socket in this directory. */
export function connectionAt(socketDir: string): EmbeddedConnection {
  return { host: socketDir, port, user: superuser, database: 'postgres' };
}
