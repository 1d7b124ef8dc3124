import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { figuresOf, sumOf } from '../support/metrics.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

/** What callers of the proxy see of a provider's quotas. */
let trellis: TestTrellis;
before(async () => {
  trellis = await openTrellis();
});
after(() => trellis.close());

/** An integration with such a quota, and connections of accounts that no other test uses. */
async function connections(integration: string, quota: string, count = 1, provider = 'google-sheet') {
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider, unique_key: integration, integration_config: { quota } },
  });
  const made = [];
  for (let n = 0; n < count; n += 1) {
    const account = `${integration}-${n}@example.com`;
    await trellis.control('POST', 'accounts', { email: account });
    made.push(await connect(trellis, { integration, provider, account }));
  }
  return made.map(({ headers }) => headers);
}

/** Of the one operation with this path, once it is written. */
async function operationOf(path: string): Promise<Record<string, unknown>> {
  for (;;) {
    const { body } = await trellis.call('GET', `/operations?text=${encodeURIComponent(path)}`);
    const [found] = body.operations as Record<string, unknown>[];
    if (found !== undefined) return found;
    await sleep(10);
  }
}

const read = (headers: Record<string, string> | undefined, wait = '0') =>
  trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers: { ...headers, 'quota-wait': wait } });
/** Also those that wait for a quota. */
const callsInFlight = async () =>
  sumOf(figuresOf((await trellis.call('GET', '/metrics')).text), 'trellis_proxy_calls_in_flight') ?? 0;
const asked = async () =>
  Number((await trellis.control('GET', 'calls'))['GET /v4/spreadsheets/{spreadsheetId}'] ?? 0);

test('a call beyond the quota is not sent, and gets a retry time in the format of the client', async () => {
  const [ada] = await connections('few', 'ReadRequestsPerMinutePerUser=1');
  assert.equal((await read(ada, '5')).status, 404);
  const before = await asked();
  const refused = await read(ada);
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('x-trellis-error'), 'quota_exhausted');
  assert.ok(Number(refused.headers.get('retry-after')) > 50);
  const { error } = refused.body as { error: { status: string; details: { reason: string }[] } };
  assert.equal(error.status, 'RESOURCE_EXHAUSTED');
  assert.equal(error.details[0]?.reason, 'QUOTA_EXHAUSTED');
  assert.equal(await asked(), before);
  const written = await trellis.call('POST', '/proxy/v4/spreadsheets/none:batchUpdate', {
    headers: ada!,
    body: { requests: [] },
  });
  assert.notEqual(written.status, 429);
});

test("the provider's own refusal goes back unchanged, with the time to come again, and closes the account's bucket", async () => {
  const [ada, grace] = await connections('refused', 'on', 2);
  await trellis.control('POST', 'faults', { case: 'api_429_user', times: 1 });
  const refused = await read(ada, '5');
  assert.equal(refused.status, 429);
  assert.equal(refused.headers.get('x-trellis-error'), null);
  assert.match(refused.text, /Quota exceeded for quota metric 'Read requests'/);
  const seconds = Number(refused.headers.get('retry-after'));
  assert.ok(seconds >= 1 && seconds <= 60);
  assert.equal((await read(ada)).headers.get('x-trellis-error'), 'quota_exhausted');
  assert.equal((await read(grace, '5')).status, 404);
});

test("a refusal of Drive closes the bucket that it names: the account's, or the project's", async () => {
  const [ada, grace, linus] = await connections('drive', 'on', 3, 'google-drive');
  const list = (headers: Record<string, string> | undefined, wait = '0') =>
    trellis.call('GET', '/proxy/drive/v3/files', { headers: { ...headers, 'quota-wait': wait } });
  const markerOf = async (answer: ReturnType<typeof list>) => (await answer).headers.get('x-trellis-error');
  await trellis.control('POST', 'faults', { case: 'api_403_user_rate', times: 1 });
  const refused = await list(ada, '5');
  assert.deepEqual([refused.status, refused.headers.get('x-trellis-error')], [403, null]);
  assert.match(refused.text, /userRateLimitExceeded/);
  assert.equal(await markerOf(list(ada)), 'quota_exhausted');
  assert.equal((await list(grace, '5')).status, 200);
  await trellis.control('POST', 'faults', { case: 'api_403_project_rate', times: 1 });
  assert.equal((await list(grace, '5')).status, 403);
  assert.equal(await markerOf(list(linus)), 'quota_exhausted');
});

test('what a call waited for the quota is in the log: of one that was sent, refused, or given up', async () => {
  const [ada] = await connections('waits', 'ReadRequestsPerMinutePerUser=2', 1);
  const path = (name: string) => `/proxy/v4/spreadsheets/${name}`;
  const call = (name: string, wait: string) =>
    trellis.call('GET', path(name), { headers: { ...ada, 'quota-wait': wait } });
  await Promise.all([call('first-of-two', '5'), call('second-of-two', '5')]);
  const sent = await operationOf('first-of-two');
  assert.ok(Number(sent.quota_ms) > 0 && Number(sent.quota_ms) <= Number(sent.duration_ms));
  assert.equal(sent.requests, 1);

  const askedAt = performance.now();
  assert.equal((await call('refused-after-wait', '1')).status, 429);
  const waitedMs = performance.now() - askedAt;
  const refused = await operationOf('refused-after-wait');
  assert.deepEqual([refused.error_code, refused.requests, refused.http_status], ['quota_exhausted', 0, 429]);
  assert.ok(Number(refused.quota_ms) > 0 && Number(refused.quota_ms) <= waitedMs + 1);

  const giveUpAfter = async (ms: number) => {
    const given = request(trellis.baseUrl + path(`given-up-${ms}`), {
      headers: { ...ada, 'quota-wait': '60', authorization: `Bearer ${trellis.keys.dev}` },
    });
    given.on('error', () => {}).end();
    while ((await callsInFlight()) === 0) await sleep(20);
    await sleep(ms);
    given.destroy();
    const gone = await operationOf(`given-up-${ms}`);
    assert.deepEqual([gone.requests, gone.details], [0, { outcome: 'client_gone' }]);
    return Number(gone.quota_ms);
  };
  // A call is in flight before it waits for the quota: on a busy machine it may be given up before that.
  let quotaMs = 0;
  for (let ms = 50; quotaMs === 0 && ms < 10_000; ms *= 2) quotaMs = await giveUpAfter(ms);
  assert.ok(quotaMs > 0);
});

test('a caller who hangs up in the line is not sent to the provider', async () => {
  const [ada] = await connections('gone', 'ReadRequestsPerMinutePerUser=2');
  await Promise.all([read(ada, '5'), read(ada, '5')]);
  const before = await asked();
  const call = request(`${trellis.baseUrl}/proxy/v4/spreadsheets/none`, {
    headers: { ...ada, 'quota-wait': '60', authorization: `Bearer ${trellis.keys.dev}` },
  });
  call.on('error', () => {}).end();
  while ((await callsInFlight()) === 0) await sleep(20);
  call.destroy();
  while ((await callsInFlight()) > 0) await sleep(20);
  assert.equal(await asked(), before);
});

test('a stop answers calls that wait for a quota at once, with a retry time', async () => {
  const [ada] = await connections('stopped', 'ReadRequestsPerMinutePerUser=1');
  assert.equal((await read(ada, '5')).status, 404);
  const other = await trellis.serveAnother();
  const headers = { ...ada, 'quota-wait': '60' };
  const waiting = other.call('GET', '/proxy/v4/spreadsheets/none', { headers });
  // An answer to what came later says that the call has arrived.
  await other.call('GET', '/providers/google-sheet');
  await other.close();
  const reported = await waiting;
  assert.equal(reported.status, 503);
  assert.equal(reported.headers.get('x-trellis-error'), 'unavailable');
  assert.equal(reported.headers.get('retry-after'), '1');
  assert.equal((reported.body as { error: { status: string } }).error.status, 'UNAVAILABLE');
});

test('numbers for a quota that the provider has not are refused', async () => {
  const answer = await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'wrong', integration_config: { quota: 'Reads=9' } },
  });
  assert.equal(answer.status, 400);
  assert.match(answer.text, /ReadRequestsPerMinutePerProject=600/);
});

test('a refusal that names the project closes it for all accounts, on other nodes too', async () => {
  const [ada, grace] = await connections('project', 'on', 2);
  const other = await trellis.serveAnother();
  try {
    await trellis.control('POST', 'faults', { case: 'api_429_project', times: 1 });
    assert.equal((await read(ada, '5')).headers.get('x-trellis-error'), null);
    assert.equal((await read(grace)).headers.get('x-trellis-error'), 'quota_exhausted');
    const there = await other.call('GET', '/proxy/v4/spreadsheets/none', {
      headers: { ...grace, 'quota-wait': '1' },
    });
    assert.equal(there.headers.get('x-trellis-error'), 'quota_exhausted');
  } finally {
    await other.close();
  }
});

test("a guard's page closes everything for minutes", async () => {
  const [ada] = await connections('guard', 'on');
  // What the test before has closed is forgotten by a node that comes up.
  await trellis.db.query('delete from quota_book');
  const fresh = await trellis.serveAnother();
  try {
    await trellis.control('POST', 'faults', { case: 'api_429_html', times: 1 });
    const options = { headers: { ...ada, 'quota-wait': '5' } };
    const page = await fresh.call('POST', '/proxy/v4/spreadsheets/none:batchUpdate', {
      ...options,
      body: { requests: [] },
    });
    assert.equal(page.headers.get('retry-after'), '300');
    assert.match(page.text, /automated queries/);
    const next = await fresh.call('GET', '/proxy/v4/spreadsheets/none', options);
    assert.equal(next.headers.get('x-trellis-error'), 'quota_exhausted');
    assert.ok(Number(next.headers.get('retry-after')) > 250);
  } finally {
    await fresh.close();
  }
});
