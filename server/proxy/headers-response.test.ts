import assert from 'node:assert/strict';
import { test } from 'node:test';
import { brandNames } from '../brand.ts';
import { ResponseHeaderRules } from './headers.ts';

const relayed = (raw: string[], { path = '/v4/a/b?x=1', query = '' } = {}) =>
  new ResponseHeaderRules(brandNames('trellis')).headers(raw, {
    origin: 'https://api.example',
    path,
    placed: { query },
  });

test('headers of an answer that Connection lists stay on their hop', () => {
  assert.deepEqual(relayed(['Connection', 'X-Hop', 'X-Hop', '1', 'X-End', '2']), ['X-End', '2']);
});

test('a response keeps all headers but those of the hop and those that imitate ours', () => {
  const kept = [
    'Content-Type',
    'text/csv',
    'Set-Cookie',
    'a=1',
    'Set-Cookie',
    'b=2',
    'ETag',
    '"x"',
    'X-Request-Id',
    'r',
  ];
  const dropped = [
    ['Transfer-Encoding', 'chunked'],
    ['Keep-Alive', 'timeout=5'],
    ['Proxy-Authenticate', 'Basic'],
    ['Upgrade', 'h2c'],
    ['Alt-Svc', 'h3=":443"'],
    ['Access-Control-Allow-Origin', 'https://x.example'],
    ['access-control-allow-credentials', 'true'],
    ['X-TRELLIS-Error', 'forged'],
  ].flat();
  assert.deepEqual(relayed([...dropped, ...kept]), kept);
});

test('credentials in the query come back in no address of an answer, wherever it leads', () => {
  const query = 'api_key=s%2Fe%20c';
  const cases: [string, string, string][] = [
    ['Location', '', 'https://api.example/v4/a?x=1'],
    ['Location', '#part', 'https://api.example/v4/a?x=1#part'],
    ['Location', '/v4/a/?x=1&api_key=s%2fe+c&y=2', 'https://api.example/v4/a/?x=1&y=2'],
    ['Location', 'https://cdn.example/?api_key=s/e%20c', 'https://cdn.example/'],
    ['Location', 'https://cdn.example/?api_key=another', 'https://cdn.example/?api_key=another'],
    ['Content-Location', '/a?api_key=s%2Fe%20c', '/a'],
    ['Link', '</a?api_key=s%2Fe%20c&p=2>; rel="next", </b>', '</a?p=2>; rel="next", </b>'],
    ['refresh', '5; url=/a?p=1&api_key=s%2Fe%20c', '5; url=/a?p=1'],
  ];
  for (const [name, value, expected] of cases) {
    const path = `/v4/a?x=1&${query}`;
    assert.deepEqual(relayed([name, value], { path, query }), [name, expected], value);
  }
});

test('a Location leads to the provider, not to us', () => {
  const cases: [string, string][] = [
    ['/v4/next?a=%2F', 'https://api.example/v4/next?a=%2F'],
    ['next', 'https://api.example/v4/a/next'],
    ['?page=2', 'https://api.example/v4/a/b?page=2'],
    ['//cdn.example/x', 'https://cdn.example/x'],
    ['https://other.example/%7Ex', 'https://other.example/%7Ex'],
  ];
  for (const [location, expected] of cases)
    assert.deepEqual(relayed(['Location', location]), ['Location', expected]);
});
