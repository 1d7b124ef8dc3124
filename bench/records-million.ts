// What must not grow with a dataset: the time of a prune, and the memory of the service.

import { cursorWriter } from '../server/records/cursor.ts';
import { fill, newestDataset, pruneBody } from './records.ts';
import { type Benchmark, median, openBenchService, peakMemoryOf, report, timed } from './support.ts';

const smallCount = 10_000;
const limit = 1000;

export const millionBenchmark: Benchmark = {
  about: 'a dataset of 1,000,000 records of 1 KB (quick: 100,000): growth and memory',
  async run({ scale }) {
    const count = scale === 'full' ? 1_000_000 : 100_000;
    const bench = await openBenchService();
    const memory = async (name: string, work: () => Promise<unknown>) => {
      const peak = await peakMemoryOf(bench.service.pid, work);
      const must = { ratio: peak, must: '<= 300' } as const;
      report(`memory while it ${name}`, `${peak.toFixed(0)} MB`, must);
    };
    try {
      const client = await bench.connectBare();
      const [small, big] = [await bench.makeConnection(), await bench.makeConnection()];
      // Warm: the first calls of a process are slower.
      for (let round = 0; round < 3; round += 1) {
        const headers = await bench.makeConnection();
        await fill(bench, { headers, count: smallCount, bytes: 1024 });
        await pruneAll(bench, { headers, count: smallCount, dataset: await newestDataset(client) });
      }
      await fill(bench, { headers: small, count: smallCount, bytes: 1024 });
      const smallDataset = await newestDataset(client);
      await memory('saves', () => fill(bench, { headers: big, count, bytes: 1024 }));
      const bigDataset = await newestDataset(client);

      const cursorOf = cursorWriter(bigDataset);
      await memory('lists', async () => {
        for (let from = 0; from < count; from += 10_000) {
          const query = new URLSearchParams({ model: 'Row', limit: '10000' });
          if (from > 0) query.set('cursor', cursorOf(from));
          await bench.send('GET', `/records?${query}`, { headers: big });
        }
      });
      await memory('exports', async () => {
        const { baseUrl, secretKey } = bench.service;
        const headers = { ...big, authorization: `Bearer ${secretKey}` };
        const answer = await fetch(`${baseUrl}/records/export?model=Row`, { headers });
        let bytes = 0;
        for await (const chunk of answer.body ?? []) bytes += chunk.length;
        if (!answer.ok || bytes < count * 1024)
          throw new Error(`the export is short: ${answer.status}, ${bytes}`);
      });

      const smallTimes = await pruneAll(bench, { headers: small, count: smallCount, dataset: smallDataset });
      let times: number[] = [];
      await memory('prunes', async () => {
        times = await pruneAll(bench, { headers: big, count, dataset: bigDataset });
      });
      const tenth = Math.floor(times.length / 10);
      const [first, last] = [median(times.slice(0, tenth)), median(times.slice(-tenth))];
      report(
        `p50 of prune ${limit} at ${smallCount.toLocaleString('en')}`,
        `${median(smallTimes).toFixed(1)} ms`,
      );
      report(`p50 of prune ${limit} at ${count.toLocaleString('en')}`, `${median(times).toFixed(1)} ms`, {
        ratio: median(times) / median(smallTimes),
        must: '<= 1.3',
      });
      report('of the last tenth against the first', `${last.toFixed(1)} and ${first.toFixed(1)} ms`, {
        ratio: last / first,
        must: '<= 1.3',
      });

      const body = pruneBody(cursorOf(count), limit);
      const again: number[] = [];
      const health: number[] = [];
      for (let call = 0; call < 200; call += 1) {
        again.push(await timed(() => bench.send('PATCH', '/records/prune', { headers: big, body })));
        health.push(await timed(() => bench.send('GET', '/health')));
      }
      report('p50 of GET /health', `${median(health).toFixed(2)} ms`);
      report('p50 of the same prune again, ms above', `${median(again).toFixed(2)} ms`, {
        ratio: median(again) - median(health),
        must: '<= 3',
      });
    } finally {
      await bench.close();
    }
  },
};

/** Milliseconds of each call until all is pruned. */
async function pruneAll(
  bench: Awaited<ReturnType<typeof openBenchService>>,
  { headers, count, dataset }: { headers: Record<string, string>; count: number; dataset: number },
): Promise<number[]> {
  const body = pruneBody(cursorWriter(dataset)(count), limit);
  const times: number[] = [];
  for (let pruned = 0; pruned < count; pruned += limit) {
    times.push(await timed(() => bench.send('PATCH', '/records/prune', { headers, body })));
  }
  return times;
}
