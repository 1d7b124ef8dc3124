import assert from 'node:assert/strict';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { z } from 'zod';
import { brandNames } from '../../brand.ts';
import { AppError } from '../../errors.ts';
import { createLog } from '../../log.ts';
import type { Caller } from '../auth/caller.ts';
import { RawClient } from '../raw-client.fixture.ts';
import { createHttp } from '../server.ts';

const kb = 1024;
const caller: Caller = {
  kind: 'key',
  environmentId: 1,
  environment: 'dev',
  keyId: 1,
  scopes: new Set(['records:write']),
};

/** A server that holds so much of large bodies; `/known` wants a key, and each answers how long the body was. */
async function serve(t: TestContext, bodyBytes: number) {
  const app = await createHttp({
    config: { brand: brandNames('trellis'), trustedProxies: [], baseUrl: 'http://localhost' },
    log: createLog({ level: 'silent', format: 'json' }),
    authenticate: {
      key: () => caller,
      session: async () => {
        throw new AppError('unknown_connect_session_token');
      },
    },
    isRootAlias: () => false,
    limits: { bodyBytes },
  });
  const read = (body: unknown) => `read ${String(body).length}.`;
  const schema = { body: z.string() };
  app.post('/known', { config: { access: { by: 'key', scope: 'records:write' } }, schema }, ({ body }) =>
    read(body),
  );
  app.post('/open', { config: { access: { by: 'anyone' } }, schema }, ({ body }) => read(body));
  await app.listen({ host: '127.0.0.1', port: 0 });
  t.after(async () => {
    app.server.closeAllConnections();
    await app.close();
  });
  const { port } = app.server.address() as AddressInfo;
  const begin = (path: string, framing: string) => {
    const client = new RawClient(t, port);
    const lines = 'Host: a\nAuthorization: Bearer key\nContent-Type: application/json\n';
    return client.send(`POST ${path} HTTP/1.1\n${lines}${framing}\n\n`);
  };
  const announce = (path: string, bytes: number) => begin(path, `Content-Length: ${bytes}`);
  /** What is answered to a head whose body does not come; 100 where it is admitted. */
  const statusOf = async (path: string, bytes: number) => {
    const client = begin(path, `Content-Length: ${bytes}\nExpect: 100-continue`);
    await client.until('\r\n\r\n');
    client.socket.destroy();
    return client.text.slice(9, 12);
  };
  const untilRefused = async (path: string, bytes: number) => {
    while ((await statusOf(path, bytes)) !== '503');
  };
  const untilAdmitted = async (path: string, bytes: number) => {
    while ((await statusOf(path, bytes)) !== '100');
  };
  return { server: app.server, begin, announce, statusOf, untilRefused, untilAdmitted };
}

/** A JSON text of so many bytes. */
const body = (bytes: number) => `"${'x'.repeat(bytes - 2)}"`;
const read = (bytes: number) => `read ${bytes - 2}.`;

test('bodies that are announced and never sent keep no others out', async (t) => {
  const { server, announce } = await serve(t, 1024 * kb);
  let arrived = 0;
  const all = Promise.withResolvers<void>();
  server.on('request', () => {
    arrived += 1;
    if (arrived === 100) all.resolve();
  });
  for (let at = 0; at < 50; at++) {
    announce('/known', 1000 * kb);
    announce('/open', 200 * kb);
  }
  await all.promise;
  await announce('/known', 1000 * kb)
    .send(body(1000 * kb))
    .until(read(1000 * kb));
  await announce('/open', 200 * kb)
    .send(body(200 * kb))
    .until(read(200 * kb));
});

test('received bytes count until the response: a body that does not fit is refused unread', async (t) => {
  const { announce, begin, untilRefused, untilAdmitted } = await serve(t, 1024 * kb);
  const first = announce('/known', 1000 * kb).send(body(1000 * kb).slice(0, 700 * kb));
  await untilRefused('/known', 400 * kb);
  const refused = await announce('/known', 400 * kb).until('"overloaded"');
  assert.match(refused.text, /^HTTP\/1\.1 503 [\s\S]*\r\nretry-after: 1\r\n/i);
  // Small ones, and those that fit, go on.
  await announce('/known', 60 * kb)
    .send(body(60 * kb))
    .until(read(60 * kb));
  await announce('/known', 300 * kb)
    .send(body(300 * kb))
    .until(read(300 * kb));
  first.send(body(1000 * kb).slice(700 * kb));
  await first.until(read(1000 * kb));
  await untilAdmitted('/known', 1000 * kb);
  const asking = begin('/known', `Content-Length: ${1000 * kb}\nExpect: 100-continue`);
  await asking.until('100 Continue');
  asking.send(body(1000 * kb).slice(0, 700 * kb));
  await untilRefused('/known', 400 * kb);
  asking.socket.destroy();
  await untilAdmitted('/known', 1000 * kb);
  // Who goes takes it along.
  const gone = begin('/known', 'Transfer-Encoding: chunked').send('0afc00\n');
  gone.send(body(1000 * kb).slice(0, 700 * kb));
  await untilRefused('/known', 400 * kb);
  gone.socket.destroy();
  await untilAdmitted('/known', 1000 * kb);
});

test('of bodies that fill the memory together one is refused, and the others are completed', async (t) => {
  const { server, announce, untilRefused, untilAdmitted } = await serve(t, 2048 * kb);
  const text = body(1000 * kb);
  const clients = [];
  for (let at = 0; at < 3; at++) {
    const arrived = once(server, 'request');
    clients.push(announce('/known', 1000 * kb));
    await arrived;
  }
  const [one, other, third] = clients as [RawClient, RawClient, RawClient];
  one.send(text.slice(0, 900 * kb));
  other.send(text.slice(0, 900 * kb));
  await untilRefused('/known', 300 * kb);
  third.send(text.slice(0, 500 * kb));
  await third.until('"overloaded"');
  assert.match(third.text, /^HTTP\/1\.1 503 [\s\S]*\r\nretry-after: 1\r\n/i);
  one.send(text.slice(900 * kb));
  other.send(text.slice(900 * kb));
  await one.until(read(1000 * kb));
  await other.until(read(1000 * kb));
  await untilAdmitted('/known', 1000 * kb);
});

test('a single body passes whatever its size, but none that is longer than its route accepts', async (t) => {
  const { begin, announce, untilAdmitted } = await serve(t, 512 * kb);
  await announce('/known', 1000 * kb)
    .send(body(1000 * kb))
    .until(read(1000 * kb));
  const long = begin('/known', 'Transfer-Encoding: chunked')
    .send('200000\n')
    .send(body(2048 * kb));
  await long.until('"body_too_large"');
  await untilAdmitted('/known', 1000 * kb);
});

test('callers without a key take a quarter of the memory, and the rest is for callers with one', async (t) => {
  const { server, announce, untilRefused, statusOf } = await serve(t, 4096 * kb);
  const strangers: RawClient[] = [];
  // Both are admitted before either sends.
  for (let at = 0; at < 2; at++) {
    const arrived = once(server, 'request');
    strangers.push(announce('/open', 600 * kb));
    await arrived;
  }
  for (const stranger of strangers) stranger.send(body(600 * kb).slice(0, 500 * kb));
  await untilRefused('/open', 100 * kb);
  assert.equal(await statusOf('/known', 1000 * kb), '100');
  await announce('/known', 1000 * kb)
    .send(body(1000 * kb))
    .until(read(1000 * kb));
  for (const stranger of strangers) {
    stranger.send(body(600 * kb).slice(500 * kb));
    // They fill their share together; the last one is refused.
    await stranger.until('\r\n\r\n');
  }
  const answers = strangers.map(({ text }) => text.slice(9, 12)).sort();
  assert.equal(answers[0], '200', String(answers));
});
