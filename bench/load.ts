/**
 * A mixed load against the number of nodes: what an installation of one, two and three nodes on one PostgreSQL carries on
 * this machine's cores, which callers and upstream share with it.
 *
 * The floor is the same mixture without the service: the upstream asked directly, a record's text written by one statement
 * and read by another, by as many callers. All stand up at once, and are measured in turns.
 */
import { randomBytes } from 'node:crypto';
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { openTestDatabase, urlOf } from '../test/support/database.ts';
import { takenBy } from '../test/support/processes.ts';
import { type RunningService, startRunningService } from '../test/support/service.ts';
import { otherCore, startPart } from './proxy-parts.ts';
import { type Benchmark, type BenchOptions, median, quantile, send } from './support.ts';

export const loadBenchmark: Benchmark = {
  about:
    'proxied calls (5 of 10), saves (2), lists (2) and prunes (1) by 16 callers, against the number of nodes',
  run: measureLoad,
};

const callers = 16;
const maxNodes = 3;
const perSave = 20;
const perList = 100;
/** In the order of their turns. */
const mixture = [
  'proxy',
  'save',
  'proxy',
  'list',
  'proxy',
  'save',
  'proxy',
  'list',
  'proxy',
  'prune',
] as const;
type Act = (typeof mixture)[number];
type Doing = (act: Act, caller: number) => Promise<unknown>;

type Figure = {
  perSecond: number;
  p50Ms: number;
  p99Ms: number;
  /** Calls that a node refused as overloaded. */
  refused: number;
  rssMb: number;
  /** Of one core: of the nodes, and of PostgreSQL. */
  nodesCpu: number;
  databaseCpu: number;
};

async function measureLoad({ rounds, scale }: BenchOptions): Promise<void> {
  const seconds = scale === 'full' ? 60 : 5;
  const { db, target, drop } = await openTestDatabase();
  const env = {
    DATABASE_URL: urlOf(target),
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
    TRELLIS_ENCRYPTION_KEYS: `bench:${randomBytes(32).toString('base64')}`,
    TRELLIS_SECRET_KEY: `bench_${randomBytes(20).toString('hex')}`,
    TRELLIS_SANDBOX: 'off',
  };
  const upstream = await startPart(otherCore, 'upstream');
  const nodes: RunningService[] = [];
  const floor = new pg.Pool({ connectionString: urlOf(target), max: callers });
  const agent = new Agent({ keepAlive: true });
  const backends = async () =>
    (await db.query<{ pid: number }>('select pid from pg_stat_activity')).map(({ pid }) => pid);
  try {
    for (let n = 0; n < maxNodes; n += 1) nodes.push(await startRunningService({ env }));
    await prepare(nodes[0]!, upstream.url);
    await floor.query('create table bench_floor (id text primary key, body text not null)');
    const cases: { name: string; nodes: RunningService[]; doing: Doing }[] = [
      { name: 'floor', nodes: [], doing: withoutService(floor, { url: upstream.url, agent }) },
      ...nodes.map((_, n) => ({
        name: `${n + 1} ${n === 0 ? 'node' : 'nodes'}`,
        nodes: nodes.slice(0, n + 1),
        doing: throughNodes(nodes.slice(0, n + 1), agent),
      })),
    ];
    // Warm: the first thousand calls of a process are slower than all others.
    for (const { doing } of cases) await callFor(doing, 2_000);
    const figures = new Map<string, Figure[]>(cases.map(({ name }) => [name, []]));
    for (let round = 0; round < rounds; round += 1)
      for (const one of cases)
        figures.get(one.name)!.push(await measureOne(one, { backends, ms: seconds * 1000 }));
    tell(figures);
  } finally {
    agent.destroy();
    await floor.end();
    for (const node of nodes) await node.stop({ keepData: false });
    await upstream.stop();
    await drop();
  }
}

async function prepare(node: RunningService, baseUrl: string): Promise<void> {
  await node.call('POST', '/integrations', {
    body: { integration_id: 'bench', provider: 'private-api-key', integration_config: { base_url: baseUrl } },
  });
  for (let caller = 0; caller < callers; caller += 1)
    await node.call('POST', '/connections', {
      body: {
        integration_id: 'bench',
        connection_id: `bench-${caller}`,
        credentials: { type: 'API_KEY', apiKey: 'secret' },
      },
    });
}

/** Each caller is at one node, as behind a balancer that keeps connections open. */
function throughNodes(nodes: readonly RunningService[], agent: Agent): Doing {
  const lastCursors = new Map<number, string>();
  return async (act, caller) => {
    const { baseUrl, secretKey } = nodes[caller % nodes.length]!;
    const headers = {
      authorization: `Bearer ${secretKey}`,
      accept: 'application/json',
      'integration-id': 'bench',
      'connection-id': `bench-${caller}`,
    };
    const ask = (method: string, path: string, body?: object) => {
      const text = body && JSON.stringify(body);
      return send(new URL(path, baseUrl), {
        method,
        agent,
        body: text,
        headers: { ...headers, ...(text && { 'content-type': 'application/json' }) },
      });
    };
    if (act === 'proxy') return ask('GET', '/proxy/v1/things');
    if (act === 'save') return ask('POST', '/records', { model: 'Row', records: someRecords() });
    if (act === 'list') {
      const page = await ask('GET', `/records?model=Row&limit=${perList}`);
      const { records } = JSON.parse(page.toString()) as {
        records: { _trellis_metadata: { cursor: string } }[];
      };
      const last = records.at(-1)?._trellis_metadata.cursor;
      if (last !== undefined) lastCursors.set(caller, last);
      return page;
    }
    const until = lastCursors.get(caller);
    if (until === undefined) return undefined;
    return ask('PATCH', '/records/prune', { model: 'Row', until_cursor: until, limit: perList });
  };
}

function withoutService(pool: pg.Pool, { url, agent }: { url: string; agent: Agent }): Doing {
  return async (act, caller) => {
    if (act === 'proxy')
      return send(new URL('/v1/things', url), { method: 'GET', agent, headers: {}, body: undefined });
    if (act === 'save') {
      const records = someRecords();
      return pool.query(
        `insert into bench_floor (id, body)
         select * from unnest($1::text[], $2::text[])
         on conflict (id) do update set body = excluded.body`,
        [records.map(({ id }) => `${caller}-${id}`), records.map((record) => JSON.stringify(record))],
      );
    }
    if (act === 'list')
      return pool.query('select id, body from bench_floor where id >= $1 order by id limit $2', [
        `${caller}-`,
        perList,
      ]);
    return pool.query(
      `update bench_floor set body = '' where id in (select id from bench_floor where id >= $1 order by id limit $2)`,
      [`${caller}-`, perList],
    );
  };
}

function someRecords() {
  const first = Math.floor(Math.random() * 5_000);
  return Array.from({ length: perSave }, (_, n) => ({
    id: `r${first + n}`,
    at: Math.random(),
    text: 'x'.repeat(900),
  }));
}

async function callFor(doing: Doing, ms: number): Promise<{ times: number[]; refused: number }> {
  const until = performance.now() + ms;
  const times: number[] = [];
  let refused = 0;
  await Promise.all(
    Array.from({ length: callers }, async (_, caller) => {
      for (let turn = caller; performance.now() < until; turn += 1) {
        const startedAt = performance.now();
        try {
          await doing(mixture[turn % mixture.length]!, caller);
          times.push(performance.now() - startedAt);
        } catch (error) {
          // A node that is asked for more than it can do in time says so: such a call is none that was carried.
          if (!/: 503 .*overloaded/.test((error as Error).message)) throw error;
          refused += 1;
          await sleep(100);
        }
      }
    }),
  );
  return { times, refused };
}

async function measureOne(
  { nodes, doing }: { nodes: readonly RunningService[]; doing: Doing },
  { backends, ms }: { backends: () => Promise<number[]>; ms: number },
): Promise<Figure> {
  const pids = nodes.map(({ pid }) => pid);
  const before = await cpuOf([...pids, ...(await backends())]);
  const startedAt = performance.now();
  let rssMb = 0;
  const look = setInterval(async () => {
    const taken = await Promise.all(pids.map(takenBy));
    rssMb = Math.max(rssMb, Math.max(0, ...taken.map((one) => one?.rssMb ?? 0)));
  }, 1_000);
  const { times, refused } = await callFor(doing, ms);
  clearInterval(look);
  const tookMs = performance.now() - startedAt;
  const after = await cpuOf([...pids, ...(await backends())]);
  const share = (of: (pid: number) => boolean) => {
    let sum = 0;
    // Of a process that was not there before, all; of one that has gone, nothing is known.
    for (const [pid, cpuMs] of after) if (of(pid)) sum += cpuMs - (before.get(pid) ?? 0);
    return sum / tookMs;
  };
  await sleep(500);
  return {
    perSecond: times.length / (tookMs / 1000),
    p50Ms: quantile(times, 0.5),
    p99Ms: quantile(times, 0.99),
    refused,
    rssMb,
    nodesCpu: share((pid) => pids.includes(pid)),
    databaseCpu: share((pid) => !pids.includes(pid)),
  };
}

async function cpuOf(pids: readonly number[]): Promise<Map<number, number>> {
  const taken = await Promise.all(pids.map(async (pid) => [pid, (await takenBy(pid))?.cpuMs ?? 0] as const));
  return new Map(taken);
}

function tell(figures: ReadonlyMap<string, readonly Figure[]>): void {
  const columns: [string, (figure: Figure) => string][] = [
    ['requests/s', ({ perSecond }) => perSecond.toFixed(0)],
    ['p50 ms', ({ p50Ms }) => p50Ms.toFixed(1)],
    ['p99 ms', ({ p99Ms }) => p99Ms.toFixed(1)],
    ['refused', ({ refused }) => String(refused)],
    ['RSS a node, MB', ({ rssMb }) => rssMb.toFixed(0)],
    ['cores: nodes', ({ nodesCpu }) => nodesCpu.toFixed(2)],
    ['PostgreSQL', ({ databaseCpu }) => databaseCpu.toFixed(2)],
  ];
  console.log(`  ${''.padEnd(10)}${columns.map(([name]) => name.padStart(16)).join('')}`);
  for (const [name, found] of figures) {
    const middle = (of: keyof Figure) => median(found.map((one) => one[of]));
    const figure: Figure = {
      perSecond: middle('perSecond'),
      p50Ms: middle('p50Ms'),
      p99Ms: middle('p99Ms'),
      refused: middle('refused'),
      rssMb: middle('rssMb'),
      nodesCpu: middle('nodesCpu'),
      databaseCpu: middle('databaseCpu'),
    };
    console.log(`  ${name.padEnd(10)}${columns.map(([, text]) => text(figure).padStart(16)).join('')}`);
  }
}
