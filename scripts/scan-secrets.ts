/**
 * Searches for secrets: `node scripts/scan-secrets.ts` in the files of the repository, including
 * new files that are not ignored; `node scripts/scan-secrets.ts DIRECTORY` in all files of a directory, such as a package, except
 * its dependencies. It prints places, never the secrets. Exit code 1 if it finds one.
 */
import { execFileSync } from 'node:child_process';
import { globSync, readFileSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { findSecrets } from './secret-patterns.ts';

const root = join(import.meta.dirname, '..');

/** Texts that look like a secret and are not, in any file. */
const allowed = new Map([
  ['1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms', "the spreadsheet of Google's own documentation"],
  ['MjAyNi0xMS0yMVQwMDo1MToyNi45NDI3NDcrMDA6MDB8fGFiYw==', 'a cursor of another product, which is refused'],
  ['A'.repeat(43), 'a key that nobody has'],
  ['password', 'how SMTP_URL is written'],
  ['password-of-it', 'of an address that is refused for it'],
  ['hidden-word', 'of an address that must not be shown'],
]);

/** Digests of packages, written by npm. */
const lockfile = 'package-lock.json';

/** A line for each place: `file:line kind`. */
export function scanRepository(): string[] {
  const listed = execFileSync('git', ['ls-files', '-z', '--cached', '--others', '--exclude-standard'], {
    cwd: root,
    encoding: 'utf8',
    maxBuffer: 64 * 1024 * 1024,
  });
  return scan(root, listed.split('\0').filter(Boolean));
}

/** The same for the files below a directory. */
export function scanDirectory(directory: string): string[] {
  return scan(directory, globSync('**/*', { cwd: directory, exclude: ['**/node_modules/**'] }));
}

function scan(directory: string, files: readonly string[]): string[] {
  const found: string[] = [];
  for (const file of files) {
    if (basename(file) === lockfile) continue;
    const path = join(directory, file);
    // Git may list a deleted file.
    if (statSync(path, { throwIfNoEntry: false })?.isFile() !== true) continue;
    const content = readFileSync(path);
    if (content.includes(0)) continue;
    for (const { line, kind, secret } of findSecrets(content.toString()))
      if (!allowed.has(secret)) found.push(`${file}:${line} ${kind}`);
  }
  return found;
}

if (import.meta.main) {
  const [directory] = process.argv.slice(2);
  const found = directory === undefined ? scanRepository() : scanDirectory(directory);
  for (const line of found) console.error(line);
  if (found.length > 0) process.exitCode = 1;
  else console.log('no secrets');
}
