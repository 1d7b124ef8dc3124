// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync } from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { socketPlace } from '../../../test/support/scratch.ts';
import { openDb } from '../pool.ts';
import { findEmbedded, startEmbedded } from './embedded.ts';
import { withEmbedded } from './lend.ts';
import type { EmbeddedConnection } from './run.ts';

const base = realpathSync(mkdtempSync(path.join(socketPlace, 'trellis-lend-')));
const dataDir = path.join(base, 'data');
before(async () => {
  const server = await startEmbedded({ dataDir });
  await server.stop();
});
after(() => rmSync(base, { recursive: true, force: true }));

const reported: string[] = [];
const lend = <T>(work: (server: EmbeddedConnection) => Promise<T>) =>
  withEmbedded({ dataDir, log: (message) => reported.push(message) }, work);
async function ask(server: EmbeddedConnection): Promise<number> {
  const db = openDb(server, { maxConnections: 1 });
  try {
    const [row] = await db.query<{ one: number }>('select 1 as one');
    return row!.one;
  } finally {
    await db.end();
  }
}

test('a server that one command has started serves another until that is done too', async () => {
  const [hasJoined, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isOver = false;
  const first = lend(async (server) => {
    second = lend(async (same) => {
      assert.deepEqual(same, server);
      hasJoined.resolve();
      await mayEnd.promise;
      // The first one is done by now.
      return ask(same);
    });
    await hasJoined.promise;
  }).then(() => {
    isOver = true;
  });
  let second: Promise<number> | undefined;
  await hasJoined.promise;
  // Time for a stop that does not wait.
  await ask((await findEmbedded(dataDir))!);
  assert.equal(isOver, false);
  mayEnd.resolve();
  assert.equal(await second, 1);
  await first;
  assert.equal(await findEmbedded(dataDir), undefined);
});

test('a third command shares the server too while the one that started it waits for the second', async () => {
  const [hasJoined, mayEnd] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let second: Promise<void> | undefined;
  const first = lend(async () => {
    second = lend(async () => {
      hasJoined.resolve();
      await mayEnd.promise;
    });
    await hasJoined.promise;
  });
  const word = () => reported.find((message) => message.includes('other commands'));
  for (let looks = 0; looks < 200 && word() === undefined; looks += 1) await sleep(50);
  const outcome = await Promise.race([lend(ask), sleep(10_000, 'it waits', { ref: false })]);
  mayEnd.resolve();
  assert.equal(outcome, 1);
  assert.match(String(word()), /if this command is stopped, they fail/);
  await Promise.all([first, second]);
  assert.equal(await findEmbedded(dataDir), undefined);
});

test('of twenty commands at once none fails, and nothing is left of them', async () => {
  const answers = await Promise.all(Array.from({ length: 20 }, () => lend(ask)));
  assert.deepEqual(answers, Array(20).fill(1));
  assert.equal(await findEmbedded(dataDir), undefined);
  assert.equal(existsSync(path.join(dataDir, 'postgres/socket')), false);
});

test('beside a service its server is used, and keeps running', async () => {
  const service = await startEmbedded({ dataDir });
  assert.deepEqual(await lend(async (server) => server), service.connection);
  assert.equal(await ask(service.connection), 1);
  await service.stop();
});

test('the error of a command is passed on, and the server stops', async () => {
  await assert.rejects(
    lend(async () => {
      throw Object.assign(new Error('of the command'), { code: 'ECONNREFUSED' });
    }),
    /of the command/,
  );
  assert.equal(await findEmbedded(dataDir), undefined);
});

test('without a database nothing is created', async () => {
  const empty = path.join(base, 'empty');
  mkdirSync(empty);
  const lending = withEmbedded({ dataDir: empty, log: () => {} }, ask);
  await assert.rejects(lending, /postgres\/data does not exist/);
  assert.deepEqual(readdirSync(empty), []);
});
