// Many connections of one sync, each run once a minute by one node, for as long as is asked.

import { setTimeout as pause } from 'node:timers/promises';
import { openRunsBench, syncOf } from '../../server/functions/runs.fixture.ts';

export type Load = {
  connections: number;
  seconds: number;
  /** Told every minute, for who watches. */
  tell?: (line: string) => void;
};

export type Outcome = {
  /** How many were due in the time, by the schedule's own books, and what became of them. */
  due: number;
  succeeded: number;
  otherwise: number;
  /** Runs of one connection that were under way at the same time. */
  overlaps: number;
  /** From the time a run was due to its beginning, in ms. */
  delayMs: { p50: number; p95: number; most: number };
  /** Of the node, in MB: after two minutes (or a third of the time) and at the end. */
  rssMb: { early: number; late: number };
};

export async function runMany({ connections, seconds, tell = () => {} }: Load): Promise<Outcome> {
  const bench = await openRunsBench({ most: 8 });
  const underWay = new Map<string, number>();
  let overlaps = 0;
  bench.serve(({ url }, response) => {
    const asked = new URL(url ?? '', 'http://x');
    const name = asked.searchParams.get('c') ?? '';
    const now = (underWay.get(name) ?? 0) + (asked.pathname === '/begin' ? 1 : -1);
    underWay.set(name, now);
    if (now > 1) overlaps += 1;
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify([{ id: '1', at: Date.now() }]));
  });
  try {
    await bench.deploy(
      'rows',
      syncOf(`
        const params = { c: nango.connectionId };
        const { data } = await nango.get({ endpoint: '/begin', params });
        await nango.batchSave(data, 'Row');
        await nango.get({ endpoint: '/end', params });
      `).replace('every hour', 'every minute'),
    );
    for (let n = 0; n < connections; n += 1) await bench.connect(`c${n}`);
    // As if all of it had been deployed at once: each waits for its turn within the minute.
    await bench.db.query(
      `update sync set next_at = now() + make_interval(secs => 2 + 60.0 * (id % $1) / $1)`,
      [connections],
    );
    const startedAt = performance.now();
    const elapsedS = () => (performance.now() - startedAt) / 1000;
    bench.one.runner.start();
    let early: number | undefined;
    for (let minute = 1; elapsedS() < seconds; minute += 1) {
      await pause(Math.max(0, Math.min(minute * 60, seconds) - elapsedS()) * 1000);
      if (early === undefined && elapsedS() >= Math.min(120, seconds / 3)) early = rssMb();
      tell(`minute ${minute}: ${(await bench.runs()).length} runs, ${rssMb()} MB`);
    }
    await bench.db.query('update sync set next_at = null');
    const isUnderWay = async () =>
      (await bench.runs()).some(({ state }) => state === 'waiting' || state === 'running');
    while (await isUnderWay()) await pause(200);
    const [delay] = await bench.db.query<Outcome['delayMs']>(
      `select
         percentile_cont(0.5) within group (order by late) as p50,
         percentile_cont(0.95) within group (order by late) as p95,
         max(late) as most
       from (select extract(epoch from started_at - not_before) * 1000.0 as late from run) as run`,
    );
    const states = (await bench.runs()).map(({ state }) => state);
    const succeeded = states.filter((state) => state === 'succeeded').length;
    return {
      ...{ due: states.length, succeeded, otherwise: states.length - succeeded, overlaps },
      delayMs: { p50: Number(delay!.p50), p95: Number(delay!.p95), most: Number(delay!.most) },
      rssMb: { early: early ?? rssMb(), late: rssMb() },
    };
  } finally {
    await bench.end();
  }
}

function rssMb(): number {
  return Math.round(process.memoryUsage().rss / 1024 / 1024);
}
