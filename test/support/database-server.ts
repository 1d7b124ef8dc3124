// A process of its own: the PostgreSQL behind a test run, with a migrated template database.
//
// Starts the embedded server on a temporary directory, or uses TEST_DATABASE_URL; prints a `TestServer` as one
// line of JSON; and takes everything away again when its standard input ends, so also after a killed test run.

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { startEmbedded } from '../../server/db/embedded/embedded.ts';
import { migrate } from '../../server/db/migrate.ts';
import { type DbTarget, openDb } from '../../server/db/pool.ts';
import { distribute } from '../../server/ops/cluster/distribute.ts';
import { createCluster } from './citus.ts';
import { atDatabase, type TestServer } from './database.ts';
import { socketPlace } from './scratch.ts';

/** With as many test files at once as there are cores, each with a pool or two. */
const maxConnections = 400;

// `node --test` without a pattern takes every file under test/ for a test.
if (process.argv[2] === 'serve') {
  const url = process.env.TEST_DATABASE_URL;
  const end = url ? await useServer(url) : await ownServer();
  // Ctrl-C reaches the test run, whose end closes our input.
  process.on('SIGINT', () => {});
  process.stdin.resume().on('end', end);
}

async function ownServer(): Promise<() => Promise<void>> {
  const dataDir = mkdtempSync(join(socketPlace, 'trellis-test-'));
  try {
    const first = await startEmbedded({ dataDir });
    await execute(first.connection, [
      `alter system set max_connections = ${maxConnections}`,
      // Nothing here outlives the run.
      ...['fsync', 'full_page_writes'].map((setting) => `alter system set ${setting} = off`),
      // It would visit each of hundreds of short-lived databases.
      'alter system set autovacuum = off',
    ]);
    await first.stop();
    const server = await startEmbedded({ dataDir });
    await announce({ admin: server.connection, tests: server.connection, workers: [] });
    return async () => {
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    };
  } catch (error) {
    rmSync(dataDir, { recursive: true, force: true });
    throw error;
  }
}

async function useServer(url: string): Promise<() => Promise<void>> {
  const admin = { url: process.env.TEST_DATABASE_ADMIN_URL ?? url };
  const workers = (process.env.TEST_CITUS_WORKERS ?? '')
    .split(',')
    .filter(Boolean)
    .map((url) => ({ url }));
  const { template } = await announce({ admin, tests: { url }, workers });
  return async () => {
    for (const one of [admin, ...workers])
      await execute(one, [`drop database if exists ${template} with (force)`]);
  };
}

async function announce(targets: Omit<TestServer, 'template'>): Promise<TestServer> {
  const template = `trellis_test_${randomBytes(4).toString('hex')}`;
  const { admin, workers } = targets;
  for (const one of [...workers, admin]) await execute(one, [`create database ${template}`]);
  if (workers.length > 0) await createCluster(targets, template);
  const db = openDb(atDatabase(admin, template), { maxConnections: 2 });
  try {
    await migrate(db);
    if (workers.length > 0) await distribute(db, () => {});
  } finally {
    await db.end();
  }
  if (workers.length > 0) for (const one of [admin, ...workers]) await closeTemplate(one, template);
  const server: TestServer = { ...targets, template };
  process.stdout.write(`${JSON.stringify(server)}\n`);
  return server;
}

/** A daemon of Citus connects to each database that accepts connections, and a template must have none. */
async function closeTemplate(target: DbTarget, template: string): Promise<void> {
  await execute(target, [
    `alter database ${template} allow_connections false`,
    `select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '${template}'`,
  ]);
}

async function execute(target: DbTarget, statements: string[]): Promise<void> {
  const db = openDb(target, { maxConnections: 1 });
  try {
    for (const statement of statements) await db.query(statement);
  } finally {
    await db.end();
  }
}
