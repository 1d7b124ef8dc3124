import assert from 'node:assert/strict';
import test from 'node:test';
import { type Bench, openBench } from './testing.ts';

const read = (bench: Bench, token: string) =>
  fetch(`${bench.sandbox.url}/v4/spreadsheets/none`, { headers: { authorization: `Bearer ${token}` } });

test('without limits the Sheets API takes as many calls as come', async (t) => {
  const bench = await openBench(t);
  const { access_token: token } = await bench.connect();
  const statuses = await Promise.all(
    Array.from({ length: 80 }, async () => (await read(bench, token)).status),
  );
  assert.deepEqual(new Set(statuses), new Set([404]));
});

test('with limits it refuses by account and by project, reads apart from writes, until the window has passed', async (t) => {
  const bench = await openBench(t);
  await bench.control('POST /quota', { reads_per_account: 2, reads_per_project: 3, writes_per_account: 1 });
  const ada = (await bench.connect()).access_token;
  const grace = (await bench.connect({}, { account: 'grace@example.com' })).access_token;
  const limitOf = async (token: string) => {
    const answer = await read(bench, token);
    if (answer.status === 404) return undefined;
    assert.equal(answer.status, 429);
    const { error } = (await answer.json()) as {
      error: { details: [{ metadata: { quota_limit: string } }] };
    };
    return error.details[0].metadata.quota_limit;
  };
  assert.equal(await limitOf(ada), undefined);
  assert.equal(await limitOf(ada), undefined);
  assert.equal(await limitOf(ada), 'ReadRequestsPerMinutePerUser');
  assert.equal(await limitOf(grace), undefined);
  assert.equal(await limitOf(grace), 'ReadRequestsPerMinutePerProject');
  const written = await fetch(`${bench.sandbox.url}/v4/spreadsheets/none:batchUpdate`, {
    method: 'POST',
    headers: { authorization: `Bearer ${ada}`, 'content-type': 'application/json' },
    body: '{"requests":[]}',
  });
  assert.equal(written.status, 404);
  assert.equal((await bench.control('GET /quota')).refused, 2);
  await bench.control('POST /clock', { advance_s: 60 });
  assert.equal(await limitOf(ada), undefined);
  await bench.control('DELETE /quota');
  assert.equal((await bench.control('GET /quota')).limits, null);
});
