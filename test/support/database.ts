// Databases for tests: each a copy of a template that is migrated once a run.
//
// `node --test --test-global-setup=test/support/global-setup.ts` starts one server for all test files; a file
// run without it starts one of its own at its first database. With TEST_DATABASE_URL that server is used; where
// it is a pooler, TEST_DATABASE_ADMIN_URL leads past it, since a database cannot be copied while the pooler
// keeps a connection to it.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import pg from 'pg';
import { type Db, type DbTarget, openDb } from '../../server/db/pool.ts';
import { withWorkers } from '../../server/db/workers.ts';
import { createCluster, isCluster, isDirect } from './citus.ts';
import { listInvalidEvents } from './event-check.ts';
import { takePortabilityFaults, watchPortability } from './portable-statements.ts';

/** The server of a test run, as handed from the global setup to each test file. */
export interface TestServer {
  /** Where databases are made and dropped. */
  admin: DbTarget;
  /** Where tests connect. */
  tests: DbTarget;
  /** Workers of the Citus cluster whose coordinator is `admin`, as TEST_CITUS_WORKERS names them. */
  workers: DbTarget[];
  /** A migrated database that nobody is connected to. */
  template: string;
}

export interface TestDatabase {
  db: Db;
  /** For a second pool on the same database. */
  target: DbTarget;
  /** Another database with the current content of this one. Disconnects all clients of this one. */
  copy(): Promise<TestDatabase>;
  /**
   * Ends `db` and removes the database, even if other clients are connected. Fails if an event that was raised there has
   * fields that its type does not name, and if this process has sent a statement that `portable-statements.ts` refuses.
   */
  drop(): Promise<void>;
}

// A benchmark is not slowed down by what only tests look at.
if (process.env.NODE_TEST_CONTEXT !== undefined) watchPortability();

/** Set in the environment of every test file by the global setup. */
const handedOver = 'TRELLIS_TEST_SERVER';

let found: Promise<TestServer> | undefined;

/** A database of its own with the newest schema and no rows but those the migrations make. */
export async function openTestDatabase(): Promise<TestDatabase> {
  const server = await findServer();
  return makeDatabase(server, server.template);
}

/** A database of its own with nothing in it. */
export async function openEmptyDatabase(): Promise<TestDatabase> {
  return makeDatabase(await findServer(), 'template0');
}

/** As `openEmptyDatabase`, on each machine of a cluster. */
export async function openEmptyCluster(): Promise<TestDatabase> {
  const database = await openEmptyDatabase();
  const [{ name } = { name: '' }] = await database.db.query<{ name: string }>(
    'select current_database() as name',
  );
  await createCluster(await findServer(), name);
  return database;
}

/**
 * Starts the server of a test run and resolves when its template is ready. It goes away with `stop`, or with
 * this process, and does not keep this process alive. Rejects when it cannot start; its own words are on stderr.
 */
export async function startTestServer(): Promise<{ server: TestServer; stop(): Promise<void> }> {
  const child = spawn(process.execPath, [path.join(import.meta.dirname, 'database-server.ts'), 'serve'], {
    env: { ...process.env, NODE_TEST_CONTEXT: undefined },
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const closed = once(child, 'close');
  let server: TestServer | undefined;
  for await (const line of createInterface({ input: child.stdout })) {
    server = JSON.parse(line) as TestServer;
    break;
  }
  if (!server) throw new Error('the test database server did not start');
  const handles = [child, child.stdin, child.stdout] as unknown as { ref(): void; unref(): void }[];
  for (const handle of handles) handle.unref();
  return {
    server,
    async stop() {
      for (const handle of handles) handle.ref();
      child.stdin.end();
      child.stdout.resume();
      await closed;
    },
  };
}

/** What is done while no other test file of the run does it. */
export async function oneAtATime(work: () => Promise<void>): Promise<void> {
  const db = openDb((await findServer()).admin, { maxConnections: 1 });
  try {
    await db.transaction(async (tx) => {
      await tx.query('select pg_advisory_xact_lock(3003)');
      await work();
    });
  } finally {
    await db.end();
  }
}

/** Hands the server to the test files that this process is going to start. */
export function handOver(server: TestServer): void {
  process.env[handedOver] = JSON.stringify(server);
}

/** The same server, another database. */
export function atDatabase(target: DbTarget, database: string): DbTarget {
  if (!('url' in target)) return { ...target, database };
  const url = new URL(target.url);
  url.pathname = `/${database}`;
  return { url: url.href };
}

/** A target as the DATABASE_URL of another process. */
export function urlOf(target: DbTarget): string {
  if ('url' in target) return target.url;
  const { host, port, user, database } = target;
  return `postgres://${user}@localhost/${database}?${new URLSearchParams({ host, port: String(port) })}`;
}

/** As a node opens it: with TEST_CITUS_DIRECT, also the workers of the cluster. */
export function openTestDb(target: DbTarget): Db & AsyncDisposable {
  const first = openDb(target);
  if (!isDirect || !('url' in target)) return first;
  const open = (url: string) => openDb({ url }, { workerOf: first.database });
  return withWorkers(first, { url: target.url, open });
}

function findServer(): Promise<TestServer> {
  const handed = process.env[handedOver];
  found ??= handed
    ? Promise.resolve(JSON.parse(handed) as TestServer)
    : startTestServer().then(({ server }) => server);
  return found;
}

async function makeDatabase(server: TestServer, template: string): Promise<TestDatabase> {
  const name = `${server.template}_${randomBytes(4).toString('hex')}`;
  await administer(server, `create database ${name} template ${template} strategy file_copy`);
  const target = atDatabase(server.tests, name);
  const db = openTestDb(target);
  return {
    db,
    target,
    async copy() {
      if (isCluster) await administer(server, `alter database ${name} allow_connections false`);
      await administer(
        server,
        `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${name}'`,
      );
      const made = await makeDatabase(server, name);
      if (isCluster) await administer(server, `alter database ${name} allow_connections true`);
      return made;
    },
    async drop() {
      const invalidEvents = await listInvalidEvents(db);
      await db.end();
      await administer(server, `drop database if exists ${name} with (force)`);
      assert.deepEqual(invalidEvents, []);
      assert.deepEqual(takePortabilityFaults(), []);
    },
  };
}

/** Kept, since a new connection takes as much processor time as the copy of a database. */
const administrators = new Map<DbTarget, Promise<Administrator>>();
let unfinished = 0;

/** On each machine, the workers of a cluster first. The connections keep this process alive only while a statement runs. */
async function administer(server: TestServer, statement: string): Promise<void> {
  for (const target of [...server.workers, server.admin]) await administerAt(target, statement);
}

async function administerAt(target: DbTarget, statement: string): Promise<void> {
  const client = await administrators.getOrInsertComputed(target, connectAdministrator);
  unfinished += 1;
  client.ref();
  try {
    await client.query(statement);
  } finally {
    unfinished -= 1;
    if (unfinished === 0) client.unref();
  }
}

/** The types of `pg` lack both methods. */
type Administrator = pg.Client & { ref(): void; unref(): void };

async function connectAdministrator(target: DbTarget): Promise<Administrator> {
  const client = new pg.Client('url' in target ? { connectionString: target.url } : target) as Administrator;
  client.on('error', () => administrators.delete(target));
  await client.connect();
  return client;
}
