import assert from 'node:assert/strict';
import { test } from 'node:test';
import { respond, startServer, type TestServer } from './client.fixture.ts';
import { isTrellisError, Trellis, type TrellisOptions } from './index.ts';

const ok = { connections: [] };
const refusal = (code: string) => ({ error: { code, message: 'No.' } });

async function withServer(
  answer: Parameters<typeof startServer>[0],
  use: (client: Trellis, server: TestServer) => Promise<void>,
  options: Partial<TrellisOptions> = {},
): Promise<void> {
  const server = await startServer(answer);
  try {
    await use(new Trellis({ url: server.url, key: 'trs_dev_key', ...options }), server);
  } finally {
    await server.close();
  }
}
const codeOf = (call: Promise<unknown>) =>
  call.then(
    () => 'done',
    (error: unknown) => (isTrellisError(error) ? error.code : String(error)),
  );

test('a call that only reads is retried after a 503, after the time of Retry-After', async () => {
  const times: number[] = [];
  await withServer(
    (_, response, turn) => {
      times.push(performance.now());
      if (turn > 0) return respond(response, { body: ok });
      respond(response, { status: 503, body: refusal('unavailable'), headers: { 'retry-after': '1' } });
    },
    async (client) => {
      assert.deepEqual(await client.connections.list().toArray(), []);
      assert.ok(times[1]! - times[0]! >= 990);
    },
  );
});

test('a call that writes is retried only if nothing was started', async () => {
  const begin = (client: Trellis) => client.connections.metadata.set('i', 'c', {});
  for (const [status, code, attempts] of [
    [429, 'too_many_requests', 3],
    [503, 'overloaded', 3],
    // How an action ends that met a used-up quota: what it did before is done.
    [429, 'quota_exhausted', 1],
    [503, 'unavailable', 1],
    [500, 'internal', 1],
    [400, 'invalid_body', 1],
  ] as const) {
    await withServer(
      (_, response) => respond(response, { status, body: refusal(code), headers: { 'retry-after': '0' } }),
      async (client, { requests }) => {
        assert.equal(await codeOf(begin(client)), code);
        assert.equal(requests.length, attempts, code);
      },
    );
  }
  await withServer(
    (_, response) => response.destroy(),
    async (client, { requests }) => {
      assert.equal(await codeOf(begin(client)), 'network_error');
      assert.equal(requests.length, 1);
      assert.equal(await codeOf(client.variables.list()), 'network_error');
      assert.equal(requests.length, 4);
      const records = client.connection('i', 'c').records('City');
      assert.equal(await codeOf(records.prune({ until: 'x' })), 'network_error');
      assert.equal(requests.length, 7);
      assert.equal(await codeOf(records.save([])), 'network_error');
      assert.equal(requests.length, 8);
    },
  );
});

test('a call with an Idempotency-Key is retried with the same key after a lost response', async () => {
  const session = { data: { token: 't', connect_link: '', expires_at: '' } };
  const keysOf = ({ requests }: TestServer) => requests.map(({ headers }) => headers['idempotency-key']);
  await withServer(
    (_, response, turn) => {
      if (turn === 0) return response.destroy();
      if (turn > 1) return respond(response, { body: session });
      const headers = { 'retry-after': '0' };
      return respond(response, { status: 409, body: refusal('request_in_progress'), headers });
    },
    async (client, server) => {
      assert.deepEqual(await client.connectSessions.create({ tags: {} }), session.data);
      await client.connectSessions.create({ tags: {} });
      await client.connectSessions.create({ tags: {} }, { idempotencyKey: 'own' });
      const [first, second, third, next, own] = keysOf(server);
      assert.match(String(first), /^[0-9a-z-]{8,40}$/);
      assert.deepEqual([second, third, own], [first, first, 'own']);
      assert.notEqual(next, first);
    },
  );
  await withServer(
    (_, response) => respond(response, { status: 503, body: refusal('unavailable') }),
    async (client, server) => {
      assert.equal(await codeOf(client.connectSessions.create({ tags: {} })), 'unavailable');
      assert.equal(server.requests.length, 1, 'an error of the service is not kept');
    },
  );
});

test('an action that is waited for has an Idempotency-Key only if the caller gives one', async () => {
  await withServer(
    (_, response) => respond(response, { body: { id: 'i', statusUrl: '/action/i' } }),
    async (client, { requests }) => {
      const { actions } = client.connection('i', 'c');
      await actions.run('a');
      await actions.run('a', {}, { idempotencyKey: 'own' });
      await actions.runAsync('a');
      const [none, own, random] = requests.map(({ headers }) => headers['idempotency-key']);
      assert.deepEqual([none, own], [undefined, 'own']);
      assert.match(String(random), /^[0-9a-z-]+$/);
    },
  );
});

test('a pause longer than the time limit or a minute throws the error', async () => {
  await withServer(
    (_, response) =>
      respond(response, {
        status: 429,
        body: refusal('too_many_requests'),
        headers: { 'retry-after': '61' },
      }),
    async (client, { requests }) => {
      await assert.rejects(client.variables.list(), (error) => {
        return isTrellisError(error, 'too_many_requests') && error.retryAfterMs === 61_000;
      });
      assert.equal(requests.length, 1);
    },
  );
  await withServer(
    (_, response) =>
      respond(response, { status: 503, body: refusal('unavailable'), headers: { 'retry-after': '5' } }),
    async (client, { requests }) => {
      assert.equal(await codeOf(client.request('GET /environments', { timeoutMs: 3_000 })), 'unavailable');
      assert.equal(requests.length, 1);
    },
  );
});

test('a pause longer than the largest timer delay still waits', async () => {
  await withServer(
    (_, response) =>
      respond(response, { status: 429, body: refusal('slow'), headers: { 'retry-after': '2592000' } }),
    async (client, { requests }) => {
      const stop = new AbortController();
      const onRetry = () => setTimeout(() => stop.abort(new Error('enough')), 50);
      await assert.rejects(client.events.follow({ signal: stop.signal, onRetry }).next(), /enough/);
      assert.equal(requests.length, 1);
    },
    { retries: 0 },
  );
});

test('a server that hangs is a time-out, before and during the response', async () => {
  await withServer(
    (_, response, turn) => {
      if (turn === 0) return;
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write('{"connections":');
    },
    async (client, { requests }) => {
      for (const turn of [1, 2]) {
        await assert.rejects(client.connections.list().toArray(), (error) => {
          return isTrellisError(error, 'timeout') && error.status === 0;
        });
        assert.equal(requests.length, turn, 'it is not tried again');
      }
    },
    { timeoutMs: 300 },
  );
});

test('an abort rejects with its reason: before, during, in a pause, and in the body', async () => {
  const reason = new Error('changed my mind');
  const stops: AbortController[] = [];
  const stop = () => {
    stops.push(new AbortController());
    return stops.at(-1)!;
  };
  const abortSoon = () => setTimeout(() => stops.at(-1)!.abort(reason), 20);
  await withServer(
    (_, response, turn) => {
      if (turn === 1) abortSoon();
      if (turn === 2) {
        abortSoon();
        respond(response, { status: 503, body: refusal('unavailable'), headers: { 'retry-after': '30' } });
      }
      if (turn === 3) {
        abortSoon();
        response.writeHead(200, { 'content-type': 'application/json' });
        response.write('[');
      }
      if (turn === 0) respond(response, { body: [] });
    },
    async (client, { requests }) => {
      await client.variables.list({ signal: stop().signal });
      for (let turn = 0; turn < 3; turn += 1)
        await assert.rejects(client.variables.list({ signal: stop().signal }), reason);
      await assert.rejects(client.variables.list({ signal: AbortSignal.abort(reason) }), reason);
      assert.equal(requests.length, 4);
    },
  );
});

test('a signal aborts a response that is being read, and is released at its end', async () => {
  const signals: (AbortSignal | null | undefined)[] = [];
  await withServer(
    (_, response, turn) => {
      response.writeHead(200, { 'content-type': 'text/plain' });
      if (turn === 0) response.end('whole');
      else response.write('half');
    },
    async (client) => {
      const stop = new AbortController();
      const read = () => client.raw('GET /openapi.json', { signal: stop.signal });
      const whole = await read();
      assert.deepEqual([whole.status, whole.headers.get('content-type')], [200, 'text/plain']);
      assert.equal(await whole.text(), 'whole');
      const letGo = await read();
      await letGo.body?.cancel();
      const half = (await read()).text();
      stop.abort(new Error('changed my mind'));
      await assert.rejects(half, /changed my mind/);
      assert.deepEqual(
        signals.map((signal) => signal?.aborted),
        [false, false, true],
      );
    },
    {
      fetch: (url, init) => {
        signals.push(init?.signal);
        return fetch(url, init);
      },
    },
  );
});

test('the time for which the service delays an event does not count for the time limit', async () => {
  const stop = new AbortController();
  const retries: string[] = [];
  await withServer(
    (_, response, turn) => {
      if (turn === 1) return stop.abort(new Error('enough'));
      // Longer than `timeoutMs`, and much less than the service may wait.
      setTimeout(() => respond(response, { body: { events: [], next_after: '1' } }), 200);
    },
    async (client) => {
      const onRetry = ({ code }: { code: string }) => retries.push(code);
      const following = client.events.follow({ signal: stop.signal, onRetry });
      await assert.rejects(following.next(), /enough/);
      assert.deepEqual(retries, []);
    },
    { timeoutMs: 100 },
  );
});

test('a response that is not from Trellis is unexpected_answer', async () => {
  await withServer(
    (_, response, turn) => {
      const type = { 'content-type': 'text/html' };
      if (turn === 0) response.writeHead(200, type).end('<h1>Sign in to the network</h1>');
      if (turn === 1) response.writeHead(404, type).end('<h1>Not here</h1>');
      if (turn === 2) response.writeHead(301, { location: 'https://elsewhere.example/' }).end();
      if (turn === 3) respond(response, { status: 500, body: { message: 'of something else' } });
      if (turn === 4) response.writeHead(200, { 'content-type': 'application/json' }).end('{"half":');
    },
    async (client) => {
      for (const status of [200, 404, 301, 500]) {
        await assert.rejects(client.variables.list(), (error) => {
          return isTrellisError(error, 'unexpected_answer') && error.status === status;
        });
      }
      assert.equal(await codeOf(client.request('GET /environments', { retries: 0 })), 'network_error');
    },
  );
  const nobody = new Trellis({ url: 'http://127.0.0.1:9', key: 'k', retries: 0 });
  await assert.rejects(nobody.variables.list(), (error) => {
    return isTrellisError(error, 'network_error') && /127\.0\.0\.1:9/.test(error.message);
  });
});

test('neither the key nor a header is sent to the target of a redirect, and a redirect to the service is not followed', async () => {
  const seen: Record<string, unknown>[] = [];
  const elsewhere = await startServer((request, response) => {
    seen.push(request.headers);
    respond(response, { body: { from: 'elsewhere' } });
  });
  let location = elsewhere.url;
  const requests: string[] = [];
  await withServer(
    (request, response) => {
      requests.push(request.url ?? '');
      respond(response, { status: 302, body: {}, headers: { location } });
    },
    async (client, server) => {
      const { fetch } = client.connection('api', 'c-1');
      const headers = { 'x-api-key': 'mine' };
      assert.deepEqual(await (await fetch('/file', { headers })).json(), { from: 'elsewhere' });
      const reported = Object.keys(seen[0] ?? {}).join();
      assert.doesNotMatch(reported, /authorization|connection-id|integration-id|provider-config-key|api-key/);
      assert.equal((await fetch('/file', { method: 'POST', headers })).status, 302);
      location = `${server.url}/environment/webhook-signing-key`;
      assert.equal((await fetch('/file')).status, 302);
      assert.deepEqual(requests, ['/proxy/file', '/proxy/file', '/proxy/file']);
      assert.equal(seen.length, 1);
    },
  );
  await elsewhere.close();
});

test('a redirect whose target the platform hides is a TypeError, unless redirect is manual', async () => {
  // As a browser answers to `redirect: 'manual'`.
  const opaque = Object.defineProperties(new Response(), {
    type: { value: 'opaqueredirect' },
    status: { value: 0 },
  });
  const client = new Trellis({ url: 'http://127.0.0.1:9', key: 'k', fetch: async () => opaque });
  const { fetch } = client.connection('api', 'c-1');
  for (const method of ['GET', 'POST'])
    await assert.rejects(fetch('/file', { method }), { name: 'TypeError', message: /redirect/ });
  assert.equal(await fetch('/file', { redirect: 'manual' }), opaque);
});

test('path parameters are escaped, and lead to no other route', async () => {
  await withServer(
    (_, response) => respond(response, { body: {} }),
    async (client, { requests }) => {
      await client.connections.health('a/b', 'x/../y?z#é');
      assert.equal(requests[0]?.url, '/connections/x%2F..%2Fy%3Fz%23%C3%A9/health?integration_id=a%2Fb');
      for (const id of ['', '.', '..'])
        await assert.rejects(client.connections.health('a', id), { name: 'TypeError' });
      assert.equal(requests.length, 1);
      await client.connections
        .list({ tags: { team: 'a b' }, status: ['active', 'blocked'] })
        .toArray()
        .catch(() => {});
      assert.equal(
        requests[1]?.url,
        '/connections?tags%5Bteam%5D=a+b&status=active%2Cblocked&limit=100&page=0',
      );
    },
  );
});

test('an invalid address or key is refused by the constructor, and no message contains a key', () => {
  const make = (options: Partial<TrellisOptions>) => () =>
    new Trellis({ url: 'http://localhost:3003', key: 'trs_dev_secret', ...options });
  assert.throws(make({ url: 'localhost:3003' }), /not the address/);
  assert.throws(make({ url: '' }), /not the address/);
  assert.throws(make({ key: '' }), /missing/);
  assert.throws(make({ key: undefined as never }), /missing/);
  assert.throws(make({ key: 'trs_dev_secret\n' }), (error: Error) => !error.message.includes('secret_'));
  assert.doesNotThrow(make({ url: 'https://example.com/trellis/?x#y' }));
});

test('a secret key is refused in a browser, tickets and session tokens are not', () => {
  const page = globalThis as { document?: unknown; window?: unknown };
  Object.assign(page, { document: {}, window: {} });
  try {
    const make = (key: TrellisOptions['key']) => () => new Trellis({ url: 'http://localhost:3003', key });
    assert.throws(make('trs_dev_secret'), /must not be used in a browser/);
    assert.doesNotThrow(make('trt_1_abc.def'));
    assert.doesNotThrow(make(`trellis_connect_session_${'0'.repeat(64)}`));
    assert.doesNotThrow(make(() => 'trt_1_abc.def'));
  } finally {
    delete page.document;
    delete page.window;
  }
});

const never = () => new Promise<string>(() => {});

test('a call waits for a key function until its time limit or its signal', async () => {
  await withServer(
    (_, response) => respond(response, { body: [] }),
    async (client, { requests }) => {
      const reason = new Error('changed my mind');
      const { fetch } = client.connection('api', 'c-1');
      for (const call of [
        (signal: AbortSignal) => client.request('GET /environments', { signal }),
        (signal: AbortSignal) => fetch('/x', { signal }),
      ]) {
        const stop = new AbortController();
        const refused = assert.rejects(call(stop.signal), reason);
        stop.abort(reason);
        await refused;
        await assert.rejects(call(stop.signal), reason);
      }
      assert.equal(await codeOf(client.request('GET /environments', { timeoutMs: 50 })), 'timeout');
      assert.equal(requests.length, 0);
    },
    { key: never },
  );
});

test('the result of a key function is checked like a fixed key, and its error is thrown unchanged', async () => {
  for (const given of ['trs_dev_secret\nsecond', 'trs dev secret', '', undefined]) {
    const refused = (error: TypeError) => {
      assert.equal(error.name, 'TypeError');
      assert.match(error.message, /^key: (missing|contains)\b/);
      assert.equal(error.cause, undefined);
      return !/trs.dev/.test(String(error.stack));
    };
    const client = new Trellis({ url: 'http://127.0.0.1:9', key: () => given as string });
    await assert.rejects(client.variables.list(), refused);
    await assert.rejects(client.connection('api', 'c-1').fetch('/x'), refused);
  }
  const reason = new Error('The vault is sealed.');
  const client = new Trellis({ url: 'http://127.0.0.1:9', key: () => Promise.reject(reason) });
  await assert.rejects(client.variables.list(), reason);
  await assert.rejects(client.connection('api', 'c-1').fetch('/x'), reason);
});

test('a key function is called again for each call', async () => {
  let turn = 0;
  await withServer(
    (_, response) => respond(response, { body: [] }),
    async (client, { requests }) => {
      await client.variables.list();
      await client.variables.list();
      assert.deepEqual(
        requests.map(({ headers }) => headers.authorization),
        ['Bearer key-1', 'Bearer key-2'],
      );
    },
    {
      key: async () => {
        turn += 1;
        return `key-${turn}`;
      },
    },
  );
});
