// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig, syncCode } from '../../test/support/functions.ts';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';

let trellis: TestTrellis;
let connectionId: string;
let other: string;
const broken = syncCode({ more: 'autoStart: false, exec: async () => { throw new Error("no rows") },' });
const waiting = syncCode({
  more: `autoStart: false,
  exec: async (nango) => {
    // Without a pending call or timer, the run would end as stalled.
    const timer = setInterval(() => {}, 1000);
    await new Promise((_, end) => nango.signal.addEventListener("abort", end)).finally(() => clearInterval(timer));
  },`,
});
const flaky = syncCode({
  more: `autoStart: false,
  exec: async () => { throw Object.assign(new Error("later"), { code: "unavailable" }) },`,
});
const sync = (name: string, code: string) => flowConfig({ name, code, type: 'sync' });

before(async () => {
  trellis = await openTrellis();
  ({ connectionId } = await connect(trellis));
  ({ connectionId: other } = await connect(trellis, { account: 'grace@example.com' }));
  const things = sync('things', syncCode({ more: 'autoStart: false,' }));
  const double = flowConfig({ name: 'double', code: actionCode() });
  const all = [things, sync('broken', broken), sync('waiting', waiting), sync('flaky', flaky), double];
  const answer = await trellis.call('POST', '/sync/deploy', {
    // The same name twice: a function is known by its kind, too.
    body: deployBody([...all, flowConfig({ name: 'things', code: actionCode() })], { reconcile: false }),
  });
  assert.equal(answer.status, 200, answer.text);
});
after(async () => {
  // Else the service waits for what still runs.
  const { runs } = (await trellis.call('GET', '/functions/runs?state=running')).body;
  for (const { id } of runs as Json[]) await trellis.call('POST', `/functions/runs/${id}/cancel`);
  await trellis.close();
});

type Json = Record<string, unknown>;
const get = async (path: string) => {
  const answer = await trellis.call('GET', path);
  assert.equal(answer.status, 200, answer.text);
  return answer.body;
};
const syncs = async (query: string) => (await get(`/functions/syncs?${query}`)) as { syncs: Json[] } & Json;
const trigger = (name: string, connection = connectionId) =>
  trellis.call('POST', '/sync/trigger', {
    body: { provider_config_key: 'google-sheet', connection_id: connection, syncs: [name] },
  });
async function until<T>(look: () => Promise<T | undefined>): Promise<T> {
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    await pause(50);
  }
}
const ended = (name: string, state: string) =>
  until(async () => {
    const { runs } = await get(`/functions/runs?function=${name}&type=sync&state=${state}`);
    return (runs as Json[])[0];
  });

test('functions of the environment are listed with their newest run and what failed in a day', async () => {
  await trigger('broken');
  const failed = await ended('broken', 'failed');
  const { data, pagination } = await get('/functions?type=sync&search=BROK');
  const [one, ...none] = data as Json[];
  assert.deepEqual([none, pagination], [[], { total: 1, page: 0, limit: 20 }]);
  assert.deepEqual(
    [one?.provider_config_key, one?.provider, one?.failures],
    ['google-sheet', 'google-sheet', 1],
  );
  const { id, ended_at, queued_at } = failed;
  assert.deepEqual(one?.last_run, { id, state: 'failed', ended_at, queued_at });
  assert.equal('json_schema' in one, false);

  await trellis.advance(86_400 + 60);
  const [later] = (await get('/functions?search=broken')).data as Json[];
  assert.deepEqual([later!.failures, (later!.last_run as Json).id], [0, id]);
  const [never] = (await get('/functions?search=double')).data as Json[];
  assert.deepEqual([never?.failures, never?.last_run], [0, null]);

  const off = { body: { enabled: false } };
  await trellis.call('PATCH', '/integrations/google-sheet/functions/double', off);
  const names = async (query: string) =>
    ((await get(`/functions?${query}`)).data as Json[]).map(({ type, name }) => `${type}/${name}`);
  assert.deepEqual(await names('enabled=false'), ['action/double']);
  assert.deepEqual(await names('enabled=true&type=action'), ['action/things']);
  assert.deepEqual(await names('provider_config_key=none'), []);
  assert.deepEqual((await names('limit=2&page=1')).length, 2);
});

test('runs of functions that share a name are distinguished by the kind of function', async () => {
  const headers = { 'connection-id': connectionId, 'provider-config-key': 'google-sheet' };
  await trellis.call('POST', '/action/trigger', {
    headers,
    body: { action_name: 'things', input: { n: 1 } },
  });
  await trigger('things');
  await ended('things', 'succeeded');
  const kinds = async (query: string) =>
    ((await get(`/functions/runs?function=things${query}`)).runs as Json[]).map(({ kind }) => kind).sort();
  assert.deepEqual(await kinds(''), ['action', 'sync']);
  assert.deepEqual(await kinds('&type=sync'), ['sync']);
  assert.deepEqual(await kinds('&type=action'), ['action']);
});

test('syncs are listed by what they are at, of a function or of a connection, a page at a time', async () => {
  await trigger('waiting');
  await trigger('things', other);
  await ended('waiting', 'running');
  await until(async () => {
    const { counts } = await syncs('');
    return (counts as Json).running === 1 ? true : undefined;
  });
  // Triggered syncs do not start by themselves: they stand still until they are started.
  assert.deepEqual((await syncs('')).counts, { running: 1, paused: 3, held: 0, failing: 0, active: 0 });
  await trellis.call('POST', '/sync/start', {
    body: { provider_config_key: 'google-sheet', connection_id: connectionId, syncs: ['things', 'broken'] },
  });
  assert.deepEqual((await syncs('')).counts, { running: 1, paused: 1, held: 0, failing: 1, active: 1 });
  const [failing] = (await syncs('state=failing')).syncs;
  const { id: _, next_at, last_run, ...told } = failing!;
  assert.deepEqual(told, {
    integration_id: 'google-sheet',
    provider_config_key: 'google-sheet',
    connection_id: connectionId,
    account_email: 'ada@example.com',
    function: 'broken',
    enabled: true,
    variant: 'base',
    state: 'failing',
    own_frequency: null,
    frequency: 'every hour',
    last_succeeded_at: null,
    failures: 1,
    held: null,
    current_run: null,
  });
  assert.ok(Date.parse(next_at as string) > 0);
  assert.deepEqual(((last_run as Json).error as Json).message, 'no rows');
  const { body: list } = await trellis.call('GET', '/connections?syncs=failing&count=true');
  assert.deepEqual(
    [list.total, (list.connections as Json[]).map((one) => one.connection_id)],
    [1, [connectionId]],
  );
  const [running] = (await syncs('state=running')).syncs;
  assert.deepEqual((running!.current_run as Json).state, 'running');
  assert.deepEqual(
    (await syncs('function=things&provider_config_key=google-sheet')).syncs.map((one) => one.connection_id),
    [connectionId, other],
  );
  assert.equal((await syncs(`connection_id=${connectionId}`)).syncs.length, 3);
  const first = await syncs('limit=3');
  const second = await syncs(`limit=3&after=${first.next_after}`);
  assert.deepEqual([first.syncs.length, second.syncs.length, second.next_after], [3, 1, null]);
  assert.deepEqual(await syncs('function=none'), {
    syncs: [],
    counts: { running: 0, paused: 0, held: 0, failing: 0, active: 0 },
    next_after: null,
    next_cursor: null,
  });

  await trellis.call('PUT', '/sync/update-connection-frequency', {
    body: {
      sync_name: 'things',
      provider_config_key: 'google-sheet',
      connection_id: connectionId,
      frequency: 'every 5 minutes',
    },
  });
  await trellis.db.query('update connection set status = $2 where connection_id = $1', [
    connectionId,
    'blocked',
  ]);
  const held = await until(async () => {
    // Connections are cached for a second: the first runs may still begin.
    const [one] = (await syncs(`function=things&connection_id=${connectionId}`)).syncs;
    if (one?.state === 'held') return one;
    if (one?.state !== 'running') await trigger('things');
    return undefined;
  });
  assert.deepEqual(
    [(held.held as Json).code, (await syncs('state=held')).syncs.length],
    ['connection_blocked', 1],
  );
  assert.deepEqual([held.own_frequency, held.frequency], ['5m', '5m']);
  await trellis.db.query('update connection set status = $2 where connection_id = $1', [
    connectionId,
    'active',
  ]);
});

test('a run shows the outcomes of its earlier attempts', async () => {
  await trigger('flaky', other);
  const run = await until(async () => {
    const { runs } = await get('/functions/runs?function=flaky');
    const [one] = runs as Json[];
    return (one?.earlier_attempts as Json[] | undefined)?.length === 1 ? one : undefined;
  });
  const [first] = run.earlier_attempts as { attempt: number; ended_at: string; error: object }[];
  assert.deepEqual([first?.attempt, first?.error], [1, { code: 'unavailable', message: 'later' }]);
  assert.ok(first!.ended_at <= (run.not_before as string));
});

test('the thrown error of a run is shown only to callers that may write', async () => {
  await trigger('broken');
  const { id } = await ended('broken', 'failed');
  const reader = await trellis.keyWith('functions:read');
  for (const path of [`/functions/runs/${id}`, '/functions/runs?function=broken&state=failed']) {
    const seen = (await trellis.call('GET', path, { key: reader })).text;
    assert.ok(
      seen.includes('"message":"no rows"') && !seen.includes('payload') && !seen.includes('stack'),
      seen,
    );
    assert.match((await trellis.call('GET', path)).text, /"payload":\{.*"stack":/);
  }
});

test("a version's own source can be read before it is let run again", async () => {
  const next = flowConfig({ name: 'double', code: actionCode({ before: '// 2' }), source: '// second' });
  await trellis.call('POST', '/sync/deploy', { body: deployBody([next], { reconcile: false }) });
  const path = '/integrations/google-sheet/functions/double/code';
  assert.equal((await get(path)).code, '// second');
  assert.equal((await get(`${path}?version=1`)).code, '// the source of double');
  const none = await trellis.call('GET', `${path}?version=3`);
  assert.deepEqual([none.status, (none.body.error as Json).code], [404, 'not_found']);
});
