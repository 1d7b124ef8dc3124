/**
 * How the cost of calls grows with the database: it is filled step by step, each ten times as large, and each step measures
 * the same calls.
 *
 * The cost is the number of blocks that the statements of a call read (`pg_stat_statements`), which is the same on every
 * machine, and the median time. The calls use connections of their own, whose datasets have the same size at each step:
 * `million` measures a large dataset. A node of the role `api` takes the calls; after it, a node of the role `worker` runs for
 * a minute. So the statements of calls and those of jobs are counted apart.
 *
 * A B-tree of a hundred times as many rows has one or two levels more, so a statement that finds its rows by an index reads one
 * or two blocks more for each of them.
 */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { Agent } from 'node:http';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { type EmbeddedPostgres, startEmbedded } from '../server/db/embedded/embedded.ts';
import { type Db, openDb } from '../server/db/pool.ts';
import { urlOf } from '../test/support/database.ts';
import { socketPlace } from '../test/support/scratch.ts';
import { startRunningService } from '../test/support/service.ts';
import { type Call, measureCalls, prepare } from './growth-calls.ts';
import { fillUp, rowsOf } from './growth-fill.ts';
import { otherCore, startPart } from './proxy-parts.ts';
import { type Benchmark, type BenchOptions, median, send, timed } from './support.ts';

export const growthBenchmark: Benchmark = {
  isWithoutOthers: true,
  about:
    'blocks that a call reads, and its time, while the database grows a hundredfold (--records, --steps)',
  run: measureGrowth,
};

const maxRatio = 1.3;
/** A few more levels of indexes are no growth. */
const levels = 10;
/** For one statement of a page of the dashboard. */
const maxBlocks = 150;
const workerMs = 65_000;

type Cost = { blocks: number; ms: number; largest: { blocks: number; query: string } };
type Costs = Map<string, Cost>;

async function measureGrowth({ scale, records, steps = 3 }: BenchOptions): Promise<void> {
  const last = records ?? (scale === 'full' ? 1_000_000 : 100_000);
  const sizes = Array.from({ length: steps }, (_, step) => last / 10 ** (steps - 1 - step));
  const dataDir = await mkdtemp(join(socketPlace, 'trellis-growth-'));
  const upstream = await startPart(otherCore, 'upstream');
  let postgres: EmbeddedPostgres | undefined;
  try {
    postgres = await startWithStatistics(dataDir);
    const db = openDb(postgres.connection, { maxConnections: 2 });
    const env = {
      DATABASE_URL: urlOf(postgres.connection),
      TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
      TRELLIS_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}`,
      TRELLIS_SECRET_KEY: `bench_${randomBytes(20).toString('hex')}`,
      TRELLIS_SANDBOX: 'off',
    };
    try {
      await withService(env, (call) => prepare(call, upstream.url));
      await db.query('create extension pg_stat_statements');
      const found: Costs[] = [];
      let from = rowsOf(0);
      for (const size of sizes) {
        const to = rowsOf(size);
        const filledMs = await timed(() => fillUp(db, from, to));
        from = to;
        const [{ mb } = { mb: 0 }] = await db.query<{ mb: number }>(
          'select pg_database_size(current_database()) / 1048576 as mb',
        );
        console.log(
          `  ${Object.entries(to).map(([name, count]) => `${count.toLocaleString('en')} ${name}`)}: ` +
            `${mb.toLocaleString('en')} MB, filled in ${(filledMs / 1000).toFixed(0)} s`,
        );
        const costs: Costs = new Map();
        await withService({ ...env, TRELLIS_ROLE: 'api' }, (call) =>
          measureCalls(call, { of: `at-${size}`, measure: (name, calls) => measure(db, costs, name, calls) }),
        );
        await measureWorker(db, costs, () =>
          withService({ ...env, TRELLIS_ROLE: 'worker' }, () => sleep(workerMs)),
        );
        found.push(costs);
      }
      printCosts(found);
    } finally {
      await db.end();
    }
  } finally {
    await postgres?.stop();
    await upstream.stop();
    await rm(dataDir, { recursive: true, force: true });
  }
}

async function startWithStatistics(dataDir: string): Promise<EmbeddedPostgres> {
  const first = await startEmbedded({ dataDir });
  const db = openDb(first.connection, { maxConnections: 1 });
  for (const setting of [
    "shared_preload_libraries = 'pg_stat_statements'",
    ...['fsync', 'full_page_writes', 'autovacuum'].map((name) => `${name} = off`),
  ])
    await db.query(`alter system set ${setting}`);
  await db.end();
  await first.stop();
  return startEmbedded({ dataDir });
}

async function withService(env: Record<string, string>, work: (call: Call) => Promise<void>) {
  const service = await startRunningService({ env });
  const agent = new Agent({ keepAlive: true });
  try {
    await work((method, path, { headers = {}, body } = {}) => {
      const text = body && JSON.stringify(body);
      return send(new URL(path, service.baseUrl), {
        method,
        agent,
        body: text,
        headers: {
          authorization: `Bearer ${service.secretKey}`,
          ...headers,
          ...(text && { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }),
        },
      });
    });
  } finally {
    agent.destroy();
    await service.stop({ keepData: false });
  }
}

async function measure(db: Db, costs: Costs, name: string, calls: (() => Promise<unknown>)[]): Promise<void> {
  // The log of the calls before is written a moment later.
  await sleep(200);
  const cost = await costOf(db, async () => {
    const taken: number[] = [];
    for (const call of calls) taken.push(await timed(call));
    return taken;
  });
  costs.set(name, cost);
}

/** The jobs of a worker in a minute. The worker also delivers the events that the calls have raised. */
async function measureWorker(db: Db, costs: Costs, work: () => Promise<void>): Promise<void> {
  const all = await costOf(db, () => work().then(() => [workerMs]));
  costs.set('worker: all of a minute', all);
  const rows = await readStatements(db);
  for (const [name, form] of looks) {
    const found = rows.find(({ query }) => form.test(query));
    const blocks = found === undefined ? Number.NaN : found.blocks / found.calls;
    costs.set(`worker: ${name}`, {
      blocks,
      ms: found === undefined ? Number.NaN : found.ms / found.calls,
      largest: { blocks, query: '' },
    });
  }
}

const looks: [string, RegExp][] = [
  ['a look for due syncs', /^\s*with due as \(\s+select sync\.\*/],
  ['a look for waiting runs', /^\s*with recursive busy \(connection_id/],
  ['a look for deliveries', /^\s*with recursive busy \(endpoint_id/],
  ['a claim of deliveries', /^\s*update delivery_lane\s+set owner/],
];

/** Per call; `work` resolves with the times of its calls. */
async function costOf(db: Db, work: () => Promise<number[]>): Promise<Cost> {
  await db.query('select pg_stat_statements_reset()');
  const taken = await work();
  const rows = await readStatements(db);
  const [largest] = rows.toSorted((one, other) => other.blocks / other.calls - one.blocks / one.calls);
  return {
    blocks: rows.reduce((sum, { blocks }) => sum + blocks, 0) / taken.length,
    ms: median(taken),
    largest: { blocks: largest ? largest.blocks / largest.calls : 0, query: largest?.query ?? '' },
  };
}

/** The statements since the last reset, except those that write the log of the calls, which happens a moment later. */
function readStatements(db: Db): Promise<{ query: string; calls: number; blocks: number; ms: number }[]> {
  return db.query(
    `select query, calls, shared_blks_hit + shared_blks_read as blocks, total_exec_time as ms
     from pg_stat_statements
     where dbid = (select oid from pg_database where datname = current_database())
       and query !~ 'pg_stat_statements|^\\s*(insert into operation|vacuum|copy)'`,
  );
}

function printCosts(found: readonly Costs[]): void {
  const [first, last] = [found[0]!, found.at(-1)!];
  const columns = (texts: string[]) => texts.map((text) => text.padStart(9)).join('');
  console.log(`  ${''.padEnd(66)}blocks of a call, growth, milliseconds`);
  for (const name of first.keys()) {
    const of = found.map((costs) => costs.get(name)!);
    const [begin, end] = [first.get(name)!, last.get(name)!];
    const ratio = end.blocks / begin.blocks;
    const isMissed = ratio > maxRatio && end.blocks - begin.blocks > levels;
    console.log(
      `  ${name.padEnd(66)}${columns(of.map(({ blocks }) => blocks.toFixed(0)))}  ${ratio.toFixed(2).padStart(6)}` +
        `${isMissed ? ' MISSED' : '       '}${columns(of.map(({ ms }) => ms.toFixed(1)))}`,
    );
    if (isMissed || end.largest.blocks > maxBlocks)
      console.log(
        `      ${end.largest.blocks.toFixed(0)} of ${end.largest.query.replace(/\s+/g, ' ').slice(0, 200)}`,
      );
  }
}
