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
    await announce({ admin: server.connection, tests: server.connection });
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
  const { template } = await announce({ admin, tests: { url } });
  return () => execute(admin, [`drop database if exists ${template} with (force)`]);
}

async function announce(targets: { admin: DbTarget; tests: DbTarget }): Promise<TestServer> {
  const template = `trellis_test_${randomBytes(4).toString('hex')}`;
  await execute(targets.admin, [`create database ${template}`]);
  const db = openDb(atDatabase(targets.admin, template), { maxConnections: 2 });
  try {
    await migrate(db);
  } finally {
    await db.end();
  }
  const server: TestServer = { ...targets, template };
  process.stdout.write(`${JSON.stringify(server)}\n`);
  return server;
}

async function execute(target: DbTarget, statements: string[]): Promise<void> {
  const db = openDb(target, { maxConnections: 1 });
  try {
    for (const statement of statements) await db.query(statement);
  } finally {
    await db.end();
  }
}
