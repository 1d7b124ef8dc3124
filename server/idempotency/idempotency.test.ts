import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { after, before, test } from 'node:test';
import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig } from '../../test/support/functions.ts';
import {
  type Answer,
  type CallOptions,
  connect,
  openTrellis,
  type TestTrellis,
} from '../../test/support/trellis.ts';

let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
let connected: Awaited<ReturnType<typeof connect>>;
let count = 0;
const next = () => {
  count += 1;
  return count;
};
before(async () => {
  trellis = await openTrellis();
  another = await trellis.serveAnother();
  connected = await connect(trellis);
  const action = (body: string) =>
    actionCode({ more: `input: z.any(), output: z.any(), exec: async (nango, input) => { ${body} },` });
  const add = 'const { n = 0 } = await nango.getMetadata(); await nango.updateMetadata({ n: n + 1 });';
  const codes = {
    add: action(`${add} await new Promise((done) => setTimeout(done, input.ms ?? 0)); return { n: n + 1 };`),
    fail: action(`${add} await new Promise((done) => setTimeout(done, 600)); throw new Error("no");`),
  };
  const flows = Object.entries(codes).map(([name, code]) => flowConfig({ name, code }));
  const deployed = await trellis.call('POST', '/sync/deploy', { body: deployBody(flows) });
  assert.equal(deployed.status, 200, deployed.text);
});
after(async () => {
  await another.close();
  await trellis.close();
});

const fresh = () => `key-${next()}`;
const codeOf = ({ body }: Answer) => (body.error as { code: string } | undefined)?.code;
const isReplayed = ({ headers }: Answer) => headers.get('idempotency-replayed') === 'true';
const url = () => `https://app.customer.example/hooks/${next()}`;
const create = (
  key: string,
  body: object,
  options: CallOptions = {},
  at: Pick<TestTrellis, 'call'> = trellis,
) => at.call('POST', '/events/endpoints', { ...options, body, headers: { 'idempotency-key': key } });
const act = (key: string, body: object, more: Record<string, string> = {}) =>
  trellis.call('POST', '/action/trigger', {
    body,
    headers: { ...connected.headers, 'idempotency-key': key, ...more },
  });
async function endpointsAt(address: string): Promise<number> {
  const { body } = await trellis.call('GET', '/events/endpoints?limit=100');
  return (body.endpoints as { url: string }[]).filter((one) => one.url === address).length;
}
async function sum(): Promise<number> {
  const { connectionId, integration } = connected;
  const path = `/connections/${connectionId}?provider_config_key=${integration}`;
  return ((await trellis.call('GET', path)).body.metadata as { n?: number } | null)?.n ?? 0;
}

test('twenty equal requests at once, at two nodes, do the work once and get one answer', async () => {
  const [key, body] = [fresh(), { url: url() }];
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, turn) => create(key, body, {}, turn % 2 === 0 ? trellis : another)),
  );
  assert.deepEqual(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size, 1, answers[0]!.text);
  assert.equal(answers[0]!.status, 201);
  assert.equal(answers.filter(isReplayed).length, 19);
  assert.equal(await endpointsAt(body.url), 1);
});

test('requests that wait for a slow action get its answer, also if the first caller disconnects', async () => {
  const [key, before] = [fresh(), await sum()];
  const body = { action_name: 'add', input: { ms: 1_000 } };
  const gone = new AbortController();
  const first = fetch(`${trellis.baseUrl}/action/trigger`, {
    method: 'POST',
    signal: gone.signal,
    headers: {
      authorization: `Bearer ${trellis.keys.dev}`,
      'content-type': 'application/json',
      ...connected.headers,
      'idempotency-key': key,
    },
    body: JSON.stringify(body),
  });
  const lost = assert.rejects(first, /abort/);
  while ((await sum()) === before) await pause(20);
  gone.abort();
  await lost;
  const answers = await Promise.all([act(key, body), act(key, body)]);
  for (const answer of answers) assert.deepEqual([answer.status, answer.body], [200, { n: before + 1 }]);
  assert.equal(await sum(), before + 1);
});

test('the failure of an action is the answer of all that wait for it, and is not kept', async () => {
  const [key, before] = [fresh(), await sum()];
  const call = () => act(key, { action_name: 'fail', input: {} });
  const answers = await Promise.all([call(), call(), call()]);
  assert.deepEqual(answers.map(codeOf), Array(3).fill('script_internal_error'));
  assert.equal(new Set(answers.map(({ text }) => text)).size, 1);
  assert.equal(await sum(), before + 1);
  assert.equal(isReplayed(await call()), false);
  assert.equal(await sum(), before + 2);
});

test('another body, query or header of the route with the same key is refused', async () => {
  const [key, body] = [fresh(), { url: url() }];
  assert.equal((await create(key, body)).status, 201);
  const other = await create(key, { url: url() });
  assert.deepEqual([other.status, codeOf(other)], [422, 'idempotency_key_reused']);
  const query = await trellis.call('POST', '/events/endpoints?x=1', {
    body,
    headers: { 'idempotency-key': key },
  });
  assert.deepEqual([query.status, codeOf(query)], [422, 'idempotency_key_reused']);
  const action = { action_name: 'add', input: {} };
  assert.equal((await act(key, action)).status, 200, 'another path is another request');
  assert.equal(codeOf(await act(key, action, { 'x-max-retries': '1' })), 'idempotency_key_reused');
});

test('a key belongs to one environment and one caller', async () => {
  const [key, body] = [fresh(), { url: url() }];
  const keyed = await trellis.keyWith('*');
  const answers = [
    await create(key, body),
    await create(key, body, { key: trellis.keys.prod }),
    await create(key, body, { key: keyed }),
  ];
  assert.deepEqual(
    answers.map(({ status }) => status),
    [201, 201, 201],
  );
  assert.ok(!answers.some(isReplayed));
  assert.equal(new Set(answers.map(({ body: { id } }) => id)).size, 3);
});

test('a key has 1 to 255 visible characters', async () => {
  assert.equal((await create('k'.repeat(255), { url: url() })).status, 201);
  for (const wrong of ['', 'k'.repeat(256), 'two words', 'caf\u00e9']) {
    const answer = await create(wrong, { url: url() });
    assert.deepEqual([answer.status, codeOf(answer)], [400, 'invalid_headers'], wrong);
  }
});

test('a body in many parts is compared by its bytes', async () => {
  const [key, body] = [
    fresh(),
    JSON.stringify({ url: url(), description: '\u20ac\u00e9\u{1f600}'.repeat(20) }),
  ];
  const send = (bytes: Buffer) =>
    new Promise<{ status: number; replayed: unknown }>((resolve, reject) => {
      const sent = httpRequest(`${trellis.baseUrl}/events/endpoints`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${trellis.keys.dev}`,
          'content-type': 'application/json',
          'idempotency-key': key,
          'transfer-encoding': 'chunked',
        },
      });
      sent.on('error', reject).on('response', (response) => {
        response.resume();
        response.on('end', () =>
          resolve({ status: response.statusCode!, replayed: response.headers['idempotency-replayed'] }),
        );
      });
      for (let at = 0; at < bytes.length; at += 3) sent.write(bytes.subarray(at, at + 3));
      sent.end();
    });
  assert.deepEqual(await send(Buffer.from(body)), { status: 201, replayed: undefined });
  assert.deepEqual(await send(Buffer.from(body)), { status: 201, replayed: 'true' });
  assert.equal(
    isReplayed(
      await trellis.call('POST', '/events/endpoints', { body, headers: { 'idempotency-key': key } }),
    ),
    true,
  );
  assert.equal((await send(Buffer.from(`${body} `))).status, 422);
});

test('a final refusal is kept, and an answer for 24 hours', async () => {
  const key = fresh();
  const integration = {
    provider: 'google-sheet',
    unique_key: connected.integration,
    credentials: { type: 'TEST' },
  };
  const send = () =>
    trellis.call('POST', '/integrations', { body: integration, headers: { 'idempotency-key': key } });
  const [first, second] = [await send(), await send()];
  assert.deepEqual([first.status, codeOf(first), isReplayed(first)], [400, 'integration_exists', false]);
  assert.deepEqual([second.text, isReplayed(second)], [first.text, true]);
  await trellis.runJob('idempotency.sweep');
  assert.equal(isReplayed(await send()), true);
  await trellis.db.query(`update idempotent_request set created_at = created_at - interval '25 hours'`);
  await trellis.runJob('idempotency.sweep');
  assert.equal(isReplayed(await send()), false);
});

test('the secret of a created key is stored sealed, and goes when the caller is revoked', async () => {
  const manager = await trellis.keyWith('*');
  const key = fresh();
  const make = () =>
    trellis.call('POST', '/environment/api-keys', {
      key: manager,
      body: { name: 'made', scopes: ['events:read'] },
      headers: { 'idempotency-key': key },
    });
  const [first, second] = [await make(), await make()];
  assert.equal(first.status, 201, first.text);
  assert.equal(second.text, first.text);
  assert.equal(isReplayed(second), true);
  const { secret } = first.body.data as { secret: string };
  const stored = await trellis.db.query<{ answer: Buffer; key_id: number }>(
    'select answer, key_id from idempotent_request order by created_at desc limit 1',
  );
  assert.ok(!stored[0]!.answer.toString('latin1').includes(secret));
  const left = () =>
    trellis.db.query('select from idempotent_request where key_id = $1', [stored[0]!.key_id]);
  assert.equal((await left()).length, 1);
  await trellis.call('DELETE', `/environment/api-keys/${stored[0]!.key_id}`);
  assert.equal((await left()).length, 0);
});

test('the answers of an environment go with it, and without its data key nothing is done or answered', async () => {
  const [key, body] = [fresh(), { url: url() }];
  assert.equal((await create(key, body, { key: trellis.keys.prod })).status, 201);
  const lost = await trellis.db.query<{ id: string; master_key: string; wrapped: Buffer }>(
    `delete from data_key using environment
     where data_key.id = environment.data_key and environment.name = 'prod'
     returning data_key.id, data_key.master_key, data_key.wrapped`,
  );
  assert.equal((await create(key, body, { key: trellis.keys.prod })).status, 404);
  const { id, master_key, wrapped } = lost[0]!;
  await trellis.db.query('insert into data_key (id, master_key, wrapped) values ($1, $2, $3)', [
    id,
    master_key,
    wrapped,
  ]);
  assert.equal(isReplayed(await create(key, body, { key: trellis.keys.prod })), true);
  await trellis.db.query(`delete from environment where name = 'prod'`);
  const left = await trellis.db.query(
    'select from idempotent_request where environment_id not in (select id from environment)',
  );
  assert.equal(left.length, 0);
});

test('a request whose node is lost has an unknown outcome', async () => {
  const [key, body] = [fresh(), { url: url() }];
  await create(key, body);
  await trellis.db.query(
    `update idempotent_request set answer = null, is_final = false, leased_until = now()
     where created_at = (select max(created_at) from idempotent_request)`,
  );
  const answer = await create(key, body);
  assert.deepEqual([answer.status, codeOf(answer)], [409, 'outcome_unknown']);
  assert.match(answer.text, /Check whether it took effect/);
});

test('the proxy passes the key to the provider and keeps nothing', async () => {
  const stored = () => trellis.db.query('select from idempotent_request');
  const before = (await stored()).length;
  const send = () =>
    trellis.call('POST', '/proxy/v4/spreadsheets', {
      body: { properties: { title: 'Twice' } },
      headers: { ...connected.headers, 'idempotency-key': 'same' },
    });
  const [first, second] = [await send(), await send()];
  assert.equal(first.status, 200, first.text);
  assert.notEqual(first.body.spreadsheetId, second.body.spreadsheetId);
  assert.ok(!isReplayed(second));
  assert.equal((await stored()).length, before);
});

test('without the header, and on other routes, nothing is kept', async () => {
  const body = { url: url() };
  for (let turn = 0; turn < 2; turn += 1)
    assert.equal((await trellis.call('POST', '/events/endpoints', { body })).status, 201);
  assert.equal(await endpointsAt(body.url), 2);
});
