// Access to the embedded server: only for the user that the service runs as.

import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  closeSync,
  constants,
  fchmodSync,
  fchownSync,
  lstatSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { type Account, serviceUser } from './account.ts';
import { superuser } from './cluster.ts';

/** Only part of the socket's name. */
export const port = 5432;
const socketName = `.s.PGSQL.${port}`;
const probeName = '.s.PGSQL.probe';

/** The socket directory of a server. */
interface Listening {
  socketDir: string;
  remove(): void;
}

/** The path of a unix socket has at most 107 bytes, 103 on macOS; PostgreSQL reads commas and quotes in a directory's. */
const pathOfSocket = /^[\w./-]{1,89}$/;

/**
 * The socket directory of a service's server. It is beside the cluster, so a process that finds the cluster finds the
 * socket, also if a supervisor gives the service its own /tmp. `dir` is DATA_DIR/postgres. The socket is in /tmp if that
 * path is too long, or is on a file system without sockets.
 */
export async function listenBeside(
  dir: string,
  { clusterDir, account }: { clusterDir: string; account: Account },
): Promise<Listening> {
  const socketDir = path.join(dir, 'socket');
  if (pathOfSocket.test(socketDir)) {
    makeSocketDir(socketDir, account);
    const remove = () => rmSync(socketDir, { recursive: true, force: true });
    if (await takesSockets(socketDir)) return { socketDir, remove };
    remove();
  }
  return listenInTmp(clusterDir, account);
}

/** A socket directory that no other process looks for. `dir` is a directory of the service, for the files of that server. */
export function listenInTmp(clusterDir: string, account: Account): Listening & { dir: string } {
  const dir = makePrivateDir(clusterDir, account);
  const socketDir = path.join(dir, 'socket');
  makeSocketDir(socketDir, account);
  return { dir, socketDir, remove: () => rmSync(dir, { recursive: true, force: true }) };
}

/**
 * A directory of this process's user in /tmp. The server's user may enter it, but not replace a file of it with a link. The
 * name is predictable, so a directory that another user made is refused.
 */
function makePrivateDir(clusterDir: string, account: Account): string {
  const name = createHash('sha256').update(`room ${account.uid} ${clusterDir}`).digest('hex').slice(0, 16);
  const dir = `/tmp/trellis-${name}`;
  try {
    mkdirSync(dir, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const found = lstatSync(dir);
    if (!found.isDirectory() || found.uid !== process.getuid?.()) {
      throw new Error(`${dir} belongs to uid ${found.uid}, not to the user of the service; remove it`, {
        cause: error,
      });
    }
  }
  chmodSync(dir, account.identity.uid === undefined ? 0o700 : 0o711);
  return dir;
}

/**
 * A directory only for the server's user (root may enter it too), without the lock file of a killed server, which would
 * prevent the next start. No link is followed: the parent directory may belong to another user.
 */
function makeSocketDir(socketDir: string, account: Account): void {
  try {
    mkdirSync(socketDir, { mode: 0o700 });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  }
  const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
  const descriptor = openSync(socketDir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  try {
    if (account.identity.uid !== undefined) fchownSync(descriptor, account.uid, account.gid);
    fchmodSync(descriptor, 0o700);
  } finally {
    closeSync(descriptor);
  }
  for (const name of [socketName, `${socketName}.lock`, probeName])
    rmSync(path.join(socketDir, name), { force: true });
}

async function takesSockets(dir: string): Promise<boolean> {
  const probe = createServer().listen(path.join(dir, probeName));
  try {
    await once(probe, 'listening');
    return true;
  } catch {
    return false;
  } finally {
    probe.close();
  }
}

/**
 * The files that admit the user that the service runs as, and no other user that can reach the socket. They are outside the
 * cluster, and each start writes them again.
 */
export function accessFiles(dir: string): { hba_file: string; ident_file: string } {
  const files = { hba_file: path.join(dir, 'pg_hba.conf'), ident_file: path.join(dir, 'pg_ident.conf') };
  writeReadable(files.hba_file, 'local all all peer map=service\n');
  writeReadable(files.ident_file, `service "${serviceUser()}" ${superuser}\n`);
  return files;
}

/** Replaces the file, and never follows a link: the directory may belong to another user. */
function writeReadable(file: string, text: string): void {
  const draft = `${file}.draft`;
  rmSync(draft, { force: true });
  const { O_WRONLY, O_CREAT, O_EXCL, O_NOFOLLOW } = constants;
  const descriptor = openSync(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0o600);
  try {
    writeFileSync(descriptor, text);
    fchmodSync(descriptor, 0o644);
  } finally {
    closeSync(descriptor);
  }
  renameSync(draft, file);
}
