/** The machine of this command: Node, open files, memory, isolation of functions, and the disk and owner of DATA_DIR. */
import { constants } from 'node:fs';
import { access, readFile, stat, statfs } from 'node:fs/promises';
import { totalmem } from 'node:os';
import { join } from 'node:path';
import type { Config } from '../../config/config.ts';
import { devKeyPath, masterKeyPath } from '../../data-dir.ts';
import { confinementOf } from '../../functions/isolation/confinement.ts';
import { type Check, type CheckResult, fail, ok, skipped, warn } from './check.ts';

const minNode = [26, 10];
const minMemoryMb = 512;

export function machineChecks(config: Config | undefined): Check[] {
  return [
    { name: 'node', run: async () => checkNode(process.versions.node) },
    {
      name: 'open-files',
      run: async () => checkOpenFiles(openFiles(), config?.limits.maxConnections),
    },
    { name: 'memory', run: async () => checkMemory(await availableMb(), config?.processes) },
    {
      name: 'isolation',
      run: async () => {
        if (config?.functions.isOn === false) return skipped('TRELLIS_FUNCTIONS is off.');
        const { kind, missing } = await confinementOf('auto');
        if (kind === 'user')
          return ok('Each environment runs its functions as a separate user, without network access.');
        if (kind === 'bwrap')
          return ok(
            `Functions run in bwrap, with an empty file system and without network access. ${missing ?? ''}`,
          );
        return warn(
          `Only Node's own permissions isolate functions. ${missing ?? ''}`,
          'Install bubblewrap and allow user namespaces, or start the service as root: it drops its rights for functions. See docs/reference/functions-isolation.md.',
        );
      },
    },
  ];
}

export function checkNode(version: string) {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [minMajor = 0, minMinor = 0] = minNode;
  if (major === minMajor && minor >= minMinor) return ok(`This is Node ${version}.`);
  return fail(
    `This is Node ${version}; the service needs Node ${minMajor}, from ${minNode.join('.')}.`,
    'Start it with npm or npx, which use the right version, or put node_modules/.bin first in PATH.',
  );
}

export function checkOpenFiles(limit: number, maxConnections: number | undefined) {
  if (limit < 1024)
    return fail(
      `This process may open ${limit} files.`,
      'Raise the limit to 65536: LimitNOFILE= in a systemd unit, --ulimit nofile= for a container, ulimit -n in a shell.',
    );
  if (maxConnections !== undefined && maxConnections * 2 > limit)
    return warn(
      `TRELLIS_MAX_CONNECTIONS is ${maxConnections}, and a proxied call may need two of ${limit} open files.`,
      'Raise the limit of open files, or lower TRELLIS_MAX_CONNECTIONS to less than half of it.',
    );
  return ok(`This process may open ${limit === Number.POSITIVE_INFINITY ? 'any number of' : limit} files.`);
}

export function checkMemory(mb: number, processes = 1) {
  if (mb < minMemoryMb * processes)
    return warn(
      `This machine has ${mb} MB of memory.`,
      `Each node needs ${minMemoryMb} MB, and more if it runs functions. See docs/operations/sizing.md.`,
    );
  return ok(`This machine has ${mb} MB of memory.`);
}

function openFiles(): number {
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  // Otherwise the report resolves names of addresses.
  report.excludeNetwork = true;
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return Number(userLimits?.open_files?.soft) || Number.POSITIVE_INFINITY;
}

/** The memory of the machine, or the limit of this process's control group (cgroup v2). */
async function availableMb(): Promise<number> {
  const text = await readFile('/sys/fs/cgroup/memory.max', 'utf8').catch(() => 'max');
  const limit = Number(text) || Number.POSITIVE_INFINITY;
  return Math.floor(Math.min(limit, totalmem()) / 1024 / 1024);
}

const minMb = 200;
const amplyMb = 1024;

export function diskChecks({ dataDir, isEmbedded }: { dataDir: string; isEmbedded: boolean }): Check[] {
  return [
    { name: 'data-dir', run: () => checkDataDir(dataDir) },
    { name: 'key-files', run: () => checkKeyFiles([masterKeyPath(dataDir), devKeyPath(dataDir)]) },
    {
      name: 'disk-space',
      run: async () => {
        if (!(await isThere(dataDir))) return skipped('There is no DATA_DIR yet.');
        const place =
          isEmbedded && (await isThere(join(dataDir, 'postgres'))) ? join(dataDir, 'postgres') : dataDir;
        const { bavail, bsize } = await statfs(place);
        return checkFree(Math.floor((bavail * bsize) / 1024 / 1024), isEmbedded);
      },
    },
  ];
}

export async function checkDataDir(dataDir: string): Promise<CheckResult> {
  const found = await stat(dataDir).catch((error: NodeJS.ErrnoException) => error);
  if (found instanceof Error) {
    if (found.code === 'ENOENT') return ok(`${dataDir} does not exist yet; the first start creates it.`);
    return fail(
      `${dataDir} cannot be read: ${found.message}`,
      'Run this command as the user of the service.',
    );
  }
  if (!found.isDirectory())
    return fail(`${dataDir} is not a directory.`, 'Set DATA_DIR to a directory of the service.');
  const isMine = await access(dataDir, constants.R_OK | constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!isMine)
    return fail(
      `This user may not write to ${dataDir}.`,
      'Give the directory to the user of the service (chown), or run this command as that user.',
    );
  if ((found.mode & 0o066) !== 0)
    return warn(
      `Other users may read ${dataDir} (mode ${(found.mode & 0o777).toString(8)}).`,
      `chmod 700 ${dataDir}, or 711 if root starts the embedded database.`,
    );
  return ok(`${dataDir} belongs to this user.`);
}

export async function checkKeyFiles(paths: readonly string[]): Promise<CheckResult> {
  const open: string[] = [];
  for (const path of paths) {
    const found = await stat(path).catch(() => undefined);
    if (found !== undefined && (found.mode & 0o077) !== 0) open.push(path);
  }
  if (open.length === 0) return ok('Only their owner may read the files with keys.');
  return fail(
    `Other users may read ${open.join(' and ')}.`,
    `chmod 600 ${open.join(' ')}; if another user may have read it, rotate the key.`,
  );
}

export function checkFree(mb: number, isEmbedded: boolean): CheckResult {
  const remedy = isEmbedded
    ? 'Free disk space: without it the database stops. Retention rules and a shorter TRELLIS_ACTIVITY_DAYS keep it small.'
    : 'Free space on the disk of DATA_DIR.';
  if (mb < minMb) return fail(`${mb} MB are free.`, remedy);
  return mb < amplyMb ? warn(`${mb} MB are free.`, remedy) : ok(`${mb} MB are free.`);
}

async function isThere(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined)) !== undefined;
}
