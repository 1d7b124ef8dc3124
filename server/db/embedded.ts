// The PostgreSQL that comes with the service, for whoever sets no DATABASE_URL.
//
// Owns: DATA_DIR/postgres and the life of the server in it: made, started, stopped, never two at once, never
// left behind. Does not own: the pool (pool.ts), the schema (migrate.ts). Its parts: whom the server runs as
// (embedded-account.ts), who may connect (embedded-access.ts), its programs (embedded-binaries.ts), its files
// (embedded-cluster.ts), one service per directory (embedded-lock.ts, embedded-place.ts), the processes
// (embedded-server.ts, embedded-run.ts). Beside it: servers of a command's own (embedded-private.ts).

import { appendFileSync, existsSync, realpathSync, renameSync, rmSync, statSync } from 'node:fs';
import { connect } from 'node:net';
import path from 'node:path';
import { makeSocketDir } from './embedded-access.ts';
import { checkVersion, makeCluster } from './embedded-cluster.ts';
import { takePlace } from './embedded-place.ts';
import {
  connectionAt,
  type EmbeddedConnection,
  type EmbeddedPostgres,
  type Log,
  runServer,
} from './embedded-run.ts';
import { endOrphan, findServer, readServerFile } from './embedded-server.ts';

export type { EmbeddedConnection, EmbeddedPostgres };

const logLimitBytes = 1024 * 1024;

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
  const place = await takePlace({ dataDir, log });
  const { dir, clusterDir, account, binaries } = place;
  try {
    if (!existsSync(clusterDir)) await makeCluster(clusterDir, { binaries, account });
    checkVersion(clusterDir, binaries);
    await endOrphan(clusterDir, log);
    const socketDir = makeSocketDir(clusterDir, account);
    const write = boundedFile(path.join(dir, 'postgres.log'));
    const server = await runServer(clusterDir, {
      ...{ accessDir: dir, socketDir, binaries, account, log, write },
    });
    const stop = async () => {
      await server.stop();
      rmSync(socketDir, { recursive: true, force: true });
      place.release();
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
    place.release();
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
