// What is seen of runs from beside them: their calls at the provider, and the memory of the node that runs them.

import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import type { IncomingMessage } from 'node:http';
import { percentile } from '../support/percentile.ts';
import { functionProcessesOf, type Taken, takenBy } from '../support/processes.ts';

export type Usage = {
  /** Around the second minute, or a third of the time, and in the last. */
  memory: { early: Memory; late: Memory };
  /** Of one core. */
  cpuShare: { service: number; functions: number };
};

/** Medians of a minute, in MB: of the node, and of all its processes of customer code together. */
type Memory = { service: number; functions: number; processes: number };

/** Notes when the calls of each spreadsheet arrive here, whichever server of this process gets them. */
export function watchCalls() {
  const calls = new Map<string, { begun: number[]; ended: number[] }>();
  const note = (message: unknown) => {
    const { url = '' } = (message as { request: IncomingMessage }).request;
    const [, sheet, range] =
      /^\/v4\/spreadsheets\/([^/]+)\/values\/([^?]+)/.exec(decodeURIComponent(url)) ?? [];
    if (sheet === undefined) return;
    const of = calls.get(sheet) ?? { begun: [], ended: [] };
    calls.set(sheet, of);
    (range === 'A1' ? of.ended : of.begun).push(Date.now());
  };
  subscribe('http.server.request.start', note);
  return {
    calls,
    /** The call that begins a run comes after the one that ends the run before. */
    overlaps: () =>
      [...calls.values()].reduce(
        (sum, { begun, ended }) =>
          sum +
          begun.filter((at, nth) => nth > 0 && !((ended[nth - 1] ?? Number.POSITIVE_INFINITY) <= at)).length,
        0,
      ),
    stop: () => unsubscribe('http.server.request.start', note),
  };
}

/** Looks every two seconds, from now on. */
export async function watchUsage(pid: number) {
  const samples: (Memory & { atMs: number })[] = [];
  /** By process, of those that are gone too. */
  const cpuMs = new Map<number, number>();
  const startedAt = performance.now();
  const cpuBefore = (await takenBy(pid))?.cpuMs ?? 0;
  const look = async () => {
    const pids = [pid, ...(await functionProcessesOf(pid))];
    const taken = await Promise.all(pids.map(takenBy));
    for (const [at, one] of taken.entries()) if (one !== undefined) cpuMs.set(pids[at]!, one.cpuMs);
    const [service, ...functions] = taken;
    const live = functions.filter((one): one is Taken => one !== undefined);
    samples.push({
      atMs: performance.now() - startedAt,
      service: service?.rssMb ?? 0,
      functions: live.reduce((sum, { rssMb }) => sum + rssMb, 0),
      processes: live.length,
    });
  };
  const timer = setInterval(() => void look(), 2_000);
  const told = (): Usage => {
    const nowMs = performance.now() - startedAt;
    const around = (atMs: number) => medians(samples.filter((one) => Math.abs(one.atMs - atMs) <= 30_000));
    const all = [...cpuMs.values()].reduce((sum, ms) => sum + ms, 0);
    const service = cpuMs.get(pid) ?? 0;
    return {
      memory: { early: around(Math.min(120_000, nowMs / 3)), late: around(nowMs - 30_000) },
      cpuShare: { service: (service - cpuBefore) / nowMs, functions: (all - service) / nowMs },
    };
  };
  return {
    told,
    async stop() {
      clearInterval(timer);
      await look();
      return told();
    },
  };
}

function medians(samples: readonly Memory[]): Memory {
  const of = (name: keyof Memory) =>
    Math.round(
      percentile(
        samples.map((one) => one[name]).sort((a, b) => a - b),
        0.5,
      ),
    );
  return { service: of('service'), functions: of('functions'), processes: of('processes') };
}
