import assert from 'node:assert/strict';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { json } from 'node:stream/consumers';
import { test } from 'node:test';
import { respond, startServer } from './client.fixture.ts';
import { Trellis } from './index.ts';

const page = { records: [{ id: '1', _trellis_metadata: { cursor: 'c1' } }], next_cursor: null };

/** Follows a service that hangs where a test says so; `isHung` resolves once it does. */
async function following(
  hangs: (request: IncomingMessage, turn: number) => boolean,
  use: (follow: {
    batches: AsyncGenerator<unknown, void>;
    stop: AbortController;
    isHung: Promise<void>;
    reported: unknown[];
    letGo(): void;
  }) => Promise<void>,
  from?: 'now',
): Promise<void> {
  const stop = new AbortController();
  const reported: unknown[] = [];
  const held: (() => void)[] = [];
  const { promise: isHung, resolve } = Promise.withResolvers<void>();
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const { method, url = '' } = request;
    if (method === 'PUT') {
      reported.push(((await json(request)) as { cursor: unknown }).cursor);
      return respond(response, { body: {} });
    }
    if (url.startsWith('/records/datasets')) return respond(response, { body: { datasets: [] } });
    if (url.includes('/consumers/'))
      return respond(response, { status: 404, body: { error: { code: 'not_found', message: 'new' } } });
    respond(response, { body: page });
  };
  const service = await startServer((request, response, turn) => {
    if (!hangs(request, turn)) {
      void answer(request, response);
      return;
    }
    held.push(() => void answer(request, response));
    resolve();
  });
  try {
    const records = new Trellis({ url: service.url, key: 'k' }).connection('i', 'c').records('City');
    const batches = records.follow({ consumer: 'one', pollMs: 1, signal: stop.signal, from });
    await use({ batches, stop, isHung, reported, letGo: () => held.forEach((go) => void go()) });
  } finally {
    await service.close();
  }
}

for (const [what, path, method] of [
  ['while it creates its consumer', '/consumers/', 'PUT'],
  ['while it requests the last cursor', '/records/datasets', 'GET'],
] as const)
  test(`an abort ends the iteration immediately, even ${what}`, () =>
    following(
      (request) => (request.url ?? '').includes(path) && request.method === method,
      async ({ batches, stop, isHung }) => {
        const first = batches.next();
        await isHung;
        const at = performance.now();
        stop.abort(new Error('enough'));
        await assert.rejects(first, /enough/);
        assert.ok(performance.now() - at < 2_000);
      },
      'now',
    ));

test('a processed batch is acknowledged after an abort, even if the service is slow', () =>
  following(
    ({ method }, turn) => method === 'PUT' && turn > 1,
    async ({ batches, stop, isHung, reported, letGo }) => {
      await batches.next();
      stop.abort(new Error('enough'));
      const next = assert.rejects(batches.next(), /enough/);
      await isHung;
      letGo();
      await next;
      assert.deepEqual(reported, [null, 'c1']);
    },
  ));

test('the acknowledgement after an abort takes at most five seconds', (t) =>
  following(
    ({ method }, turn) => method === 'PUT' && turn > 1,
    async ({ batches, stop, isHung }) => {
      await batches.next();
      t.mock.timers.enable({ apis: ['setTimeout'] });
      const next = assert.rejects(batches.next(), /enough/);
      await isHung;
      stop.abort(new Error('enough'));
      t.mock.timers.tick(5_000);
      await next;
    },
  ));
