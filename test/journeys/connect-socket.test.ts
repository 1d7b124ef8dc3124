import assert from 'node:assert/strict';
import { connect as connectTcp } from 'node:net';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis, visit } from '../support/trellis.ts';

/** How a page that waits learns of the end of a trip, on whichever of two nodes the browser comes back. */
let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
before(async () => {
  trellis = await openTrellis();
  another = await trellis.serveAnother();
  await trellis.call('POST', '/integrations/quickstart', {
    body: { provider: 'google-sheet', unique_key: 'google-sheet' },
  });
});
after(async () => {
  await another.close();
  await trellis.close();
});

const newToken = async () => {
  const { body } = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] },
  });
  return (body.data as { token: string }).token;
};

/** A client that waits at a node, with what it hears in order. */
async function openWaiter(baseUrl: string) {
  const socket = new WebSocket(`${baseUrl.replace('http', 'ws')}/`);
  const heard: Record<string, unknown>[] = [];
  const waiting: ((message: Record<string, unknown>) => void)[] = [];
  socket.addEventListener('message', ({ data }) => {
    const message = JSON.parse(String(data)) as Record<string, unknown>;
    const next = waiting.shift();
    if (next === undefined) heard.push(message);
    else next(message);
  });
  const next = () => {
    const first = heard.shift();
    if (first !== undefined) return Promise.resolve(first);
    return new Promise<Record<string, unknown>>((resolve) => waiting.push(resolve));
  };
  const { message_type: type, ws_client_id: id } = await next();
  assert.equal(type, 'connection_ack');
  return {
    id: String(id),
    next,
    async close() {
      const closed = new Promise((resolve) => socket.addEventListener('close', resolve));
      socket.close();
      await closed;
    },
  };
}

/** The whole trip at one node: from the beginning to the callback's answer. */
async function dance(node: { baseUrl: string }, query: string, decision: Record<string, unknown> = {}) {
  const begun = await visit(trellis, `${node.baseUrl}/oauth/connect/google-sheet?${query}`);
  if (begun.status !== 302) return begun;
  const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const { redirect } = await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account: 'ada@example.com',
    ...decision,
  });
  // Whichever node it is: the balancer in front decides.
  const callback = new URL(String(redirect));
  return visit(trellis, `${node.baseUrl}${callback.pathname}${callback.search}`, cookie.join('; '));
}

test('a client that waits at one node gets the result of an authorization that ends at the other', async () => {
  const waiter = await openWaiter(another.baseUrl);
  const query = `connect_session_token=${await newToken()}&ws_client_id=${waiter.id}`;
  assert.equal((await dance(trellis, query)).status, 200);
  const { body } = await trellis.call('GET', '/connections');
  assert.deepEqual(await waiter.next(), {
    message_type: 'success',
    provider_config_key: 'google-sheet',
    connection_id: (body.connections as { connection_id: string }[])[0]?.connection_id,
    is_pending: false,
  });
  await waiter.close();
  assert.deepEqual(await trellis.db.query('select from connect_notice'), []);
});

test('it gets the failure, at the provider and before', async () => {
  for (const [query, decision, type] of [
    [`connect_session_token=${await newToken()}`, { deny: true }, 'callback_err'],
    [`connect_session_token=${await newToken()}&connection_id=mine`, {}, 'invalid_query_params'],
  ] as const) {
    const waiter = await openWaiter(trellis.baseUrl);
    assert.equal((await dance(trellis, `${query}&ws_client_id=${waiter.id}`, decision)).status, 400);
    const { message_type: message, error_type: told } = await waiter.next();
    assert.deepEqual([message, told], ['error', type]);
    await waiter.close();
  }
});

test('a waiting client receives the error of a trip that fails before its session is known', async () => {
  const hear = async (act: (id: string) => Promise<void>) => {
    const waiter = await openWaiter(trellis.baseUrl);
    await act(waiter.id);
    const { message_type: message, error_type: type, provider_config_key: key } = await waiter.next();
    await waiter.close();
    return [message, type, key];
  };
  const ended = await newToken();
  await trellis.call('DELETE', '/connect/session', { key: ended });
  for (const [token, code] of [
    [ended, 'unknown_connect_session_token'],
    [ended.slice(0, -1), 'invalid_connect_session_token_format'],
  ] as const) {
    const query = `connect_session_token=${token}`;
    const heard = await hear(async (id) => void (await dance(trellis, `${query}&ws_client_id=${id}`)));
    assert.deepEqual(heard, ['error', code, 'google-sheet']);
  }
  // As where cookies are blocked, or the page was opened by another name of the host.
  const withoutCookie = await hear(async (id) => {
    const query = `connect_session_token=${await newToken()}&ws_client_id=${id}`;
    const begun = await visit(trellis, `${trellis.baseUrl}/oauth/connect/google-sheet?${query}`);
    const url = begun.headers.get('location');
    const { redirect } = await trellis.control('POST', 'authorize', { url, account: 'ada@example.com' });
    assert.equal((await visit(trellis, String(redirect))).status, 400);
  });
  assert.deepEqual(withoutCookie, ['error', 'state_cookie_err', 'google-sheet']);
});

test('how far a session is, is the same on every node', async () => {
  const token = await newToken();
  const progress = async () => {
    const { body } = await another.call('GET', '/connect/session/progress', { key: token });
    return body.data as { state: string; failure: { cause: string } | null; connection: object | null };
  };
  assert.equal((await progress()).state, 'open');
  await dance(trellis, `connect_session_token=${token}`, { deny: true });
  assert.equal((await progress()).failure?.cause, 'access_denied');
  const again = await newToken();
  await dance(trellis, `connect_session_token=${again}`);
  const { body } = await another.call('GET', '/connect/session/progress', { key: again });
  assert.equal((body.data as { state: string }).state, 'connected');
});

test('a socket that sends too much, sends unmasked frames or uses another path is closed', async () => {
  const port = Number(new URL(trellis.baseUrl).port);
  const handshake = (path: string, key = 'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n') =>
    `GET ${path} HTTP/1.1\r\nHost: localhost:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${key}Sec-WebSocket-Version: 13\r\n\r\n`;
  const until = async (text: string, more?: { after: string; send: Buffer }) => {
    const socket = connectTcp(port, 'localhost');
    let heard = '';
    let isSent = false;
    socket.setEncoding('latin1').on('data', (chunk: string) => {
      heard += chunk;
      if (more !== undefined && !isSent && heard.includes(more.after)) {
        isSent = true;
        socket.write(more.send);
      }
    });
    const closed = new Promise((resolve) => socket.on('close', resolve).on('error', resolve));
    socket.write(text);
    await closed;
    return heard;
  };
  const after = 'connection_ack';
  const greeting = await until(handshake('/'), { after, send: Buffer.of(0x81, 0x01, 0x61) });
  // The example of RFC 6455, section 1.3.
  assert.match(greeting, /^HTTP\/1\.1 101 .*Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=/s);
  await until(handshake('/'), { after, send: Buffer.of(0x81, 0xfe, 0xff, 0xff) });
  assert.match(await until(handshake('/', '')), /^HTTP\/1\.1 400 /);
  // Answered as if it asked for no upgrade; the connection would stay open.
  const elsewhere = await until(
    handshake('/nowhere').replace('Connection: Upgrade', 'Connection: Upgrade, close'),
  );
  assert.match(elsewhere, /^HTTP\/1\.1 404 /);
});
