import assert from 'node:assert/strict';
import type { Socket } from 'node:net';
import { test } from 'node:test';
import Fastify from 'fastify';
import { createNetworkReader, isForwardedInVain } from './address.ts';

const requestFrom = (remoteAddress: string, forwarded?: string) => ({
  socket: { remoteAddress } as Socket,
  headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
});

test('without a trusted proxy the address of the connection counts, whatever the request contains', () => {
  const networkOf = createNetworkReader([]);
  assert.equal(networkOf(requestFrom('203.0.113.7', '198.51.100.1')), '203.0.113.7');
  assert.equal(networkOf(requestFrom('::ffff:203.0.113.7')), '203.0.113.7');
});

test('behind trusted proxies it is the nearest address that no trusted one has', () => {
  const networkOf = createNetworkReader(['10.0.0.0/8', 'fd00::/8']);
  assert.equal(networkOf(requestFrom('10.1.1.1', '192.0.2.1, 198.51.100.1, 10.2.2.2')), '198.51.100.1');
  assert.equal(networkOf(requestFrom('::ffff:10.1.1.1', '198.51.100.1')), '198.51.100.1');
  assert.equal(networkOf(requestFrom('fd00::1', '2001:db8:1:2::3')), '2001:db8:1:2::/64');
  assert.equal(networkOf(requestFrom('203.0.113.7', '198.51.100.1')), '203.0.113.7');
  assert.equal(networkOf(requestFrom('10.1.1.1', 'unknown')), '10.1.1.1');
});

test('addresses of one IPv6 subscriber are one', () => {
  const networkOf = createNetworkReader([]);
  assert.equal(networkOf(requestFrom('2001:db8:0:2::1')), networkOf(requestFrom('2001:db8::2:ffff:1:2:3')));
  assert.notEqual(networkOf(requestFrom('2001:db8:0:2::1')), networkOf(requestFrom('2001:db8:0:3::1')));
  assert.equal(networkOf(requestFrom('::1')), '0:0:0:0::/64');
});

test('the header of an untrusted proxy is ignored, even if others are trusted', async () => {
  for (const [trustProxy, inVain] of [
    [false, true],
    [['10.0.0.0/8'], true],
    [['127.0.0.0/8'], false],
  ] as const) {
    const app = Fastify({ trustProxy: trustProxy && [...trustProxy] });
    app.get('/', async (request) => isForwardedInVain(request));
    const judged = async (headers = {}) => (await app.inject({ url: '/', headers })).json();
    assert.equal(await judged({ 'x-forwarded-for': '198.51.100.1' }), inVain);
    assert.equal(await judged(), false);
    await app.close();
  }
});
