// In a process of its own: it breaks down a server.
// Slow: it starts processes of its own.
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { socketPlace } from '../../test/support/scratch.ts';
import { startEmbedded } from '../db/embedded/embedded.ts';
import { migrate } from '../db/migrate.ts';
import { type Db, openDb } from '../db/pool.ts';
import { createRemoteCallServer } from './remote-call-server.ts';
import { createRemoteCalls } from './remote-calls.ts';

/** A server of the test's own: a crash empties the table of remote calls. */
async function openServer(t: TestContext): Promise<Db> {
  const dataDir = mkdtempSync(join(socketPlace, 'trellis-remote-test-'));
  chmodSync(dataDir, 0o755);
  const server = await startEmbedded({ dataDir });
  const db = openDb(server.connection);
  t.after(async () => {
    await db.end();
    await server.stop();
    rmSync(dataDir, { recursive: true, force: true });
  });
  await migrate(db);
  await db.query(
    `insert into environment (id, name, data_key) overriding system value values (1, 'dev', gen_random_uuid())`,
  );
  return db;
}

/** As the kernel does that has no memory left: PostgreSQL ends all of its processes, and recovers. */
async function crash(db: Db): Promise<void> {
  const [backend] = await db.query<{ pid: number }>('select pg_backend_pid() as pid');
  process.kill(backend!.pid, 'SIGKILL');
  const count = () => db.query('select from errand').catch(() => undefined);
  while ((await count())?.length !== 0) await pause(50);
}

test('calls lost in a crash of the server run to their end, and later calls can be withdrawn', async (t) => {
  const db = await openServer(t);
  const begun = [Promise.withResolvers<AbortSignal>(), Promise.withResolvers<AbortSignal>()];
  const isOver = Promise.withResolvers<void>();
  const desk = createRemoteCallServer(db, {
    kinds: {
      async run(request, { signal }) {
        begun[Number(request.toString())]!.resolve(signal);
        await isOver.promise;
        return request;
      },
    },
    pollMs: 20,
    remainingCapacity: () => 2,
    onError: () => {},
  });
  desk.start();
  t.after(() => desk.stop(0));
  const ask = (n: number) =>
    createRemoteCalls(db).ask({ environmentId: 1, kind: 'run', request: Buffer.from(String(n)) });
  const first = ask(0);
  const ofFirst = await begun[0]!.promise;
  await crash(db);
  assert.deepEqual(await first, { none: 'lost' });
  const second = ask(1);
  const ofSecond = await begun[1]!.promise;
  await db.query('delete from errand');
  while (!ofSecond.aborted) await pause(20);
  // One look has told of both.
  assert.equal(ofFirst.aborted, false);
  assert.deepEqual(await second, { none: 'lost' });
  isOver.resolve();
});
