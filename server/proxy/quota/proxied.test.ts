import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { bytesOf, definitionAt, send, startHttp, startProxy } from '../proxy.fixture.ts';
import { createQuota } from './quota.ts';
import type { Priority } from './sliding-window.ts';

/** How calls of the proxy ask for their tokens. */
let database: TestDatabase;
before(async () => {
  database = await openTestDatabase();
});
after(() => database.drop());

/** A proxy to a provider that takes `count` reads in 0.6 s, and answers with these statuses in turn, then 200. */
async function limited(t: TestContext, { count, statuses = [] }: { count: number; statuses?: number[] }) {
  await database.db.query('delete from quota_book');
  const upstream = await startHttp((_request, response) => {
    response.writeHead(statuses.shift() ?? 200, { 'retry-after': '0' }).end();
  });
  const quota = createQuota({ db: database.db });
  const priorities: Priority[] = [];
  const limits = [{ name: 'Reads', per: 'owner', counts: 'read', count, window_s: 0.6 }];
  const proxy = await startProxy({
    definition: definitionAt(upstream.url, { quota: { service: 'api.example', limits } }),
    quota: {
      admit(call) {
        priorities.push(call.priority);
        return quota.admit(call);
      },
    },
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
    await quota.stop();
  });
  return {
    priorities,
    quota,
    async call(headers: Record<string, string> = {}) {
      const answer = await send(`${proxy.url}/proxy/a`, { headers }).answer;
      await bytesOf(answer);
      return [answer.statusCode, answer.headers['x-trellis-error']];
    },
  };
}

test('all attempts of a call together wait no longer than its limit', async (t) => {
  const statuses = [200, 503];
  const { call } = await limited(t, { count: 1, statuses });
  assert.deepEqual(await call(), [200, undefined]);
  // The first attempt waits for 0.6 s, so the second has 0.4 s, which is too little.
  assert.deepEqual(await call({ retries: '1', 'quota-wait': '1' }), [429, 'quota_exhausted']);
  assert.equal(statuses.length, 0);
});

test('a call that is marked as one of a sync waits behind those of people', async (t) => {
  const { call, priorities } = await limited(t, { count: 100 });
  await call();
  await call({ 'trellis-is-sync': 'true' });
  await call({ 'trellis-is-sync': 'false' });
  assert.deepEqual(priorities, ['interactive', 'background', 'interactive']);
});

test('calls that wait for a token are refused at once by a stop, and so are later ones', async (t) => {
  const { call, quota, priorities } = await limited(t, { count: 1 });
  await call();
  const waiting = call({ 'quota-wait': '60' });
  while (priorities.length < 2) await setImmediate();
  quota.refuse();
  assert.deepEqual(await waiting, [503, 'unavailable']);
  assert.deepEqual(await call({ 'quota-wait': '60' }), [503, 'unavailable']);
});
