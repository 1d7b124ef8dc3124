/**
 * The processor time of a proxied call, with one process, with one below a supervisor, and with several, whose connections
 * the supervisor passes on or the kernel distributes (SO_REUSEPORT): docs/decisions/0024.
 *
 * All services run at once, on one database, and are measured in turns. The time is that of all processes of a service, less
 * what these take without calls. First on connections that are kept, then with a new connection for each call. Several are
 * as many as the machine has cores beside those of the callers and the upstream, and two at least.
 */
import { randomBytes } from 'node:crypto';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { openTestDatabase, urlOf } from '../test/support/database.ts';
import { processesBeneath } from '../test/support/processes.ts';
import { type RunningService, startRunningService } from '../test/support/service.ts';
import { download, load, type Target } from './proxy-load.ts';
import { cpuMsOf, otherCore, startPart } from './proxy-parts.ts';
import { type Benchmark, type BenchOptions, median, report } from './support.ts';

export const processesBenchmark: Benchmark = {
  isWithoutOthers: true,
  about: 'processor time of a proxied call by the number of processes, and by the way in which they listen',
  run: measureProcesses,
};

const several = Math.max(2, availableParallelism() - 2);
const connections = 4 * several;
/** The words of `processes-service.ts`, and the number of processes. */
const cases = {
  alone: ['alone', 1],
  'one below a supervisor': ['passed-on', 1],
  [`${several} below a supervisor`]: ['passed-on', several],
  [`${several} by the kernel`]: ['by-kernel', several],
} as const;

type Figure = { perSecond: number; cpuUs: number; busiestShare: number };
/** Of each round. */
type Figures = { kept: Figure[]; fresh: Figure[] };

async function measureProcesses({ rounds, scale }: BenchOptions): Promise<void> {
  const seconds = scale === 'full' ? 3 : 1;
  const { target, drop } = await openTestDatabase();
  const upstream = await startPart(otherCore, 'upstream');
  const services = new Map<string, RunningService>();
  const figures = new Map<string, Figures>();
  try {
    const shared = {
      DATABASE_URL: urlOf(target),
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      TRELLIS_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}`,
      TRELLIS_SECRET_KEY: `bench_${randomBytes(20).toString('hex')}`,
      TRELLIS_SANDBOX: 'off',
    };
    const start = async (name: string, way: string, count: number) => {
      const program = [process.execPath, join(import.meta.dirname, 'processes-service.ts'), way];
      const env = { ...shared, TRELLIS_PROCESSES: String(count) };
      services.set(name, await startRunningService({ program, env }));
    };
    await Promise.all(Object.entries(cases).map(([name, [way, count]]) => start(name, way, count)));
    for (const name of Object.keys(cases)) figures.set(name, { kept: [], fresh: [] });
    await prepare(services.get('alone')!, upstream.url);
    // Warm: the first thousand calls of a process are slower than all others.
    for (const service of services.values()) await load(targetOf(service), { connections, seconds: 2 });
    for (let round = 0; round < rounds; round += 1) {
      const all = [...services.values()];
      const before = await Promise.all(all.map(({ pid }) => timesOf(pid)));
      await sleep(seconds * 1000);
      const after = await Promise.all(all.map(({ pid }) => timesOf(pid)));
      for (const [at, [name, service]] of [...services].entries()) {
        const idleShare = sumOf(after[at]!, before[at]!) / (seconds * 1000);
        const one = targetOf(service);
        const { kept, fresh } = figures.get(name)!;
        kept.push(await measure(service.pid, idleShare, () => load(one, { connections, seconds })));
        fresh.push(await measure(service.pid, idleShare, () => loadAnew(one, seconds)));
      }
    }
  } finally {
    for (const service of services.values()) await service.stop({ keepData: false });
    await upstream.stop();
    await drop();
  }
  tell(figures);
}

async function prepare({ call }: RunningService, baseUrl: string): Promise<void> {
  await call('POST', '/integrations', {
    body: { unique_key: 'bench', provider: 'private-api-key', integration_config: { base_url: baseUrl } },
  });
  await call('POST', '/connections', {
    body: {
      provider_config_key: 'bench',
      connection_id: 'bench',
      credentials: { type: 'API_KEY', apiKey: 'secret' },
    },
  });
}

function targetOf({ baseUrl, secretKey }: RunningService): Pick<Target, 'url' | 'headers'> {
  return {
    url: `${baseUrl}/proxy/v1/things`,
    headers: {
      authorization: `Bearer ${secretKey}`,
      'provider-config-key': 'bench',
      'connection-id': 'bench',
    },
  };
}

/** A new connection for each call. */
async function loadAnew(
  target: Pick<Target, 'url' | 'headers'>,
  seconds: number,
): Promise<{ requests: number; elapsedMs: number }> {
  const startedAt = performance.now();
  let requests = 0;
  const call = async () => {
    while (performance.now() < startedAt + seconds * 1000) {
      await download(target);
      requests += 1;
    }
  };
  await Promise.all(Array.from({ length: connections }, call));
  return { requests, elapsedMs: performance.now() - startedAt };
}

/** The processor time of a service so far, in ms, by its processes; the first is the one that was started. */
async function timesOf(pid: number): Promise<Map<number, number>> {
  const pids = [pid, ...(await processesBeneath(pid))];
  return new Map(await Promise.all(pids.map(async (one) => [one, await cpuMsOf(one)] as const)));
}

const usedBy = (after: Map<number, number>, before: Map<number, number>) =>
  [...after].map(([pid, ms]) => ms - (before.get(pid) ?? 0));
const sumOf = (after: Map<number, number>, before: Map<number, number>) =>
  usedBy(after, before).reduce((sum, ms) => sum + ms, 0);

async function measure(
  pid: number,
  idleShare: number,
  work: () => Promise<{ requests: number; elapsedMs: number }>,
): Promise<Figure> {
  const before = await timesOf(pid);
  const { requests, elapsedMs } = await work();
  const after = await timesOf(pid);
  const cpuMs = sumOf(after, before) - idleShare * elapsedMs;
  const [first = 0, ...beneath] = usedBy(after, before);
  const serving = beneath.length === 0 ? [first] : beneath;
  return {
    perSecond: requests / (elapsedMs / 1000),
    cpuUs: (cpuMs * 1000) / requests,
    busiestShare: Math.max(...serving) / serving.reduce((sum, ms) => sum + ms, 0),
  };
}

function tell(figures: Map<string, Figures>): void {
  for (const [way, title] of [
    ['kept', `${connections} connections that are kept`],
    ['fresh', `${connections} callers, a new connection for each call`],
  ] as const) {
    console.log(title);
    for (const [name, of] of figures) {
      const middle = (pick: (one: Figure) => number) => median(of[way].map(pick));
      const busiest = Math.round(middle((one) => one.busiestShare) * 100);
      const rate = `${middle((one) => one.perSecond).toFixed(0)}/s`;
      report(name, `${rate}, ${middle((one) => one.cpuUs).toFixed(0)} µs CPU, busiest ${busiest} %`);
    }
    const ratio = (name: string, floor: string) =>
      median(figures.get(name)![way].map(({ cpuUs }, at) => cpuUs / figures.get(floor)![way][at]!.cpuUs));
    const [alone, supervised, passedOn, byKernel] = [...figures.keys()] as [string, string, string, string];
    const isKept = way === 'kept';
    for (const [name, floor] of [
      [supervised, alone],
      [passedOn, alone],
      [passedOn, byKernel],
    ] as const) {
      const value = ratio(name, floor);
      if (isKept && name === supervised)
        report(`${name} / ${floor}: CPU`, '', { ratio: value, must: '<= 1.03' });
      else report(`${name} / ${floor}: CPU`, value.toFixed(2));
    }
  }
}
