/**
 * A mixed load on three nodes that are killed in turn, on a PostgreSQL and a PgBouncer that are restarted, and what has to
 * be true of it afterwards: nothing that was acknowledged is lost, and nothing was done twice that must be done once.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, openDb } from '../../server/db/pool.ts';
import { readClusterStatus } from '../../server/ops/cluster/status.ts';
import { type Calls, openCalls, type Rates, ratesOf, recoveryMs } from './calls.ts';
import { type EventLoad, openEventLoad } from './event-load.ts';
import type { Fault } from './faults.ts';
import { type FunctionLoad, openFunctionLoad } from './function-load.ts';
import { type Installation, openInstallation } from './installation.ts';
import type { Report } from './provider.ts';
import { openRecordLoad, type RecordLoad } from './record-load.ts';

type Trial = {
  faults: readonly Fault[];
  /** From the end of one fault to the next. */
  calmMs: number;
  /** Longer than that no new fault is begun; each of the names in `atLeast` has its turn all the same. */
  maxMs: number;
  datasets: number;
  accounts: number;
  /** Of each caller, after a call, on average. */
  pauseMs: number;
  seed: number;
  environmentOf?: (node: string) => Record<string, string>;
  citusDir?: string | undefined;
  tell?: (line: string) => void;
};
type Outcome = {
  /** What is wrong; nothing, where all promises hold. */
  faults: string[];
  hasPgbouncer: boolean;
  applied: { name: string; tookMs: number; feltMs: number; told: unknown }[];
  /** Deliveries that the receiver refused. */
  refused: number;
  rates: Rates[];
  records: Record<string, number>;
  tokens: Report['tokens'];
  events: { acknowledged: number; inFeed: number; delivered: number; sentAgain: number };
  /** By kind and state, with the error's code and message where there is one. */
  runs: { byState: Record<string, number>; attempts: number; abandoned: number; left: number };
  otherEnds: Record<string, number>;
  deaths: FunctionLoad['deaths'];
};

export const nodeNames = ['one', 'two', 'three'] as const;
const keyIntegration = 'keyed';

export async function wreak(trial: Trial): Promise<Outcome> {
  const { environmentOf, citusDir, tell = () => {} } = trial;
  const installation = await openInstallation({
    nodes: nodeNames,
    citusDir,
    ...(environmentOf && { environmentOf }),
  });
  const db = openDb({ url: installation.databaseUrl }, { maxConnections: 2 });
  let isOver = false;
  let running: Promise<void> | undefined;
  try {
    const calls = openCalls(installation);
    const load = await openLoad(calls, { installation, trial });
    running = load.run(() => isOver, trial.pauseMs);
    running.catch(() => {});
    const applied: Omit<Outcome['applied'][number], 'feltMs'>[] = [];
    const beganAt = performance.now();
    for (const fault of trial.faults) {
      await Promise.race([sleep(trial.calmMs), running]);
      const isFirst = !applied.some(({ name }) => name === fault.name);
      if (performance.now() - beganAt > trial.maxMs && !isFirst) continue;
      const at = performance.now();
      const told = await calls.during(fault.name, () => fault.strike(installation, db));
      applied.push({ name: fault.name, tookMs: Math.round(performance.now() - at), told });
      tell(`${fault.name}: ${Math.round(performance.now() - at)} ms; ${calls.made.length} calls`);
    }
    await Promise.race([sleep(trial.calmMs), running]);
    isOver = true;
    await running;
    tell(`at rest after ${calls.made.length} calls`);
    const late = await lateSyncs(db);
    await load.finish();
    const standing = await settle(db, calls);
    await load.events.finish();
    const report = await installation.report();
    const rates = ratesOf(calls);
    const marks = await load.functions.checkMarks();
    return {
      faults: [
        ...(await judge({ load, report, db, rates })),
        ...late,
        ...standing,
        ...marks.overlaps.map((text) => `runs of one connection: ${text}`),
      ],
      hasPgbouncer: installation.hasPgbouncer,
      applied: applied.map((one, n) => ({ ...one, feltMs: recoveryMs(calls, calls.faults[n]!) })),
      refused: report.received.bad,
      rates,
      tokens: report.tokens,
      deaths: load.functions.deaths,
      records: load.acknowledged(),
      events: eventsOf(load.events, report),
      runs: {
        byState: await countRuns(db),
        attempts: marks.attempts,
        abandoned: marks.abandoned,
        left: load.functions.asked(),
      },
      otherEnds: load.functions.otherEnds(),
    };
  } finally {
    isOver = true;
    await running?.catch(() => {});
    await db.end();
    await installation.close();
  }
}

type Load = {
  events: EventLoad;
  functions: FunctionLoad;
  records: readonly RecordLoad[];
  run(isOver: () => boolean, pauseMs: number): Promise<void>;
  finish(): Promise<void>;
  acknowledged(): Record<string, number>;
};

async function openLoad(
  calls: Calls,
  { installation, trial }: { installation: Installation; trial: Trial },
): Promise<Load> {
  const { provider } = installation;
  const { seed } = trial;
  const setUp = (method: string, path: string, body?: object) =>
    calls.insist('set up', { method, path, body });
  await setUp('POST', '/integrations', {
    unique_key: keyIntegration,
    provider: 'private-api-key',
    integration_config: { base_url: 'https://chaos.invalid' },
  });
  const { data } = (await setUp('GET', '/environment/webhook-signing-key')) as {
    data: { webhook_signing_key: string };
  };
  await installation.tellProvider({ order: 'signing key', key: data.webhook_signing_key });
  await setUp('POST', '/events/endpoints', { url: provider.receiverUrl });
  const records: RecordLoad[] = [];
  for (let n = 0; n < trial.datasets; n += 1) {
    await setUp('POST', '/connections', {
      provider_config_key: keyIntegration,
      connection_id: `keyed-${n}`,
      credentials: { type: 'API_KEY', apiKey: 'secret' },
    });
    const headers = { 'provider-config-key': keyIntegration, 'connection-id': `keyed-${n}` };
    records.push(openRecordLoad(calls, { model: 'Row', headers }, seed + n));
  }
  const functions = await openFunctionLoad(calls, { provider, count: trial.accounts, seed: seed + 100 });
  const events = openEventLoad(calls, { integration: keyIntegration, seed: seed + 200 });
  return {
    events,
    functions,
    records,
    async run(isOver, pauseMs) {
      await Promise.all([
        ...records.map((one) => one.run(isOver, pauseMs)),
        functions.run(isOver, pauseMs),
        events.run(isOver, pauseMs * 4),
      ]);
    },
    async finish() {
      await setUp('POST', '/sync/pause', { provider_config_key: 'google-sheet', syncs: [] });
      await functions.finish();
    },
    acknowledged: () => {
      const sum: Record<string, number> = {};
      for (const { acknowledged } of records)
        for (const [of, count] of Object.entries(acknowledged)) sum[of] = (sum[of] ?? 0) + count;
      return sum;
    },
  };
}

/** Syncs that are not to run again within their frequency, although somebody looks after them each minute or so. */
async function lateSyncs(db: Db): Promise<string[]> {
  const late = `select sync.id
    from sync
    where next_at is null or next_at > now() + interval '35 seconds'`;
  for (let look = 0; look < 200; look += 1) {
    if ((await db.query(late)).length === 0) return [];
    await sleep(500);
  }
  return (await db.query<{ id: number }>(late)).map(({ id }) => `sync ${id} does not come due`);
}

/** Waits until nothing is under way any more; what is still then, and must not be, is told. */
async function settle(db: Db, calls: Calls): Promise<string[]> {
  const open = `select
      (select count(*) from run where state in ('waiting', 'running')) as runs,
      (select count(*) from delivery where status = 'waiting') as deliveries,
      (select count(*) from event where position is null) as "events without position",
      (select count(*) from connection where refresh_until > clock_timestamp() and deleted_at is null) as "leases of refreshes",
      (select count(*) from errand where owner is not null and lease_until > clock_timestamp()) as "remote calls"`;
  // A lease of a run lasts 20 s, one of a delivery 30; a retry of a run comes after 20 s, one of a delivery after 45.
  for (let look = 0; ; look += 1) {
    const [row] = await db.query<Record<string, number>>(open);
    const { workers } = await readClusterStatus(db);
    const inDoubt = workers.reduce((sum, worker) => sum + (worker.inDoubt ?? 1), 0);
    const left = Object.entries({ ...row, 'transactions in doubt': inDoubt }).filter(
      ([, count]) => count > 0,
    );
    if (left.length === 0) return [];
    if (look === 240) return left.map(([of, count]) => `${count} ${of} were left`);
    await calls.make('rest', { method: 'GET', path: '/ready' });
    await sleep(500);
  }
}

async function judge({
  load,
  report: { tokens, received },
  db,
  rates,
}: {
  load: Load;
  report: Report;
  db: Db;
  rates: readonly Rates[];
}): Promise<string[]> {
  const faults: string[] = [];
  for (const one of load.records) faults.push(...(await one.check()));
  faults.push(...tokens.double.map((text) => `a double refresh: ${text}`));
  faults.push(...tokens.brokenOff.map((text) => `tokens that a living node did not take: ${text}`));
  // A node loses one answer of each connection at most.
  const max = tokens.stops * load.functions.accounts.length;
  if (tokens.excused > max || tokens.lastLooks > max)
    faults.push(`${tokens.excused} refreshes and ${tokens.lastLooks} last looks after ${tokens.stops} stops`);

  const { seen, repeated } = load.events;
  faults.push(...load.events.missing().map((text) => `not in the feed: ${text}`));
  faults.push(...repeated.map((id) => `twice in the feed: ${id}`));
  const events = await db.query<{ id: string; type: string }>(
    `select event.id, event.type
     from event
     join environment on environment.id = event.environment_id
     where environment.name = 'dev'`,
  );
  faults.push(
    ...events.filter(({ id }) => !seen.has(id)).map(({ id, type }) => `not followed: ${type} ${id}`),
  );
  const queued = await db.query<{ id: string; status: string }>(
    'select event_id as id, status from delivery',
  );
  faults.push(
    ...queued
      .filter(({ id, status }) => status !== 'delivered' || received.events[id] === undefined)
      .map(({ id, status }) => `not delivered: ${id} (${status})`),
  );
  const unknown = Object.keys(received.events).filter((id) => !seen.has(id));
  faults.push(...unknown.map((id) => `delivered and not in the feed: ${id}`));

  const failed = await db.query<{ kind: string; error: unknown; count: number }>(
    `select kind, error->>'code' as error, count(*) from run where state not in ('succeeded', 'cancelled') group by 1, 2`,
  );
  // An outage that outlasts all attempts fails a run, and is told; a run that nobody knows of is lost.
  faults.push(
    ...failed
      .filter(({ error }) => error === null)
      .map(({ kind, count }) => `${count} runs (${kind}) without a word`),
  );
  const inactive = await db.query<{ connection_id: string; status: string }>(
    `select connection_id, status from connection where deleted_at is null and status <> 'active'`,
  );
  faults.push(...inactive.map(({ connection_id, status }) => `${connection_id} is ${status}`));
  faults.push(
    ...load.functions.deaths
      .filter(({ cause, isStrict }) => !isStrict || cause !== 'refresh_reply_lost')
      .map(({ connectionId, cause }) => `${connectionId} died: ${cause}`),
  );
  for (const { of, problems } of rates) {
    if (problems.hung !== undefined) faults.push(`${problems.hung} calls hung: ${of}`);
    for (const problem of Object.keys(problems))
      if (/ internal$/.test(problem)) faults.push(`${problems[problem]} calls met ${problem}: ${of}`);
  }
  faults.push(...(await miscounted(db)));
  return faults;
}

/** Counters of datasets that are not those of a recount. */
async function miscounted(db: Db): Promise<string[]> {
  const rows = await db.query<{ id: number }>(
    `select dataset.id
     from dataset
     left join lateral (
       select
         count(*) filter (where record.deleted_at is null) as records,
         count(*) filter (where record.deleted_at is not null) as deleted,
         count(*) filter (where body is null) as pruned,
         coalesce(sum(octet_length(body) + coalesce(octet_length(previous), 0)), 0) as payload_bytes
       from record
       left join payload using (dataset_id, seq)
       where record.dataset_id = dataset.id
     ) as counted on true
     where (dataset.records, dataset.deleted, dataset.pruned, dataset.payload_bytes)
       is distinct from (counted.records, counted.deleted, counted.pruned, counted.payload_bytes)`,
  );
  return rows.map(({ id }) => `the counters of dataset ${id} are not those of a recount`);
}

function eventsOf({ seen, acknowledged }: EventLoad, { received }: Report): Outcome['events'] {
  const counts = Object.values(received.events);
  return {
    acknowledged: acknowledged(),
    inFeed: seen.size,
    delivered: counts.length,
    sentAgain: counts.reduce((sum, count) => sum + count - 1, 0),
  };
}

async function countRuns(db: Db): Promise<Record<string, number>> {
  const rows = await db.query<{ state: string; count: number }>(
    `select concat_ws(': ', kind, state, error->>'code', error->>'message') as state, count(*)
     from run
     group by 1`,
  );
  return Object.fromEntries(rows.map(({ state, count }) => [state, count]));
}
