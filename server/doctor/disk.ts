/** DATA_DIR: its owner, other users that can read its keys, its free space. */
import { constants } from 'node:fs';
import { access, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { devKeyPath, masterKeyPath } from '../data-dir.ts';
import { type Check, fail, ok, skipped, type Verdict, warn } from './check.ts';

const minMb = 200;
const amplyMb = 1024;

export function diskChecks({ dataDir, isEmbedded }: { dataDir: string; isEmbedded: boolean }): Check[] {
  return [
    { name: 'data-dir', run: () => judgeDataDir(dataDir) },
    { name: 'key-files', run: () => judgeKeyFiles([masterKeyPath(dataDir), devKeyPath(dataDir)]) },
    {
      name: 'disk-space',
      run: async () => {
        if (!(await isThere(dataDir))) return skipped('There is no DATA_DIR yet.');
        const place =
          isEmbedded && (await isThere(join(dataDir, 'postgres'))) ? join(dataDir, 'postgres') : dataDir;
        const { bavail, bsize } = await statfs(place);
        return judgeFree(Math.floor((bavail * bsize) / 1024 / 1024), isEmbedded);
      },
    },
  ];
}

export async function judgeDataDir(dataDir: string): Promise<Verdict> {
  const found = await stat(dataDir).catch((error: NodeJS.ErrnoException) => error);
  if (found instanceof Error) {
    if (found.code === 'ENOENT') return ok(`${dataDir} is not there yet; the first start makes it.`);
    return fail(`${dataDir} cannot be looked at: ${found.message}`, 'Run this as the user of the service.');
  }
  if (!found.isDirectory())
    return fail(`${dataDir} is no directory.`, 'Set DATA_DIR to a directory of the service.');
  const isMine = await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!isMine)
    return fail(
      `This user may not write to ${dataDir}.`,
      'Give the directory to the user of the service (chown), or run this as that user.',
    );
  if ((found.mode & 0o066) !== 0)
    return warn(
      `${dataDir} may be read by others (mode ${(found.mode & 0o777).toString(8)}).`,
      `chmod 700 ${dataDir}, or 711 where root starts the embedded database.`,
    );
  return ok(`${dataDir} is this user's.`);
}

export async function judgeKeyFiles(paths: readonly string[]): Promise<Verdict> {
  const open: string[] = [];
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && (found.mode & 0o077) !== 0) open.push(path);
  }
  if (open.length === 0) return ok('No file with a key may be read by others.');
  return fail(
    `Others may read ${open.join(' and ')}.`,
    `chmod 600 ${open.join(' ')}; if somebody may have read it, rotate the key too.`,
  );
}

export function judgeFree(mb: number, isEmbedded: boolean): Verdict {
  const mend = isEmbedded
    ? 'Free disk space: a database without any stops. Retention rules and shorter TRELLIS_ACTIVITY_DAYS keep it smaller.'
    : 'Free space on the disk of DATA_DIR.';
  if (mb < minMb) return fail(`${mb} MB are free.`, mend);
  return mb < amplyMb ? warn(`${mb} MB are free.`, mend) : ok(`${mb} MB are free.`);
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
