// Save, list and prune over HTTP against their floors: the barest way to move the same rows through the same driver.

import { randomBytes } from 'node:crypto';
import type pg from 'pg';
import { cursorWriter } from '../server/records/cursor.ts';
import {
  type Benchmark,
  type BenchService,
  copyBytes,
  copyInto,
  int4,
  int8,
  median,
  openBenchService,
  rate,
  report,
  timed,
  walOf,
} from './support.ts';

const batch = 1000;
const callers = 4;
const recordColumns = 'record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)';
const payloadColumns = 'payload (dataset_id, seq, body)';
const microsecondsSince2000 = BigInt(Date.now() - Date.UTC(2000, 0)) * 1000n;

/** One call's JSON: records `from` to `from + count - 1`. */
function saveBody(from: number, count: number, options: { bytes: number; model?: string }): Buffer {
  const records = Array.from({ length: count }, (_, n) => makeRecord(from + n, options.bytes));
  return Buffer.from(JSON.stringify({ model: options.model ?? 'Row', records }));
}

/** About `bytes` of JSON. */
function makeRecord(n: number, bytes: number): Record<string, unknown> {
  const record = {
    id: `record-${String(n).padStart(8, '0')}`,
    name: `Name of record ${n}`,
    amount: n * 1.25,
    active: n % 2 === 0,
    city: 'Reykjavík',
    tags: ['one', 'two', 'three'],
  };
  const text = Math.ceil((bytes - JSON.stringify(record).length) / 2);
  return { ...record, text: randomBytes(text).toString('hex') };
}

/** Of a first sync. */
const batches = 25;

export const saveBenchmark: Benchmark = {
  about: `${callers} callers on as many datasets, ${batch} records a call, against binary COPY; and a first sync`,
  async run({ rounds, scale }) {
    await runFirstSyncs(rounds);
    const sizes = scale === 'full' ? [1024, 10_240] : [1024];
    for (const bytes of sizes) {
      const calls = Math.ceil((scale === 'full' ? 10 : 5) / (bytes / 1024) ** 0.5);
      const bench = await openBenchService();
      try {
        await runSaves(bench, { rounds, calls, bytes });
      } finally {
        await bench.close();
      }
    }
  },
};

/**
 * The last three batches of a first sync in turns with the first three of another one, so that both meet the same load of
 * the machine.
 */
async function runFirstSyncs(rounds: number): Promise<void> {
  const bench = await openBenchService();
  const times = { first: [] as number[], last: [] as number[] };
  try {
    const bodies = Array.from({ length: batches }, (_, at) => saveBody(at * batch, batch, { bytes: 1024 }));
    const save = (headers: Record<string, string>, at: number) =>
      timed(() => bench.send('POST', '/records', { headers, body: bodies.at(at) as Buffer }));
    for (let round = 0; round < rounds; round += 1) {
      const [ending, beginning] = [await bench.makeConnection(), await bench.makeConnection()];
      for (let at = 0; at < batches - 3; at += 1) await save(ending, at);
      for (const at of [0, 1, 2]) {
        times.last.push(await save(ending, batches - 3 + at));
        times.first.push(await save(beginning, at));
      }
    }
  } finally {
    await bench.close();
  }
  const [first, last] = [median(times.first), median(times.last)];
  report(`batches 1 to 3 of ${batch} into a new dataset`, `${first.toFixed(0)} ms`);
  report(`batches ${batches - 2} to ${batches}, against those`, `${last.toFixed(0)} ms`, {
    ratio: last / first,
    must: '<= 1.3',
  });
}

async function runSaves(
  bench: BenchService,
  { rounds, calls, bytes }: { rounds: number; calls: number; bytes: number },
): Promise<void> {
  const clients = await Promise.all(Array.from({ length: callers }, () => bench.connectBare()));
  const times = { new: [] as number[], copy: [] as number[], unchanged: [] as number[] };
  const wal: number[] = [];
  for (let round = -1; round < rounds; round += 1) {
    const headers = await Promise.all(clients.map(() => bench.makeConnection()));
    const bodies = Array.from({ length: calls }, (_, at) => saveBody(at * batch, batch, { bytes }));
    const floors = clients.map((_, caller) =>
      Array.from({ length: calls }, (_, at) => floorCopy(-(round + 2) * callers - caller, at, bytes)),
    );
    const saveAll = () =>
      Promise.all(
        headers.map(async (of) => {
          for (const body of bodies) await bench.send('POST', '/records', { headers: of, body });
        }),
      );
    const first = await timed(saveAll);
    const copy = await timed(() =>
      Promise.all(
        clients.map(async (client, caller) => {
          for (const { records, payloads } of floors[caller] ?? []) {
            await client.query('begin');
            await copyInto(client, recordColumns, records);
            await copyInto(client, payloadColumns, payloads);
            await client.query('commit');
          }
        }),
      ),
    );
    let again = 0;
    const written = await walOf(clients[0] as pg.Client, async () => {
      again = await timed(saveAll);
    });
    if (round < 0) continue; // warm
    times.new.push(first);
    times.copy.push(copy);
    times.unchanged.push(again);
    wal.push(written);
  }
  const count = calls * callers * batch;
  console.log(`  records of ${bytes / 1024} KB`);
  report('floor: binary COPY', rate(count, median(times.copy)));
  report('save', rate(count, median(times.new)), {
    ratio: median(times.copy) / median(times.new),
    must: '>= 0.35',
  });
  report('save of unchanged records', rate(count, median(times.unchanged)));
  report('WAL bytes per unchanged record', (median(wal) / count).toFixed(2), {
    ratio: median(wal) / count,
    must: '<= 1',
  });
}

function floorCopy(datasetId: number, at: number, bytes: number): { records: Buffer; payloads: Buffer } {
  const rows = Array.from({ length: batch }, (_, n) => {
    const seq = at * batch + n + 1;
    return { seq, id: `record-${String(seq).padStart(8, '0')}`, body: randomBytes(bytes) };
  });
  const time = int8(microsecondsSince2000);
  return {
    records: copyBytes(
      rows.map(({ seq, id, body }) => [
        int8(datasetId),
        int8(seq),
        time,
        time,
        int4(body.length),
        body.subarray(0, 16),
        Buffer.from(id),
      ]),
    ),
    payloads: copyBytes(rows.map(({ seq, body }) => [int8(datasetId), int8(seq), body])),
  };
}

export const listBenchmark: Benchmark = {
  about: 'pages against the bare SELECT of the same rows',
  async run({ rounds, scale }) {
    const sizes = scale === 'full' ? [1024, 10_240] : [1024];
    const bench = await openBenchService();
    try {
      for (const bytes of sizes)
        await runLists(bench, { rounds, bytes, count: bytes > 1024 ? 10_000 : 30_000 });
    } finally {
      await bench.close();
    }
  },
};

async function runLists(
  bench: BenchService,
  { rounds, bytes, count }: { rounds: number; bytes: number; count: number },
): Promise<void> {
  const headers = await bench.makeConnection();
  await fill(bench, { headers, count, bytes });
  const client = await bench.connectBare();
  const dataset = await newestDataset(client);
  const cursorOf = cursorWriter(dataset);
  console.log(`  records of ${bytes / 1024} KB`);
  for (const limit of [1000, 10_000]) {
    const times: number[] = [];
    const floors: number[] = [];
    for (let round = -1; round < rounds; round += 1) {
      for (let from = 0; from < count; from += limit) {
        let last = from;
        const ms = await timed(async () => {
          // A page of large records is cut where it is long enough: then it takes more than one.
          while (last < from + limit) {
            const query = new URLSearchParams({ model: 'Row', limit: String(from + limit - last) });
            if (last > 0) query.set('cursor', cursorOf(last));
            const page = await bench.send('GET', `/records?${query}`, { headers });
            const records = page.toString('latin1').split('"_trellis_metadata":').length - 1;
            if (records === 0) throw new Error('a page is empty');
            last += records;
          }
        });
        const floor = await timed(() => selectBare(client, { dataset, from, limit }));
        if (round < 0) continue; // warm
        times.push(ms);
        floors.push(floor);
      }
    }
    report(`floor: SELECT ${limit}`, rate(limit, median(floors)));
    report(`list ${limit}`, rate(limit, median(times)), {
      ratio: median(floors) / median(times),
      must: '>= 0.6',
    });
  }
}

/** Planned as a service would have it planned: by index, whatever the statistics say. */
async function selectBare(
  client: pg.Client,
  { dataset, from, limit }: { dataset: number; from: number; limit: number },
): Promise<void> {
  const { rows } = await client.query(
    `select external_id, record.seq, first_seen_at, last_modified_at, deleted_at, pruned_at, body
     from record
     join payload using (dataset_id, seq)
     where dataset_id = $1 and record.seq > $2 and record.seq <= $3
     order by record.seq`,
    [dataset, from, from + limit],
  );
  if (rows.length !== limit) throw new Error('the floor is short');
}

export const pruneBenchmark: Benchmark = {
  about: 'against a bare DELETE ... RETURNING of the same rows',
  async run({ rounds, scale }) {
    const count = scale === 'full' ? 40_000 : 20_000;
    const bench = await openBenchService();
    try {
      for (const bytes of scale === 'full' ? [1024, 10_240] : [1024])
        await runPrunes(bench, { rounds, count, bytes });
    } finally {
      await bench.close();
    }
  },
};

async function runPrunes(
  bench: BenchService,
  { rounds, count, bytes }: { rounds: number; count: number; bytes: number },
): Promise<void> {
  const client = await bench.connectBare();
  console.log(`  records of ${bytes / 1024} KB`);
  for (const limit of [10_000, 1000]) {
    const times: number[] = [];
    const floors: number[] = [];
    const wal: number[] = [];
    const floorWal: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      const headers = await bench.makeConnection();
      await fill(bench, { headers, count, bytes });
      const dataset = await newestDataset(client);
      // The same rows a second time, for the floor.
      const twin = -dataset;
      await client.query(
        'insert into payload (dataset_id, seq, body) select $2, seq, body from payload where dataset_id = $1',
        [dataset, twin],
      );
      await client.query('checkpoint');
      const body = pruneBody(cursorWriter(dataset)(count), limit);
      for (let from = 0; from < count; from += limit) {
        wal.push(
          await walOf(client, async () => {
            times.push(
              await timed(async () => {
                const answer = JSON.parse(
                  (await bench.send('PATCH', '/records/prune', { headers, body })).toString(),
                );
                if (answer.count !== limit) throw new Error('a prune is short');
              }),
            );
          }),
        );
        floorWal.push(
          await walOf(client, async () => {
            floors.push(
              await timed(() =>
                client.query(
                  'delete from payload where dataset_id = $1 and seq > $2 and seq <= $3 returning seq',
                  [twin, from, from + limit],
                ),
              ),
            );
          }),
        );
      }
    }
    report(`floor: DELETE of ${limit}`, rate(limit, median(floors)));
    report(`prune ${limit}`, rate(limit, median(times)), {
      ratio: median(floors) / median(times),
      must: limit === 10_000 ? '>= 0.7' : '>= 0',
    });
    const perRecord = (values: number[]) =>
      values.reduce((sum, bytes) => sum + bytes, 0) / values.length / limit;
    report(
      `WAL bytes per pruned record, floor ${perRecord(floorWal).toFixed(0)}`,
      perRecord(wal).toFixed(0),
      {
        ratio: perRecord(wal) / perRecord(floorWal),
        must: '<= 1.3',
      },
    );
  }
}

export function pruneBody(untilCursor: string, limit: number): string {
  return JSON.stringify({ model: 'Row', until_cursor: untilCursor, limit });
}

/** Saves `count` records in calls of some MB. */
export async function fill(
  bench: BenchService,
  { headers, count, bytes }: { headers: Record<string, string>; count: number; bytes: number },
): Promise<void> {
  const perCall = Math.min(count, Math.floor(10_000_000 / bytes));
  for (let from = 0; from < count; from += perCall) {
    const body = saveBody(from, Math.min(perCall, count - from), { bytes });
    await bench.send('POST', '/records', { headers, body });
  }
}

export async function newestDataset(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ id: string }>('select max(id) as id from dataset');
  return Number(rows[0]?.id);
}
