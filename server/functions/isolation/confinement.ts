/**
 * The confinement of processes of customer code by the operating system. If the service is root on Linux: a separate user
 * for each environment, and namespaces without network. Otherwise, if `bwrap` is installed: namespaces without network and
 * an empty file system. Node's permission flags (`customer-process.ts`) apply in each case; without root and `bwrap` they
 * are the only limit on network and files.
 */
import { execFile } from 'node:child_process';
import { accessSync, constants } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { childEnvironment } from '../../../sdk/child-environment.ts';

export type Confinement = {
  /** `user`: own user and namespaces. `bwrap`: namespaces and an empty file system. `none`: only Node's permission model. */
  kind: 'user' | 'bwrap' | 'none';
  /** Why it is not stricter; undefined for the strictest. */
  missing: string | undefined;
  /** The prefix for the command of a process of this environment. */
  prefix(environmentId: number): string[];
};

/** Unused user IDs, one for each environment: `/etc/login.defs` ends at 60,000, containers begin at 100,000. */
const firstUser = 1_900_000_000;
const users = 100_000_000;

/** The strictest confinement that works on this machine, determined by trials. */
export async function confinementOf(wish: 'auto' | 'off'): Promise<Confinement> {
  if (wish === 'off') return { kind: 'none', missing: 'It is turned off.', prefix: () => [] };
  const tried: string[] = [];
  for (const candidate of candidates()) {
    const fault = await failureOf(candidate.prefix(0));
    if (fault === undefined) return candidate;
    tried.push(`${candidate.kind}: ${fault}`);
  }
  return {
    kind: 'none',
    missing:
      tried.length > 0
        ? `It does not work here (${tried.join('; ')}).`
        : 'The service is neither root on Linux nor finds bwrap.',
    prefix: dyingWithService,
  };
}

/** The confinements that may work on this machine, the strictest first. */
export function candidates(): Confinement[] {
  const [unshare, setpriv, bwrap] = ['unshare', 'setpriv', 'bwrap'].map(pathOf);
  const found: Confinement[] = [];
  if (process.getuid?.() === 0 && unshare && setpriv)
    found.push({ kind: 'user', missing: undefined, prefix: (id) => asUser({ unshare, setpriv, id }) });
  if (bwrap)
    found.push({
      kind: 'bwrap',
      missing: 'The service is not root, so all environments have its user.',
      prefix: () => bubble(bwrap),
    });
  return found;
}

function asUser({ unshare, setpriv, id }: { unshare: string; setpriv: string; id: number }): string[] {
  const user = String(firstUser + (id % users));
  return [
    // Both processes end with their parent, also if the service is killed.
    setpriv,
    '--pdeathsig',
    'KILL',
    '--',
    unshare,
    '--pid',
    '--fork',
    '--mount-proc',
    '--net',
    '--ipc',
    '--uts',
    '--',
    setpriv,
    '--reuid',
    user,
    '--regid',
    user,
    '--clear-groups',
    '--no-new-privs',
    '--bounding-set=-all',
    '--inh-caps=-all',
    '--pdeathsig',
    'KILL',
    '--',
  ];
}

function bubble(bwrap: string): string[] {
  const readable = ['/usr', '/bin', '/lib', '/lib64', process.execPath];
  return [
    bwrap,
    '--unshare-all',
    '--die-with-parent',
    '--new-session',
    '--cap-drop',
    'ALL',
    '--proc',
    '/proc',
    '--dev',
    '/dev',
    ...readable.flatMap((path) => ['--ro-bind-try', path, path]),
    '--chdir',
    '/',
    '--',
  ];
}

function dyingWithService(): string[] {
  const setpriv = pathOf('setpriv');
  return setpriv === undefined ? [] : [setpriv, '--pdeathsig', 'KILL', '--'];
}

function pathOf(name: string): string | undefined {
  return ['/usr/bin', '/bin', '/usr/sbin', '/sbin', dirname(process.execPath)]
    .map((folder) => join(folder, name))
    .find((path) => {
      try {
        accessSync(path, constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}

/** Why Node does not start with this prefix; undefined if it does. It may lack the right to read Node's own file. */
async function failureOf([command, ...rest]: string[]): Promise<string | undefined> {
  try {
    await promisify(execFile)(command!, [...rest, process.execPath, '--version'], {
      env: childEnvironment(),
      cwd: '/',
      timeout: 10_000,
    });
    return undefined;
  } catch (error) {
    const { stderr, message } = error as { stderr?: string; message: string };
    return (stderr?.trim() || message).split('\n')[0]!.slice(0, 200);
  }
}
