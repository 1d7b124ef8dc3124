// The account of the embedded server. PostgreSQL refuses to run as root, so a service that runs as root starts its server as
// an unprivileged account, and gives it only search permission on the way to the data directory.

import { spawnSync } from 'node:child_process';
import { chmodSync, readFileSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import path from 'node:path';
import { childEnvironment } from '../../../sdk/child-environment.ts';

export interface Account {
  uid: number;
  gid: number;
  name: string;
  /** For `spawn`: empty if the service itself runs as this account. */
  identity: { uid?: number; gid?: number };
}

/** `postgres` first: many small daemons share `nobody`, and could read the files. */
const unprivilegedAccounts = ['postgres', 'nobody'];

/**
 * The account for the server of `clusterDir`: that of the service; or, if the service runs as root, the owner of the existing
 * cluster, otherwise `postgres` or `nobody`. Throws with advice if there is none.
 */
export function findAccount(clusterDir: string): Account {
  const uid = process.getuid?.();
  const gid = process.getgid?.();
  if (uid === undefined || gid === undefined) {
    throw new Error(`the embedded PostgreSQL does not run on ${process.platform}; set DATABASE_URL`);
  }
  const owner = statSync(clusterDir, { throwIfNoEntry: false });
  if (uid !== 0) {
    if (owner && owner.uid !== uid) {
      throw new Error(
        `${clusterDir} belongs to uid ${owner.uid}, and this service runs as uid ${uid}; ` +
          `start it as that user (or as root, if root started it before), or change the owner of the directory and its contents`,
      );
    }
    return { uid, gid, name: serviceUser(), identity: {} };
  }
  if (owner?.uid === 0) {
    throw new Error(
      `${clusterDir} belongs to root, and PostgreSQL does not run as root; ` +
        `change its owner to another user: chown -R nobody ${clusterDir}`,
    );
  }
  const known = readAccounts();
  if (owner) {
    const name = known.find((account) => account.uid === owner.uid)?.name ?? String(owner.uid);
    return {
      uid: owner.uid,
      gid: owner.gid,
      name,
      identity: { uid: owner.uid, gid: owner.gid },
    };
  }
  for (const name of unprivilegedAccounts) {
    const account = known.find((candidate) => candidate.name === name);
    if (account) return { ...account, identity: { uid: account.uid, gid: account.gid } };
  }
  throw new Error(
    'PostgreSQL does not run as root, and this machine has neither a user "postgres" nor "nobody"; ' +
      'start the service as a user other than root, or set DATABASE_URL',
  );
}

/**
 * The name of this process's user, for PostgreSQL's `peer` check. Throws if the uid has no entry in the user database
 * (`docker run --user 12345`): initdb needs one.
 */
export function serviceUser(): string {
  try {
    return userInfo().username;
  } catch {
    throw new Error(
      `uid ${process.getuid?.()} has no entry in /etc/passwd, which the embedded PostgreSQL needs; ` +
        'add one, start the service as another user, or set DATABASE_URL',
    );
  }
}

/**
 * Lets `account` enter `dir`: adds search permission for others (`o+x`) to the parents that prevent it, and to no other. No
 * user can list or read more than before, but paths with known names become reachable. `log` receives each change. Throws
 * with advice if that is not enough.
 */
export function openWayTo(dir: string, way: { account: Account; log: (message: string) => void }): void {
  const { account, log } = way;
  if (canEnter(dir, account)) return;
  let refusal: unknown;
  for (const parent of parentsFromTop(dir)) {
    const { mode, uid, gid } = statSync(parent);
    const searchBit = uid === account.uid ? 0o100 : gid === account.gid ? 0o010 : 0o001;
    if (mode & searchBit) continue;
    if (searchBit !== 0o001) break;
    try {
      chmodSync(parent, (mode & 0o7777) | 0o001);
      log(`${parent}: added o+x, so that the embedded PostgreSQL (user ${account.name}) can reach ${dir}`);
    } catch (error) {
      refusal = error;
      break;
    }
  }
  if (canEnter(dir, account)) return;
  throw new Error(
    `the embedded PostgreSQL runs as the user "${account.name}", which cannot access ${dir}; ` +
      'set DATA_DIR to a directory whose parents all users can access (/var/lib/trellis), ' +
      'start the service as a user other than root, or set DATABASE_URL',
    { cause: refusal },
  );
}

/** Whether `account` may search `dir` and all its parents. The kernel decides: modes do not show ACLs. */
export function canEnter(dir: string, account: Account): boolean {
  const probe = spawnSync('/bin/sh', ['-c', 'cd -- "$1"', 'sh', dir], {
    ...account.identity,
    cwd: '/',
    env: childEnvironment(),
    stdio: 'ignore',
  });
  return probe.status === 0;
}

function parentsFromTop(dir: string): string[] {
  const parents: string[] = [];
  for (let at = dir; at !== path.dirname(at); at = path.dirname(at)) parents.unshift(at);
  return parents;
}

function readAccounts(): { name: string; uid: number; gid: number }[] {
  return readFileSync('/etc/passwd', 'utf8')
    .split('\n')
    .filter((line) => line.includes(':') && !line.startsWith('#'))
    .map((line) => {
      const [name = '', , uid, gid] = line.split(':');
      return { name, uid: Number(uid), gid: Number(gid) };
    });
}
