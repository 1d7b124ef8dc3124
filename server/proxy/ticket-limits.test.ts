import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brandNames } from '../brand.ts';
import { headersForPage, shieldedHeaders } from './headers.ts';
import { requireSameConnection } from './rules.ts';

test('nothing in the answer to a ticket acts on the address it comes from', () => {
  const acting = [
    'Set-Cookie', 'Clear-Site-Data', 'Strict-Transport-Security', 'Service-Worker-Allowed', 'NEL', 'Report-To',
    'Reporting-Endpoints', 'Accept-CH', 'Critical-CH', 'Set-Login', 'Refresh', 'Origin-Agent-Cluster',
    'Speculation-Rules', 'Use-As-Dictionary', 'Attribution-Reporting-Register-Source',
    'Attribution-Reporting-Register-Trigger', 'Sec-Session-Registration', 'Secure-Session-Registration',
    'Secure-Session-Challenge', 'Shared-Storage-Write',
  ]; // biome-ignore format: a list reads better in lines
  const kept = ['Content-Type', 'text/html', 'ETag', '"a"', 'Link', '</next>; rel=next', 'X-Session', '1'];
  const given = [...kept, ...acting.flatMap((name) => [name, 'x'])];
  assert.deepEqual(shieldedHeaders(given), [...kept, 'content-security-policy', 'sandbox']);
  const lower = given.map((text) => text.toLowerCase());
  assert.equal(shieldedHeaders(lower).length, kept.length + 2, 'in any case');
});

test('a page follows no redirect of a provider, but gets its target', () => {
  const given = ['location', 'https://ours.example.com/environments/dev', 'Set-Cookie', 'a=b', 'ETag', '"a"'];
  assert.deepEqual(headersForPage(given, brandNames('acme')), [
    'x-acme-location',
    'https://ours.example.com/environments/dev',
    'ETag',
    '"a"',
    'content-security-policy',
    'sandbox',
  ]);
});

test('a ticket is for the connection it was made for, not for one that is given its ID or its row later', () => {
  const madeAt = new Date('2030-01-31T12:00:00.001Z');
  const ticket = {
    id: 't',
    integrationKey: 'i',
    connectionId: 'c',
    rules: [],
    maxBytes: undefined,
    connectionRow: 7,
    connectionMadeAt: madeAt.getTime(),
  };
  requireSameConnection(ticket, { id: 7, createdAt: madeAt });
  for (const other of [
    { id: 8, createdAt: madeAt },
    { id: 7, createdAt: new Date(madeAt.getTime() + 1) },
  ])
    assert.throws(() => requireSameConnection(ticket, other), { code: 'proxy_rule_denied' });
});
