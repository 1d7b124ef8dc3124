/** The machine that this command runs on: its Node, how much it may open, its memory, what keeps functions apart. */
import { readFile } from 'node:fs/promises';
import { totalmem } from 'node:os';
import type { Config } from '../config/config.ts';
import { confinementOf } from '../functions/isolation/confinement.ts';
import { type Check, fail, ok, skipped, warn } from './check.ts';

const minNode = [26, 10];
const minMemoryMb = 512;

export function machineChecks(config: Config | undefined): Check[] {
  return [
    { name: 'node', run: async () => judgeNode(process.versions.node) },
    {
      name: 'open-files',
      run: async () => judgeOpenFiles(openFiles(), config?.limits.maxConnections),
    },
    { name: 'memory', run: async () => judgeMemory(await availableMb()) },
    {
      name: 'isolation',
      run: async () => {
        if (config?.functions.isOn === false) return skipped('TRELLIS_FUNCTIONS is off.');
        const { kind, missing } = await confinementOf('auto');
        if (kind === 'user')
          return ok('Each environment runs its functions as a user of its own, without network.');
        if (kind === 'bwrap')
          return ok(`bwrap gives functions an empty file system and no network. ${missing ?? ''}`);
        return warn(
          `Only Node's own means keep functions in their process. ${missing ?? ''}`,
          'Install bubblewrap (and let the service make user namespaces), or start it as root, which gives up its rights for them. See docs/functions-isolation.md.',
        );
      },
    },
  ];
}

export function judgeNode(version: string) {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [minMajor = 0, minMinor = 0] = minNode;
  if (major === minMajor && minor >= minMinor) return ok(`This is Node ${version}.`);
  return fail(
    `This is Node ${version}; the service is made for ${minNode.join('.')} and later of ${minMajor}.`,
    'Start it by npm or npx, which bring the right one, or put node_modules/.bin first on PATH.',
  );
}

export function judgeOpenFiles(limit: number, maxConnections: number | undefined) {
  if (limit < 1024)
    return fail(
      `The system lets this process open ${limit} files.`,
      'Raise the limit to 65536: LimitNOFILE= in a systemd unit, --ulimit nofile= for a container, ulimit -n in a shell.',
    );
  if (maxConnections !== undefined && maxConnections * 2 > limit)
    return warn(
      `TRELLIS_MAX_CONNECTIONS is ${maxConnections}, and a proxied call may take two of ${limit} open files.`,
      'Raise the limit of open files, or lower TRELLIS_MAX_CONNECTIONS to less than half of it.',
    );
  return ok(
    `The system lets this process open ${limit === Number.POSITIVE_INFINITY ? 'any number of' : limit} files.`,
  );
}

export function judgeMemory(mb: number) {
  if (mb < minMemoryMb)
    return warn(
      `${mb} MB of memory are there.`,
      `A node wants ${minMemoryMb} MB, and more where it runs functions. See docs/operations/sizing.md.`,
    );
  return ok(`${mb} MB of memory are there.`);
}

function openFiles(): number {
  const report: NodeJS.ProcessReport & { excludeNetwork?: boolean } = process.report;
  // Names of addresses are looked up otherwise.
  report.excludeNetwork = true;
  const { userLimits } = report.getReport() as { userLimits?: { open_files?: { soft?: number | string } } };
  return Number(userLimits?.open_files?.soft) || Number.POSITIVE_INFINITY;
}

/** What the machine has, or the group that this process is in may have (cgroup v2). */
async function availableMb(): Promise<number> {
  const text = await readFile('/sys/fs/cgroup/memory.max', 'utf8').catch(() => 'max');
  const limit = Number(text) || Number.POSITIVE_INFINITY;
  return Math.floor(Math.min(limit, totalmem()) / 1024 / 1024);
}
