/**
 * The proxy against its floors, in turns in one run.
 *
 * The service, a bare undici pass-through in the same runtime and nginx with one worker stand before the same upstream.
 * Each runs alone on one core, the load and the upstream on another. Processor time per request is printed beside the
 * rate: on a machine that others use it is the figure to trust. The integration has no quota.
 */
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { openTestDatabase, urlOf } from '../test/support/database.ts';
import { type RunningService, startRunningService } from '../test/support/service.ts';
import { download, holdStreams, load, type Target } from './proxy-load.ts';
import { cpuMsOf, measuredCore, otherCore, type Part, pin, startNginx, startPart } from './proxy-parts.ts';
import { type Benchmark, type BenchOptions, median, quantile, report } from './support.ts';

export const proxyBenchmark: Benchmark = {
  about: 'GET of 1 KB, 100 MB and slow streams through the service, a bare pass-through and nginx',
  run: runProxy,
};

type Figure = { perSecond: number; cpuUs: number; p50Ms: number; p99Ms: number };

async function runProxy({ rounds, scale }: BenchOptions): Promise<void> {
  const seconds = scale === 'full' ? 3 : 1;
  const upstream = await startPart(otherCore, 'upstream');
  const passThrough = await startPart(measuredCore, 'pass-through', upstream.url);
  const nginx = await startNginx(upstream.url);
  // What it starts stays there with it. PostgreSQL has no core of its own.
  await pin(process.pid, otherCore);
  const service = await startService();
  await pin(service.pid, measuredCore);
  try {
    const at = { upstream, passThrough, nginx, service: { pid: service.pid, url: service.baseUrl } };
    const targets = await targetsOf(at, service);
    for (const target of targets('/v1/things')) await load(target, { connections: 50, seconds: 2 }); // warm
    await reportRates(targets('/v1/things'), { rounds, seconds });
    await reportLatency(targets('/v1/things'), { rounds, seconds });
    await reportBodies(targets('/big'), rounds);
    await reportStreams(targets('/slow').find(({ name }) => name === 'service')!, service.pid);
    // Last, and not beside the others: a second service is one more program that the first has to share its core with.
    const silent = await startService({ TRELLIS_ACTIVITY: 'off' });
    await pin(silent.pid, measuredCore);
    const logging = targets('/v1/things').slice(-1);
    await reportActivityLog([...logging, await silentTarget(at, silent)], { rounds, seconds }).finally(() =>
      silent.stop(),
    );
  } finally {
    await service.stop();
    await nginx?.stop();
    await passThrough.stop();
    await upstream.stop();
  }
}

/** On a database of its own. */
async function startService(env: Record<string, string> = {}): Promise<RunningService> {
  const { target, drop } = await openTestDatabase();
  const service = await startRunningService({
    env: {
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      DATABASE_URL: urlOf(target),
      TRELLIS_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}`,
      ...env,
    },
  });
  return { ...service, stop: (options) => service.stop(options).finally(drop) };
}

/** One integration without quota and one connection; who is asked for a path, and how. */
async function targetsOf(
  at: { upstream: Part; passThrough: Part; nginx: Part | undefined; service: Pick<Part, 'pid' | 'url'> },
  { call, secretKey }: RunningService,
): Promise<(path: string) => Target[]> {
  await call('POST', '/integrations', {
    body: {
      integration_id: 'bench',
      provider: 'private-api-key',
      integration_config: { base_url: at.upstream.url },
    },
  });
  await call('POST', '/connections', {
    body: {
      integration_id: 'bench',
      connection_id: 'bench',
      credentials: { type: 'API_KEY', apiKey: 'secret' },
    },
  });
  const headers = {
    authorization: `Bearer ${secretKey}`,
    'integration-id': 'bench',
    'connection-id': 'bench',
    accept: 'application/json',
    'user-agent': 'bench',
  };
  return (path) => [
    { name: 'straight', url: `${at.upstream.url}${path}`, headers, pid: at.upstream.pid },
    ...(at.nginx ? [{ name: 'nginx', url: `${at.nginx.url}/proxy${path}`, headers, pid: at.nginx.pid }] : []),
    { name: 'pass-through', url: `${at.passThrough.url}${path}`, headers, pid: at.passThrough.pid },
    { name: 'service', url: `${at.service.url}/proxy${path}`, headers, pid: at.service.pid },
  ];
}

/** The same service with its activity log off. */
async function silentTarget(
  at: { upstream: Part; passThrough: Part; nginx: Part | undefined },
  silent: RunningService,
): Promise<Target> {
  const targets = await targetsOf({ ...at, service: { pid: silent.pid, url: silent.baseUrl } }, silent);
  return { ...targets('/v1/things').at(-1)!, name: 'service, log off' };
}

type Timing = { rounds: number; seconds: number };

/** What logging each call costs; the database that is written to has no core of its own here. */
async function reportActivityLog(targets: Target[], timing: Timing): Promise<void> {
  const figures = await measure(targets, { ...timing, connections: 50 });
  const [on, off] = [figures.get('service')!, figures.get('service, log off')!];
  console.log('Activity log on / off');
  report('rate', '', { ratio: on.perSecond / off.perSecond, must: '>= 0.95' });
  report('requests per CPU time', '', { ratio: off.cpuUs / on.cpuUs, must: '>= 0.95' });
  const unhurried = await measure(targets, { ...timing, connections: 1 });
  const [alone, silent] = [unhurried.get('service')!, unhurried.get('service, log off')!];
  report('p50 of a call by itself', '', { ratio: alone.p50Ms / silent.p50Ms, must: '<= 1.05' });
  report('p99 of a call by itself', '', { ratio: alone.p99Ms / silent.p99Ms, must: '<= 1.05' });
}

async function reportRates(targets: Target[], timing: Timing): Promise<void> {
  const figures = await measure(targets, { ...timing, connections: 50 });
  const service = figures.get('service')!;
  console.log('GET of 1 KB at 50 connections, one core');
  for (const [name, { perSecond, cpuUs, p50Ms }] of figures) {
    report(name, `${perSecond.toFixed(0)}/s, ${cpuUs.toFixed(0)} µs CPU, p50 ${p50Ms.toFixed(1)} ms`);
  }
  const against = (name: string, must: '>= 0.85' | '>= 0.45') => {
    const floor = figures.get(name);
    if (floor === undefined) return;
    report(`service / ${name}: rate`, '', { ratio: service.perSecond / floor.perSecond, must });
    report(`service / ${name}: requests per CPU time`, '', { ratio: floor.cpuUs / service.cpuUs, must });
  };
  against('pass-through', '>= 0.85');
  against('nginx', '>= 0.45');
}

async function reportLatency(targets: Target[], timing: Timing): Promise<void> {
  const figures = await measure(targets, { ...timing, connections: 1 });
  const straight = figures.get('straight')!;
  console.log('GET of 1 KB at 1 connection: latency beyond straight');
  for (const [name, { p50Ms, p99Ms }] of figures) {
    if (name === 'straight') continue;
    const added = { p50: p50Ms - straight.p50Ms, p99: p99Ms - straight.p99Ms };
    const isOurs = name === 'service';
    report(
      `${name} p50`,
      `${added.p50.toFixed(2)} ms`,
      isOurs ? { ratio: added.p50, must: '<= 0.5' } : undefined,
    );
    report(
      `${name} p99`,
      `${added.p99.toFixed(2)} ms`,
      isOurs ? { ratio: added.p99, must: '<= 2' } : undefined,
    );
  }
}

async function reportBodies(targets: Target[], rounds: number): Promise<void> {
  const rates = new Map<string, number[]>(targets.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const target of targets) {
      const { bytes, elapsedMs } = await download(target);
      if (round > 0) rates.get(target.name)?.push(bytes / 1e3 / elapsedMs);
    }
  }
  console.log('100 MB down');
  const floor = median(rates.get('pass-through')!);
  for (const [name, values] of rates) {
    const rate = median(values);
    report(
      name,
      `${rate.toFixed(0)} MB/s`,
      name === 'service' ? { ratio: rate / floor, must: '>= 0.9' } : undefined,
    );
  }
}

async function reportStreams(target: Target, pid: number): Promise<void> {
  const release = await holdStreams(target, 1_000);
  await new Promise((resolve) => setTimeout(resolve, 3_000));
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  const rssMb = Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1024;
  release();
  console.log('1,000 slow streams');
  report('service RSS', `${rssMb.toFixed(0)} MB`, { ratio: rssMb, must: '<= 250' });
}

/** The targets in turn, round by round, so that a slower moment of the machine meets all of them. */
async function measure(
  targets: Target[],
  { connections, rounds, seconds }: Timing & { connections: number },
): Promise<Map<string, Figure>> {
  const runs = new Map<string, Figure[]>(targets.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const target of targets) {
      const before = await cpuMsOf(target.pid);
      const { requests, elapsedMs, timesMs } = await load(target, { connections, seconds });
      const cpuMs = (await cpuMsOf(target.pid)) - before;
      runs.get(target.name)?.push({
        perSecond: requests / (elapsedMs / 1000),
        cpuUs: (cpuMs * 1000) / requests,
        p50Ms: median(timesMs),
        p99Ms: quantile(timesMs, 0.99),
      });
    }
  }
  const medians = (figures: Figure[]): Figure => ({
    perSecond: median(figures.map((figure) => figure.perSecond)),
    cpuUs: median(figures.map((figure) => figure.cpuUs)),
    p50Ms: median(figures.map((figure) => figure.p50Ms)),
    p99Ms: median(figures.map((figure) => figure.p99Ms)),
  });
  return new Map([...runs].map(([name, figures]) => [name, medians(figures)]));
}
