import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Webhook } from 'standardwebhooks';
import { connect, openTrellis, type TestTrellis } from '../../test/support/trellis.ts';
import { alertTypes } from '../events/alerts.ts';
import { answer, ok, openReceiver, type Receiver } from './deliveries.fixture.ts';

let trellis: TestTrellis;
let receiver: Receiver;
let settled: Receiver;
before(async () => {
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.1/32' });
  [receiver, settled] = [await openReceiver(), await openReceiver()];
});
after(async () => {
  await trellis.close();
  for (const one of [receiver, settled]) await one.close();
});

const codeOf = (body: Record<string, unknown>) => (body.error as { code: string }).code;
const make = async (url = receiver.url, more: object = {}) =>
  (await trellis.call('POST', '/events/endpoints', { body: { url, ...more } })).body as { id: number };
const remove = ({ id }: { id: number }) => trellis.call('DELETE', `/events/endpoints/${id}`);
const list = async () =>
  (await trellis.call('GET', '/events/endpoints')).body.endpoints as Record<string, unknown>[];
const deliveries = async (query = '') =>
  (await trellis.call('GET', `/events/deliveries${query}`)).body as {
    deliveries: { id: number; status: string; event: { type: string } }[];
    next_before: number | null;
  };
/** Gives events their positions, which a node does each tenth of a second. */
const place = () => trellis.call('GET', '/events');
async function until(isSo: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isSo())) await sleep(10);
}

test('a connected account is sent to an endpoint and to webhook_url, signed with the existing key', async () => {
  const endpoint = await make();
  const set = await trellis.call('PATCH', '/environment/settings', { body: { webhook_url: settled.url } });
  assert.equal(set.status, 200, set.text);
  const { connectionId } = await connect(trellis);
  await place();
  await until(() => receiver.got.length === 1 && settled.got.length === 1);
  const { body } = await trellis.call('GET', '/environment/webhook-signing-key');
  const { webhook_signing_key: secret } = body.data as { webhook_signing_key: string };
  const [got, reported] = [receiver.got[0]!, settled.got[0]!];
  const event = new Webhook(secret).verify(got.body, got.headers as Record<string, string>) as {
    type: string;
    data: { connection_id: string };
  };
  assert.deepEqual([event.type, event.data.connection_id], ['connection.created', connectionId]);
  assert.match(String(got.headers['x-trellis-hmac-sha256']), /^[0-9a-f]{64}$/);
  const { from, type, operation, authMode, success } = JSON.parse(reported.body) as Record<string, unknown>;
  assert.deepEqual(
    [from, type, operation, authMode, success],
    ['trellis', 'auth', 'creation', 'OAUTH2', true],
  );

  await until(async () => (await deliveries('?status=delivered')).deliveries.length === 2);
  const of = await deliveries(`?endpoint=${endpoint.id}`);
  assert.deepEqual(
    of.deliveries.map((one) => [one.status, one.event.type]),
    [['delivered', 'connection.created']],
  );
  const whole = await trellis.call('GET', `/events/deliveries/${of.deliveries[0]!.id}`);
  assert.deepEqual((whole.body.event as { data: object }).data, event.data);
  assert.equal((await trellis.call('GET', '/events/deliveries/999999')).status, 404);
  assert.equal((await deliveries('?type=connection.created')).deliveries.length, 2);
  assert.deepEqual(await deliveries('?type=connection.deleted'), {
    deliveries: [],
    next_before: null,
    next_cursor: null,
  });
  const [first] = (await deliveries('?limit=1')).deliveries;
  const rest = await deliveries(`?limit=1&before=${first!.id}`);
  assert.equal(rest.deliveries.length, 1);
  assert.ok(rest.deliveries[0]!.id < first!.id);
  await until(async () => {
    const { body: log } = await trellis.call(
      'GET',
      `/operations?type=delivery&connection_id=${connectionId}`,
    );
    return (log.operations as unknown[]).length === 2;
  });

  const again = await trellis.call('POST', `/events/deliveries/${of.deliveries[0]!.id}/replay`);
  assert.equal(again.status, 200, again.text);
  await until(() => receiver.got.length === 2);
  assert.equal(receiver.got[1]!.id, got.id);
  await until(async () => (await deliveries('?status=delivered')).deliveries.length === 2);
  const range = await trellis.call('POST', `/events/endpoints/${endpoint.id}/replay`, {
    body: { from: '2020-01-01T00:00:00Z' },
  });
  assert.deepEqual(range.body, { count: 1, next_after: null });
  await until(() => receiver.got.length === 3);
  await remove(endpoint);
  assert.deepEqual(await deliveries(`?endpoint=${endpoint.id}`), {
    deliveries: [],
    next_before: null,
    next_cursor: null,
  });
  await trellis.call('PATCH', '/environment/settings', { body: { webhook_url: null } });
});

for (const url of [
  'https://10.0.0.1/hook',
  'https://[::1]/hook',
  'https://[::ffff:10.0.0.1]/hook',
  'https://169.254.169.254/latest',
  'https://2130706434/',
  'https://0x7f.2/',
  'http://8.8.8.8/plain',
]) {
  test(`${url} is refused at once, wherever it is given`, async () => {
    for (const [method, path, body] of [
      ['POST', '/events/endpoints', { url }],
      ['PATCH', '/environment/settings', { webhook_url: url }],
      ['PATCH', '/environment/settings', { webhook_url_secondary: url }],
      ['POST', '/connect/sessions', { end_user: { id: 'ada' }, webhook_url_override: url }],
      ['PATCH', '/connections/ada?provider_config_key=google-sheet', { webhook_url_override: url }],
    ] as const) {
      const { status, body: answered } = await trellis.call(method, path, { body });
      assert.deepEqual([status, codeOf(answered)], [400, 'address_not_allowed']);
    }
    assert.deepEqual(await list(), []);
  });
}

test('an invalid field is a 400 that names it', async () => {
  for (const body of [
    { url: 'ftp://example.com/' },
    { url: 'https://user:password-of-it@example.com/' },
    { url: 'https://example.com/', types: ['connection.made'] },
    { url: 'https://example.com/', types: ['*'] },
    { url: 'https://example.com/', more: 1 },
    { url: `https://example.com/${'x'.repeat(2048)}` },
  ]) {
    const { status, body: answered } = await trellis.call('POST', '/events/endpoints', { body });
    assert.deepEqual([status, codeOf(answered)], [400, 'invalid_body'], JSON.stringify(body));
  }
  const endpoint = await make('https://receiver.invalid/');
  for (const body of [{}, { to: '2026-01-01T00:00:00Z' }, { after: '-1' }, { from: 'yesterday' }]) {
    const { status } = await trellis.call('POST', `/events/endpoints/${endpoint.id}/replay`, { body });
    assert.equal(status, 400, JSON.stringify(body));
  }
  for (const query of ['?status=lost', '?limit=0', '?endpoint=x', '?before=0', '?more=1']) {
    assert.equal((await trellis.call('GET', `/events/deliveries${query}`)).status, 400, query);
  }
  await remove(endpoint);
});

test('an alert gets the types for alerts, and its format does not change', async () => {
  const made = await trellis.call('POST', '/events/endpoints', {
    body: { url: receiver.url, format: 'slack' },
  });
  assert.deepEqual([made.status, made.body.format], [201, 'slack']);
  assert.deepEqual(made.body.types, alertTypes);
  const path = `/events/endpoints/${made.body.id}`;
  for (const body of [{ format: 'standard' }, { url: 'mailto:ops@example.com' }]) {
    const { status, body: answered } = await trellis.call('PATCH', path, { body });
    assert.deepEqual([status, codeOf(answered)], [400, 'invalid_body'], JSON.stringify(body));
  }
  const other = await trellis.call('PATCH', path, { body: { url: 'https://10.0.0.1/hook' } });
  assert.deepEqual([other.status, codeOf(other.body)], [400, 'address_not_allowed']);
  await remove(made.body as { id: number });
});

for (const [url, format, message] of [
  ['mailto:ops@example.com', 'email', /SMTP_URL and SMTP_FROM/],
  ['mailto:ops@example.com', 'standard', /`format` must be `email`/],
  ['mailto:ops@example.com', 'slack', /`format` must be `email`/],
  ['https://example.com/', 'email', /one address/],
  ['mailto:a@example.com,b@example.com', 'email', /one address/],
  ['mailto:a@example.com?bcc=b@example.com', 'email', /one address/],
  ['mailto:a@example.com%0ABcc:b@example.com', 'email', /one address/],
  ['mailto:a@example.com\r\nBcc: b@example.com', 'email', /one address/],
  ['mailto:', 'email', /one address/],
  ['ftp://example.com/', 'slack', /https:/],
] as const) {
  test(`${JSON.stringify(url)} as ${format} is refused at its field`, async () => {
    const { status, body } = await trellis.call('POST', '/events/endpoints', { body: { url, format } });
    const { errors } = body.error as { errors: { path: string[]; message: string }[] };
    assert.deepEqual([status, errors.length, errors[0]?.path], [400, 1, ['url']]);
    assert.match(errors[0]?.message ?? '', message);
    assert.deepEqual(await list(), []);
  });
}

test('a test is sent at once with its outcome, also to an endpoint that is off, and changes no state', async () => {
  const endpoint = await make(receiver.url, { types: ['connection.deleted'] });
  const path = `/events/endpoints/${endpoint.id}`;
  await trellis.call('PATCH', path, { body: { enabled: false } });
  receiver.got.length = 0;
  const tested = await trellis.call('POST', `${path}/test`);
  const { duration_ms: ms, ...outcome } = tested.body;
  assert.deepEqual(
    [tested.status, outcome, typeof ms],
    [200, { delivered: true, http_status: 204 }, 'number'],
  );
  const [{ body, headers }] = receiver.got as [Receiver['got'][number]];
  const { body: key } = await trellis.call('GET', '/environment/webhook-signing-key');
  const { webhook_signing_key: secret } = key.data as { webhook_signing_key: string };
  const event = new Webhook(secret).verify(body, headers as Record<string, string>) as Record<
    string,
    unknown
  >;
  assert.deepEqual(
    [event.type, event.environment, event.data],
    ['endpoint.test', 'dev', { endpoint_id: endpoint.id }],
  );
  receiver.answers = answer(410, {}, 'gone, token=abcdefgh');
  const failed = await trellis.call('POST', `${path}/test`);
  assert.equal(failed.body.delivered, false);
  assert.deepEqual([failed.body.http_status, failed.body.answer], [410, 'gone, token=***']);
  receiver.answers = ok;
  const [shown] = (await list()) as [{ disabled: { cause: string }; last_failure: unknown }];
  assert.deepEqual([shown.disabled.cause, shown.last_failure], ['operator', null]);
  assert.equal((await trellis.call('POST', '/events/endpoints/999999/test')).status, 404);
  await remove(endpoint);
});

test('an endpoint that fails shows why, since when, and how much waits', async () => {
  receiver.answers = answer(500, {}, 'out of order, token=abcdefgh');
  const endpoint = await make(receiver.url, { types: ['connection.*'], description: 'billing' });
  await connect(trellis, { account: 'grace@example.com' });
  await place();
  await until(async () => (await list())[0]!.last_failure !== null);
  const [shown] = (await list()) as [Record<string, unknown>];
  const { answer: answered, http_status, error } = shown.last_failure as Record<string, unknown>;
  assert.deepEqual([error, http_status, answered], ['status', 500, 'out of order, token=***']);
  assert.deepEqual([shown.description, shown.types, shown.enabled], ['billing', ['connection.*'], true]);
  const { breaker, waiting } = shown as {
    breaker: { state: string; failures: number };
    waiting: { count: number };
  };
  assert.deepEqual([breaker.state, breaker.failures, waiting.count], ['closed', 1, 1]);

  const path = `/events/endpoints/${endpoint.id}`;
  const off = await trellis.call('PATCH', path, { body: { enabled: false } });
  assert.deepEqual([off.body.enabled, (off.body.disabled as { cause: string }).cause], [false, 'operator']);
  receiver.answers = ok;
  const before = receiver.got.length;
  await trellis.call('PATCH', path, { body: { enabled: true, types: [] } });
  await until(() => receiver.got.length > before);
  await until(async () => ((await list())[0]!.waiting as { count: number }).count === 0);
  await remove(endpoint);
});

test('an endpoint of a setting is changed in the settings, and can be disabled and enabled', async () => {
  await trellis.call('PATCH', '/environment/settings', {
    body: { webhook_url_secondary: 'https://receiver.invalid/', on_sync_error: false },
  });
  const [shown] = (await list()) as [{ id: number; kind: string }];
  assert.equal(shown.kind, 'secondary');
  const path = `/events/endpoints/${shown.id}`;
  for (const [method, body] of [
    ['PATCH', { url: 'https://example.com/' }],
    ['PATCH', { types: [] }],
    ['DELETE', undefined],
  ] as const) {
    const { status, body: answered } = await trellis.call(method, path, { body });
    assert.deepEqual([status, codeOf(answered)], [409, 'endpoint_of_setting']);
  }
  assert.equal((await trellis.call('PATCH', path, { body: { enabled: false } })).status, 200);
  const settings = await trellis.call('PATCH', '/environment/settings', {
    body: { webhook_url_secondary: 'https://receiver.invalid/' },
  });
  const { connect, connect_warnings, ...ofEvents } = settings.body.data as Record<string, unknown>;
  assert.ok(connect !== undefined && connect_warnings !== undefined);
  assert.deepEqual(ofEvents, {
    webhook_url: null,
    webhook_url_secondary: 'https://receiver.invalid/',
    on_auth_creation: true,
    on_auth_refresh_error: true,
    on_sync_completion_always: true,
    on_sync_error: false,
    on_async_action_completion: true,
    webhook_signing_key_overlap_hours: 24,
  });
  assert.equal((await list())[0]!.enabled, true);
  await trellis.call('PATCH', '/environment/settings', { body: { webhook_url_secondary: '' } });
  assert.deepEqual(await list(), []);
});

test('a rotation keeps the key before for the hours of the settings, or for those that are named', async () => {
  const rotate = async (body?: object) => {
    const answered = await trellis.call('POST', '/environment/webhook-signing-key/rotate', { body });
    assert.equal(answered.status, 200, answered.text);
    return answered.body.data as { webhook_signing_key: string; earlier: { retires_at: string }[] };
  };
  const hoursOf = ({ earlier }: { earlier: { retires_at: string }[] }) =>
    Math.round((Date.parse(earlier[0]!.retires_at) - Date.now()) / 3_600_000);
  const first = await rotate();
  assert.equal(hoursOf(first), 24);
  await trellis.call('PATCH', '/environment/settings', { body: { webhook_signing_key_overlap_hours: 2 } });
  const second = await rotate({});
  assert.equal(hoursOf(second), 2);
  assert.notEqual(second.webhook_signing_key, first.webhook_signing_key);
  assert.deepEqual((await rotate({ overlap_hours: 0 })).earlier, []);
});

test('every change is in the audit log, without secrets', async () => {
  const secret = 'https://receiver.invalid/secret-of-the-receiver?token=secret-of-the-receiver';
  const endpoint = await make(secret);
  for (const webhook_url of [secret, ''])
    await trellis.call('PATCH', '/environment/settings', { body: { webhook_url } });
  await trellis.call('PATCH', `/events/endpoints/${endpoint.id}`, { body: { description: 'x' } });
  await remove(endpoint);
  const rows = await trellis.db.query<{ action: string; details: object; actor: string }>(
    `select action, details, actor from audit where target = $1 order by id`,
    [String(endpoint.id)],
  );
  assert.deepEqual(
    rows.map(({ action }) => action),
    ['endpoint.created', 'endpoint.changed', 'endpoint.deleted'],
  );
  for (const { details, actor } of rows) {
    assert.match(actor, /^key:\d+$/);
    assert.doesNotMatch(JSON.stringify(details), /secret-of-the-receiver/);
  }
  assert.deepEqual(rows[0]!.details, { origin: 'https://receiver.invalid', types: '', enabled: true });
  const others = await trellis.db.query<{ action: string; details: object }>(
    'select action, details from audit',
  );
  const actions = others.map(({ action }) => action);
  assert.doesNotMatch(JSON.stringify(others), /secret-of-the-receiver/);
  for (const action of [
    'settings.changed',
    'signing_key.rotated',
    'delivery.replayed',
    'endpoint.replayed',
  ]) {
    assert.ok(actions.includes(action), action);
  }
});

test('the fifty-first endpoint is refused, also of twenty at once', async () => {
  for (let count = 0; count < 45; count += 1) await make('https://receiver.invalid/');
  const answers = await Promise.all(
    Array.from({ length: 20 }, () =>
      trellis.call('POST', '/events/endpoints', { body: { url: 'https://receiver.invalid/' } }),
    ),
  );
  const refused = answers.filter(({ status }) => status === 400);
  assert.deepEqual([answers.filter(({ status }) => status === 201).length, refused.length], [5, 15]);
  assert.equal(codeOf(refused[0]!.body), 'too_many_endpoints');
  for (const endpoint of await list()) await remove(endpoint as { id: number });
});

test("endpoints come in pages, one's own before those that connections bring", async () => {
  await trellis.db.query(
    `insert into endpoint (environment_id, kind, url)
     select id, 'override', 'https://receiver.invalid/' || n
     from environment, generate_series(1, 5) as n
     where name = 'dev'`,
  );
  const [first, second] = [
    await make('https://receiver.invalid/a'),
    await make('https://receiver.invalid/b'),
  ];
  type Page = { endpoints: { id: number; kind: string }[]; next_after: string | null };
  const page = async (query: string) =>
    (await trellis.call('GET', `/events/endpoints${query}`)).body as unknown as Page;
  const seen: { id: number; kind: string }[] = [];
  for (let after = ''; ; ) {
    const { endpoints, next_after: next } = await page(`?limit=3${after}`);
    seen.push(...endpoints);
    if (next === null) break;
    after = `&after=${next}`;
  }
  assert.deepEqual(
    seen.map(({ kind }) => kind),
    ['events', 'events', ...Array.from({ length: 5 }, () => 'override')],
  );
  assert.deepEqual([seen[0]!.id, seen[1]!.id], [first.id, second.id]);
  assert.equal(new Set(seen.map(({ id }) => id)).size, 7);
  assert.equal((await page('?kind=override')).endpoints.length, 5);
  assert.equal((await page('?kind=events&limit=1')).next_after, `own.${first.id}`);
  for (const query of ['?kind=mine', '?after=7', '?after=own.0', '?limit=201', '?more=1'])
    assert.equal((await trellis.call('GET', `/events/endpoints${query}`)).status, 400, query);
  await trellis.db.query(`delete from endpoint where kind = 'override'`);
  for (const endpoint of [first, second]) await remove(endpoint);
});

test('a page of a type that has no deliveries of it is not the last one', async () => {
  const endpoint = await make();
  await trellis.db.query(
    `with made as (
       insert into event (id, environment_id, type, data, position)
       select gen_random_uuid(), id, case n when 1 then 'connection.created' else 'connection.deleted' end, '{}', -n
       from environment, generate_series(1, 5001) as n
       where name = 'dev'
       returning *
     )
     insert into delivery (environment_id, endpoint_id, event_id, position, lane, status, queued_at, settled_at)
     select environment_id, $1, id, position, 0, 'delivered', now(), now()
     from made
     order by position desc`,
    [endpoint.id],
  );
  const page = async (more = '') =>
    (await trellis.call('GET', `/events/deliveries?endpoint=${endpoint.id}&type=connection.created${more}`))
      .body as { deliveries: object[]; next_cursor: string | null };
  const first = await page();
  assert.deepEqual(first.deliveries, []);
  const second = await page(`&cursor=${first.next_cursor}`);
  assert.equal(second.deliveries.length, 1);
  assert.equal(second.next_cursor, null);
  await trellis.db.query('delete from event where position < 0');
  await remove(endpoint);
});
