// Programs without rights, by bubblewrap: a user of their own, a file system that is read-only but for a few directories.

import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';

/** `nobody` and `daemon`: users without rights that each Linux has, since PostgreSQL asks for the name of its own. */
export const users = { installer: 65534, service: 1 } as const;

/**
 * What stands before a program that may write below the directory for temporary files, but for `readOnly` in it, and into
 * `writable`; nowhere else.
 */
export function confined({
  user,
  directory,
  readOnly = [],
  writable = [],
  more = [],
}: {
  user: number;
  /** Where the program starts. */
  directory: string;
  readOnly?: readonly string[];
  writable?: readonly string[];
  more?: readonly string[];
}): string[] {
  const both = (option: string) => (path: string) => [option, path, path];
  return [
    'bwrap',
    '--die-with-parent',
    '--unshare-user',
    '--uid',
    String(user),
    '--gid',
    String(user),
    '--ro-bind',
    '/',
    '/',
    '--dev',
    '/dev',
    '--proc',
    '/proc',
    ...[tmpdir(), ...writable].flatMap(both('--bind')),
    ...readOnly.flatMap(both('--ro-bind')),
    ...more,
    '--chdir',
    directory,
    '--',
  ];
}

/** Why programs cannot be confined here; undefined where they can. */
export function confinementFault(): string | undefined {
  try {
    const [file, ...words] = confined({ user: users.service, directory: '/' });
    execFileSync(file!, [...words, 'true'], { stdio: 'pipe' });
    return undefined;
  } catch (error) {
    return `bubblewrap is needed: ${error instanceof Error ? error.message : error}`;
  }
}
