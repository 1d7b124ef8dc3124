// The PostgreSQL that ships with the service, for installations without DATABASE_URL.
//
// Owns: DATA_DIR/postgres and the server in it: it is created, started and stopped, runs once, and is never left running.
// Does not own: the pool (pool.ts), the schema (migrate.ts). Other files: the account of the server (account.ts), access
// (access.ts), programs (binaries.ts), files (cluster.ts), one service per directory (lock.ts, server-dir.ts), processes
// (server.ts, run.ts), private servers of commands (private.ts), the server that commands share (lend.ts).

import {
  closeSync,
  constants,
  existsSync,
  openSync,
  realpathSync,
  renameSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { listenBeside } from './access.ts';
import { checkVersion, makeCluster } from './cluster.ts';
import { provePlain } from './lock.ts';
import { connectionAt, type EmbeddedConnection, type EmbeddedPostgres, type Log, runServer } from './run.ts';
import { endOrphan, findServer, readServerFile } from './server.ts';
import { lockServerDir, type ServerDir } from './server-dir.ts';

export type { EmbeddedConnection, EmbeddedPostgres };

const logLimitBytes = 1024 * 1024;

/**
 * Starts the PostgreSQL of `dataDir`, and creates it at the first start; resolves when it accepts connections.
 *
 * The server ends with this process, within about a second even after `kill -9`. It does not keep the process alive. Throws if
 * another service uses `dataDir` (then nothing is changed), if another major version made the cluster, and if this machine
 * cannot run it; each message names the remedy. `log` receives messages for the operator. `maxConnections` is that of the
 * server, PostgreSQL's default if absent.
 */
export async function startEmbedded(start: {
  dataDir: string;
  log?: Log;
  maxConnections?: number;
}): Promise<EmbeddedPostgres> {
  const { dataDir, log = () => {}, maxConnections } = start;
  const serverDir = await lockServerDir({ dataDir, log });
  try {
    const { clusterDir, binaries, account } = serverDir;
    if (!existsSync(clusterDir)) await makeCluster(clusterDir, { binaries, account });
    return await serve(serverDir, log, maxConnections);
  } catch (error) {
    serverDir.release();
    throw error;
  }
}

/** As `startEmbedded`, for an existing database. Throws if there is none, and leaves no files then. */
export async function openEmbedded(start: { dataDir: string; log: Log }): Promise<EmbeddedPostgres> {
  const serverDir = await lockServerDir(start);
  try {
    if (!existsSync(serverDir.clusterDir)) throw new Error(`${serverDir.clusterDir} does not exist`);
    return await serve(serverDir, start.log);
  } catch (error) {
    serverDir.releaseAndCleanUp();
    throw error;
  }
}

/** Holds the lock of the directory until the server is stopped. */
async function serve(serverDir: ServerDir, log: Log, maxConnections?: number): Promise<EmbeddedPostgres> {
  const { dir, clusterDir, account, binaries } = serverDir;
  checkVersion(clusterDir, binaries);
  await endOrphan(clusterDir, log);
  const write = boundedFile(path.join(dir, 'postgres.log'));
  const { socketDir, remove } = await listenBeside(dir, { clusterDir, account });
  const server = await runServer(clusterDir, {
    accessDir: dir,
    socketDir,
    binaries,
    account,
    log,
    write,
    ...(maxConnections !== undefined && { settings: { max_connections: String(maxConnections) } }),
  });
  const stop = async () => {
    await server.stop();
    remove();
    serverDir.release();
  };
  let stopped: Promise<void> | undefined;
  return {
    ...server,
    stop() {
      stopped ??= stop();
      return stopped;
    },
  };
}

/**
 * The connection to the PostgreSQL that a service runs on `dataDir` at this moment; undefined if none runs. Throws `EACCES` if
 * this user may not read the cluster: only the user of the service may.
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

/** Appends to a file of at most twice `logLimitBytes`, with its older half in `.1`. Throws if the path is a link. */
function boundedFile(file: string): (text: string) => void {
  provePlain(file);
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW } = constants;
  let size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
  return (text) => {
    if (size > logLimitBytes) {
      renameSync(file, `${file}.1`);
      size = 0;
    }
    const descriptor = openSync(file, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
    try {
      writeFileSync(descriptor, text);
    } finally {
      closeSync(descriptor);
    }
    size += Buffer.byteLength(text);
  };
}
