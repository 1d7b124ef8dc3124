import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Operation } from '../activity/operations.ts';
import type { Credentials } from '../auth-modes/modes.ts';
import { bearer, bytesOf, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';

/** A proxy to a provider that answers as `serve` does, and the lines of its log as they come. */
async function logged(
  t: TestContext,
  serve: Parameters<typeof startHttp>[0],
  settings: Partial<Parameters<typeof startProxy>[0]> = {},
) {
  const upstream = await startHttp(serve);
  t.after(() => upstream.close());
  const lines: Operation[] = [];
  let reported = () => {};
  const proxy = await startProxy({
    definition: definitionAt(upstream.url),
    ...settings,
    keyRules: [{ effect: 'deny', path: '/shut' }],
    activity: {
      log(line) {
        lines.push(line);
        reported();
      },
    },
  });
  t.after(() => proxy.close());
  const next = async () => {
    if (lines.length === 0) {
      await new Promise<void>((resolve) => {
        reported = resolve;
      });
    }
    return lines.shift()!;
  };
  return { proxy, next };
}

test('a call is logged with its request and its outcome, without secrets', async (t) => {
  const { proxy, next } = await logged(t, (request, response) => {
    request.resume().on('end', () => response.writeHead(201).end('created'));
  });
  const { answer } = send(`${proxy.url}/proxy/v4/a%20b?key=s3cret&fields=id`, {
    method: 'POST',
    body: Buffer.from('four'),
  });
  await bytesOf(await answer);
  const { durationMs = 0, requestId, credentialsMs, connectMs, firstByteMs, bodyMs, ...line } = await next();
  assert.deepEqual(line, {
    environmentId: 1,
    type: 'proxy',
    status: 'success',
    integration: 'google',
    connection: 'alice',
    actor: 'key:1',
    method: 'POST',
    path: '/v4/a%20b?key=***&fields=id',
    httpStatus: 201,
    errorCode: undefined,
    messages: undefined,
    requests: 1,
    retries: 0,
    requestBytes: 4,
    answerBytes: 7,
    quotaMs: 0,
    details: undefined,
  });
  assert.match(String(requestId), /^[\da-f-]{36}$/);
  const phases = [credentialsMs, connectMs, firstByteMs, bodyMs].map(Number);
  assert.ok(phases.every((ms) => ms >= 0) && Number(firstByteMs) > 0);
  assert.ok(phases.reduce((sum, ms) => sum + ms) <= durationMs + 0.1, `${phases} of ${durationMs}`);
});

test('a replay and retries count as requests of one call', async (t) => {
  const answers = [401, 503, 503, 200];
  const { proxy, next } = await logged(t, (_request, response) => {
    response.writeHead(answers.shift()!, { 'retry-after': '0' }).end('{}');
  });
  proxy.renewals.push(bearer('token-2'));
  await bytesOf(await send(`${proxy.url}/proxy/a`, { headers: { retries: '2' } }).answer);
  const { status, httpStatus, requests, retries } = await next();
  assert.deepEqual([status, httpStatus, requests, retries], ['success', 200, 4, 2]);
});

test('the times for credentials, head and body are logged separately', async (t) => {
  const slowMs = 120;
  let slow: 'credentials' | 'head' | 'body' = 'credentials';
  // The proxy's time of the body begins before a caller has the head, thus a wait from there lies whole within it.
  const { promise: headIsHere, resolve: seeHead } = Promise.withResolvers<void>();
  const { proxy, next } = await logged(
    t,
    async (_request, response) => {
      if (slow === 'head') await sleep(slowMs);
      response.writeHead(200).write('first');
      if (slow === 'body') await headIsHere.then(() => sleep(slowMs));
      response.end('last');
    },
    {
      fresh: async () => {
        if (slow === 'credentials') await sleep(slowMs);
        return bearer('token-1');
      },
    },
  );
  for (const phase of ['credentials', 'head', 'body'] as const) {
    slow = phase;
    const answer = await send(`${proxy.url}/proxy/a`).answer;
    if (slow === 'body') seeHead();
    await bytesOf(answer);
    const { credentialsMs = 0, firstByteMs = 0, bodyMs = 0, durationMs = 0 } = await next();
    const times = { credentials: credentialsMs, head: firstByteMs, body: bodyMs };
    assert.ok(times[phase] >= slowMs - 2 && durationMs >= times[phase], `${phase}: ${JSON.stringify(times)}`);
    const others = Object.entries(times).filter(([name]) => name !== phase);
    // What was slow is noted nowhere else: all phases together last no longer than the call.
    assert.ok(
      others.every(([, ms]) => ms <= durationMs - times[phase] + 0.1),
      JSON.stringify(times),
    );
  }
});

test('an error of the service is logged with its code, and one of the provider with its status', async (t) => {
  const { proxy, next } = await logged(t, (_request, response) => response.writeHead(404).end());
  const lineOf = async (path: string, headers: Record<string, string> = {}) => {
    await bytesOf(await send(`${proxy.url}${path}`, { headers }).answer);
    const { status, httpStatus, errorCode, messages, connection, requests } = await next();
    return {
      status,
      httpStatus,
      errorCode,
      levels: messages?.map(({ level }) => level),
      connection,
      requests,
    };
  };
  const same = { status: 'failed', levels: ['error'], connection: 'alice', requests: 0 };
  assert.deepEqual(await lineOf('/proxy/a'), {
    ...same,
    httpStatus: 404,
    errorCode: undefined,
    levels: undefined,
    requests: 1,
  });
  assert.deepEqual(await lineOf('/proxy/shut'), { ...same, httpStatus: 403, errorCode: 'proxy_rule_denied' });
  assert.deepEqual(await lineOf('/proxy/a', { 'connection-id': 'bob' }), {
    ...same,
    httpStatus: 400,
    errorCode: 'unknown_connection',
    connection: 'bob',
  });
  assert.deepEqual(await lineOf('/proxy/a', { retries: 'many' }), {
    ...same,
    httpStatus: 400,
    errorCode: 'invalid_headers',
  });
});

test('a call whose caller disconnects and a call that breaks off are logged as such', async (t) => {
  let held: ServerResponse | undefined;
  const { proxy, next } = await logged(t, (request, response) => {
    held = response;
    if (request.url === '/breaks') response.writeHead(200, { 'content-length': 10 }).write('half.');
  });
  const gone = send(`${proxy.url}/proxy/waits`);
  gone.answer.catch(() => {});
  while (held === undefined) await new Promise((resolve) => setTimeout(resolve, 1));
  gone.request.destroy();
  const first = await next();
  assert.deepEqual(
    [first.status, first.httpStatus, first.details?.outcome],
    ['failed', undefined, 'client_gone'],
  );
  const broken = await send(`${proxy.url}/proxy/breaks`).answer;
  broken.on('error', () => {}).on('data', () => held?.destroy());
  await new Promise((resolve) => broken.on('close', resolve));
  const second = await next();
  assert.deepEqual(
    [second.status, second.httpStatus, second.details?.outcome, second.answerBytes],
    ['failed', 200, 'broken_off', 5],
  );
});

test('a caller that hangs up before there are credentials causes no request, but a line in the log', async (t) => {
  let asked = 0;
  const called = Promise.withResolvers<void>();
  const fresh = Promise.withResolvers<Credentials>();
  const { proxy, next } = await logged(t, (_request, response) => response.end(String(asked++)), {
    fresh: () => {
      called.resolve();
      return fresh.promise;
    },
  });
  const gone = send(`${proxy.url}/proxy/late`);
  gone.answer.catch(() => {});
  await called.promise;
  gone.request.destroy();
  await proxy.left();
  fresh.resolve(bearer('token-1'));
  const { status, requests, details } = await next();
  assert.deepEqual([status, requests, details?.outcome, asked], ['failed', 0, 'client_gone', 0]);
});
