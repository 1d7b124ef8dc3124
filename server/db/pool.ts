/**
 * All access to the database.
 *
 * Owns: the pool, transactions, the types of values. Every statement is unnamed and no session state is set, so a connection
 * pooler in transaction mode works. Does not own: any table.
 */
import { setTimeout as pause } from 'node:timers/promises';
import {
  type CompiledQuery,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import pg from 'pg';
import { AppError } from '../errors.ts';
import { metrics } from '../metrics/metrics.ts';
import { outside } from '../tracing/tracing.ts';
import { type CopyRows, copyInto, copyReader, copyRows, runText } from './copy.ts';
import { endSilentOnes } from './silence.ts';
import type { DB } from './tables.ts';

export type DbTarget = { url: string } | { host: string; port: number; user: string; database: string };

/** Runs statements: the pool, or one transaction. */
export interface Queryable {
  /** The same object for the pool and all its transactions: caches of a database are keyed by it. */
  readonly database: object;
  /** SQL text with $1, $2, ...; returns the rows: int8 as a number, timestamps as Date, bytea as Buffer. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>;
  /** Runs a query that was built from `tables`; returns the rows. */
  run<R>(built: { compile(): CompiledQuery<R> }): Promise<R[]>;
}

/** Statements of one transaction. */
export type Tx = Queryable & {
  readonly isTransaction: true;
  /** Whether this is a worker of a cluster, which has the tables of datasets alone. */
  readonly isOnWorker: boolean;
  /** Reads rows as bytes, without parameters: see `copyRows`. */
  copyRows(query: string, onRow: (fields: (Buffer | undefined)[]) => void): Promise<void>;
  /** Inserts rows faster than a statement does; `into` is `table (columns)`. */
  copyInto(into: string, rows: CopyRows): Promise<void>;
  /**
   * Runs statements without parameters right before the commit, in the order of the calls. They are sent with it, which
   * saves a small write a tenth of its time. If one fails, the transaction does.
   */
  runWithCommit(statement: string): void;
};

/** Statements that are sent together and whose responses arrive together. */
type Pipeline = {
  /**
   * Queries, and at most one COPY, which `copied` makes from a query. Without parameters: only numbers may be written into
   * them.
   */
  statements: readonly string[];
  /** A row of the statement with this index, its values as PostgreSQL writes them. */
  onRow(statement: number, values: readonly (string | null)[]): void;
  /** A row of the COPY, as for `copyRows`. */
  onCopied(fields: (Buffer | undefined)[]): void;
};

export interface Db extends Queryable {
  /**
   * Commits when `work` resolves, rolls back when it throws. After `unavailable` the transaction may be committed: the
   * connection can break before the server's response arrives.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>, mode?: 'read committed' | 'snapshot'): Promise<T>;
  /**
   * As `transaction`, with a time limit of `ms`, also if the server sends nothing at all: then it throws `unavailable` and
   * closes the connection. The connection and the response to `begin` may take `connectMs` (by default `ms`): a pooler
   * accepts logins while its server is away. A fresh connection replaces those of the pool, which may all be dead after a
   * failover.
   */
  transactionWithin<T>(work: (tx: Tx) => Promise<T>, limit: Limit): Promise<T>;
  /** Reads one snapshot in one exchange with the server: see `runPipeline`. */
  pipeline(pipeline: Pipeline): Promise<void>;
  /** The machine that has the records of a dataset, if nodes connect to the workers of a cluster: see `recordsDb`. */
  readonly records?: ((datasetId: number) => Db) | undefined;
  /** The numbers of all connections, of idle ones, and of callers that wait for one. */
  load(): { total: number; idle: number; waiting: number };
  end(): Promise<void>;
}

/**
 * Where the records of a dataset are read and written: `db`, or with direct connections to a cluster the worker that has them
 * (`workers.ts`). A transaction of it must have the tables of that dataset and the outbox alone.
 */
export function recordsDb(db: Db, datasetId: number): Db {
  return db.records?.(datasetId) ?? db;
}

/** Builds queries, which `run` executes. */
export const tables = new Kysely<DB>({
  dialect: {
    createAdapter: () => new PostgresAdapter(),
    createDriver: () => new DummyDriver(),
    createIntrospector: (db) => new PostgresIntrospector(db),
    createQueryCompiler: () => new PostgresQueryCompiler(),
  },
});

const parsers = new pg.TypeOverrides();
parsers.setTypeParser(pg.types.builtins.INT8, readSafeInteger);

function readSafeInteger(text: string): number {
  const value = Number(text);
  if (!Number.isSafeInteger(value)) throw new RangeError(`int8 ${text} is beyond 2^53`);
  return value;
}

type Connected = Parameters<pg.Pool['connect']>[0];

/** Measures the wait for a connection, of statements and transactions: both call `connect`. */
class TimedPool extends pg.Pool {
  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.PoolClient> | undefined {
    const since = performance.now();
    if (callback === undefined) return super.connect().finally(() => recordWait(since));
    super.connect((...connected) => {
      recordWait(since);
      callback(...connected);
    });
    return undefined;
  }
}

type Limit = { ms: number; connectMs?: number; connection: 'pooled' | 'fresh' };

const poolSize = 16;
/** The number of simultaneous fresh connections, and the time limit for opening one. */
const maxFresh = 4;
const freshWithinMs = 2_000;
/** The largest number of connections of a node: one more reads what silent connections do. */
export const maxNodeConnections = poolSize + maxFresh + 1;
/** The time limit for the query about silent connections; a server that is slow to accept logins responds too. */
const probeWithinMs = 5_000;

/** The kernel detects a server that is lost during a statement half a minute later. */
const keepAliveMs = 30_000;

const connectionWait = metrics.dbConnectionWait.of([]);

function recordWait(since: number): void {
  connectionWait.observe((performance.now() - since) / 1000);
}

type DbOptions = {
  maxConnections?: number;
  onIdleError?: (error: Error) => void;
  /** A connection is closed if a rollback has no response within this time. */
  rollbackWithinMs?: number;
  /**
   * If a lent connection sends and receives nothing for this long, the server must confirm on another connection that it
   * works on the query. Otherwise the connection is closed, and its query fails with `unavailable`. If it cannot
   * confirm that, behind a pooler or without a free connection, the query may wait five times as long. If the server is not
   * reached, the query waits until the second attempt.
   */
  silentMs?: number;
  /** The coordinator's, for the pool of a worker. */
  workerOf?: Queryable['database'];
};

/** Opens a pool, for `await using` or until `end`; no connection is made before the first statement. */
export function openDb(target: DbTarget, options: DbOptions = {}): Db & AsyncDisposable {
  const { pool, fresh, end } = openPools(target, options);
  const database = options.workerOf ?? pool;
  const isOnWorker = options.workerOf !== undefined;
  const lending = { connect: () => pool.connect(), rollbackWithinMs: options.rollbackWithinMs ?? 10_000 };
  return {
    ...queryableOf(pool, database),
    transaction: (work, mode = 'read committed') =>
      withClient(lending, (client) => {
        const begin = mode === 'snapshot' ? 'begin isolation level repeatable read read only' : 'begin';
        return transact(client, { begin, work, database, isOnWorker });
      }),
    transactionWithin(work, { ms, connectMs = ms, connection }) {
      const since = performance.now();
      let timer: NodeJS.Timeout | undefined;
      const endAfter = (client: pg.PoolClient, givenMs: number) => {
        clearTimeout(timer);
        timer = setTimeout(() => void client.end(), Math.max(since + givenMs - performance.now(), 0));
      };
      // The server releases its locks too.
      const limits = ['statement_timeout', 'idle_in_transaction_session_timeout'];
      const begin = ['begin', ...limits.map((limit) => `set local ${limit} = ${ms}`)].join('; ');
      const connect = () => connectWithin(connection === 'fresh' ? fresh : pool, connectMs);
      return withClient({ connect, rollbackWithinMs: ms }, (client) => {
        endAfter(client, connectMs);
        const begun = async (tx: Tx) => {
          await tx.query('select');
          endAfter(client, ms);
          return work(tx);
        };
        return transact(client, { begin, work: begun, database, isOnWorker });
      }).finally(() => clearTimeout(timer));
    },
    pipeline: (pipeline) =>
      withClient(lending, (client) => runPipeline(client, pipeline).catch(throwReadable)),
    load: () => ({ total: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
    end,
    [Symbol.asyncDispose]: end,
  };
}

/** The connections of `openDb`: pooled ones, fresh ones that are used once, and one that asks about silent ones. */
function openPools(target: DbTarget, { maxConnections = poolSize, onIdleError, silentMs }: DbOptions) {
  const settings = {
    ...('url' in target ? { connectionString: target.url } : target),
    types: parsers,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  };
  const pool = new TimedPool({
    ...settings,
    max: maxConnections,
    // Each idle one costs 4 to 8 MB at the server. The background work of a node needs three.
    idleTimeoutMillis: 5_000,
    connectionTimeoutMillis: 10_000,
  });
  const fresh = new TimedPool({
    ...settings,
    max: maxFresh,
    maxUses: 1,
    connectionTimeoutMillis: freshWithinMs,
  });
  const probing = new pg.Pool({ ...settings, max: 1, maxUses: 1, connectionTimeoutMillis: probeWithinMs });
  if (silentMs !== undefined) {
    const lend = { connect: () => probing.connect(), rollbackWithinMs: probeWithinMs };
    endSilentOnes(pool, { silentMs, withinMs: probeWithinMs, lend: (work) => withClient(lend, work) });
  }
  // The next use replaces an idle connection that the server has closed. The request for which its socket was opened may
  // have ended long ago, so the error has no cause.
  for (const one of [pool, fresh, probing]) {
    one.on('error', (error) => outside(() => onIdleError?.(error)));
    // A pool that lends a connection takes its listener away, and the borrower adds its own later. An error in between, in
    // the same packet as the response before it, would end the process; the next statement fails anyway.
    one.on('connect', (client) => client.on('error', () => {}));
  }
  return {
    pool,
    fresh,
    async end() {
      await Promise.all([pool.end(), fresh.end()]);
      // Until then, queries may wait for the result of this pool.
      await probing.end();
    },
  };
}

/** A first statement without parameters is sent together with `begin`: that saves a small write a tenth of its time. */
async function transact<T>(
  client: pg.PoolClient,
  {
    begin,
    work,
    database,
    isOnWorker,
  }: { begin: string; work: (tx: Tx) => Promise<T>; database: object; isOnWorker: boolean },
): Promise<T> {
  let beginning: Promise<unknown> | undefined;
  const begun = () => (beginning ??= client.query(begin).catch(throwReadable));
  const { query, run } = queryableOf(client, database);
  const last: string[] = [];
  const result = await work({
    database,
    isTransaction: true,
    isOnWorker,
    async query<R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> {
      if (beginning === undefined && values.length === 0) {
        const answered = query<R>(`${begin};\n${text}`);
        beginning = answered;
        return answered;
      }
      await begun();
      return query<R>(text, values);
    },
    run: async (built) => {
      await begun();
      return run(built);
    },
    copyRows: async (query, onRow) => {
      await begun();
      return copyRows(client, query, onRow).catch(throwReadable);
    },
    copyInto: async (into, rows) => {
      await begun();
      return copyInto(client, into, rows).catch(throwReadable);
    },
    runWithCommit: (statement) => last.push(statement),
  });
  if (last.length > 0) await begun();
  if (beginning === undefined) return result;
  const ended: pg.QueryResult | pg.QueryResult[] = await client
    .query([...last, 'commit'].join(';\n'))
    .catch(throwReadable);
  // A statement failed, and `work` ignored it: PostgreSQL answers `commit` with a rollback, and without an error.
  if ([ended].flat().at(-1)?.command !== 'COMMIT')
    throw new Error('the transaction is aborted: nothing is stored');
  return result;
}

/** A connection that is opened too late is returned to the pool. */
async function connectWithin(pool: pg.Pool, ms: number): Promise<pg.PoolClient> {
  const over = new AbortController();
  const connecting = pool.connect();
  const tooLate = pause(ms, undefined, { signal: over.signal }).then(() => {
    connecting.then((client) => client.release()).catch(() => {});
    throw away();
  });
  return Promise.race([connecting, tooLate]).finally(() => over.abort());
}

/** One read-only transaction with one snapshot, in one exchange with the server. Rejects with the error of a handler. */
function runPipeline(client: pg.ClientBase, { statements, onRow, onCopied }: Pipeline): Promise<void> {
  const text = ['begin isolation level repeatable read read only', ...statements, 'commit'].join(';\n');
  const copy = copyReader(onCopied);
  /** The statement whose response arrives: the first one is `begin`. */
  let statement = -1;
  return runText(client, text, {
    handleRowDescription() {},
    handleDataRow: ({ fields }) => onRow(statement, fields),
    handleCopyData: ({ chunk }) => copy(chunk),
    handleCommandComplete() {
      statement += 1;
    },
  });
}

/** Lends a connection to `work`; rolls back if it throws. */
async function withClient<T>(
  { connect, rollbackWithinMs }: { connect: () => Promise<pg.PoolClient>; rollbackWithinMs: number },
  work: (client: pg.PoolClient) => Promise<T>,
): Promise<T> {
  const client = await connect().catch(throwReadable);
  let broken: Error | undefined;
  // A server that goes away between two statements: the next one fails. Without a listener the process would end.
  const noteLoss = (error: Error) => {
    broken = error;
  };
  client.on('error', noteLoss);
  try {
    return await work(client);
  } catch (error) {
    // Also if a statement has no response yet. If the connection is lost, the server rolls back.
    const rollback = { text: 'rollback', query_timeout: rollbackWithinMs };
    await client.query(rollback).catch(noteLoss);
    throw error;
  } finally {
    client.off('error', noteLoss);
    client.release(broken);
  }
}

function queryableOf(runner: pg.Pool | pg.PoolClient, database: object): Queryable {
  return {
    database,
    async query<R extends object>(text: string, values: readonly unknown[] = []): Promise<R[]> {
      const result: pg.QueryResult<R> | pg.QueryResult<R>[] = await runner
        .query<R>({ text, values: [...values] })
        .catch(throwReadable);
      // node-postgres returns one result per statement when the text holds several.
      return Array.isArray(result) ? result.flatMap(({ rows }) => rows) : result.rows;
    },
    async run<R>(built: { compile(): CompiledQuery<R> }): Promise<R[]> {
      const { sql, parameters } = built.compile();
      const result = await runner.query({ text: sql, values: [...parameters] }).catch(throwReadable);
      return result.rows as R[];
    },
  };
}

/**
 * Codes of PostgreSQL (appendix A, classes 08 and 57P) for a server that cannot be reached; has no space on the disk
 * (53100), no memory (53200), no free connection (53300); or is read-only, as after a failover (25006).
 */
const unreachable = /^(08...|57P0[1-5]|53[123]00|25006)$/;
/** Any code of the system or of TLS (ENETUNREACH, EMFILE, CERT_HAS_EXPIRED); other `ERR_` codes blame the program. */
const systemCode = /^(?!ERR_(?!TLS_|SSL_|SOCKET_|STREAM_))[A-Z][A-Z0-9_]+$/;
/** Errors of node-postgres without a code. The error of an ended pool is not among them: the pool does not recover. */
const unreachableMessage =
  /^(Connection terminated|[Tt]imeout e|Client (has encountered a connection error|was closed)|Query read timeout|The server does not support SSL|There was an error establishing an SSL|Received unexpected)/;

/** Of Citus, about a worker whose connection broke: the text of libpq, without a code of its own (XX000). */
const lostWorker =
  /^(server closed the connection unexpectedly|connection (not open|to the remote node)|could not receive data from server|SSL (SYSCALL error|connection has been closed))/;

/** A NUL in a text (22021), or a NUL or a lone surrogate in JSON (22P05, 22P02). */
const unstorable = /^(22021|22P05)$/;

/** Converts an unreachable database and a text that it cannot store to AppError; other errors are thrown unchanged. */
function throwReadable(error: Error & { code?: unknown }): never {
  const isText =
    unstorable.test(String(error.code)) || (error.code === '22P02' && /type json/.test(error.message));
  if (isText)
    throw new AppError('invalid_body', 'A text contains a NUL or a lone surrogate.', { cause: error });
  throw isAway(error) ? away(error) : error;
}

function away(cause?: Error): AppError {
  return new AppError('unavailable', 'The database does not answer. Try again shortly.', {
    ...(cause && { cause }),
    retryAfterS: 5,
  });
}

function isAway(error: Error & { code?: unknown }): boolean {
  const code = String(error.code ?? '');
  if (error instanceof pg.DatabaseError)
    return unreachable.test(code) || (code === 'XX000' && lostWorker.test(error.message));
  return systemCode.test(code) || unreachableMessage.test(error.message);
}

/** Classes of errors that the statement causes: data (22), constraints (23), syntax and rights (42). */
const lasting = /^(22|23|42)/;

/**
 * Whether the same work may succeed later: for errors about the state of the server (unreachable, disk full, deadlock), not
 * about the work.
 */
export function mayPass(error: unknown): boolean {
  if (error instanceof AppError) return error.code === 'unavailable';
  return error instanceof pg.DatabaseError && !lasting.test(error.code ?? '');
}

/** The only row; undefined if there is none. */
export function first<R>(rows: R[]): R | undefined {
  return rows[0];
}

/** A row in which a column without a value is undefined. */
export type WithoutNulls<Row> = {
  [Name in keyof Row]: null extends Row[Name] ? Exclude<Row[Name], null> | undefined : Row[Name];
};

/** The row with undefined in place of null. */
export function withoutNulls<Row extends object>(row: Row): WithoutNulls<Row> {
  const known = { ...row } as Record<string, unknown>;
  for (const name in known) known[name] ??= undefined;
  return known as WithoutNulls<Row>;
}

/** Whether a statement failed on the named unique or foreign key constraint. */
export function isViolationOf(error: unknown, constraint: string): boolean {
  return error instanceof pg.DatabaseError && error.constraint === constraint;
}

/** Runs `work` once more if it lost the race for a unique value: the second run finds the row of the winner. */
export async function retryOnViolation<T>(constraint: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isViolationOf(error, constraint)) throw error;
    return work();
  }
}
