/**
 * The activity log with 1,000,000 entries of ten days: what it costs to write an entry, what a search takes, by each filter
 * alone and with others, and what it takes to drop a day. The floor is the trip to the database and back that any call makes.
 *
 * A connection, an integration and an error each are frequent, rare, or of one old day alone, which is where a search by
 * the wrong index would read everything else first.
 */

import { writeAudit, writeDatasetAudit } from '../server/activity/audit.ts';
import { auditSequence } from '../server/activity/audit-chain.ts';
import { ensureDay, keepDays, listDays } from '../server/activity/partitions.ts';
import { createActivity } from '../server/activity/writer.ts';
import { type Db, openDb, type Tx } from '../server/db/pool.ts';
import { placeAll } from '../server/db/sequencer.ts';
import { exampleConnection } from '../server/events/event-types.ts';
import { queueEvent } from '../server/events/outbox.ts';
import { eventSequence } from '../server/events/sequence.ts';
import { createLog } from '../server/log.ts';
import { openTestDatabase } from '../test/support/database.ts';
import { takenBy } from '../test/support/processes.ts';
import {
  type Benchmark,
  type BenchService,
  median,
  openBenchService,
  quantile,
  rate,
  report,
  timed,
} from './support.ts';

const days = 10;
const dayMs = 86_400_000;
const maxMs = 100;
const maxDropMs = 1_000;

/** `from` and `to` are days ago. */
const searches: Record<string, string> = {
  'no filter': '',
  'connection, frequent': 'connection_id=c-1',
  'connection, rare': 'connection_id=rare',
  'connection, of an old day': 'connection_id=old',
  'connection, absent': 'connection_id=none',
  'integration, frequent': 'integration_id=i-1',
  'integration, rare': 'integration_id=rare',
  'integration, absent': 'integration_id=none',
  'type, proxied calls': 'type=proxy',
  'type, another': 'type=refresh',
  'type, absent': 'type=delivery',
  'status, succeeded': 'status=success',
  'status, failed': 'status=failed',
  'text, frequent': 'text=VALUES',
  'text, rare': 'text=needle',
  'text, in a message': 'text=grant%20is%20gone',
  'text, absent': 'text=nowhere',
  'a day': 'from=5&to=4',
  'connection, failed': 'connection_id=c-1&status=failed',
  'connection, text absent': 'connection_id=c-1&text=nowhere',
  'integration, failed, text rare': 'integration_id=i-1&status=failed&text=needle',
  'type, failed, text': 'type=refresh&status=failed&text=gone',
  'all of them': 'connection_id=c-1&integration_id=i-1&type=proxy&status=failed&text=v4&from=9&to=1',
};

export const activityBenchmark: Benchmark = {
  about: '1,000,000 entries of the activity log (quick: 100,000): searches and the drop of a day',
  async run({ rounds, scale }) {
    const count = scale === 'full' ? 1_000_000 : 100_000;
    const bench = await openBenchService();
    const db = openDb({ url: bench.databaseUrl }, { maxConnections: 1 });
    try {
      await reportWrites(db, rounds * 3);
      await reportPositions(rounds * 3);
      const filledMs = await timed(() => fill(db, count));
      report(`${count.toLocaleString('en')} entries made`, `${(filledMs / 1000).toFixed(0)} s`);
      for (const name of Object.keys(searches)) await search(bench, name);
      const floor = await measure(() => db.query('select 1'), 100);
      report('floor: select 1', spelled(floor));
      for (const name of Object.keys(searches)) {
        const times = await measure(() => search(bench, name), rounds * 10);
        report(name, spelled(times), { ratio: quantile(times, 0.95), must: `<= ${maxMs}` });
      }
      const pages = await searchAll(bench, 'text=nowhere');
      report(`all of it for a text, ${pages.count} pages`, `${pages.ms.toFixed(0)} ms`);
      const stats = await measure(() => bench.send('GET', '/operations/stats'), rounds * 3);
      report('stats of a day', spelled(stats));
      const series = await measure(() => bench.send('GET', '/operations/stats?step_s=3600'), rounds * 3);
      report('series of a day', spelled(series));
      await reportDrop(db);
    } finally {
      await db.end();
      await bench.close();
    }
  },
};

const spelled = (times: number[]) =>
  `${median(times).toFixed(1)} ms, p95 ${quantile(times, 0.95).toFixed(1)} ms`;

async function measure(work: () => Promise<unknown>, times: number): Promise<number[]> {
  const measured: number[] = [];
  for (let n = 0; n < times; n += 1) measured.push(await timed(work));
  return measured;
}

function search(bench: BenchService, name: string): Promise<Buffer> {
  const query = searches[name]!.replace(/(from|to)=(\d+)/g, (_, end: string, ago: string) => {
    return `${end}=${new Date(Date.now() - Number(ago) * dayMs).toISOString()}`;
  });
  return bench.send('GET', `/operations?limit=50&${query}`);
}

/** Reads all pages of the search, as a caller that needs every match does. */
async function searchAll(bench: BenchService, query: string): Promise<{ count: number; ms: number }> {
  let count = 0;
  const ms = await timed(async () => {
    for (let cursor: string | null = ''; cursor !== null; count += 1) {
      const answer = await bench.send('GET', `/operations?${query}${cursor && `&cursor=${cursor}`}`);
      ({ next_cursor: cursor } = JSON.parse(answer.toString()) as { next_cursor: string | null });
    }
  });
  return { count, ms };
}

/** The job of each minute, when the oldest day has been kept for long enough: with its indexes and messages. */
async function reportDrop(db: Db): Promise<void> {
  const times: number[] = [];
  const kept = await listDays(db);
  // Today and tomorrow are among them.
  for (let keptDays = kept.length - 3; keptDays > kept.length - 6; keptDays -= 1) {
    times.push(await timed(() => keepDays(db, { now: new Date(), keptDays })));
  }
  if ((await listDays(db)).length !== kept.length - 3) throw new Error('no day was dropped');
  report('drop of a day', spelled(times), { ratio: Math.max(...times), must: `<= ${maxDropMs}` });
}

/** Processor time and WAL of an entry, in batches of a busy node: of the writer, which is in this process, and the database. */
async function reportWrites(db: Db, rounds: number): Promise<void> {
  const perRound = 10_000;
  const read = async () => {
    const [row] = await db.query<{ pid: number; wal: number; environmentId: number }>(
      `select pg_backend_pid() as pid, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as wal,
         (select min(id) from environment) as "environmentId"`,
    );
    const { user, system } = process.cpuUsage();
    return {
      ...row!,
      ownUs: user + system,
      databaseUs: ((await takenBy(row!.pid))?.cpuMs ?? Number.NaN) * 1000,
    };
  };
  const costs: { own: number; database: number; wal: number }[] = [];
  for (let round = 0; round < rounds; round += 1) {
    const before = await read();
    const log = createLog({ level: 'silent', format: 'json' });
    const activity = createActivity({ db, log, settings: { sampleRate: 1 } });
    for (let n = 0; n < perRound; n += 1)
      activity.log({
        environmentId: before.environmentId,
        type: 'proxy',
        status: 'success',
        integration: `i-${n % 10}`,
        connection: `c-${n % 1000}`,
        actor: 'key:1',
        requestId: `r-${round}-${n}`,
        durationMs: 12.5,
        method: 'GET',
        path: `/v4/spreadsheets/${'a-sheet-'.repeat(5)}/values/A1:Z100`,
        httpStatus: 200,
        requests: 1,
        retries: 0,
        requestBytes: 0,
        answerBytes: 5000,
        credentialsMs: 0.1,
        quotaMs: 0,
        connectMs: 0,
        firstByteMs: 11.5,
        bodyMs: 0.9,
      });
    await activity.stop();
    if (activity.dropped > 0) throw new Error('the batch was not written within a second');
    const after = await read();
    costs.push({
      own: (after.ownUs - before.ownUs) / perRound,
      database: (after.databaseUs - before.databaseUs) / perRound,
      wal: (after.wal - before.wal) / perRound,
    });
  }
  const of = (part: keyof (typeof costs)[number]) => median(costs.map((one) => one[part]));
  report('an entry, processor time of the writer', `${of('own').toFixed(1)} us`);
  report('an entry, processor time of the database', `${of('database').toFixed(1)} us`);
  report('an entry, WAL', `${of('wal').toFixed(0)} bytes`);
}

/**
 * The rate of the sequencer, which is one for all nodes: of events, of audit entries, and of audit entries that the outbox has.
 * All wait when it begins.
 */
async function reportPositions(rounds: number): Promise<void> {
  const perRound = 10_000;
  const database = await openTestDatabase();
  const { db } = database;
  const [environment] = await db.query<{ id: number }>(
    "insert into environment (name, data_key) values ('dev', gen_random_uuid()) returning id",
  );
  const environmentId = environment!.id;
  const entry = { environmentId, actor: 'key:1', action: 'records.pruned', target: 'sheets/c-1' } as const;
  const kinds = {
    'events, given positions': {
      sequence: eventSequence,
      write: (tx: Tx) =>
        queueEvent(tx, { environmentId, type: 'connection.deleted', data: exampleConnection }),
    },
    'audit entries, chained': { sequence: auditSequence, write: (tx: Tx) => writeAudit(tx, entry) },
    'audit entries of the outbox, chained': {
      sequence: auditSequence,
      write: async (tx: Tx) => writeDatasetAudit(tx, 1, entry),
    },
  };
  for (const [name, { sequence, write }] of Object.entries(kinds)) {
    const times: number[] = [];
    for (let round = 0; round < rounds; round += 1) {
      for (let n = 0; n < perRound; n += 100)
        await db.transaction(async (tx) => {
          for (let m = 0; m < 100; m += 1) await write(tx);
        });
      times.push(await timed(() => placeAll(db, sequence)));
    }
    report(name, rate(perRound, median(times)));
  }
  await database.drop();
}

/** Evenly over the days until now, in statements of a day each: nothing but the database takes part. */
async function fill(db: Db, count: number): Promise<void> {
  const stepMs = Math.floor((days * dayMs) / count);
  const firstMs = Date.now() - count * stepMs;
  const perDay = Math.floor(dayMs / stepMs);
  for (let from = 0; from < count; from += perDay) {
    const to = Math.min(from + perDay, count);
    await ensureDay(db, firstMs + from * stepMs);
    await ensureDay(db, firstMs + to * stepMs);
    await db.query(
      `insert into operation (
         id, created_at, environment_id, type, status, integration, connection, actor, request_id, duration_ms, method,
         path, http_status, error_code, requests, retries, request_bytes, answer_bytes, credentials_ms, quota_ms,
         connect_ms, first_byte_ms, body_ms
       )
       select
         (lpad(to_hex(ms), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' || substr(md5(n::text), 1, 15))::uuid,
         to_timestamp(ms / 1000.0),
         environment.id,
         case when n % 50 = 0 then 'refresh' else 'proxy' end,
         case when n % 20 = 0 then 'failed' else 'success' end,
         case when n % ($3 / 10) = 77 then 'rare' when n % 10 < 6 then 'i-1' else 'i-' || n % 10 end,
         case
           when n % ($3 / 20) = 55 then 'rare'
           when n < $3 / 10 and n % 3 = 1 then 'old'
           when n % 3 = 0 then 'c-1'
           else 'c-' || n % 1000
         end,
         'key:1', md5((-n)::text), 12.5, 'GET',
         '/v4/spreadsheets/' || md5(n::text) || case when n % ($3 / 5) = 33 then '/needle' else '/values' end ||
           '/Sheet1!A1:Z100?valueRenderOption=UNFORMATTED_VALUE',
         200, case when n % 20 = 0 then 'upstream_timeout' end, 1, 0, 0, 5000, 0.1, 0, 0, 11.5, 0.9
       from generate_series($1::bigint, $2::bigint - 1) as n
       cross join lateral (select $4::bigint + n * $5::bigint as ms) as at
       cross join environment
       where environment.name = 'dev'`,
      [from, to, count, firstMs, stepMs],
    );
  }
  await db.query(
    `insert into operation_message (operation_id, created_at, position, level, message, details)
     select
       id, created_at, 0, 'error',
       case type when 'refresh' then 'The GRANT is gone.' else 'The provider did not answer in time.' end, '{}'
     from operation
     where status = 'failed'`,
  );
  // As autovacuum does while such a log grows.
  for (const day of await listDays(db)) {
    await db.query(`vacuum analyze operation_${day}`);
    await db.query(`vacuum analyze operation_message_${day}`);
  }
}
