import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { type TestContext, test } from 'node:test';
import type { Credentials } from '../auth-modes/modes.ts';
import { bearer, bytesOf, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';

const setTimeoutOf = setTimeout;

/** A proxy to a provider that responds with this status and a Retry-After of half a minute. */
async function busy(t: TestContext, status: number, fresh?: () => Promise<Credentials>) {
  const asked = Promise.withResolvers<void>();
  const upstream = await startHttp((_request, response) => {
    response.writeHead(status, { 'retry-after': '30' }).end('not now');
    asked.resolve();
  });
  const proxy = await startProxy({ definition: definitionAt(upstream.url), ...(fresh && { fresh }) });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  return {
    proxy,
    asked: asked.promise,
    call: (headers: Record<string, string> = {}) => send(`${proxy.url}/proxy/a`, { headers }).answer,
  };
}

/** The error for a call that a stop refuses. */
async function assertTold(answer: ReturnType<typeof send>['answer']): Promise<void> {
  const { statusCode, headers } = await answer;
  await bytesOf(await answer);
  assert.deepEqual(
    [statusCode, headers['x-trellis-error'], headers['retry-after'], headers.connection],
    [503, 'unavailable', '1', 'close'],
  );
}

test('a call that waits for credentials is refused at once by a stop', async (t) => {
  const waits = Promise.withResolvers<void>();
  const { proxy, call } = await busy(t, 200, () => {
    waits.resolve();
    return new Promise(() => {});
  });
  const answer = call();
  await waits.promise;
  await Promise.all([proxy.stop(), assertTold(answer)]);
});

test('a call that waits for renewed credentials after a 401 is refused at once by a stop', async (t) => {
  const { proxy, call, asked } = await busy(t, 401);
  const renewal = Promise.withResolvers<undefined>();
  proxy.renewals.push(renewal.promise);
  const answer = call();
  await asked;
  while (proxy.renewedWith.length === 0) await new Promise(setImmediate);
  await Promise.all([proxy.stop(), assertTold(answer)]);
});

test('a call that waits for a retry is refused at once by a stop', async (t) => {
  const { proxy, call } = await busy(t, 503);
  let isWaiting = false;
  const waits = t.mock.method(globalThis, 'setTimeout', (...given: Parameters<typeof setTimeout>) => {
    isWaiting ||= given[1] === 30_000;
    return setTimeoutOf(...given);
  });
  const answer = call({ retries: '1' });
  while (!isWaiting) await new Promise(setImmediate);
  waits.mock.restore();
  await Promise.all([proxy.stop(), assertTold(answer)]);
});

test('during the delay of a stop calls are sent and wait as usual, and each response closes its connection', async (t) => {
  const begun = Promise.withResolvers<void>();
  const ready = Promise.withResolvers<Credentials>();
  const { proxy, call } = await busy(t, 200, () => {
    begun.resolve();
    return ready.promise;
  });
  const stopped = proxy.stopDelayed();
  const answer = call();
  const refused = call({ authorization: 'Bearer nobody' });
  const preflight = send(`${proxy.url}/proxy/a`, {
    method: 'OPTIONS',
    headers: { origin: 'https://app.example.com', 'access-control-request-method': 'POST' },
  }).answer;
  await begun.promise;
  ready.resolve(bearer('token-1'));
  for (const [reported, status] of [
    [answer, 200],
    [refused, 401],
    [preflight, 204],
  ] as const) {
    const { statusCode, headers } = await reported;
    await bytesOf(await reported);
    assert.deepEqual([statusCode, headers.connection], [status, 'close']);
  }
  proxy.endDelay();
  await stopped;
});

test("a call that is under way at a stop is not tried again: the provider's answer is its own", async (t) => {
  const arrived = Promise.withResolvers<void>();
  const reported = Promise.withResolvers<void>();
  let requests = 0;
  const upstream = await startHttp(async (_request, response) => {
    requests += 1;
    arrived.resolve();
    await reported.promise;
    response.writeHead(503, { 'retry-after': '0' }).end('not now');
  });
  const proxy = await startProxy({ definition: definitionAt(upstream.url) });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const answer = send(`${proxy.url}/proxy/a`, { headers: { retries: '3' } }).answer;
  await arrived.promise;
  const unused = connect(proxy.port, '127.0.0.1');
  await once(unused, 'connect');
  const stopped = proxy.stop();
  // Idle connections are closed after the stop was announced.
  await once(unused.resume(), 'close');
  reported.resolve();
  const { statusCode, headers } = await answer;
  assert.deepEqual([statusCode, headers['x-trellis-error']], [503, undefined]);
  assert.equal((await bytesOf(await answer)).toString(), 'not now');
  assert.equal(requests, 1);
  await stopped;
});
