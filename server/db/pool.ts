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
import { outside } from '../tracing/cause.ts';
import { type CopyRows, copyInto, copyRows } from './copy.ts';
import { type Pipeline, runPipeline } from './pipeline.ts';
import { endSilentOnes } from './silence.ts';
import type { DB } from './tables.ts';

/**
 * The one way to the database.
 *
 * Owns: the pool, transactions, how values come back. Every statement is unnamed and no session state is set,
 * so that a connection pooler in transaction mode may stand in between. Does not own: any table.
 */
export type DbTarget = { url: string } | { host: string; port: number; user: string; database: string };

/** Something that runs statements: the pool, or one transaction. */
export interface Queryable {
  /** SQL text with $1, $2, ...; the rows. int8 comes back as a number, timestamps as Date, bytea as Buffer. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>;
  /** A query built from `tables`; the rows. */
  run<R>(built: { compile(): CompiledQuery<R> }): Promise<R[]>;
}

/** Statements of one transaction. */
export type Tx = Queryable & {
  readonly isTransaction: true;
  /** Hands over rows as bytes, without parameters: see `copyRows`. */
  copyRows(query: string, onRow: (fields: (Buffer | undefined)[]) => void): Promise<void>;
  /** Inserts rows faster than a statement does; `into` is `table (columns)`. */
  copyInto(into: string, rows: CopyRows): Promise<void>;
};

export interface Db extends Queryable {
  /**
   * Commits when `work` resolves, rolls back when it throws. After `unavailable` it may have been committed all the
   * same, where the server went away before it could say so.
   */
  transaction<T>(work: (tx: Tx) => Promise<T>, mode?: 'read committed' | 'snapshot'): Promise<T>;
  /**
   * As `transaction`, and given up after `ms`, also where the server says nothing at all: throws `unavailable`, and the
   * connection is closed. `connectMs` of it (all, unless given) are for a connection and the answer to `begin`: a pooler
   * in between takes logins while the server behind it is away. A fresh connection is in place of those of the pool,
   * which may all lead nowhere after a failover.
   */
  transactionWithin<T>(work: (tx: Tx) => Promise<T>, limit: Limit): Promise<T>;
  /** Reads what one moment holds, in one exchange with the server: see `runPipeline`. */
  pipeline(pipeline: Pipeline): Promise<void>;
  /** Connections in use, idle and awaited. */
  load(): { total: number; idle: number; waiting: number };
  end(): Promise<void>;
}

/** Builds queries on the ordinary tables; executed by `run`. */
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

/** Tells how long is waited for a connection, of statements and transactions alike: both come by `connect`. */
class TimedPool extends pg.Pool {
  override connect(): Promise<pg.PoolClient>;
  override connect(callback: Connected): void;
  override connect(callback?: Connected): Promise<pg.PoolClient> | undefined {
    const since = performance.now();
    if (callback === undefined) return super.connect().finally(() => noteWait(since));
    super.connect((...connected) => {
      noteWait(since);
      callback(...connected);
    });
    return undefined;
  }
}

type Limit = { ms: number; connectMs?: number; connection: 'pooled' | 'fresh' };

/** Fresh connections at once, beside those of the pool, and how long one may take to come about. */
const maxFresh = 4;
const freshWithinMs = 2_000;
/** Whether a silent server works; also one that is slow to take logins says so. */
const askedWithinMs = 5_000;

/** Who has taken a statement and is gone before its answer is found out by the kernel half a minute later. */
const keepAliveMs = 30_000;

const connectionWait = metrics.dbConnectionWait.of([]);

function noteWait(since: number): void {
  connectionWait.observe((performance.now() - since) / 1000);
}

/** Opens a pool; no connection is made before the first statement. */
export function openDb(
  target: DbTarget,
  options: {
    maxConnections?: number;
    onIdleError?: (error: Error) => void;
    /** A connection on which a rollback is not answered by then is given up. */
    rollbackWithinMs?: number;
    /**
     * If nothing has come or gone on a lent connection for this long, the server counts as working only if it confirms that
     * on another connection: else the connection is given up, and its waiting query is `unavailable`. If no answer is
     * possible, behind a pooler or at a server without a free connection, the query may wait five times as long. If the
     * server was not reached, the query waits until the server is asked once more.
     */
    silentMs?: number;
  } = {},
): Db {
  const way = {
    ...('url' in target ? { connectionString: target.url } : target),
    types: parsers,
    keepAlive: true,
    keepAliveInitialDelayMillis: keepAliveMs,
  };
  const pool = new TimedPool({
    ...way,
    max: options.maxConnections ?? 16,
    // Each idle one costs 4 to 8 MB at the server. What a node does by itself needs three.
    idleTimeoutMillis: 5_000,
    connectionTimeoutMillis: 10_000,
  });
  const fresh = new TimedPool({
    ...way,
    max: maxFresh,
    maxUses: 1,
    connectionTimeoutMillis: freshWithinMs,
  });
  const asking = new pg.Pool({ ...way, max: 1, maxUses: 1, connectionTimeoutMillis: askedWithinMs });
  const { silentMs } = options;
  if (silentMs !== undefined) {
    const lend = { connect: () => asking.connect(), rollbackWithinMs: askedWithinMs };
    endSilentOnes(pool, { silentMs, withinMs: askedWithinMs, lend: (work) => withClient(lend, work) });
  }
  const lending = { connect: () => pool.connect(), rollbackWithinMs: options.rollbackWithinMs ?? 10_000 };
  // An idle connection that the server closes is replaced at the next use.
  // Its socket may have been opened for a request that is over for long.
  for (const one of [pool, fresh, asking])
    one.on('error', (error) => outside(() => options.onIdleError?.(error)));

  return {
    ...queryableOf(pool),
    transaction: (work, mode = 'read committed') =>
      withClient(lending, (client) => {
        const begin = mode === 'snapshot' ? 'begin isolation level repeatable read read only' : 'begin';
        return transact(client, { begin, work });
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
        const begun = (tx: Tx) => {
          endAfter(client, ms);
          return work(tx);
        };
        return transact(client, { begin, work: begun });
      }).finally(() => clearTimeout(timer));
    },
    pipeline: (pipeline) =>
      withClient(lending, (client) => runPipeline(client, pipeline).catch(throwReadable)),
    load: () => ({ total: pool.totalCount, idle: pool.idleCount, waiting: pool.waitingCount }),
    async end() {
      await Promise.all([pool.end(), fresh.end()]);
      // Until then somebody may still wait for a server of which is asked whether it works.
      await asking.end();
    },
  };
}

async function transact<T>(
  client: pg.PoolClient,
  { begin, work }: { begin: string; work: (tx: Tx) => Promise<T> },
): Promise<T> {
  await client.query(begin).catch(throwReadable);
  const result = await work({
    ...queryableOf(client),
    isTransaction: true,
    copyRows: (query, onRow) => copyRows(client, query, onRow).catch(throwReadable),
    copyInto: (into, rows) => copyInto(client, into, rows).catch(throwReadable),
  });
  await client.query('commit').catch(throwReadable);
  return result;
}

/** A connection that comes too late goes back to the pool. */
async function connectWithin(pool: pg.Pool, ms: number): Promise<pg.PoolClient> {
  const over = new AbortController();
  const connecting = pool.connect();
  const tooLate = pause(ms, undefined, { signal: over.signal }).then(() => {
    connecting.then((client) => client.release()).catch(() => {});
    throw away();
  });
  return Promise.race([connecting, tooLate]).finally(() => over.abort());
}

/** Lends a connection to `work`; what it has begun is rolled back where it throws. */
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
    // Also behind a statement that has no answer. The server rolls back by itself where the connection is gone.
    const rollback = { text: 'rollback', query_timeout: rollbackWithinMs };
    await client.query(rollback).catch(noteLoss);
    throw error;
  } finally {
    client.off('error', noteLoss);
    client.release(broken);
  }
}

function queryableOf(runner: pg.Pool | pg.PoolClient): Queryable {
  return {
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
/** node-postgres has no code for these. A pool that was ended is none of them: it does not come back. */
const unreachableMessage =
  /^(Connection terminated|[Tt]imeout e|Client (has encountered a connection error|was closed)|Query read timeout|The server does not support SSL|There was an error establishing an SSL|Received unexpected)/;

/** A NUL in a text (22021), or a NUL or a lone surrogate in JSON (22P05, 22P02). */
const unstorable = /^(22021|22P05)$/;

/** A database that is away, or a text it cannot hold, is told as such; every other failure as it is. */
function throwReadable(error: Error & { code?: unknown }): never {
  const isText =
    unstorable.test(String(error.code)) || (error.code === '22P02' && /type json/.test(error.message));
  if (isText) throw new AppError('invalid_body', 'A text holds a NUL or a lone surrogate.', { cause: error });
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
  if (error instanceof pg.DatabaseError) return unreachable.test(code);
  return systemCode.test(code) || unreachableMessage.test(error.message);
}

/** Classes of errors that the statement is to blame for: data (22), constraints (23), syntax and rights (42). */
const lasting = /^(22|23|42)/;

/**
 * Whether the same work may succeed later: all that says something of the server's state (away, disk full, deadlock)
 * and nothing of the work.
 */
export function mayPass(error: unknown): boolean {
  if (error instanceof AppError) return error.code === 'unavailable';
  return error instanceof pg.DatabaseError && !lasting.test(error.code ?? '');
}

/** The only row, or undefined when there is none. */
export function first<R>(rows: R[]): R | undefined {
  return rows[0];
}

/** Whether a statement failed on the named unique or foreign key constraint. */
export function isViolationOf(error: unknown, constraint: string): boolean {
  return error instanceof pg.DatabaseError && error.constraint === constraint;
}

/**
 * Runs `work` again, once, where it lost the race for a unique value: the second time it finds what the winner
 * wrote.
 */
export async function retryOnViolation<T>(constraint: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isViolationOf(error, constraint)) throw error;
    return work();
  }
}
