// In a process of its own: it trusts the authority of its certificates.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { createServer as createHttps } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, type TestContext, test } from 'node:test';
import { getCACertificates, setDefaultCACertificates, type TLSSocket } from 'node:tls';
import { inspect } from 'node:util';
import { makeCertificate } from '../../test/support/certificate.ts';
import { readOutboundProxy } from '../config/outbound-proxy.ts';
import { readOutboundAllow, Settings } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import { createOutbound, type Outbound } from './outbound.ts';
import { OutboundProxyError } from './proxy-tunnel.ts';

let certificate: ReturnType<typeof makeCertificate>;
let directory: string;
before(() => {
  directory = mkdtempSync(join(tmpdir(), 'trellis-certificate-'));
  certificate = makeCertificate(directory, {
    names: ['api.example', 'proxy.example', 'localhost'],
    addresses: ['127.0.0.1'],
  });
  setDefaultCACertificates([...getCACertificates(), certificate.ca]);
});
after(() => rmSync(directory, { recursive: true }));

type Answer = (address: string, authorization: string | undefined) => number;

/** A real proxy: it connects to 127.0.0.1 at the requested port, whatever the address, so that public ones can be tested. */
async function startProxy(
  t: TestContext,
  { answer = () => 200, isTls = false }: { answer?: Answer; isTls?: boolean } = {},
) {
  const asked: string[] = [];
  const server = isTls ? createHttps({ ...certificate }) : createServer();
  server.on('connect', (request, socket) => {
    const { url = '', headers } = request;
    assert.equal(headers.host, url);
    asked.push(url);
    const status = answer(url, headers['proxy-authorization']);
    socket.on('error', () => {});
    if (status !== 200) {
      socket.end(`HTTP/1.1 ${status} No\r\ncontent-length: 0\r\n\r\n`);
      return;
    }
    const target = connect(Number(url.split(':').at(-1)), '127.0.0.1', () => {
      socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
      target.pipe(socket).pipe(target);
    });
    target.on('error', () => socket.destroy());
    socket.on('close', () => target.destroy());
  });
  const port = await listening(t, server);
  return { port, asked, url: `${isTls ? 'https' : 'http'}://127.0.0.1:${port}` };
}

async function listening(t: TestContext, server: Server): Promise<number> {
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Answers with the name that TLS asked for, and Host. */
async function startTarget(t: TestContext, isTls = true): Promise<number> {
  const answer = (request: { socket: unknown; headers: { host?: string | undefined } }) =>
    `${(request.socket as TLSSocket).servername ?? 'plain'} ${request.headers.host}`;
  return listening(
    t,
    isTls
      ? createHttps({ ...certificate }, (request, response) => response.end(answer(request)))
      : createServer((request, response) => response.end(answer(request))),
  );
}

const publicAddress = '93.184.215.14';
function outboundBy(
  t: TestContext,
  given: { proxy: string; noProxy?: string; allow?: string; addresses?: string[] },
): Outbound {
  const settings = new Settings({ TRELLIS_OUTBOUND_PROXY: given.proxy, NO_PROXY: given.noProxy });
  const proxy = readOutboundProxy(settings);
  const allow = readOutboundAllow(given.allow, settings.faults);
  assert.deepEqual(settings.faults, []);
  const addresses = (given.addresses ?? [publicAddress]).map((address) => ({
    address,
    family: address.includes(':') ? 6 : 4,
  }));
  const outbound = createOutbound({
    allow,
    proxy,
    resolve: (_hostname, _options, callback) => callback(null, addresses),
  });
  t.after(() => outbound.close());
  return outbound;
}

async function fetchText(outbound: Outbound, url: string): Promise<string> {
  const answer = await outbound.fetchFor({ isTest: false })(url, {
    method: 'GET',
    headers: {},
    redirect: 'manual',
    signal: AbortSignal.timeout(5_000),
  });
  let text = '';
  for await (const chunk of answer.body ?? []) text += Buffer.from(chunk).toString();
  return text;
}

test('the proxy gets the checked address, and the provider its name in TLS and Host', async (t) => {
  const port = await startTarget(t);
  const proxy = await startProxy(t);
  const outbound = outboundBy(t, { proxy: proxy.url });
  assert.equal(await fetchText(outbound, `https://api.example:${port}/x`), `api.example api.example:${port}`);
  assert.deepEqual(proxy.asked, [`${publicAddress}:${port}`]);
  // The connection is kept, as a direct one is. It is free one turn behind its answer.
  await new Promise(setImmediate);
  await fetchText(outbound, `https://api.example:${port}/y`);
  assert.equal(proxy.asked.length, 1);
  await assert.rejects(
    fetchText(outbound, `https://other.example:${port}/x`),
    { code: 'ERR_TLS_CERT_ALTNAME_INVALID' },
    'the certificate is checked against the name',
  );
});

test('dispatched calls go through the proxy too, and to a proxy over TLS', async (t) => {
  const port = await startTarget(t);
  const proxy = await startProxy(t, { isTls: true });
  const outbound = outboundBy(t, { proxy: proxy.url });
  const status = await new Promise<number | Error>((resolve) =>
    outbound.dispatch(
      {
        origin: `https://api.example:${port}`,
        path: '/',
        method: 'GET',
        headers: [],
        body: null,
        isTest: false,
        headersTimeoutMs: 5_000,
        bodyIdleTimeoutMs: 5_000,
      },
      {
        onRequestStart() {},
        onResponseData() {},
        onResponseEnd() {},
        onResponseStart: (_controller, code) => resolve(code),
        onResponseError: (_controller, error) => resolve(error),
      },
    ),
  );
  assert.equal(status, 200);
  assert.deepEqual(proxy.asked, [`${publicAddress}:${port}`]);
});

test('an address that may not be reached is refused before the proxy is called', async (t) => {
  const proxy = await startProxy(t);
  const isRefusal = (error: unknown) => error instanceof AppError && error.code === 'address_not_allowed';
  for (const addresses of [
    ['10.0.0.1'],
    ['127.0.0.1'],
    ['169.254.169.254'],
    [publicAddress, '192.168.1.1'],
    ['fd00::1'],
    ['::ffff:10.0.0.1'],
  ])
    await assert.rejects(
      fetchText(outboundBy(t, { proxy: proxy.url, addresses }), 'https://api.example/x'),
      isRefusal,
      addresses.join(),
    );
  const outbound = outboundBy(t, { proxy: proxy.url });
  for (const url of [
    'https://127.0.0.1/x',
    'https://[::1]/x',
    'https://169.254.169.254/x',
    'http://api.example/x',
    `http://${publicAddress}/x`,
  ])
    await assert.rejects(fetchText(outbound, url), isRefusal, url);
  assert.deepEqual(proxy.asked, []);
});

test('a range of the operator is reached through the proxy, also over plain http', async (t) => {
  const port = await startTarget(t, false);
  const proxy = await startProxy(t);
  const outbound = outboundBy(t, { proxy: proxy.url, allow: '10.0.0.0/8', addresses: ['10.1.2.3'] });
  assert.equal(await fetchText(outbound, `http://api.example:${port}/`), `plain api.example:${port}`);
  assert.deepEqual(proxy.asked, [`10.1.2.3:${port}`]);
});

test('an address that the proxy cannot reach gives way to the next one, IPv4 first', async (t) => {
  const port = await startTarget(t);
  const proxy = await startProxy(t, { answer: (url) => (url.startsWith('8.8.8.8:') ? 502 : 200) });
  const addresses = ['2606:2800:21f::1', '8.8.8.8', publicAddress];
  const outbound = outboundBy(t, { proxy: proxy.url, addresses });
  await fetchText(outbound, `https://api.example:${port}/`);
  assert.deepEqual(proxy.asked, [`8.8.8.8:${port}`, `${publicAddress}:${port}`]);
});

test('NO_PROXY leads names, ranges and ports past the proxy, with all checks', async (t) => {
  const port = await startTarget(t, false);
  for (const [noProxy, isPast] of [
    ['api.example', true],
    ['.example', true],
    ['*.example', true],
    ['EXAMPLE', true],
    ['pi.example', false],
    [`api.example:${port}`, true],
    ['api.example:1', false],
    ['127.0.0.0/8', true],
    ['127.0.0.1', true],
    ['10.0.0.0/8, other.example', false],
    ['*', true],
  ] as const) {
    const proxy = await startProxy(t);
    const outbound = outboundBy(t, {
      proxy: proxy.url,
      noProxy,
      allow: '127.0.0.1',
      addresses: ['127.0.0.1'],
    });
    assert.equal(await fetchText(outbound, `http://api.example:${port}/`), `plain api.example:${port}`);
    assert.equal(proxy.asked.length === 0, isPast, noProxy);
  }
  const open = outboundBy(t, { proxy: 'http://127.0.0.1:9', noProxy: '*', addresses: ['127.0.0.1'] });
  await assert.rejects(fetchText(open, `http://api.example:${port}/`), { code: 'address_not_allowed' });
});

test('a proxy that is away or refuses is named by host and port, never with its password', async (t) => {
  const user = `robot:${encodeURIComponent('hunter 2')}`;
  const withPassword = (port: number) => `http://${user}@127.0.0.1:${port}`;
  const away = await startProxy(t);
  const refusing = await startProxy(t, {
    answer: (_url, authorization) =>
      authorization === `Basic ${Buffer.from('robot:hunter 2').toString('base64')}` ? 403 : 407,
  });
  const failureOf = async (proxy: string) => {
    const outbound = outboundBy(t, { proxy });
    const error = await fetchText(outbound, 'https://api.example/x').then(
      () => assert.fail('it was answered'),
      (failure: unknown) => failure,
    );
    assert.ok(error instanceof OutboundProxyError, inspect(error));
    for (const secret of ['hunter', 'robot', Buffer.from('robot:hunter 2').toString('base64')])
      assert.ok(!inspect(error, { depth: 10 }).includes(secret), inspect(error));
    return error;
  };
  const closed = createServer();
  const closedPort = await listening(t, closed);
  closed.close();
  await once(closed, 'close');
  const gone = await failureOf(withPassword(closedPort));
  assert.equal(gone.code, 'OUTBOUND_PROXY_UNREACHABLE');
  assert.equal(gone.message, `The outbound proxy 127.0.0.1:${closedPort} cannot be reached (ECONNREFUSED)`);
  const forbidden = await failureOf(withPassword(refusing.port));
  assert.equal(forbidden.code, 'OUTBOUND_PROXY_REFUSED');
  assert.match(forbidden.message, /answered 403 to CONNECT 93\.184\.215\.14:443$/);
  const nobody = await failureOf(`http://127.0.0.1:${refusing.port}`);
  assert.match(nobody.message, /answered 407 to CONNECT .*: it requires a user and a password/);
  assert.deepEqual(away.asked, []);
});

test('a call that is given up ends its attempt at the proxy', async (t) => {
  const closed = Promise.withResolvers<void>();
  const server = createServer().on('connect', (_request, socket) => {
    socket
      .on('error', () => {})
      .on('end', () => closed.resolve())
      .resume();
  });
  const port = await listening(t, server);
  const outbound = outboundBy(t, { proxy: `http://127.0.0.1:${port}` });
  const ending = new AbortController();
  const answer = outbound.fetchFor({ isTest: false })('https://api.example/', {
    method: 'GET',
    headers: {},
    redirect: 'manual',
    signal: ending.signal,
  });
  await once(server, 'connect');
  ending.abort();
  await assert.rejects(answer);
  await closed.promise;
});

test('settings of a proxy that make no sense are refused without their values', () => {
  for (const wrong of [
    'proxy:3128',
    'socks5://proxy:1080',
    'http://user:hunter2@proxy:3128/path',
    'http://proxy:3128?hunter2',
    'http://user:%zz@proxy',
  ]) {
    const settings = new Settings({ TRELLIS_OUTBOUND_PROXY: wrong });
    assert.equal(readOutboundProxy(settings), undefined, wrong);
    assert.equal(settings.faults.length, 1, wrong);
    assert.doesNotMatch(settings.faults.join(), /hunter2|%zz/);
  }
  const settings = new Settings({ TRELLIS_OUTBOUND_PROXY: 'http://p', NO_PROXY: 'a b,http://x,10.0.0.0/33' });
  const proxy = readOutboundProxy(settings);
  assert.equal(proxy?.port, 80);
  assert.equal(settings.faults.length, 2, settings.faults.join());
  const without = new Settings({ NO_PROXY: 'http://x' });
  assert.equal(readOutboundProxy(without), undefined);
  assert.deepEqual(without.faults, []);
});
