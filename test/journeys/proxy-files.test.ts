// Counts the files of the service that take part in a request: a reader must be able to follow each request.
// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { Session } from 'node:inspector/promises';
import { join, relative } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { connect, openTrellis, visit } from '../support/trellis.ts';

const root = join(import.meta.dirname, '../..');
const maxFiles = 23;
const maxCallbackFiles = 63;
/** Background work takes part in some rounds, never in all of so many. */
const rounds = 20;
const callbackRounds = 8;

/**
 * Files with functions that run during each call, but not for it: a cached call does not use the database, while the batches
 * of the activity log do; only a log with the level of this test has a line of each call; only a clock that can be moved, as
 * that of this test, is a function of `parts.ts`.
 */
const besideCall = /^server\/(db\/|log\.ts|app\/parts\.ts)/;

/**
 * As `besideCall`: the log of this test, the loops that look for due work, which a new connection wakes, and the timers of
 * other loops, of which one runs in each round on a slow machine.
 */
const besideCallback =
  /^server\/(log\.ts|concurrency\.ts|work\.ts|deliveries\/(claims|worker)\.ts|functions\/runs\/(claims|queue|worker)\.ts)/;

/** The files of `server/`, except those `beside` it, with a function that runs in each round of `act`, after its `prepare`. */
async function filesOf<T>(
  times: number,
  {
    beside,
    prepare,
    act,
  }: { beside: RegExp; prepare: () => Promise<T>; act: (prepared: T) => Promise<void> },
): Promise<string[]> {
  const session = new Session();
  session.connect();
  await session.post('Profiler.enable');
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false });
  const counts = new Map<string, number>();
  for (let round = 0; round < times; round += 1) {
    const prepared = await prepare();
    await session.post('Profiler.takePreciseCoverage');
    await act(prepared);
    const { result } = await session.post('Profiler.takePreciseCoverage');
    for (const { url, functions } of result) {
      if (!url.startsWith('file:') || functions.every(({ ranges: [whole] }) => !whole?.count)) continue;
      const file = relative(root, fileURLToPath(url));
      if (file.startsWith('server/') && !beside.test(file)) counts.set(file, (counts.get(file) ?? 0) + 1);
    }
  }
  await session.post('Profiler.disable');
  session.disconnect();
  return [...counts.keys()].filter((file) => counts.get(file) === times).toSorted();
}

function assertAtMost(max: number, files: string[]): void {
  assert.ok(files.length <= max, `${files.length} files:\n${files.join('\n')}`);
}

test('a proxied call to Google passes through few files', async (t) => {
  const trellis = await openTrellis();
  t.after(() => trellis.close());
  const { headers } = await connect(trellis);
  const { body } = await trellis.call('POST', '/proxy/v4/spreadsheets', { headers, body: {} });
  const act = async () => {
    const path = `/proxy/v4/spreadsheets/${body.spreadsheetId}`;
    assert.equal((await trellis.call('GET', path, { headers })).status, 200);
  };
  await act();
  assertAtMost(maxFiles, await filesOf(rounds, { beside: besideCall, prepare: async () => {}, act }));
});

test('the callback of an authorization at Google passes through few files', async (t) => {
  const trellis = await openTrellis();
  t.after(() => trellis.close());
  await connect(trellis);
  const prepare = async () => {
    const session = await trellis.call('POST', '/connect/sessions', {
      body: { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] },
    });
    const { token } = session.body.data as { token: string };
    const url = `${trellis.baseUrl}/oauth/connect/google-sheet?connect_session_token=${token}`;
    const { headers } = await visit(trellis, url);
    const cookie = headers.getSetCookie().map((line) => line.split(';', 1)[0]);
    const body = { url: headers.get('location'), account: 'ada@example.com' };
    const { redirect } = await trellis.control('POST', 'authorize', body);
    return { redirect: String(redirect), cookie: cookie.join('; ') };
  };
  const act = async ({ redirect, cookie }: { redirect: string; cookie: string }) => {
    assert.equal((await visit(trellis, redirect, cookie)).status, 200);
  };
  assertAtMost(maxCallbackFiles, await filesOf(callbackRounds, { beside: besideCallback, prepare, act }));
});
