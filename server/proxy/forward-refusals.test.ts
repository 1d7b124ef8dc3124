import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { bytesOf, proxyTo, send, startHttp } from './proxy.fixture.ts';

/** An error as Google's older APIs write it. */
const refusal = (reason: string, padding = '') =>
  JSON.stringify({ error: { code: 403, errors: [{ domain: 'usageLimits', reason }], padding } });

/** A provider that sends the given responses in order, then 200; a call with one retry reaches it twice. */
async function callOnce(t: TestContext, refuse: (response: ServerResponse) => void, method = 'GET') {
  let asked = 0;
  const upstream = await startHttp((request, response) => {
    request.resume();
    asked += 1;
    if (asked === 1) refuse(response);
    else response.end('well');
  });
  const reasons = { rateLimitExceeded: 'rate_limited', userRateLimitExceeded: 'rate_limited' };
  const proxy = await proxyTo(t, upstream, { errors: { reasons } });
  const answer = await send(`${proxy.url}/proxy/a`, { method, headers: { retries: '1' } }).answer;
  const text = (await bytesOf(answer)).toString();
  return { status: answer.statusCode, text, marker: answer.headers['x-trellis-error'], asked };
}
const soon = { 'retry-after': '0' };

for (const reason of ['rateLimitExceeded', 'userRateLimitExceeded']) {
  test(`403 with the reason ${reason} is tried again as a 429 is`, async (t) => {
    const reported = await callOnce(t, (response) => response.writeHead(403, soon).end(refusal(reason)));
    assert.deepEqual(reported, { status: 200, text: 'well', marker: undefined, asked: 2 });
  });
}

test('the reason is found in a body that is compressed, arrives in parts, or continues after it', async (t) => {
  const zipped = await callOnce(t, (response) =>
    response
      .writeHead(403, { ...soon, 'content-encoding': 'gzip' })
      .end(gzipSync(refusal('rateLimitExceeded'))),
  );
  assert.equal(zipped.asked, 2);
  const parts = await callOnce(t, (response) => {
    const body = refusal('rateLimitExceeded');
    response.writeHead(403, soon).write(body.slice(0, 30));
    setImmediate(() => response.end(body.slice(30)));
  });
  assert.equal(parts.asked, 2);
});

test('403 for another reason is the answer, whole, however long it is', async (t) => {
  for (const padding of ['', 'x'.repeat(300_000)]) {
    const body = refusal('insufficientFilePermissions', padding);
    const reported = await callOnce(t, (response) => response.writeHead(403, soon).end(body));
    assert.deepEqual(reported, { status: 403, text: body, marker: undefined, asked: 1 });
    const streamed = await callOnce(t, (response) => {
      response.writeHead(403, soon).write(body.slice(0, 20));
      setImmediate(() => response.end(body.slice(20)));
    });
    assert.deepEqual(streamed, { status: 403, text: body, marker: undefined, asked: 1 });
  }
});

test('403 without a body, and to HEAD, is the answer', async (t) => {
  const empty = await callOnce(t, (response) => response.writeHead(403).end());
  assert.deepEqual([empty.status, empty.asked], [403, 1]);
  const head = await callOnce(t, (response) => response.writeHead(403).end(), 'HEAD');
  assert.deepEqual([head.status, head.asked], [403, 1]);
});

test('a POST that was refused so is not tried again', async (t) => {
  const reported = await callOnce(
    t,
    (response) => response.writeHead(403, soon).end(refusal('rateLimitExceeded')),
    'POST',
  );
  assert.deepEqual([reported.status, reported.asked], [403, 1]);
});

test('403 that breaks off before its reason is known is tried again as any answer that broke off', async (t) => {
  const reported = await callOnce(t, (response) => {
    response.writeHead(403, { 'content-length': 100 }).write('{"error":');
    setImmediate(() => response.destroy());
  });
  assert.deepEqual(reported, { status: 200, text: 'well', marker: undefined, asked: 2 });
});
