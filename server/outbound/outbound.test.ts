import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type TestContext, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type AllowedRange, type OutboundPurpose, readOutboundAllow } from '../config/setting-values.ts';
import { AppError } from '../errors.ts';
import { isCovered, isPublicAddress } from './addresses.ts';
import { createOutbound, type Outbound } from './outbound.ts';

function allowed(text?: string): AllowedRange[] {
  const faults: string[] = [];
  const ranges = readOutboundAllow(text, faults);
  assert.deepEqual(faults, []);
  return ranges;
}
const loopback = allowed('127.0.0.0/8, ::1/128');

async function startServer(t: TestContext) {
  const seen: string[] = [];
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    if (request.url === '/redirect') response.writeHead(302, { location: '/elsewhere' });
    response.end(JSON.stringify(request.headers));
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

function outboundFor(t: TestContext, settings: Parameters<typeof createOutbound>[0]): Outbound {
  const outbound = createOutbound(settings);
  t.after(() => outbound.close());
  return outbound;
}

async function fetchText(
  outbound: Outbound,
  url: string,
  caller: { isTest?: boolean; purpose?: OutboundPurpose } = {},
): Promise<string> {
  const answer = await outbound.fetchFor({ isTest: false, ...caller })(url, {
    method: 'GET',
    headers: {},
    redirect: 'manual',
    signal: AbortSignal.timeout(5_000),
  });
  let text = `${answer.status} `;
  for await (const chunk of answer.body ?? []) text += Buffer.from(chunk).toString();
  return text;
}

const isRefusal = (error: unknown) => error instanceof AppError && error.code === 'address_not_allowed';

test('a compressed answer comes as it was sent, so that a bomb is as small as it came', async (t) => {
  const bomb = gzipSync(Buffer.alloc(64 * 1024 * 1024, ' '));
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip', 'content-type': 'application/json' }).end(bomb);
  });
  await once(server.listen(0, '127.0.0.1'), 'listening');
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/token`;
  const outbound = outboundFor(t, { allow: loopback });
  // Token calls, deliveries, sign-in by OpenID, and the fetch of functions.
  for (const fetch of [outbound.fetchFor({ isTest: false }), outbound.fetchWhole]) {
    const signal = AbortSignal.timeout(5_000);
    const answer = await fetch(url, { method: 'GET', headers: {}, redirect: 'manual', signal });
    let bytes = 0;
    for await (const part of answer.body ?? []) bytes += part.byteLength;
    assert.equal(bytes, bomb.length);
  }
});

test('only addresses of the public internet count as public', () => {
  for (const address of ['8.8.8.8', '142.250.1.1', '172.32.0.1', '100.128.0.1', '2001:4860:4860::8888', '2a00:1450::1']) {
    assert.equal(isPublicAddress(address), true, address);
  }
  for (const address of [
    '0.0.0.0', '0.1.2.3', '10.1.2.3', '100.64.0.1', '100.100.100.200', '127.0.0.1', '127.255.0.1', '168.63.129.16',
    '169.254.169.254', '172.16.0.1', '172.31.255.255', '192.0.0.192', '192.0.2.1', '192.168.1.1', '198.18.0.1',
    '198.51.100.1', '203.0.113.1', '224.0.0.1', '240.0.0.1', '255.255.255.255',
    '::', '::1', '::ffff:8.8.8.8', '::ffff:127.0.0.1', '::ffff:7f00:1', '::7f00:1', '64:ff9b::7f00:1',
    '64:ff9b::a9fe:a9fe', '64:ff9b:1::1', '100::1', '2001::1', '2001:db8::1', '2002:7f00:1::', '3fff::1', '5f00::1',
    'fc00::1', 'fd00:ec2::254', 'fe80::1', 'fe80::1%lo', 'fec0::1', 'ff02::1', 'localhost', '', '1.2.3',
  ]) {
    assert.equal(isPublicAddress(address), false, address);
  }
}); // biome-ignore format: a list reads better in lines

test("the operator's ranges cover an address in either spelling", () => {
  const covers = (allow: AllowedRange[], address: string) =>
    isCovered(allow, { address, port: 443, purpose: 'providers' });
  assert.equal(covers(loopback, '127.0.0.1'), true);
  assert.equal(covers(loopback, '::ffff:127.0.0.1'), true);
  assert.equal(covers(loopback, '10.0.0.1'), false);
  assert.equal(covers(allowed('fd00::/8'), 'fd12::1%eth0'), true);
});

test('a range with a port and a purpose is open at that port for that purpose alone, by number and by name', async (t) => {
  const [one, other] = [await startServer(t), await startServer(t)];
  const outbound = outboundFor(t, { allow: allowed(`endpoints=127.0.0.1:${one.port}`) });
  const events = { purpose: 'endpoints' } as const;
  const hosts = ['127.0.0.1', '127.1', '[::ffff:127.0.0.1]', 'a.example', 'localhost'];
  const named = outboundFor(t, {
    allow: allowed(`endpoints=127.0.0.1:${one.port}`),
    resolve: (_hostname, _options, callback) => callback(null, [{ address: '127.0.0.1', family: 4 }]),
  });
  for (const host of hosts) {
    const by = host.includes('1') ? outbound : named;
    assert.match(await fetchText(by, `http://${host}:${one.port}/x`, events), /^200 /, host);
    // An open socket of the purpose that may is of no use to the others, nor is the port to another.
    for (const purpose of [undefined, 'providers', 'sign-in'] as const)
      await assert.rejects(
        fetchText(by, `http://${host}:${one.port}/x`, purpose && { purpose }),
        isRefusal,
        `${purpose} ${host}`,
      );
    for (const scheme of ['http', 'https'])
      await assert.rejects(fetchText(by, `${scheme}://${host}:${other.port}/x`, events), isRefusal, host);
    const refusal = await new Promise<unknown>((resolve) =>
      by.dispatch(
        {
          origin: `http://${host}:${one.port}`,
          path: '/x',
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
          onResponseStart: () => resolve('answered'),
          onResponseError: (_controller, error) => resolve(error),
        },
      ),
    );
    assert.ok(isRefusal(refusal), `${host} ${refusal}`);
  }
  assert.equal(one.seen.length, hosts.length);
  assert.deepEqual(other.seen, []);
  assert.throws(() => outbound.requireReachable(new URL(`http://127.0.0.1:${other.port}/`)), isRefusal);
  outbound.requireReachable(new URL(`http://127.0.0.1:${one.port}/`));
  outbound.requireReachable(new URL(`http://a.example:${one.port}/`));
  assert.throws(() => outbound.requireReachable(new URL(`http://a.example:${other.port}/`)), isRefusal);
  const providers = outboundFor(t, { allow: allowed(`providers=127.0.0.1:${one.port}`) });
  assert.throws(() => providers.requireReachable(new URL(`http://127.0.0.1:${one.port}/`)), isRefusal);
  assert.match(await fetchText(providers, `http://127.0.0.1:${one.port}/x`), /^200 /);
});

test('the port of a range is that of the protocol if the address names none', () => {
  const reaches = (allow: string, url: string) => {
    try {
      createOutbound({ allow: allowed(allow) }).requireReachable(new URL(url));
      return true;
    } catch {
      return false;
    }
  };
  assert.equal(reaches('10.0.0.0/8:443', 'https://10.1.2.3/'), true);
  assert.equal(reaches('10.0.0.0/8:443', 'http://10.1.2.3/'), false);
  assert.equal(reaches('[fd00::/8]:80', 'http://[fd00::1]/'), true);
  assert.equal(reaches('[fd00::/8]:80', 'https://[fd00::1]/'), false);
});

test('a private, loopback or reserved address is refused, by number and by name, before a byte is sent', async (t) => {
  const { port, seen } = await startServer(t);
  const outbound = outboundFor(t, { allow: [] });
  for (const host of [
    `http://127.0.0.1:${port}`,
    `http://localhost:${port}`,
    `http://LOCALHOST:${port}`,
    `http://127.1:${port}`,
    `http://2130706433:${port}`,
    `http://0x7f.0.0.1:${port}`,
    `http://0:${port}`,
    `http://[::1]:${port}`,
    `http://[::ffff:127.0.0.1]:${port}`,
    `http://[64:ff9b::127.0.0.1]:${port}`,
    `https://127.0.0.1:${port}`,
    `https://localhost:${port}`,
    'https://169.254.169.254',
    'https://[fd00:ec2::254]',
  ]) {
    await assert.rejects(fetchText(outbound, `${host}/x`), isRefusal, host);
    await assert.rejects(fetchText(outbound, `${host}/x`, { isTest: true }), isRefusal, host);
  }
  assert.deepEqual(seen, []);
});

test('a name is resolved once a connection, connected to as checked, and refused for one forbidden address', async (t) => {
  const { port } = await startServer(t);
  const answers = [['127.0.0.1'], ['10.0.0.1'], ['127.0.0.1', '10.0.0.1'], ['10.0.0.1', '127.0.0.1']];
  let asked = 0;
  const outbound = outboundFor(t, {
    allow: loopback,
    resolve: (_hostname, _options, callback) => {
      const addresses = (answers[asked++] ?? []).map((address) => ({ address, family: 4 }));
      setImmediate(callback, null, addresses);
    },
  });
  // Other names than the first, since that one's connection stays open.
  assert.match(await fetchText(outbound, `http://rebound.example:${port}/x`), /^200 /);
  assert.equal(asked, 1);
  for (const name of ['second', 'third', 'fourth']) {
    await assert.rejects(fetchText(outbound, `http://${name}.example:${port}/x`), isRefusal, name);
  }
});

test('plain http goes to ranges that the operator allowed, and nowhere else', async (t) => {
  const { port } = await startServer(t);
  const outbound = outboundFor(t, { allow: loopback });
  assert.match(await fetchText(outbound, `http://127.0.0.1:${port}/x`), /^200 /);
  assert.match(await fetchText(outbound, `http://localhost:${port}/x`), /^200 /);
  await assert.rejects(fetchText(outbound, 'http://8.8.8.8/x'), isRefusal);
});

test('a forbidden endpoint address is refused at once; a name is checked at the connection', async () => {
  const refuses = async (url: string, allow: AllowedRange[]) => {
    const outbound = createOutbound({ allow });
    try {
      outbound.requireReachable(new URL(url));
      return false;
    } catch (error) {
      return error instanceof AppError && error.code === 'address_not_allowed';
    } finally {
      await outbound.close();
    }
  };
  for (const url of ['https://example.com/', 'https://1.1.1.1/', 'https://[2606:4700::1111]/']) {
    assert.equal(await refuses(url, allowed()), false, url);
  }
  const local = ['http://127.0.0.1/', 'https://[::1]/', 'https://localhost/', 'http://localhost:80/'];
  for (const url of [...local, 'https://10.0.0.1/', 'http://1.1.1.1/', 'http://example.com/']) {
    assert.equal(await refuses(url, allowed()), true, url);
  }
  for (const url of [...local, 'http://example.com/']) assert.equal(await refuses(url, loopback), false, url);
  assert.equal(await refuses('https://10.0.0.1/', loopback), true);
});

test('the sandbox is reached by test integrations alone, at its exact address, and never its control routes', async (t) => {
  const { port, seen } = await startServer(t);
  const origin = `http://127.0.0.1:${port}`;
  const outbound = outboundFor(t, { allow: [], sandbox: { origin } });
  assert.match(await fetchText(outbound, `${origin}/v4/spreadsheets`, { isTest: true }), /^200 /);
  // The socket that the test integration left open is of no use to others.
  await assert.rejects(fetchText(outbound, `${origin}/v4/spreadsheets`), isRefusal);
  await assert.rejects(fetchText(outbound, `http://localhost:${port}/v4`, { isTest: true }), isRefusal);
  const before = seen.length;
  for (const path of [
    '/_sandbox', '/_sandbox/clock', '/_SANDBOX/clock', '/%5fsandbox/clock', '/%5Fs%61ndbox', '/%255fsandbox/x',
    '/v4/..%2f_sandbox/x', '/v4%2f_sandbox', '//_sandbox/x', '/x;/_sandbox', '/_sandbox;x/clock',
  ]) {
    await assert.rejects(fetchText(outbound, origin + path, { isTest: true }), isRefusal, path);
  } // biome-ignore format: a list reads better in lines
  assert.equal(seen.length, before);
});

test('the control routes stay closed if the operator allows loopback', async (t) => {
  const { port } = await startServer(t);
  const outbound = outboundFor(t, { allow: loopback, sandbox: { origin: `http://localhost:${port}` } });
  await assert.rejects(fetchText(outbound, `http://127.0.0.1:${port}/_sandbox/clock`), isRefusal);
});

test('a redirect is handed back, not followed, and nothing is added to the request', async (t) => {
  const { port, seen } = await startServer(t);
  const outbound = outboundFor(t, { allow: loopback });
  const answer = await fetchText(outbound, `http://127.0.0.1:${port}/redirect`);
  assert.deepEqual(JSON.parse(answer.slice('302 '.length)), {
    host: `127.0.0.1:${port}`,
    connection: 'keep-alive',
  });
  assert.deepEqual(seen, ['GET /redirect']);
});

test('variables that name a proxy have no effect', async (t) => {
  const { port } = await startServer(t);
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'ALL_PROXY', 'NODE_USE_ENV_PROXY'];
  for (const name of names) process.env[name] = name === 'NODE_USE_ENV_PROXY' ? '1' : 'http://127.0.0.1:9';
  t.after(() => {
    for (const name of names) delete process.env[name];
  });
  const outbound = outboundFor(t, { allow: loopback });
  assert.match(await fetchText(outbound, `http://127.0.0.1:${port}/x`), /^200 /);
});
