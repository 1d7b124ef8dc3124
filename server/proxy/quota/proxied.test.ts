import assert from 'node:assert/strict';
import { after, before, type TestContext, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { openTestDatabase, type TestDatabase } from '../../../test/support/database.ts';
import { bytesOf, definitionAt, send, startHttp, startProxy } from '../proxy.fixture.ts';
import { createQuota, type Permit } from './quota.ts';
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
  const admitted: { limitMs: number; permit: Permit | undefined }[] = [];
  const limits = [{ name: 'Reads', per: 'owner', counts: 'read', count, window_s: 0.6 }];
  const proxy = await startProxy({
    definition: definitionAt(upstream.url, { quota: { service: 'api.example', limits } }),
    quota: {
      admit(call) {
        priorities.push(call.priority);
        const permit = quota.admit(call);
        admitted.push({ limitMs: call.waitMs, permit });
        return permit;
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
    admitted,
    quota,
    async call(headers: Record<string, string> = {}) {
      const answer = await send(`${proxy.url}/proxy/a`, { headers }).answer;
      await bytesOf(answer);
      return [answer.statusCode, answer.headers['x-trellis-error']];
    },
  };
}

test('all attempts of a call together wait no longer than its limit', async (t) => {
  const { call, admitted } = await limited(t, { count: 1, statuses: [200, 503] });
  assert.deepEqual(await call(), [200, undefined]);
  assert.deepEqual(await call({ retries: '1', 'quota-wait': '60' }), [200, undefined]);
  const [, attempt, retry] = admitted;
  const waitedMs = attempt!.permit!.waitedMs;
  assert.deepEqual([attempt!.limitMs, retry!.limitMs], [60_000, 60_000 - waitedMs]);
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
