// Who may connect to the embedded server: the user the service runs as, and nobody else on the machine.

import { createHash } from 'node:crypto';
import { chmodSync, chownSync, lstatSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { type Account, serviceUser } from './embedded-account.ts';
import { superuser } from './embedded-cluster.ts';

/**
 * A directory that only the server's user may enter (root may anyway), and short: the path of a unix socket
 * has at most 107 bytes (103 on macOS). The name is known before, so whoever else made it is refused.
 */
export function makeSocketDir(clusterDir: string, account: Account): string {
  const name = createHash('sha256').update(`${account.uid} ${clusterDir}`).digest('hex').slice(0, 16);
  const socketDir = `/tmp/trellis-${name}`;
  try {
    mkdirSync(socketDir, { mode: 0o700 });
    if (account.identity.uid !== undefined) chownSync(socketDir, account.uid, account.gid);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    const found = lstatSync(socketDir);
    if (!found.isDirectory() || (found.uid !== account.uid && found.uid !== process.getuid?.())) {
      throw new Error(`${socketDir} belongs to uid ${found.uid}, not to us; remove it`, { cause: error });
    }
    if (found.uid !== account.uid) chownSync(socketDir, account.uid, account.gid);
    chmodSync(socketDir, 0o700);
    // Left by a server that was killed; its lock file would stop the next one.
    for (const left of readdirSync(socketDir)) rmSync(path.join(socketDir, left), { force: true });
  }
  return socketDir;
}

/**
 * Who may connect: of those who can reach the socket, the user the service runs as. The files lie outside
 * the cluster, and are written anew at each start.
 */
export function accessFiles(dir: string): { hba_file: string; ident_file: string } {
  const files = { hba_file: path.join(dir, 'pg_hba.conf'), ident_file: path.join(dir, 'pg_ident.conf') };
  writeReadable(files.hba_file, 'local all all peer map=service\n');
  writeReadable(files.ident_file, `service "${serviceUser()}" ${superuser}\n`);
  return files;
}

function writeReadable(file: string, text: string): void {
  writeFileSync(file, text);
  chmodSync(file, 0o644);
}
