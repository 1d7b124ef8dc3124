import { PgBoss } from 'pg-boss';
import { type Db, first, type Queryable } from '../db/pool.ts';
import { metrics } from '../metrics/metrics.ts';
import { within } from '../tracing/cause.ts';
import { spanned } from '../tracing/tracing.ts';

/**
 * Work that runs in the background, on any free node.
 *
 * Owns: the queues, which stand in a schema of their own (`pgboss`), and how often they are polled. Does not own: the
 * work of a job. It depends on no module with jobs: each module brings its jobs, and `main.ts` registers them.
 */

/** What a job holds: ids that say what to work on. Never a payload, never a secret: the queue is in plain text. */
type JobIds = Readonly<Record<string, number | string>>;

export type Job<Ids extends JobIds> = {
  /** `records.retention`: the module, then the work. Also the name of its queue. */
  name: string;
  /**
   * Does the work. Ends soon after `signal` says so, and leaves the rest to the next job: it is told when the service
   * stops and when the job has had its time. May run again after it ended half-way: nodes die.
   */
  run: (ids: Ids, signal: AbortSignal) => Promise<unknown>;
};

type Jobs = {
  /** From now on this node works on the job, one at a time; nowhere do two of a name run at once. */
  work<Ids extends JobIds>(job: Job<Ids>): Promise<void>;
  /** Queues a job every time the cron expression (UTC, to the minute) comes up; once, however many nodes say so. */
  schedule(name: string, cron: string): Promise<void>;
  /**
   * Queues a job, in the transaction of its cause where `tx` is given. One that waits already
   * stands for it too; one that runs does not.
   */
  send<Ids extends JobIds>(name: string, ids: Ids, tx?: Queryable): Promise<void>;
  /** Tells running jobs to end, waits for them for at most `stopMs`, and looks at no queue any more. */
  stop(): Promise<void>;
};

/** In seconds. With the ordinary one a killed node's job is given up within 45 s, and the next one of its name starts. */
type Rhythm = {
  /** How often an idle node looks into each queue. What somebody waits for must not go through a queue. */
  pollS: number;
  /** A job whose node gave no sign of life for so long is lost, and another may start; at least 10. */
  heartbeatS: number;
  /** How often the nodes look for lost jobs. */
  superviseS: number;
};
const ordinary: Rhythm = { pollS: 5, heartbeatS: 30, superviseS: 15 };
/** How long a job may take, and how long it is remembered. */
const longestS = 900;
const rememberedS = 3600;

/** How long `stop` waits for jobs that do not listen. */
const stopMs = 800;
const schema = 'pgboss';

/**
 * Makes the queues' schema where there is none (about 50 ms; 5 ms later on) and begins to look after schedules.
 * `onError` is told of the first failure in a row. Throws where the schema is missing and may not be made.
 */
export async function startJobs(
  db: Db,
  { onError, rhythm = ordinary }: { onError: (error: unknown) => void; rhythm?: Rhythm },
): Promise<Jobs> {
  const { pollS, heartbeatS, superviseS } = rhythm;
  let isFailing = false;
  const report = (error: unknown) => {
    if (!isFailing) onError(error);
    isFailing = true;
  };
  const boss = new PgBoss({
    db: adapterOf(db, () => {
      isFailing = false;
    }),
    schema,
    createSchema: await isSchemaMissing(db),
    cronWorkerIntervalSeconds: pollS,
    superviseIntervalSeconds: superviseS,
    monitorIntervalSeconds: superviseS,
    // No job waits for another one here.
    flowIntervalSeconds: 3600,
  });
  boss.on('error', report);
  await boss.start();
  const stopping = new AbortController();
  const workers = new Map<string, string>();

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
        { pollingIntervalSeconds: pollS, batchSize: 1 },
        async (jobs) => {
          for (const job of jobs) {
            const signal = AbortSignal.any([stopping.signal, job.signal]);
            await within({ job: name }, () => measured(name, () => run(job.data, signal))).catch(
              (error: unknown) => {
                within({ job: name }, () => onError(new Error(`the job ${name} failed`, { cause: error })));
                throw new Error('failed; the log says why');
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
      const worker = workers.get(name);
      // What stands in an open transaction is found by the next look into the queue.
      if (tx === undefined && worker !== undefined) boss.notifyWorker(worker);
    },
    async stop() {
      stopping.abort();
      await atMost(
        stopMs,
        Promise.all([...workers.keys()].map((name) => boss.offWork(name, { wait: true }))),
      );
      await atMost(stopMs / 4, boss.stop({ graceful: false, close: false }));
    },
  };
}

/** Counts a job, by its end, and stands for it in traces. */
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

/** Resolves with the promise, or without it when that takes longer. */
async function atMost(timeoutMs: number, promise: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const timeout = new Promise((resolve) => {
    timer = setTimeout(resolve, timeoutMs);
  });
  await Promise.race([promise, timeout]).finally(() => clearTimeout(timer));
}

/** The database in the form that pg-boss needs: a text of several statements returns the rows of all of them. */
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
 * Whether the queues' schema is still to be made: an earlier start or the operator may have done it. Throws where the
 * role may neither make it nor use it, and says what its owner has to run.
 */
export async function isSchemaMissing(db: Queryable): Promise<boolean> {
  const found = first(
    await db.query<{ exists: boolean; permitted: boolean; role: string; database: string }>(
      `select
         to_regnamespace($1) is not null as exists,
         case
           when to_regnamespace($1) is null then has_database_privilege(current_database(), 'create')
           else has_schema_privilege($1, 'create')
         end as permitted,
         current_user as role,
         current_database() as database`,
      [schema],
    ),
  );
  if (found?.permitted === false) {
    throw new Error(
      `The role "${found.role}" may not ${found.exists ? `create tables in the schema "${schema}"` : 'create schemas'} ` +
        `in the database "${found.database}", where background jobs are queued. As its owner run once: ` +
        `create schema if not exists ${schema}; grant all on schema ${schema} to "${found.role}";`,
    );
  }
  return found?.exists !== true;
}
