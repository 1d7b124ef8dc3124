// Slow: each of its tests takes more than a second.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { createActivity } from '../../server/activity/writer.ts';
import { getEnvironment } from '../../server/environments/store.ts';
import { createLog } from '../../server/log.ts';
import { connect, openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let headers: Record<string, string>;
before(async () => {
  trellis = await openTrellis();
  ({ headers } = await connect(trellis));
});
after(() => trellis.close());

type Told = { id: string; type: string; path: string; connection_id: string | null };
type Event = { name: string; id: string | undefined; data: unknown };

/** The events of a tail, one after the other. */
async function openTail(
  query = '',
  {
    key = trellis.keys.dev,
    lastId,
    baseUrl = trellis.baseUrl,
  }: { key?: string; lastId?: string; baseUrl?: string } = {},
) {
  const aborted = new AbortController();
  const response = await fetch(`${baseUrl}/operations/tail${query}`, {
    headers: { authorization: `Bearer ${key}`, ...(lastId !== undefined && { 'last-event-id': lastId }) },
    signal: aborted.signal,
  });
  const events = response.ok ? eventsOf(response) : undefined;
  return {
    response,
    async next(): Promise<Event> {
      const { value, done } = await events!.next();
      assert.ok(!done, 'the tail has ended');
      return value;
    },
    /** The path of the next operation. */
    async path(): Promise<string> {
      const { name, id, data } = await this.next();
      assert.equal(name, 'operation', JSON.stringify(data));
      assert.equal((data as Told).id, id);
      return (data as Told).path;
    },
    isOver: async () => (await events!.next()).done === true,
    close: () => aborted.abort(),
  };
}

async function* eventsOf(response: Response): AsyncGenerator<Event> {
  let text = '';
  for await (const chunk of response.body!.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    for (let end = text.indexOf('\n\n'); end >= 0; end = text.indexOf('\n\n')) {
      const fields = new Map(
        text
          .slice(0, end)
          .split('\n')
          .map((line) => {
            const [, name = '', value = ''] = /^([^:]*): ?(.*)$/.exec(line) ?? [];
            return [name, value] as const;
          }),
      );
      text = text.slice(end + 2);
      const name = fields.get('event');
      if (name !== undefined) yield { name, id: fields.get('id'), data: JSON.parse(fields.get('data')!) };
    }
  }
}

const callProxy = (path: string, call: TestTrellis['call'] = trellis.call) =>
  call('GET', `/proxy/v4/spreadsheets/${path}`, { headers });

test('a tail reports later entries of every node, once, and only those of the filter', async () => {
  const another = await trellis.serveAnother();
  try {
    await callProxy('before');
    const all = await openTail();
    const some = await openTail(`?text=WANTED&connection_id=${headers['connection-id']}&status=failed`, {
      baseUrl: another.baseUrl,
    });
    const prod = await openTail('', { key: trellis.keys.prod });
    assert.deepEqual(
      [
        all.response.status,
        all.response.headers.get('content-type'),
        all.response.headers.get('cache-control'),
      ],
      [200, 'text/event-stream; charset=utf-8', 'no-store'],
    );
    await callProxy('one');
    await callProxy('wanted-1', another.call);
    await callProxy('two', another.call);
    await callProxy('wanted-2');
    const paths = [await all.path(), await all.path(), await all.path(), await all.path()];
    assert.deepEqual(paths.map((path) => path.replace('/v4/spreadsheets/', '')).sort(), [
      'one',
      'two',
      'wanted-1',
      'wanted-2',
    ]);
    assert.deepEqual([await some.path(), await some.path()].sort(), [
      '/v4/spreadsheets/wanted-1',
      '/v4/spreadsheets/wanted-2',
    ]);
    for (const tail of [all, some, prod]) tail.close();
  } finally {
    await another.close();
  }
});

test('late entries of another node are reported nevertheless, and once', async () => {
  const { id: environmentId } = await getEnvironment(trellis.db, 'dev');
  const tail = await openTail();
  await new Promise((resolve) => setTimeout(resolve, 1_500));
  const startedAt = Date.now();
  let lateMs = 0;
  const late = createActivity({
    db: trellis.db,
    log: createLog({ level: 'silent', format: 'json' }),
    settings: { sampleRate: 1 },
    nowMs: () => startedAt - lateMs,
  });
  const log = (path: string) => late.log({ environmentId, type: 'proxy', status: 'success', path });
  log('newer');
  assert.equal(await tail.path(), 'newer');
  // The ids of one node never run back: another one has a clock that is behind.
  await late.stop();
  lateMs = 1_000;
  const behind = createActivity({
    db: trellis.db,
    log: createLog({ level: 'silent', format: 'json' }),
    settings: { sampleRate: 1 },
    nowMs: () => startedAt - lateMs,
  });
  behind.log({ environmentId, type: 'proxy', status: 'success', path: 'older' });
  assert.equal(await tail.path(), 'older');
  await behind.stop();
  await callProxy('last');
  assert.equal(await tail.path(), '/v4/spreadsheets/last');
  tail.close();
});

test('a client that reconnects misses nothing that happened meanwhile', async () => {
  const first = await openTail('?text=again');
  await callProxy('again-1');
  const { id } = await first.next();
  first.close();
  for (const n of [2, 3, 4]) await callProxy(`again-${n}`);
  const second = await openTail('?text=again', { lastId: id! });
  const seen = new Set<string>();
  while (!seen.has('/v4/spreadsheets/again-4') || seen.size < 4) seen.add(await second.path());
  assert.deepEqual(
    [...seen].sort(),
    [1, 2, 3, 4].map((n) => `/v4/spreadsheets/again-${n}`),
  );
  second.close();
  assert.equal((await openTail('', { lastId: 'no-id' })).response.status, 400);
  const future = await openTail('?seconds=0', { lastId: 'ffffffff-ffff-7fff-bfff-ffffffffffff' });
  assert.equal((await future.next()).name, 'end');
});

test('a tail with a duration ends automatically', async () => {
  await callProxy('asked');
  let answer = await trellis.call('GET', '/operations?text=asked');
  while ((answer.body.operations as Told[]).length === 0)
    answer = await trellis.call('GET', '/operations?text=asked');
  const [{ id }] = answer.body.operations as [Told];
  const tail = await openTail('?text=asked&seconds=0', { lastId: id });
  assert.equal(await tail.path(), '/v4/spreadsheets/asked');
  assert.deepEqual((await tail.next()).name, 'end');
  assert.ok(await tail.isOver());
  for (const seconds of ['-1', '3601', '1.5', 'x'])
    assert.equal((await openTail(`?seconds=${seconds}`)).response.status, 400);
});

test('a tail ends within a second when its key is revoked, on another node too', async () => {
  const another = await trellis.serveAnother();
  try {
    const made = await trellis.call('POST', '/environment/api-keys', {
      body: { name: 'tail', scopes: ['activity:read'] },
    });
    const { id, secret } = made.body.data as { id: number; secret: string };
    const tails = [
      await openTail('', { key: secret }),
      await openTail('', { key: secret, baseUrl: another.baseUrl }),
    ];
    await trellis.call('DELETE', `/environment/api-keys/${id}`);
    for (const tail of tails) {
      let { name, data } = await tail.next();
      while (name === 'operation') ({ name, data } = await tail.next());
      assert.deepEqual([name, (data as { reason: string }).reason], ['end', 'key']);
      assert.ok(await tail.isOver());
    }
  } finally {
    await another.close();
  }
});

test('a node that stops ends its tails, and serves a bounded number of them', async () => {
  const another = await trellis.serveAnother();
  const tails = [];
  for (let n = 0; n < 20; n += 1) tails.push(await openTail('', { baseUrl: another.baseUrl }));
  const refused = await openTail('', { baseUrl: another.baseUrl });
  assert.equal(refused.response.status, 429);
  assert.ok(refused.response.headers.get('retry-after'));
  await refused.response.text();
  tails.pop()!.close();
  let more = await openTail('', { baseUrl: another.baseUrl });
  while (more.response.status === 429) {
    await more.response.text();
    more = await openTail('', { baseUrl: another.baseUrl });
  }
  tails.push(more);
  const closed = another.close();
  for (const tail of tails) {
    const { name, data } = await tail.next();
    assert.deepEqual([name, (data as { reason: string }).reason], ['end', 'stopping']);
    assert.ok(await tail.isOver());
  }
  await closed;
});

test('a HEAD opens no tail', async () => {
  assert.equal((await trellis.call('HEAD', '/operations/tail')).status, 400);
});
