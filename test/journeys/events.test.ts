import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { json } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';
import { eventTypes } from '../../server/events/event-types.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** The event feed as an application follows it. */
let trellis: TestTrellis;
let made = 0;
before(async () => {
  trellis = await openTrellis();
  await addIntegration(trellis);
});
after(() => trellis.close());

const addIntegration = ({ call }: Pick<TestTrellis, 'call'>) =>
  call('POST', '/integrations', {
    body: {
      unique_key: 'own',
      provider: 'private-api-key',
      integration_config: { base_url: 'https://own.example.com' },
    },
  });
/** Raises `connection.created`; the ID of the connection. */
async function raise({ call }: Pick<TestTrellis, 'call'> = trellis): Promise<string> {
  made += 1;
  const connection_id = `c${made}`;
  const credentials = { type: 'API_KEY', apiKey: 'a-key-of-a-user' };
  const body = { provider_config_key: 'own', connection_id, credentials };
  const { status, text } = await call('POST', '/connections', { body });
  assert.equal(status, 201, text);
  return connection_id;
}
type Page = { events: { type: string; data: { connection_id: string } }[]; next_after: string };
async function read(query: string, options: { key?: string } = {}) {
  const { status, body } = await trellis.call('GET', `/events?${query}`, options);
  return { status, ...(body as unknown as Page & { error?: { code: string; message: string } }) };
}
const idsOf = ({ events }: Page) => events.map(({ data }) => data.connection_id);
const errorOf = ({ status, error }: Awaited<ReturnType<typeof read>>) => [status, error?.code];
/** Where the feed ends. */
const end = async () => (await read('limit=1000')).next_after;
/** Resolves when the service has taken the next request. */
const asked = () => once(trellis.app.server, 'request');

describe('a reader that waits', () => {
  test('is answered with the next event', async () => {
    const from = await end();
    const arrived = asked();
    const waiting = read(`after=${from}&wait=30`);
    await arrived;
    const id = await raise();
    const page = await waiting;
    assert.deepEqual([idsOf(page), page.next_after], [[id], String(Number(from) + 1)]);
  });

  test('is answered with an event of another node', async (context) => {
    const other = await trellis.serveAnother();
    context.after(() => other.close());
    const arrived = asked();
    const waiting = read(`after=${await end()}&wait=30`);
    await arrived;
    const id = await raise(other);
    assert.deepEqual(idsOf(await waiting), [id]);
  });

  test('gets existing events at once', async () => {
    const from = await end();
    const id = await raise();
    assert.deepEqual(idsOf(await read(`after=${from}&wait=30`)), [id]);
  });

  test('gets an empty page after its time limit, and keeps its position', async () => {
    const from = await end();
    assert.deepEqual(await read(`after=${from}&wait=1`), {
      status: 200,
      events: [],
      next_after: from,
      next_cursor: null,
    });
  });

  test('for one type sleeps through the others, and passes over them', async () => {
    const from = await end();
    const arrived = asked();
    const waiting = read(`after=${from}&wait=30&types=connection.deleted`);
    await arrived;
    const id = await raise();
    await trellis.call('DELETE', `/connections/${id}?provider_config_key=own`);
    const page = await waiting;
    assert.deepEqual(
      [page.events.map(({ type }) => type), page.next_after],
      [['connection.deleted'], String(Number(from) + 2)],
    );
  });

  test('whose key is revoked meanwhile gets a 401 and no event', async () => {
    const from = await end();
    const given = { name: 'to be revoked', scopes: ['events:read'] };
    const { body } = await trellis.call('POST', '/environment/api-keys', { body: given });
    const { id, secret } = body.data as { id: number; secret: string };
    const arrived = asked();
    const waiting = read(`after=${from}&wait=30`, { key: secret });
    await arrived;
    assert.equal((await trellis.call('DELETE', `/environment/api-keys/${id}`)).status, 200);
    await raise();
    assert.deepEqual(errorOf(await waiting), [401, 'unknown_account']);
  });

  test('is answered at once when the service stops', async () => {
    const stopping = await openTrellis();
    const headers = { authorization: `Bearer ${stopping.keys.dev}` };
    // Without an agent the connection is not kept for more.
    const waiting = request(`${stopping.baseUrl}/events?wait=30`, { headers, agent: false }).end();
    await once(stopping.app.server, 'request');
    const closing = stopping.close();
    const [response] = (await once(waiting, 'response')) as [IncomingMessage];
    assert.deepEqual(await json(response), { events: [], next_after: '0', next_cursor: null });
    await closing;
  });
});

describe('a position', () => {
  test('that is invalid, or was never issued, is refused', async () => {
    for (const after of ['x', '-1', '1.5', '01', '1e3', '', '%201', '99999999999999999', '9'.repeat(400)]) {
      const refused = await read(`after=${after}`);
      assert.deepEqual(errorOf(refused), [400, 'invalid_query_params'], after);
    }
    for (const after of [Number(await end()) + 1, 2 ** 32, Number.MAX_SAFE_INTEGER]) {
      assert.deepEqual(errorOf(await read(`after=${after}`)), [400, 'invalid_cursor'], String(after));
    }
  });

  test('before an event that was removed is refused, and without one the feed begins with the oldest', async () => {
    const early = await read('limit=1');
    await raise();
    // It has a position now: none without goes.
    await end();
    await trellis.advance(31 * 86_400);
    await trellis.runJob('events.retention');
    const kept = await raise();
    const refused = await read(`after=${early.next_after}`);
    assert.deepEqual(errorOf(refused), [410, 'cursor_expired']);
    assert.match(refused.error?.message ?? '', /Omit `after`/);
    assert.deepEqual(idsOf(await read('')), [kept]);
  });
});

describe('types', () => {
  test('filter by name and by kind', async () => {
    const from = await end();
    const id = await raise();
    await trellis.call('DELETE', `/connections/${id}?provider_config_key=own`);
    const typesOf = async (types: string) =>
      (await read(`after=${from}&types=${types}`)).events.map(({ type }) => type);
    assert.deepEqual(await typesOf('connection.*'), ['connection.created', 'connection.deleted']);
    assert.deepEqual(await typesOf('consumer.stale,%20connection.deleted'), ['connection.deleted']);
    assert.deepEqual(await typesOf('integration.*'), []);
  });

  test('that there are not are refused by name', async () => {
    for (const types of ['connection.create', 'sync.succeeded', '*', '', 'connection.created,']) {
      const refused = await read(`types=${types}`);
      assert.deepEqual(errorOf(refused), [400, 'invalid_query_params'], types);
    }
  });

  test('are listed with meaning, schema and example', async () => {
    const { status, body } = await trellis.call('GET', '/events/types');
    assert.equal(status, 200);
    const types = body.types as { type: string; meaning: string; data_schema: object; example: object }[];
    assert.deepEqual(
      types.map(({ type }) => type),
      eventTypes,
    );
    for (const { meaning, data_schema, example } of types) {
      assert.match(meaning, /\.$/);
      assert.partialDeepStrictEqual(data_schema, { type: 'object' });
      assert.deepEqual(Object.keys(example), ['id', 'type', 'environment', 'created_at', 'data']);
    }
  });
});
