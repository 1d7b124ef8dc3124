// What processes of this machine take, as Linux tells it. Elsewhere nothing is told.

import { readdir, readFile } from 'node:fs/promises';

/** Memory in MB: `pss` counts what processes share once. `cpuMs` is what it took of processors since its start. */
export type Taken = { rssMb: number; pssMb: number; cpuMs: number };

const megabyteKb = 1024;
/** Of a tick, in which Linux counts processor time (USER_HZ). */
const tickMs = 10;

/** Undefined where it is gone, or cannot be seen. */
export async function takenBy(pid: number): Promise<Taken | undefined> {
  try {
    const [rollup, stat] = await Promise.all([
      readFile(`/proc/${pid}/smaps_rollup`, 'utf8'),
      readFile(`/proc/${pid}/stat`, 'utf8'),
    ]);
    const kb = (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(rollup)?.[1]);
    const [user, system] = fieldsOf(stat).slice(11, 13).map(Number) as [number, number];
    return {
      rssMb: kb('Rss') / megabyteKb,
      pssMb: kb('Pss') / megabyteKb,
      cpuMs: (user + system) * tickMs,
    };
  } catch {
    return undefined;
  }
}

/** The processes that this one and its children have started, and that run. */
export async function processesBeneath(top: number): Promise<number[]> {
  const parents = new Map<number, number>();
  for (const name of await readdir('/proc').catch(() => [])) {
    if (!/^\d+$/.test(name)) continue;
    const stat = await readFile(`/proc/${name}/stat`, 'utf8').catch(() => undefined);
    if (stat !== undefined) parents.set(Number(name), Number(fieldsOf(stat)[1]));
  }
  const isBeneath = (pid: number | undefined): boolean =>
    pid !== undefined && (pid === top || isBeneath(parents.get(pid)));
  return [...parents.keys()].filter((pid) => pid !== top && isBeneath(pid));
}

/**
 * The processes of customer code that a service has at the moment: those beneath it that run its Node with no rights,
 * without what confines them.
 */
export async function functionProcessesOf(servicePid: number): Promise<number[]> {
  const found: number[] = [];
  for (const pid of await processesBeneath(servicePid)) {
    const [program = '', ...rest] = (await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '')).split(
      '\0',
    );
    if (/(^|\/)node$/.test(program) && rest.includes('--permission')) found.push(pid);
  }
  return found;
}

/** The process of esbuild that the main thread of a Node started, if it runs. */
export async function esbuildOf(pid: number): Promise<number | undefined> {
  const children = (await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8')).trim().split(' ');
  for (const child of children) {
    const name = await readFile(`/proc/${child}/comm`, 'utf8').catch(() => '');
    if (name.trim() === 'esbuild') return Number(child);
  }
  return undefined;
}

/** Behind the name, which may hold anything: the state is the first, the parent the second. */
function fieldsOf(stat: string): string[] {
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}
