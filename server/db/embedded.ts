// The PostgreSQL that comes with the service, for installations that set no DATABASE_URL.
//
// Owns: DATA_DIR/postgres and the life of the server in it: made, started, stopped, never two at once, never
// left behind. Does not own: the pool (pool.ts), the schema (migrate.ts). Its parts: whom the server runs as
// (embedded-account.ts), who may connect (embedded-access.ts), its programs (embedded-binaries.ts), its files
// (embedded-cluster.ts), one service per directory (embedded-lock.ts, embedded-place.ts), the processes
// (embedded-server.ts, embedded-run.ts). Beside it: servers of a command's own (embedded-private.ts), and the service's
// server lent to commands, or one that they share (embedded-lend.ts).

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
import { listenBeside } from './embedded-access.ts';
import { checkVersion, makeCluster } from './embedded-cluster.ts';
import { provePlain } from './embedded-lock.ts';
import { type Place, takePlace } from './embedded-place.ts';
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
  try {
    const { clusterDir, binaries, account } = place;
    if (!existsSync(clusterDir)) await makeCluster(clusterDir, { binaries, account });
    return await serve(place, log);
  } catch (error) {
    place.release();
    throw error;
  }
}

/** As `startEmbedded`, where the database is there. Throws where it is not, and leaves nothing then. */
export async function openEmbedded(start: { dataDir: string; log: Log }): Promise<EmbeddedPostgres> {
  const place = await takePlace(start);
  try {
    if (!existsSync(place.clusterDir)) throw new Error(`${place.clusterDir} is not there`);
    return await serve(place, start.log);
  } catch (error) {
    place.vacate();
    throw error;
  }
}

/** Has the place until the server is stopped. */
async function serve(place: Place, log: Log): Promise<EmbeddedPostgres> {
  const { dir, clusterDir, account, binaries } = place;
  checkVersion(clusterDir, binaries);
  await endOrphan(clusterDir, log);
  const write = boundedFile(path.join(dir, 'postgres.log'));
  const { socketDir, remove } = await listenBeside(dir, { clusterDir, account });
  const server = await runServer(clusterDir, {
    ...{ accessDir: dir, socketDir, binaries, account, log, write },
  });
  const stop = async () => {
    await server.stop();
    remove();
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

/** Appends to a file that takes at most twice `logLimitBytes`, its older half under `.1`. Throws where there is a link. */
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
