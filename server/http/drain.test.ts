import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { type TestContext, test } from 'node:test';
import { brandNames } from '../brand.ts';
import { AppError } from '../errors.ts';
import { createLog } from '../log.ts';
import { createDrain, isStopping } from './drain.ts';
import { Overload } from './limits/overload.ts';
import { RawClient } from './raw-client.fixture.ts';
import { createHttp } from './server.ts';

/** Longer than a test may take: a drain that waited for its limit would never end. */
const forever = 86_400_000;

/**
 * A server whose `/waits` responds on demand, and whose `/streams` sends `begun`, and `ended` on demand. Its interceptor
 * responds below `/proxy/` with its last notification.
 */
async function serve(t: TestContext) {
  let words = 'told nothing';
  const overload = new Overload({ maxDelayMs: 1, maxWaiting: 1, random: () => 0 });
  const unknown = async () => {
    throw new AppError('unknown_account');
  };
  const app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost' },
    log: createLog({ level: 'silent', format: 'json' }),
    authenticate: { key: unknown, session: unknown },
    isRootAlias: () => false,
    interceptor: {
      takes: ({ url }) => url?.startsWith('/proxy/') === true,
      handle: (_request, response) => response.end(words),
      stopping() {
        words = 'told of the stop';
      },
      closing() {
        words = 'told of the end';
      },
    },
    limits: { overload },
  });
  const told = Promise.withResolvers<void>();
  let arrived = Promise.withResolvers<void>();
  const config = { access: { by: 'anyone' } } as const;
  app.get('/now', { config }, () => 'now');
  app.get('/waits', { config }, async () => {
    arrived.resolve();
    await told.promise;
    return 'waited';
  });
  app.get('/streams', { config }, (_request, reply) => {
    async function* parts() {
      yield 'begun';
      await told.promise;
      yield 'ended';
    }
    return reply.type('text/plain').send(Readable.from(parts()));
  });
  const delayed = Promise.withResolvers<void>();
  const drain = createDrain(app, () => delayed.promise);
  await app.listen({ host: '127.0.0.1', port: 0 });
  const { port } = app.server.address() as AddressInfo;
  t.after(() => told.resolve());
  return {
    server: app.server,
    drain,
    isStopping: () => isStopping(app),
    endDelay: () => delayed.resolve(),
    /** From now on it has too much to do. */
    overload() {
      for (let looks = 0; looks < 2; looks += 1) overload.note({ delayMs: 5_000, waiting: 0 });
    },
    end: () => told.resolve(),
    async arrived() {
      await arrived.promise;
      arrived = Promise.withResolvers<void>();
    },
    client: () => new Client(t, port),
  };
}

class Client extends RawClient {
  ask(path: string, version = '1.1'): this {
    return this.send(`GET ${path} HTTP/${version}\nHost: here\n\n`);
  }
}

test('a stop does not wait for idle connections', async (t) => {
  const { drain, client } = await serve(t);
  const used = await client().ask('/now').until('now');
  const silent = client();
  await once(silent.socket, 'connect');
  await drain({ limitMs: forever });
  await Promise.all([used.closed, silent.closed]);
});

test('a response that begins during a stop is the last of its connection, and has `Connection: close`', async (t) => {
  const { drain, client, arrived, end } = await serve(t);
  const waiting = client().ask('/waits');
  const idle = await client().ask('/now').until('now');
  await arrived();
  const stopped = drain({ limitMs: forever });
  await idle.closed;
  end();
  await stopped;
  await waiting.closed;
  assert.match(waiting.text, /^HTTP\/1\.1 200 [\s\S]*\r\nconnection: close\r\n[\s\S]*\r\n\r\nwaited$/);
});

test('an answer that has begun before a stop comes whole, and its connection ends with it', async (t) => {
  const { drain, client, end } = await serve(t);
  const streaming = await client().ask('/streams').until('begun');
  const idle = await client().ask('/now').until('now');
  const stopped = drain({ limitMs: forever });
  await idle.closed;
  end();
  await stopped;
  await streaming.closed;
  assert.match(streaming.text, /\r\nconnection: keep-alive\r\n[\s\S]*begun\r\n5\r\nended\r\n0\r\n\r\n$/i);
});

test('a request that comes during a stop on a connection in use is answered, and ends it', async (t) => {
  const { server, drain, client, end } = await serve(t);
  const streaming = await client().ask('/streams').until('begun');
  const idle = await client().ask('/now').until('now');
  const stopped = drain({ limitMs: forever });
  await idle.closed;
  const taken = once(server, 'request');
  streaming.ask('/waits');
  await taken;
  end();
  await stopped;
  await streaming.closed;
  assert.match(
    streaming.text,
    /ended\r\n0\r\n\r\nHTTP\/1\.1 200 OK\r\n[\s\S]*connection: close[\s\S]*waited$/i,
  );
});

test('a response that is cut off by a stop cannot be mistaken for a complete one', async (t) => {
  const { drain, client } = await serve(t);
  const chunked = await client().ask('/streams').until('begun');
  // Without chunks or a length, the end of the connection would be the end of the answer.
  const plain = await client().ask('/streams', '1.0').until('begun');
  await drain({ limitMs: 1 });
  await Promise.all([chunked.closed, plain.closed]);
  assert.doesNotMatch(chunked.text, /\r\n0\r\n\r\n$/);
  assert.equal(plain.error?.code, 'ECONNRESET');
});

test('a stopping server reports this at once, and accepts requests until its delay is over', async (t) => {
  const { drain, client, isStopping, endDelay, overload } = await serve(t);
  assert.equal(isStopping(), false);
  const stopped = drain({ delayMs: 1, limitMs: forever });
  assert.equal(isStopping(), true);
  const late = client().ask('/now');
  await late.closed;
  assert.match(late.text, /^HTTP\/1\.1 200 [\s\S]*\r\nconnection: close\r\n/);
  overload();
  const turnedAway = client().ask('/now');
  await turnedAway.closed;
  assert.match(turnedAway.text, /^HTTP\/1\.1 503 [\s\S]*\r\nconnection: close\r\n/i);
  endDelay();
  await stopped;
});

test('the interceptor is notified of a stop at once, and of its end when no request arrives any more', async (t) => {
  const { server, drain, client, endDelay, end } = await serve(t);
  const streaming = await client().ask('/streams').until('begun');
  const idle = await client().ask('/proxy/a').until('told nothing');
  const stopped = drain({ delayMs: 1, limitMs: forever });
  await idle.ask('/proxy/a').until('told of the stop');
  endDelay();
  await idle.closed;
  // A connection is idle after its response if the server has not read the next request.
  const read = once(server, 'request');
  streaming.ask('/proxy/a');
  await read;
  end();
  await stopped;
  await streaming.closed;
  assert.match(streaming.text, /ended\r\n0\r\n\r\nHTTP\/1\.1 200 OK\r\n[\s\S]*told of the end$/);
});
