/** What records cost on the disk: bytes of tables and indexes, and of the server's log, for each kind of call. */
import type pg from 'pg';
import { type Benchmark, type BenchOptions, openBenchService, walOf } from './support.ts';

export const sizeBenchmark: Benchmark = {
  isWithoutOthers: true,
  about: 'database and WAL by a million records of 1 KB, as a table',
  run: measureSize,
};

const perCall = 1_000;
const tables = ['record', 'payload', 'prune'];

async function measureSize({ scale }: BenchOptions): Promise<void> {
  const count = scale === 'full' ? 1_000_000 : 50_000;
  const bench = await openBenchService();
  try {
    const client = await bench.connectBare();
    const headers = await bench.makeConnection();
    const call = async (method: string, path: string, body: object) =>
      JSON.parse((await bench.send(method, path, { headers, body: JSON.stringify(body) })).toString()) as {
        has_more?: boolean;
      };
    const saveAll = async (version: number) => {
      for (let first = 0; first < count; first += perCall) {
        const records = Array.from({ length: perCall }, (_, n) => recordOf(first + n, version));
        await call('POST', '/records', { model: 'Row', records });
      }
    };
    const rows: [string, number, Record<string, number>][] = [];
    const step = async (name: string, work: () => Promise<unknown>) => {
      // So that each step pays for the first change of a page after a checkpoint, as one that comes hours later does.
      await client.query('checkpoint');
      const wal = await walOf(client, work);
      rows.push([name, wal, await sizesOf(client)]);
    };
    await step('saved', () => saveAll(1));
    await step('saved again, unchanged', () => saveAll(1));
    await step('saved again, all changed', () => saveAll(2));
    await client.query('vacuum');
    const until = await lastCursor(bench, headers);
    await step('pruned', async () => {
      for (let hasMore = true; hasMore; )
        hasMore = (
          await call('PATCH', '/records/prune', { model: 'Row', until_cursor: until, limit: 10_000 })
        ).has_more!;
    });
    await client.query('vacuum');
    rows.push(['and vacuumed', 0, await sizesOf(client)]);
    const mb = (bytes: number) => `${Math.round(((bytes / count) * 1_000_000) / 1_048_576)} MB`;
    console.log(
      `  ${''.padEnd(28)}${['WAL', ...tables].map((name) => name.padStart(12)).join('')}   a million`,
    );
    for (const [name, wal, sizes] of rows)
      console.log(
        `  ${name.padEnd(28)}${[wal, ...tables.map((table) => sizes[table]!)].map((bytes) => mb(bytes).padStart(12)).join('')}`,
      );
  } finally {
    await bench.close();
  }
}

/** Of the last record, page after page. */
async function lastCursor(
  bench: Awaited<ReturnType<typeof openBenchService>>,
  headers: Record<string, string>,
): Promise<string> {
  let last = '';
  for (let cursor: string | null = ''; cursor !== null; ) {
    const query = new URLSearchParams({ model: 'Row', limit: '10000', ...(cursor && { cursor }) });
    const page = JSON.parse((await bench.send('GET', `/records?${query}`, { headers })).toString()) as {
      records: { _trellis_metadata: { cursor: string } }[];
      next_cursor: string | null;
    };
    last = page.records.at(-1)?._trellis_metadata.cursor ?? last;
    cursor = page.next_cursor;
  }
  return last;
}

async function sizesOf(client: pg.Client): Promise<Record<string, number>> {
  const sizes: Record<string, number> = {};
  for (const table of tables) {
    const { rows } = await client.query<{ bytes: string }>(`select pg_total_relation_size($1) as bytes`, [
      table,
    ]);
    sizes[table] = Number(rows[0]?.bytes);
  }
  return sizes;
}

/** About 1 KB as JSON, of text that does not compress to nothing. */
function recordOf(n: number, version: number) {
  const text = Array.from({ length: 30 }, (_, word) =>
    ((n * 2_654_435_761 + word * 40_503 + version) >>> 0).toString(36),
  );
  return {
    id: `contact-${n}`,
    version,
    name: `Person ${n}`,
    notes: `${text.join(' ')} `.repeat(4).slice(0, 900),
  };
}
