/**
 * Background jobs, which run on any free node.
 *
 * Owns: the queues, in the schema `pgboss`, and how often they are polled. Does not own: the work of a job. Each module defines
 * its jobs, and `main.ts` registers them.
 */
import { PgBoss } from 'pg-boss';
import { atMost, firstFailures, repeatEvery } from '../concurrency.ts';
import type { Db, Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';
import { spanned, within } from '../tracing/tracing.ts';

/** The data of a job: IDs only, no payload and no secret, because the queue is plain text. */
type JobIds = Readonly<Record<string, number | string>>;

export type Job<Ids extends JobIds> = {
  /** The module, then the work: `records.retention`. Also the name of its queue. */
  name: string;
  /**
   * Does the work. `signal` aborts when the service stops and when the time of the job is over: then the job must end soon, and
   * the next one continues. A job may run again after it was interrupted by the loss of its node.
   */
  run: (ids: Ids, signal: AbortSignal) => Promise<unknown>;
};

/**
 * Does `work` for one item after the other until `signal` aborts. An item that fails is logged and does not stop the others;
 * the caller must order the items so that it does not come first again. Throws if the database is unavailable.
 */
export async function eachInTurn<T extends { id: number }>(
  items: readonly T[],
  given: { job: string; log: Pick<Logger, 'warn'>; signal: AbortSignal; work: (item: T) => Promise<unknown> },
): Promise<void> {
  const { job, log, signal, work } = given;
  for (const item of items) {
    if (signal.aborted) return;
    try {
      await work(item);
    } catch (error) {
      if (error instanceof AppError && error.code === 'unavailable') throw error;
      log.warn({ err: error, job, id: item.id }, 'an item of a job failed');
    }
  }
}

type Jobs = {
  /** This node works on the job from now on. Only one job of a name runs at a time, on all nodes together. */
  work<Ids extends JobIds>(job: Job<Ids>): Promise<void>;
  /** Queues a job at the times of a cron expression (UTC, in minutes): once, however many nodes call this. */
  schedule(name: string, cron: string): Promise<void>;
  /**
   * Queues a job, in the transaction `tx` if given. It adds nothing if a job of the name waits already, but a running job does
   * not count.
   */
  send<Ids extends JobIds>(name: string, ids: Ids, tx?: Queryable): Promise<void>;
  /** Aborts running jobs, waits for them at most `stopMs`, and stops polling. */
  stop(): Promise<void>;
};

/** In seconds. By default the job of a killed node is lost within 45 s, and the next one of its name starts. */
type Rhythm = {
  /** How often an idle node looks for jobs. Work that a caller waits for must not use a queue. */
  pollS: number;
  /** A job without a heartbeat for this long is lost, and another may start; at least 10. */
  heartbeatS: number;
  /** How often the nodes look for lost jobs. */
  superviseS: number;
};
const ordinary: Rhythm = { pollS: 5, heartbeatS: 30, superviseS: 15 };
/** The time limit of a job, and the time that its row is kept. */
const longestS = 900;
const rememberedS = 3600;

/** How long `stop` waits for jobs that ignore their signal. */
const stopMs = 800;
const schema = 'pgboss';

/** One statement looks into all queues. A poll of pg-boss costs as much for a single queue. */
const queuedSql = `select distinct name from ${schema}.job where state < 'active' and not blocked`;
/** How often pg-boss polls a queue itself, in seconds. */
const longestPollS = 60;

/**
 * Creates the schema of the queues if it is missing (some 50 ms; otherwise 5 ms), and starts the schedules. `onError` gets the
 * first failure in a row. Throws if the schema is missing and the role may not create it.
 */
export async function startJobs(
  db: Db,
  { onError, rhythm = ordinary }: { onError: (error: unknown) => void; rhythm?: Rhythm },
): Promise<Jobs> {
  const { pollS, heartbeatS, superviseS } = rhythm;
  const { failed, succeeded } = firstFailures(onError);
  const boss = new PgBoss({
    db: adapterOf(db, succeeded),
    schema,
    createSchema: await isSchemaMissing(db),
    cronWorkerIntervalSeconds: pollS,
    superviseIntervalSeconds: superviseS,
    monitorIntervalSeconds: superviseS,
    // No job depends on another one.
    flowIntervalSeconds: 3600,
  });
  boss.on('error', failed);
  await boss.start();
  const stopping = new AbortController();
  const workers = new Map<string, string>();
  const looking = repeatEvery(
    pollS * 1000,
    async () => {
      for (const { name } of await db.query<{ name: string }>(queuedSql)) notify(name);
    },
    { onError },
  );

  function notify(name: string): void {
    const worker = workers.get(name);
    if (worker !== undefined) boss.notifyWorker(worker);
  }

  return {
    async work<Ids extends JobIds>({ name, run }: Job<Ids>) {
      await boss.createQueue(name, {
        policy: 'stately',
        retryLimit: 0,
        expireInSeconds: longestS,
        heartbeatSeconds: heartbeatS,
        deleteAfterSeconds: rememberedS,
      });
      const worker = await boss.work<Ids>(
        name,
        { pollingIntervalSeconds: longestPollS, batchSize: 1 },
        async (jobs) => {
          for (const job of jobs) {
            const signal = AbortSignal.any([stopping.signal, job.signal]);
            await within({ job: name }, () => measured(name, () => run(job.data, signal))).catch(
              (error: unknown) => {
                within({ job: name }, () => onError(new Error(`the job ${name} failed`, { cause: error })));
                throw new Error('failed; see the log for the cause');
              },
            );
          }
        },
      );
      workers.set(name, worker);
    },
    async schedule(name, cron) {
      await boss.schedule(name, cron, {});
    },
    async send(name, ids, tx) {
      await boss.send(name, ids, tx === undefined ? {} : { db: adapterOf(tx) });
      // The next look finds a job that an open transaction queued.
      if (tx === undefined) notify(name);
    },
    async stop() {
      stopping.abort();
      await atMost(stopMs / 4, looking.stop());
      await atMost(
        stopMs,
        Promise.all([...workers.keys()].map((name) => boss.offWork(name, { wait: true }))),
      );
      await atMost(stopMs / 4, boss.stop({ graceful: false, close: false }));
    },
  };
}

/** Counts a job by its outcome, in a span of its own. */
async function measured(job: string, run: () => Promise<unknown>): Promise<void> {
  const startedAt = performance.now();
  let outcome = 'failed';
  try {
    await spanned(`job ${job}`, { kind: 'internal', attributes: { 'trellis.job': job } }, run);
    outcome = 'done';
  } finally {
    metrics.jobs.add([job, outcome]);
    metrics.jobDuration.observe([job], (performance.now() - startedAt) / 1000);
  }
}

/** The interface for pg-boss: a text of several statements returns the rows of all. */
function adapterOf(q: Queryable, onSuccess: () => void = () => {}) {
  return {
    async executeSql(text: string, values: unknown[] = []) {
      const rows = await q.query(text, values);
      onSuccess();
      return { rows };
    },
  };
}

/**
 * Whether the schema of the queues must be created: an earlier start or the operator may have created it. Throws if the role
 * may neither create nor use it; the message has the statement for its owner.
 */
export async function isSchemaMissing(db: Queryable): Promise<boolean> {
  const [found] = await db.query<{ exists: boolean; permitted: boolean; role: string; database: string }>(
    `select
       to_regnamespace($1) is not null as exists,
       case
         when to_regnamespace($1) is null then has_database_privilege(current_database(), 'create')
         else has_schema_privilege($1, 'create')
       end as permitted,
       current_user as role,
       current_database() as database`,
    [schema],
  );
  if (found?.permitted === false) {
    throw new Error(
      `The role "${found.role}" may not ${found.exists ? `create tables in the schema "${schema}"` : 'create schemas'} ` +
        `in the database "${found.database}", which stores the queues of background jobs. Run once as the owner of the database: ` +
        `create schema if not exists ${schema}; grant all on schema ${schema} to "${found.role}";`,
    );
  }
  return found?.exists !== true;
}
