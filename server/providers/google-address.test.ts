import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adviceAtGoogle, whyNotAtGoogle } from './google-address.ts';

test('an address that Google would refuse is rejected with the reason', () => {
  const refused: [string, RegExp][] = [
    ['http://trellis.acme.com', /http only for localhost/],
    ['https://192.168.1.20:3003', /IP addresses/],
    ['http://10.0.0.7', /IP addresses/],
    ['https://[fd00::1]', /IP addresses/],
    ['https://trellis', /no public top-level domain/],
    ['https://trellis.local', /no public top-level domain/],
    ['https://trellis.prod.svc', /no public top-level domain/],
    ['http://trellis.home.arpa', /no public top-level domain/],
    ['https://ada@trellis.acme.com', /no address with a user name/],
  ];
  for (const [address, why] of refused) assert.match(whyNotAtGoogle(address) ?? 'taken', why, address);
});

test('public https addresses and localhost are taken, the latter with advice', () => {
  for (const address of ['https://trellis.acme.com', 'https://trellis.acme.co.uk:8443']) {
    assert.equal(whyNotAtGoogle(address), undefined);
    assert.equal(adviceAtGoogle(address), undefined);
  }
  for (const address of ['http://localhost:3003', 'http://127.0.0.1:3003', 'http://[::1]:3003']) {
    assert.equal(whyNotAtGoogle(address), undefined);
    assert.match(adviceAtGoogle(address) ?? '', /only in a browser on this machine/);
  }
});
