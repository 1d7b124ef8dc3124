/**
 * Metrics at /metrics that no module counts: the state of the node, and figures of the whole installation, which are read
 * from the database and are the same on every node. If several processes serve one port, the response has those of all.
 *
 * Figures are at most ten seconds old, those of connections five minutes, for any number of requests. Each statement has a
 * time limit and reads a bounded number of rows, or only an index. If the database is away, its figures are left out.
 */

import { selectStateCounts } from '../connections/store/list.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { connectionStates } from '../events/connection-states.ts';
import { metricsRoute } from '../http/metrics-route.ts';
import type { App } from '../http/server.ts';
import {
  callsInFlight,
  createProcessMetrics,
  metrics,
  type ProcessMetrics,
  type Reading,
  type ReadProcessMetrics,
  writeMetrics,
} from '../metrics/metrics.ts';
import { version } from '../version.ts';
import type { Functions } from './functions.ts';
import type { Parts } from './parts.ts';

const cachedMs = 10_000;
const connectionsCachedMs = 300_000;
/** For one statement of the database, and for a scrape that reads all metrics: Prometheus gives up after ten seconds. */
const statementMs = 1_000;
const ordinaryWaitMs = 2_000;
const maxCounted = 100_000;

/** SQL: the number of rows that wait for their positions in a sequence, also those in the outbox. */
const countUnplaced = (sequence: 'audit' | 'event') => `(
  select count(*)
  from (
    select 1 from ${sequence} where position is null
    union all
    select 1 from dataset_outbox where sequence = '${sequence}'
    limit ${maxCounted}
  ) as one
)`;

/** `nowMs` never goes back. */
export function createDatabaseReader(
  db: Db,
  {
    nowMs = () => performance.now(),
    waitMs = ordinaryWaitMs,
  }: { nowMs?: () => number; waitMs?: number } = {},
): () => Promise<Reading[]> {
  let known: { atMs: number; readings: Reading[] } | undefined;
  let connections: { atMs: number; readings: Reading[] } | undefined;
  let reading: Promise<Reading[]> | undefined;

  async function readNow(): Promise<Reading[]> {
    const queues = await db.transaction(async (tx) => {
      await limitTime(tx);
      return readQueues(tx);
    });
    if (connections === undefined || nowMs() - connections.atMs >= connectionsCachedMs) {
      // A table that takes longer to count has no figure, and is read again after its time.
      const counted = await db
        .transaction(async (tx) => {
          await limitTime(tx);
          return readConnections(tx);
        })
        .catch(() => [metrics.connections.reads(), metrics.connectionStates.reads()]);
      connections = { atMs: nowMs(), readings: counted };
    }
    return [metrics.databaseUp.reads([[], 1]), ...queues, ...connections.readings];
  }

  /** Every failure is reported by the one figure for it. */
  function readAgain(): Promise<Reading[]> {
    reading ??= readNow()
      .catch(() => isAway)
      .then((readings) => {
        known = { atMs: nowMs(), readings };
        return readings;
      })
      .finally(() => {
        reading = undefined;
      });
    return reading;
  }

  return async () => {
    if (known !== undefined && nowMs() - known.atMs < cachedMs) return known.readings;
    const late = Promise.withResolvers<Reading[]>();
    const timer = setTimeout(() => late.resolve(isAway), waitMs);
    return Promise.race([readAgain(), late.promise]).finally(() => clearTimeout(timer));
  };
}

const isAway = [metrics.databaseUp.reads([[], 0])];

/** For the transaction alone, so that a pooler may stand in between. */
async function limitTime(tx: Tx): Promise<void> {
  await tx.query(`set local statement_timeout = ${statementMs}`);
}

async function readQueues(tx: Tx): Promise<Reading[]> {
  const runs = first(
    await tx.query<{ due: number; later: number; oldest: number | null }>(
      `select
         count(*) filter (where not_before <= now()) as due,
         count(*) filter (where not_before > now()) as later,
         extract(epoch from now() - min(not_before) filter (where not_before <= now()))::float8 as oldest
       from (select not_before from run where state = 'waiting' limit ${maxCounted}) as waiting`,
    ),
  );
  const deliveries = first(
    await tx.query<{ oldest: number | null }>(
      `select extract(epoch from now() - min(waiting.queued_at))::float8 as oldest
       from endpoint
       cross join lateral (
         select queued_at
         from delivery
         where delivery.endpoint_id = endpoint.id and delivery.status = 'waiting'
         order by queued_at
         limit 1
       ) as waiting
       where endpoint.deleted_at is null
         and endpoint.disabled_at is null
         and coalesce(endpoint.paused_until <= now(), true)`,
    ),
  );
  const unplaced = first(
    await tx.query<{ events: number; audit: number }>(
      `select ${countUnplaced('event')} as events, ${countUnplaced('audit')} as audit`,
    ),
  );
  // By the index of probes, which has only refused clients. An integration counts only if it has a connection that a probe
  // may use (`connections/refresh/keepalive.ts`): otherwise no call can show that the client works again.
  const refused = await tx.query<{ provider: string; count: number }>(
    `select provider, count(*) as count
     from integration
     where probe_at is not null
       and fault is not null
       and not is_test
       and exists (
         select from connection
         where connection.integration_id = integration.id
           and connection.deleted_at is null
           and status = 'active'
           and access_expires_at is not null
           and not has_own_client
       )
     group by provider`,
  );
  return [
    metrics.runsWaiting.reads([['due'], runs?.due ?? 0], [['later'], runs?.later ?? 0]),
    metrics.runsOldestDue.reads([[], runs?.oldest ?? 0]),
    metrics.deliveriesOldest.reads([[], deliveries?.oldest ?? 0]),
    metrics.eventsUnplaced.reads([[], unplaced?.events ?? 0]),
    metrics.auditUnplaced.reads([[], unplaced?.audit ?? 0]),
    metrics.integrationsRefused.reads(
      ...refused.map(({ provider, count }): [[string], number] => [[provider], count]),
    ),
  ];
}

/** By indexes alone, and of the connections that are active and not healthy a bounded number. */
async function readConnections(tx: Tx): Promise<Reading[]> {
  const rows = await tx.query<{ status: string; count: number }>(
    `select status, count(*) as count
     from connection
     where deleted_at is null
     group by status`,
  );
  const counts = new Map([
    ...statuses.map((status) => [status, 0] as const),
    ...rows.map(({ status, count }) => [status, count] as const),
  ]);
  const states = new Map<string, number>([...connectionStates, 'other'].map((state) => [state, 0]));
  states.set('blocked', counts.get('blocked') ?? 0);
  states.set('reconnect_needed', counts.get('needs_reauth') ?? 0);
  let healthy = counts.get('active') ?? 0;
  for (const { state, count } of await tx.run({ compile: selectStateCounts })) {
    states.set(state, (states.get(state) ?? 0) + count);
    healthy -= count;
  }
  states.set('healthy', Math.max(0, healthy));
  return [
    metrics.connections.reads(...samplesOf(counts)),
    metrics.connectionStates.reads(...samplesOf(states)),
  ];
}

const samplesOf = (counts: Map<string, number>) =>
  Array.from(counts, ([label, count]): [[string], number] => [[label], count]);

/** Statuses without connections are reported too, so that an alert on them has a beginning. */
const statuses = ['active', 'needs_reauth', 'blocked'];

/** The processes of this machine behind the same port. */
export type Siblings = {
  /** The metrics of all of them, with those of this one. */
  collect(): Promise<ProcessMetrics[]>;
  /** To be called once, with the function that reads this process's metrics. */
  report(read: ReadProcessMetrics): void;
};

/** Adds the route; nothing is read before a request. */
export function addMetricsRoute(
  app: App,
  { config, db }: Pick<Parts, 'config' | 'db'>,
  { runner, runtime, siblings }: Pick<Functions, 'runner' | 'runtime'> & { siblings: Siblings | undefined },
): void {
  const readDatabase = createDatabaseReader(db);

  function readNode(): Reading[] {
    const { total, idle, waiting } = db.load();
    const processes = runtime.counts();
    return [
      metrics.buildInfo.reads([[version, process.versions.node], 1]),
      metrics.proxyInFlight.reads([[], callsInFlight.value]),
      metrics.dbConnections.reads([['used'], total - idle], [['idle'], idle]),
      metrics.dbWaiting.reads([[], waiting]),
      metrics.runsRunning.reads([[], runner.running()]),
      metrics.functionProcesses.reads(
        [['running'], processes.running],
        [['idle'], processes.processes - processes.running],
        [['waiting'], processes.waiting],
      ),
    ];
  }

  const readOwn = createProcessMetrics(readNode);
  siblings?.report(readOwn);
  const collect = siblings?.collect ?? (async () => [{ families: await readOwn() }]);
  const read = async () => {
    const [installation, processes] = await Promise.all([readDatabase(), collect()]);
    return writeMetrics(processes, installation);
  };
  metricsRoute(app, { token: config.metricsToken, baseUrl: config.baseUrl, read });
}
