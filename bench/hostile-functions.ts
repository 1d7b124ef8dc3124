/**
 * What twelve hostile functions do to everybody else: how long `/health` takes and how much memory the service holds
 * while they run, beside the same service at rest, and while twelve functions run that take processors and send nothing.
 *
 * Each has a process of its own, of the priority that the service gives it, and starts again when it has ended. The
 * load starts all of them at once, so the first seconds are also those in which twelve processes start.
 */
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readFile, rm } from 'node:fs/promises';
import { Agent } from 'node:http';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { hostileActions, hostileSyncs, spinningAction } from '../test/functions/hostile/load.ts';
import { deployBody, flowConfig } from '../test/support/functions.ts';
import {
  type Benchmark,
  type BenchOptions,
  type BenchService,
  median,
  openBenchService,
  peakMemoryOf,
  quantile,
  report,
  send,
} from './support.ts';

export const hostileFunctionsBenchmark: Benchmark = {
  about:
    'a service while twelve hostile functions run, beside the same at rest and with functions that send nothing',
  run: measureHostile,
};

const stages = ['rest', 'spinning', 'hostile'] as const;
type Stage = (typeof stages)[number];
const maxP99Ms = 100;
const maxRssMb = 500;
/** Between the end of one look at `/health` and the next. */
const lookMs = 10;
const loopFile = join(tmpdir(), `trellis-bench-loop-${process.pid}`);
const metricsToken = randomBytes(20).toString('hex');

type Figure = {
  /** Of its main thread, from one look at its event loop to the next. */
  cpuP99: number;
  cpuMax: number;
  p50: number;
  p99: number;
  max: number;
  looks: number;
  rssMb: number;
  lagMs: number;
};

async function measureHostile({ rounds, scale }: BenchOptions): Promise<void> {
  const seconds = scale === 'full' ? 60 : 15;
  const figures: Record<Stage, Figure>[] = [];
  for (let round = 0; round < rounds; round += 1) figures.push(await measureOnce(seconds));
  const of = (when: Stage, what: keyof Figure) => median(figures.map((one) => one[when][what]));
  const ms = (value: number) => `${value.toFixed(1)} ms`;
  for (const when of stages) {
    console.log(`  ${when}: ${of(when, 'looks')} looks at /health`);
    report('/health p50', ms(of(when, 'p50')));
    const p99 = of(when, 'p99');
    const rss = of(when, 'rssMb');
    const isJudged = when === 'hostile';
    report('/health p99', ms(p99), isJudged ? { ratio: p99 / maxP99Ms, must: '<= 1' } : undefined);
    report('/health max', ms(of(when, 'max')));
    report('event loop delay p99, by the service itself', ms(of(when, 'lagMs')));
    report('processor time in one turn, p99', ms(of(when, 'cpuP99')));
    report('processor time in one turn, max', ms(of(when, 'cpuMax')));
    report(
      'peak RSS of the service',
      `${rss.toFixed(0)} MB`,
      isJudged ? { ratio: rss / maxRssMb, must: '<= 1' } : undefined,
    );
  }
}

async function measureOnce(seconds: number): Promise<Record<Stage, Figure>> {
  const slow = createServer(() => {}).listen(0, '127.0.0.1');
  await once(slow, 'listening');
  const bench = await openBenchService({
    baseUrl: `http://127.0.0.1:${(slow.address() as AddressInfo).port}`,
    env: {
      TRELLIS_METRICS_TOKEN: metricsToken,
      BENCH_LOOP_FILE: loopFile,
      NODE_OPTIONS: `--import ${new URL('loop-watch.ts', import.meta.url)}`,
    },
  });
  try {
    const hostiles = await deploy(bench, [
      ...Object.entries(hostileActions).map(([name, code]) => ({
        name,
        code: code(),
        type: 'action' as const,
      })),
      ...Object.entries(hostileSyncs).map(([name, code]) => ({ name, code: code(), type: 'sync' as const })),
    ]);
    const spinners = await deploy(
      bench,
      hostiles.map((_, n) => ({ name: `spins-${n}`, code: spinningAction(), type: 'action' as const })),
    );
    const ms = seconds * 1000;
    const rest = await look(bench, { ms: ms / 3 });
    const { figure: spinning } = await during(bench, { named: spinners, ms: ms / 2 });
    const { figure: hostile, ends } = await during(bench, { named: hostiles, ms });
    for (const [name, how] of ends) console.log(`    ${name}: ${how.length} runs, the last: ${how.at(-1)}`);
    return { rest, spinning, hostile };
  } finally {
    await bench.close();
    slow.close();
    await rm(loopFile, { force: true });
  }
}

type Named = { name: string; type: 'action' | 'sync' };

async function deploy(
  { service }: BenchService,
  given: readonly (Named & { code: string })[],
): Promise<Named[]> {
  for (const { name, type, code } of given) {
    const flow = flowConfig({ integration: 'bench', name, type, code });
    const body = deployBody([flow], { reconcile: false, deployMode: 'single' });
    await service.call('POST', '/functions/deploys', { body });
  }
  return given.map(({ name, type }) => ({ name, type }));
}

async function during(
  bench: BenchService,
  { named, ms }: { named: readonly Named[]; ms: number },
): Promise<{ figure: Figure; ends: Map<string, string[]> }> {
  const gone = new AbortController();
  const ends = new Map<string, string[]>();
  const running = named.map((one) => keepRunning(bench, { ...one, gone: gone.signal, ends }));
  const figure = await look(bench, { ms });
  gone.abort();
  await Promise.all(running);
  return { figure, ends };
}

async function look(bench: BenchService, { ms }: { ms: number }): Promise<Figure> {
  const agent = new Agent({ keepAlive: true });
  const times: number[] = [];
  await lagOf(bench);
  await turnsOf(bench);
  const rssMb = await peakMemoryOf(bench.service.pid, async () => {
    const until = performance.now() + ms;
    while (performance.now() < until) {
      const startedAt = performance.now();
      await send(new URL('/health', bench.service.baseUrl), {
        method: 'GET',
        agent,
        headers: {},
        body: undefined,
      });
      times.push(performance.now() - startedAt);
      await sleep(lookMs);
    }
  });
  agent.destroy();
  const turns = await turnsOf(bench);
  return {
    p50: quantile(times, 0.5),
    p99: quantile(times, 0.99),
    max: Math.max(...times),
    looks: times.length,
    rssMb,
    lagMs: await lagOf(bench),
    cpuP99: quantile(turns, 0.99),
    cpuMax: Math.max(...turns),
  };
}

/** In ms of a processor, since it was asked for last. */
async function turnsOf({ service }: BenchService): Promise<number[]> {
  await rm(loopFile, { force: true });
  process.kill(service.pid, 'SIGUSR2');
  for (;;) {
    const text = await readFile(loopFile, 'utf8').catch(() => '');
    if (text.endsWith(']')) return JSON.parse(text) as number[];
    await sleep(20);
  }
}

/** Since it was asked for last. */
async function lagOf({ service }: BenchService): Promise<number> {
  const answer = await fetch(new URL('/metrics', service.baseUrl), {
    headers: { authorization: `Bearer ${metricsToken}` },
  });
  const [, seconds] = /^nodejs_eventloop_lag_p99_seconds (\S+)$/m.exec(await answer.text()) ?? [];
  return Number(seconds) * 1000;
}

/** Starts it again whenever it has ended, and notes how it ended. */
async function keepRunning(
  bench: BenchService,
  { name, type, gone, ends }: Named & { gone: AbortSignal; ends: Map<string, string[]> },
): Promise<void> {
  const headers = await bench.makeConnection();
  ends.set(name, []);
  while (!gone.aborted) {
    const end = await (type === 'action' ? callAction : runSync)(bench, { name, headers, gone });
    ends.get(name)!.push(end.slice(0, 200));
    await sleep(10);
  }
}

type Run = { name: string; headers: Record<string, string>; gone: AbortSignal };

async function callAction(bench: BenchService, { name, headers, gone }: Run): Promise<string> {
  try {
    const answer = await fetch(new URL('/functions/actions/trigger', bench.service.baseUrl), {
      method: 'POST',
      headers: {
        ...headers,
        authorization: `Bearer ${bench.service.secretKey}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ action_name: name }),
      signal: gone,
    });
    let bytes = 0;
    let start = '';
    for await (const part of answer.body!) {
      bytes += part.length;
      if (start === '') start = Buffer.from(part).toString('utf8', 0, 160);
    }
    return `${answer.status} with ${bytes} bytes: ${start}`;
  } catch (error) {
    if (gone.aborted) return 'broken off at the end';
    throw error;
  }
}

async function runSync({ service }: BenchService, { name, headers, gone }: Run): Promise<string> {
  await service.call('POST', '/functions/syncs/trigger', { headers, body: { syncs: [name] } });
  const path = `/functions/runs?connection_id=${headers['connection-id']}&limit=1`;
  while (!gone.aborted) {
    const { runs } = (await service.call('GET', path)) as { runs: { state: string; error: unknown }[] };
    const { state, error } = runs[0]!;
    if (state !== 'waiting' && state !== 'running') return `${state} ${JSON.stringify(error)}`;
    await sleep(50);
  }
  return 'broken off at the end';
}
