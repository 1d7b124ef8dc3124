import assert from 'node:assert/strict';
import { json } from 'node:stream/consumers';
import { test } from 'node:test';
import { respond, startServer, type TestServer } from './client.fixture.ts';
import { Trellis } from './index.ts';

/** A service that takes everything, and the bodies that it was given. */
async function withService(
  use: (client: Trellis, service: TestServer, bodies: unknown[]) => Promise<void>,
): Promise<void> {
  const bodies: unknown[] = [];
  const service = await startServer(async (request, response) => {
    if (request.method !== 'GET') bodies.push(await json(request));
    respond(response, { body: { success: true, records: [{ id: '1' }], next_cursor: null } });
  });
  try {
    await use(new Trellis({ url: service.url, key: 'k' }), service, bodies);
  } finally {
    await service.close();
  }
}
const isTypeError = (message: RegExp) => ({ name: 'TypeError', message });

test('an empty list of syncs is refused; only a star means all', () =>
  withService(async (client, { requests }, bodies) => {
    const { syncs } = client.connection('i', 'c');
    for (const call of ['trigger', 'start', 'pause'] as const) {
      await assert.rejects(syncs[call]([]), isTypeError(/'\*'/));
      assert.equal(requests.length, 0);
      await syncs[call]('*');
      assert.deepEqual((bodies.pop() as { syncs: unknown }).syncs, []);
      await syncs[call](['one', { name: 'two', variant: 'v' }]);
      assert.deepEqual((bodies.pop() as { syncs: unknown }).syncs, ['one', { name: 'two', variant: 'v' }]);
      requests.length = 0;
    }
  }));

test('a list with an empty list of IDs is empty', () =>
  withService(async (client, { requests }) => {
    const records = client.connection('i', 'c').records('City');
    assert.deepEqual(await records.list({ ids: [] }).toArray(), []);
    const pages = await Array.fromAsync(records.list({ ids: [] }).pages());
    assert.deepEqual(pages, [{ records: [], next_cursor: null }]);
    assert.equal(requests.length, 0);
    assert.equal((await records.list({ ids: ['1'] }).toArray()).length, 1);
  }));

test('arguments that cannot be sent are a TypeError, not an outage', () =>
  withService(async (client, { requests }) => {
    const records = client.connection('i', 'c').records('City');
    const circular: Record<string, unknown> & { id: string } = { id: '1' };
    circular.self = circular;
    await assert.rejects(records.save([circular]), isTypeError(/circular/));
    await assert.rejects(records.save([{ id: 1, size: 1n }]), isTypeError(/BigInt/));
    const elsewhere = client.connection('i', '日本').records('City');
    await assert.rejects(elsewhere.page(), isTypeError(/"日本" cannot be the connection-id/));
    assert.equal(requests.length, 0);
  }));

test('an address with a password is refused, and no message contains it', () => {
  for (const url of ['http://ada:s3cret@host', 'https://s3cret@host/x', 'http://ada:s3cret@ho st']) {
    assert.throws(
      () => new Trellis({ url, key: 'k' }),
      (error: Error) => error.name === 'TypeError' && !error.message.includes('s3cret'),
    );
  }
  assert.doesNotThrow(() => new Trellis({ url: 'https://host/@x', key: 'k' }));
});

test('a missing key is reported', () => {
  assert.throws(() => new Trellis({ url: 'https://host', key: undefined }), isTypeError(/missing/));
});
