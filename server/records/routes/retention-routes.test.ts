import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { placeEntries } from '../../../test/support/audit.ts';
import type { WirePage } from '../../../test/support/records.ts';
import { type Answer, connect, openTrellis, type TestTrellis } from '../../../test/support/trellis.ts';

let trellis: TestTrellis;
let given: Awaited<ReturnType<typeof connect>>;
before(async () => {
  trellis = await openTrellis();
  given = await connect(trellis);
});
after(() => trellis.close());

const at = (method: string, path: string, body?: unknown) =>
  trellis.call(method, path, { headers: given.headers, ...(body !== undefined && { body }) });
const codeOf = ({ status, body }: Answer) => [status, (body.error as { code?: string } | undefined)?.code];
const fieldsOf = ({ body }: Answer) =>
  (body.error as { errors: { path: string[] }[] }).errors.map(({ path }) => path.join('.'));
const cursorsOf = async (model: string) => {
  const { body } = await at('GET', `/records?model=${model}`);
  return (body as unknown as WirePage).records.map(({ _trellis_metadata }) => _trellis_metadata.cursor);
};
const audit = async (action: string) => {
  await placeEntries(trellis.db);
  return trellis.db.query<{ environment_id: number; actor: string; target: string; details: object }>(
    'select environment_id, actor, target, details from audit where action = $1 order by id',
    [action],
  );
};

test('policies are set, listed, replaced and removed, each with an entry in the audit log', async () => {
  const own = { prune_after_days: 30, remove_tombstones_after_days: 90, wait_for_consumers: true };
  const set = await at('PUT', '/records/retention', { ...own, provider_config_key: given.integration });
  assert.equal(set.status, 200, set.text);
  const { updated_at, ...policy } = set.body;
  const { integration } = given;
  assert.deepEqual(policy, { ...own, provider_config_key: integration, integration_id: integration });
  assert.ok(!Number.isNaN(Date.parse(String(updated_at))));
  await at('PUT', '/records/retention', { remove_tombstones_after_days: 5, wait_for_consumers: false });
  await at('PUT', '/records/retention', { prune_after_days: 60 });
  const listed = (await at('GET', '/records/retention')).body.policies as Record<string, unknown>[];
  assert.deepEqual(
    listed.map((one) => [one.provider_config_key, one.prune_after_days, one.remove_tombstones_after_days]),
    [
      [null, 60, null],
      [given.integration, 30, 90],
    ],
  );
  assert.equal(listed[0]?.wait_for_consumers, true);
  const theirs = await trellis.call('GET', '/records/retention', { key: trellis.keys.prod });
  assert.deepEqual(theirs.body, { policies: [], next_cursor: null });
  const path = `/records/retention?provider_config_key=${given.integration}`;
  assert.deepEqual((await at('DELETE', path)).body, { success: true });
  assert.deepEqual(codeOf(await at('DELETE', path)), [404, 'not_found']);
  assert.deepEqual((await at('DELETE', '/records/retention')).body, { success: true });
  assert.deepEqual((await at('GET', '/records/retention')).body, { policies: [], next_cursor: null });
  assert.deepEqual(
    [...(await audit('retention.set')), ...(await audit('retention.removed'))].map(({ target }) => target),
    [given.integration, 'environment dev', 'environment dev', given.integration, 'environment dev'],
  );
});

test('a policy that does not fit is refused by field, and sets nothing', async () => {
  const cases: [body: object, field: string][] = [
    [{}, 'prune_after_days'],
    [{ prune_after_days: null }, 'prune_after_days'],
    [{ prune_after_days: 0 }, 'prune_after_days'],
    [{ prune_after_days: 1.5 }, 'prune_after_days'],
    [{ prune_after_days: '7' }, 'prune_after_days'],
    [{ remove_tombstones_after_days: 36_501 }, 'remove_tombstones_after_days'],
    [{ prune_after_days: 7, wait_for_consumers: null }, 'wait_for_consumers'],
    [{ prune_after_days: 7, provider_config_key: '' }, 'provider_config_key'],
  ];
  for (const [body, field] of cases) {
    const answer = await at('PUT', '/records/retention', body);
    assert.deepEqual(codeOf(answer), [400, 'invalid_body'], answer.text);
    assert.ok(fieldsOf(answer).includes(field), answer.text);
  }
  const unknown = await at('PUT', '/records/retention', { prune_after_days: 7, provider_config_key: 'none' });
  assert.deepEqual(codeOf(unknown), [404, 'unknown_provider_config']);
  assert.deepEqual((await at('GET', '/records/retention')).body, { policies: [], next_cursor: null });
});

test('under a policy that prunes, a save leaves equal pruned records pruned unless it requests otherwise', async () => {
  const records = [{ id: 'a', x: 1 }];
  const save = async (restore?: string) => {
    const { body } = await at('POST', '/records', { model: 'Resync', records, ...(restore && { restore }) });
    return (body.counts as { restored: number }).restored;
  };
  const prune = async () => {
    const [until_cursor] = await cursorsOf('Resync');
    return (await at('PATCH', '/records/prune', { model: 'Resync', until_cursor })).body.count;
  };
  await save();
  assert.equal(await prune(), 1);
  assert.equal(await save(), 1);
  await prune();
  await at('PUT', '/records/retention', { prune_after_days: 7 });
  assert.equal(await save(), 0);
  // The integration's own policy prunes nothing, and stands instead.
  const own = { provider_config_key: given.integration, remove_tombstones_after_days: 7 };
  await at('PUT', '/records/retention', own);
  assert.equal(await save(), 1);
  await prune();
  await at('DELETE', `/records/retention?provider_config_key=${given.integration}`);
  assert.equal(await save('always'), 1);
  await prune();
  assert.equal(await save('on_change'), 0);
  await at('DELETE', '/records/retention');
});

test('a prune leaves one receipt in the audit log, and a prune of nothing none', async () => {
  await at('POST', '/records', { model: 'Receipt', records: ['a', 'b', 'c'].map((id) => ({ id })) });
  const cursors = await cursorsOf('Receipt');
  const prune = (limit: number) =>
    at('PATCH', '/records/prune', { model: 'Receipt', until_cursor: cursors[2], limit });
  const before = (await audit('records.pruned')).length;
  await prune(2);
  await prune(1000);
  await prune(1000);
  const [first, second, ...rest] = (await audit('records.pruned')).slice(before);
  assert.equal(rest.length, 0);
  assert.ok(first && second);
  assert.match(String(first.actor), /^key:\d+$/);
  assert.equal(first?.target, `${given.integration}/${given.connectionId}`);
  const { bytes, ...details } = first.details as { bytes: number };
  assert.deepEqual(details, { model: 'Receipt', variant: 'base', until_cursor: cursors[1], count: 2 });
  assert.ok(bytes > 0);
  const more = second.details as { count: number; until_cursor: string };
  assert.deepEqual([more.count, more.until_cursor], [1, cursors[2]]);
});

test('consumers are acknowledged, read, listed and removed over HTTP', async () => {
  await at('POST', '/records', { model: 'Followed', records: ['a', 'b', 'c'].map((id) => ({ id })) });
  const [one, two] = await cursorsOf('Followed');
  const put = await at('PUT', '/records/consumers/billing.v2', { model: 'Followed', cursor: two });
  assert.equal(put.status, 200, put.text);
  const { acknowledged_at, key_id, ...rest } = put.body;
  assert.deepEqual(rest, {
    name: 'billing.v2',
    model: 'Followed',
    variant: 'base',
    cursor: two,
    behind: 1,
    stalled_since: null,
  });
  assert.equal(typeof key_id, 'number');
  assert.ok(!Number.isNaN(Date.parse(String(acknowledged_at))));
  const back = await at('PUT', '/records/consumers/billing.v2', { model: 'Followed', cursor: one });
  assert.deepEqual(codeOf(back), [409, 'cursor_behind_consumer']);
  assert.deepEqual((back.body.error as { payload: unknown }).payload, { cursor: two });
  const rewound = await at('PUT', '/records/consumers/billing.v2', {
    model: 'Followed',
    cursor: null,
    rewind: true,
  });
  assert.deepEqual([rewound.body.cursor, rewound.body.behind], [null, 3]);
  const read = await at('GET', '/records/consumers/billing.v2?model=Followed');
  assert.deepEqual(read.body, rewound.body);
  assert.deepEqual((await at('GET', '/records/consumers')).body, {
    consumers: [read.body],
    next_cursor: null,
  });
  assert.deepEqual(codeOf(await at('GET', '/records/consumers/other?model=Followed')), [404, 'not_found']);
  const remove = () => at('DELETE', '/records/consumers/billing.v2?model=Followed');
  assert.deepEqual((await remove()).body, { success: true });
  assert.deepEqual(codeOf(await remove()), [404, 'not_found']);
});

test('a consumer needs a name, a model and a cursor that fit', async () => {
  await at('POST', '/records', { model: 'Named', records: [{ id: 'a' }] });
  const [cursor] = await cursorsOf('Named');
  for (const name of ['-a', '.a', 'a%20b', 'a'.repeat(101), 'a%2Fb', '%00']) {
    const answer = await at('PUT', `/records/consumers/${name}`, { model: 'Named', cursor });
    assert.deepEqual(codeOf(answer), [400, 'invalid_uri_params'], `${name}: ${answer.text}`);
  }
  const cases: [object, string][] = [
    [{ model: 'Named' }, 'cursor'],
    [{ cursor }, 'model'],
    [{ model: 'Named', cursor, rewind: 'yes' }, 'rewind'],
    [{ model: 'Named', cursor: '' }, 'cursor'],
  ];
  for (const [body, field] of cases) {
    const answer = await at('PUT', '/records/consumers/a', body);
    assert.deepEqual(codeOf(answer), [400, 'invalid_body'], answer.text);
    assert.deepEqual(fieldsOf(answer), [field]);
  }
  const wrong = await at('PUT', '/records/consumers/a', { model: 'Named', cursor: 'nonsense' });
  assert.deepEqual(codeOf(wrong), [400, 'invalid_cursor']);
  assert.equal(
    (await at('PUT', `/records/consumers/${'a'.repeat(100)}`, { model: 'Named', cursor })).status,
    200,
  );
});

test('a cursor behind a removed tombstone is 410 on list, export and consumers alike', async () => {
  await at('POST', '/records', { model: 'Expired', records: ['a', 'b', 'c'].map((id) => ({ id })) });
  const [cursor] = await cursorsOf('Expired');
  await trellis.db.query(`update dataset set tombstone_floor = 2 where model = 'Expired'`);
  const calls = [
    () => at('GET', `/records?model=Expired&cursor=${cursor}`),
    () => at('GET', `/records/export?model=Expired&cursor=${cursor}`),
    () => at('PUT', '/records/consumers/a', { model: 'Expired', cursor }),
  ];
  for (const call of calls) assert.deepEqual(codeOf(await call()), [410, 'cursor_expired']);
  const pruned = await at('PATCH', '/records/prune', { model: 'Expired', until_cursor: cursor });
  assert.deepEqual(pruned.body, { count: 1, has_more: false });
});
