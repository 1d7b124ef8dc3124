import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { createOutbound, type Outbound } from '../../outbound/outbound.ts';
import { loopbackRanges } from '../../proxy/proxy.fixture.ts';
import { outsideFetch } from './outside-fetch.ts';

type Seen = {
  method: string | undefined;
  url: string | undefined;
  headers: IncomingMessage['headers'];
  body: string;
};

const seen: Seen[] = [];
let outbound: Outbound;
let here: string;
let there: string;
const servers = [createServer(answer), createServer(answer)];
before(async () => {
  outbound = createOutbound({ allow: [{ addresses: loopbackRanges() }] });
  for (const server of servers) await once(server.listen(0, '127.0.0.1'), 'listening');
  [here = '', there = ''] = servers.map(
    (server) => `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
  );
});
after(async () => {
  await outbound.close();
  for (const server of servers) server.close();
});

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method, url, headers } = request;
  const body = Buffer.concat(await request.toArray()).toString();
  seen.push({ method, url, headers, body });
  const [, status, to] = /^\/(\d{3})\/(.*)$/.exec(url ?? '') ?? [];
  if (status === undefined) response.writeHead(200, { 'x-own': 'yes' }).end('whole');
  else response.writeHead(Number(status), { location: decodeURIComponent(to ?? '') }).end('moved');
}

async function serviceCall(
  url: string,
  given: { method?: string; headers?: Record<string, string>; text?: string } = {},
) {
  seen.length = 0;
  const { method = 'GET', headers = {}, text } = given;
  async function* bytes() {
    yield Buffer.from(text ?? '');
  }
  const asked = { url, method, headers, body: text === undefined ? undefined : bytes() };
  const { body, ...head } = await outsideFetch(outbound.fetchWhole, {
    ...asked,
    signal: AbortSignal.timeout(5_000),
  });
  const parts: Uint8Array[] = [];
  for await (const part of body) parts.push(part);
  return { ...head, text: Buffer.concat(parts).toString() };
}
const to = (status: number, url: string) => `${here}/${status}/${encodeURIComponent(url)}`;

test('an answer comes whole, with its headers and where it came from', async () => {
  const { status, url, headers, text } = await serviceCall(`${here}/a?b=c`, {
    method: 'POST',
    text: 'é',
    headers: { host: 'x' },
  });
  assert.deepEqual([status, url, headers['x-own'], text], [200, `${here}/a?b=c`, 'yes', 'whole']);
  assert.deepEqual(
    [seen[0]?.method, seen[0]?.body, seen[0]?.headers.host],
    ['POST', 'é', new URL(here).host],
  );
});

test('headers for one origin are not sent to another after a redirect', async () => {
  const headers = { Authorization: 'secret', Cookie: 'a=b', 'X-Other': 'kept' };
  await serviceCall(to(302, `${here}/same`), { headers });
  assert.equal(seen[1]?.headers.authorization, 'secret');
  await serviceCall(to(302, `${there}/other`), { headers });
  const { authorization, cookie, 'x-other': other } = seen[1]?.headers ?? {};
  assert.deepEqual([authorization, cookie, other], [undefined, undefined, 'kept']);
});

test('a redirect keeps method and body if its status requires it', async () => {
  for (const [status, method, body] of [
    [301, 'GET', ''],
    [303, 'GET', ''],
    [307, 'POST', 'text'],
    [308, 'POST', 'text'],
  ] as const) {
    const headers = { 'Content-Type': 'text/plain' };
    await serviceCall(to(status, `${here}/then`), { method: 'POST', text: 'text', headers });
    assert.deepEqual([seen[1]?.method, seen[1]?.body], [method, body], String(status));
    // What speaks of a body goes with it.
    const isKept = method === 'POST';
    assert.equal(seen[1]?.headers['content-type'], isKept ? 'text/plain' : undefined, String(status));
  }
  await serviceCall(to(303, `${here}/then`), { method: 'HEAD' });
  assert.equal(seen[1]?.method, 'HEAD');
});

test('redirects have an end, and lead to no other scheme', async () => {
  const round = `/302/${encodeURIComponent('/again')}`;
  assert.equal((await serviceCall(here + round)).status, 200);
  let url = `${here}/end`;
  for (let n = 0; n < 6; n += 1) url = to(302, url);
  assert.equal((await serviceCall(url)).status, 302);
  assert.equal(seen.length, 6);
  await assert.rejects(serviceCall(to(302, 'file:///etc/passwd')), { code: 'upstream_unreadable' });
});

test('an address that is not public is refused, also one that is redirected to', async () => {
  for (const url of [
    'http://169.254.169.254/',
    'https://2852039166/',
    'https://0xa9.0376.43518/',
    'https://name:word@169.254.169.254:444/',
    'https://[::ffff:169.254.169.254]/',
    'https://[64:ff9b::a9fe:a9fe]/',
    'https://[fd00:ec2::254]/',
  ])
    await assert.rejects(serviceCall(url), { code: 'address_not_allowed' }, url);
  await assert.rejects(serviceCall(to(302, 'http://10.0.0.1/')), { code: 'address_not_allowed' });
});
