// The record store against its floors, function by function, interleaved in one run: `node bench/records.ts`.
// A floor is the barest way to move the same rows through the same driver: binary COPY into the same two tables,
// a bare SELECT of the same columns, a bare DELETE. Ratios are comparable between machines, rates are not.
// With TEST_DATABASE_URL it runs on that server, else on an embedded one without fsync.

import { randomBytes } from 'node:crypto';
import pg from 'pg';
import type { DbTarget } from '../server/db/pool.ts';
import { listRecords } from '../server/records/list.ts';
import { pageToWire } from '../server/records/wire.ts';
import { brand, datasetCalls, openRecordBench } from '../test/support/records.ts';

const rounds = Number(process.argv[2] ?? 3);
const recordCount = 20_000;
const batch = 1000;
const pageSizes = [1000, 10_000];
const pruneLimits = [1000, 10_000];

const recordColumns = 'record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)';
const microsecondsSince2000 = BigInt(Date.now() - Date.UTC(2000, 0)) * 1000n;

const rates = new Map<string, number[]>();

async function measure(name: string, records: number, work: () => Promise<unknown>): Promise<void> {
  const start = performance.now();
  await work();
  const rate = records / ((performance.now() - start) / 1000);
  rates.set(name, [...(rates.get(name) ?? []), rate]);
}

const bench = await openRecordBench();
const floor = await connectBare(bench.target);
try {
  for (let round = 0; round < rounds; round += 1) await runRound(round);
} finally {
  await floor.end();
  await bench.end();
}
report();

async function runRound(round: number): Promise<void> {
  const connection = await bench.connect();
  const calls = datasetCalls(bench.db, connection);
  const batches = Array.from({ length: recordCount / batch }, (_, at) =>
    Array.from({ length: batch }, (_, n) => makeRecord(at * batch + n)),
  );
  const floorId = -1 - round;
  const floorRows = batches.map((records, at) =>
    records.map((record, n) => ({ id: record.id, seq: at * batch + n + 1, body: randomBytes(1050) })),
  );

  for (const [at, records] of batches.entries()) {
    await measure('save new', batch, () => calls.save(records));
    await measure('floor: COPY', batch, async () => {
      await floor.query('begin');
      const rows = floorRows[at] ?? [];
      await copy(
        recordColumns,
        rows.map((row) => recordFields(floorId, row)),
      );
      await copy(
        'payload (dataset_id, seq, body)',
        rows.map(({ seq, body }) => [int8(floorId), int8(seq), body]),
      );
      await floor.query('commit');
    });
  }
  for (const records of batches) await measure('save unchanged', batch, () => calls.save(records));

  for (const limit of pageSizes) {
    const { id } = await calls.row();
    for (let from = 0; from < recordCount; from += limit) {
      const cursor = from === 0 ? undefined : await calls.cursorOf(from);
      await measure(`list ${limit}`, limit, async () => {
        const page = await listRecords(bench.db, {
          connection,
          model: 'Row',
          variant: 'base',
          limit,
          cursor,
        });
        if (pageToWire(page, brand).length < limit * 1000) throw new Error('a page is short');
      });
      await measure(`floor: SELECT ${limit}`, limit, () =>
        floor.query(
          `select external_id, record.seq, first_seen_at, last_modified_at, deleted_at, pruned_at, body
           from record join payload using (dataset_id, seq)
           where dataset_id = $1 and record.seq > $2 and record.seq <= $3 order by record.seq`,
          [id, from, from + limit],
        ),
      );
    }
  }

  const until = await calls.cursorOf(recordCount);
  let from = 0;
  for (const limit of pruneLimits) {
    for (const end = from + 10_000; from < end; from += limit) {
      await measure(`prune ${limit}`, limit, async () => {
        if ((await calls.prune(until, limit)).count !== limit) throw new Error('a prune is short');
      });
      await measure(`floor: DELETE ${limit}`, limit, () =>
        floor.query('delete from payload where dataset_id = $1 and seq > $2 and seq <= $3 returning seq', [
          floorId,
          from,
          from + limit,
        ]),
      );
    }
  }
  for (let n = 0; n < 20; n += 1) await measure('prune again (calls)', 1, () => calls.prune(until));
  for (const records of batches) await measure('save restored', batch, () => calls.save(records));
}

function makeRecord(n: number): { id: string; [name: string]: string | number | boolean } {
  return {
    id: `record-${n}`,
    name: `Name of record ${n}`,
    amount: n * 1.25,
    active: n % 2 === 0,
    city: 'Reykjavík',
    text: randomBytes(425).toString('hex'),
  };
}

function recordFields(datasetId: number, row: { id: string; seq: number; body: Buffer }): Buffer[] {
  const time = Buffer.alloc(8);
  time.writeBigInt64BE(microsecondsSince2000);
  const size = Buffer.alloc(4);
  size.writeInt32BE(row.body.length);
  return [int8(datasetId), int8(row.seq), time, time, size, row.body.subarray(0, 16), Buffer.from(row.id)];
}

function int8(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigInt64BE(BigInt(value));
  return bytes;
}

/** One binary COPY (PostgreSQL manual, "Binary Format" of COPY) through the driver's own connection. */
function copy(into: string, rows: readonly Buffer[][]): Promise<void> {
  const pieces: Buffer[] = [Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')];
  for (const fields of rows) {
    const count = Buffer.alloc(2);
    count.writeInt16BE(fields.length);
    pieces.push(count);
    for (const field of fields) {
      const length = Buffer.alloc(4);
      length.writeInt32BE(field.length);
      pieces.push(length, field);
    }
  }
  pieces.push(Buffer.from([0xff, 0xff]));
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let failure: Error | undefined;
  floor.query({
    submit: (connection: pg.Connection) => connection.query(`copy ${into} from stdin (format binary)`),
    handleCopyInResponse(connection: CopyConnection) {
      connection.sendCopyFromChunk(Buffer.concat(pieces));
      connection.endCopyFrom();
    },
    handleCommandComplete() {},
    handleError(error: Error) {
      failure = error;
      reject(error);
    },
    handleReadyForQuery() {
      if (failure === undefined) resolve();
    },
  } as unknown as pg.Submittable);
  return promise;
}
type CopyConnection = { sendCopyFromChunk(bytes: Buffer): void; endCopyFrom(): void };

async function connectBare(target: DbTarget): Promise<pg.Client> {
  const client = new pg.Client('url' in target ? { connectionString: target.url } : target);
  await client.connect();
  return client;
}

function report(): void {
  const median = (name: string) => {
    const sorted = [...(rates.get(name) ?? [])].sort((a, b) => a - b);
    return sorted[sorted.length >> 1] ?? Number.NaN;
  };
  const line = (name: string, floorName?: string) => {
    const rate = median(name);
    const ratio = floorName === undefined ? '' : `  ${(rate / median(floorName)).toFixed(2)} of ${floorName}`;
    console.log(`${name.padEnd(24)}${Math.round(rate).toLocaleString('en').padStart(12)}/s${ratio}`);
  };
  line('floor: COPY');
  line('save new', 'floor: COPY');
  line('save unchanged', 'floor: COPY');
  line('save restored', 'floor: COPY');
  for (const limit of pageSizes) {
    line(`floor: SELECT ${limit}`);
    line(`list ${limit}`, `floor: SELECT ${limit}`);
  }
  for (const limit of pruneLimits) {
    line(`floor: DELETE ${limit}`);
    line(`prune ${limit}`, `floor: DELETE ${limit}`);
  }
  console.log(`prune again: ${(1000 / median('prune again (calls)')).toFixed(2)} ms a call`);
}
