import assert from 'node:assert/strict';
import type { Promised, Subject } from './subject.ts';

async function arriving(subject: Subject, headers: string[]): Promise<(readonly [string, string])[]> {
  const reply = await subject.ask({ headers });
  assert.equal(reply.status, 200);
  const seen = subject.provider.seen[0];
  assert.ok(seen);
  return seen.headers.filter(
    ([name]) => !['host', 'connection', 'authorization'].includes(name.toLowerCase()),
  );
}

const passed = [
  'Accept: text/csv;q=0.5, */*',
  'Accept-Encoding: zstd, br',
  'Accept-Language: de-CH',
  'Cache-Control: no-cache',
  'Content-Type: application/vnd.api+json; charset="utf-8"',
  'Content-Language: fr',
  'Idempotency-Key: 8e03978e-40d5-43dd-bc93-6894a57f9324',
  'If-Match: "etag"',
  'If-None-Match: W/"etag", "other"',
  'If-Modified-Since: Sat, 29 Oct 1994 19:43:31 GMT',
  'If-Range: "etag"',
  'Last-Event-ID: 17',
  'Mcp-Session-Id: s1',
  'Prefer: return=minimal',
  'Range: bytes=0-99, 200-',
  'User-Agent: something/1.0 (odd; agent)',
  'X-Goog-FieldMask: a,b.c',
  'X-Upload-Content-Type: text/csv',
];

const dropped: [string, string][] = [
  ['cookies', 'Cookie: session=1'],
  ['where the caller comes from', 'Referer: https://app.example/page'],
  ['the origin of a page', 'Origin: https://app.example'],
  ['who forwarded before', 'Forwarded: for=10.0.0.1'],
  ["the caller's address", 'X-Forwarded-For: 10.0.0.1'],
  ["the caller's host", 'X-Forwarded-Host: internal.example'],
  ['credentials for a proxy', 'Proxy-Authorization: Basic eDp5'],
  ['an upgrade', 'Upgrade: h2c'],
  ['keep-alive settings', 'Keep-Alive: timeout=5'],
  ['transfer codings beyond chunked', 'TE: gzip, trailers'],
  ['tracing', 'traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
  ['hints of a browser', 'Sec-Fetch-Mode: cors'],
  ['a request id of the infrastructure', 'X-Request-Id: r1'],
  ['what nobody has heard of', 'X-Custom: 1'],
];

export const requestHeaders: Promised[] = [
  ...passed.map((line) => ({
    name: `a header of the message goes on: ${line.split(':')[0]}`,
    prove: async (subject: Subject) => {
      assert.deepEqual(await arriving(subject, [line]), [
        [line.split(': ')[0], line.slice(line.indexOf(': ') + 2)],
      ]);
    },
  })),
  ...dropped.map(([what, line]) => ({
    name: `what is the caller's own business does not leave: ${what}`,
    prove: async (subject: Subject) => assert.deepEqual(await arriving(subject, [line]), []),
  })),
  {
    name: 'repeated headers stay repeated, in their order and case',
    prove: async (subject) =>
      assert.deepEqual(await arriving(subject, ['Accept: a/a', 'ACCEPT: b/b', 'Prefer: x', 'accept: a/a']), [
        ['Accept', 'a/a'],
        ['ACCEPT', 'b/b'],
        ['Prefer', 'x'],
        ['accept', 'a/a'],
      ]),
  },
  {
    name: 'headers that Connection names stay on their hop',
    prove: async (subject) =>
      assert.deepEqual(await arriving(subject, ['Connection: Prefer', 'Prefer: x', 'Accept: a/b']), [
        ['Accept', 'a/b'],
      ]),
  },
  {
    name: 'Connection cannot take the framing of a body away',
    prove: async (subject) => {
      const headers = ['Connection: content-length, content-type', 'Content-Type: text/plain'];
      await subject.ask({ method: 'POST', headers, body: 'whole' });
      const [seen] = subject.provider.seen;
      assert.deepEqual(seen?.all('content-type'), ['text/plain']);
      assert.equal((await seen?.body)?.toString(), 'whole');
    },
  },
  {
    name: 'any other header goes with the prefix, and loses it',
    prove: async (subject) =>
      assert.deepEqual(
        await arriving(subject, [
          `${subject.headerPrefix}X-Custom: 1`,
          `${subject.headerPrefix.toUpperCase()}X-Custom: 2`,
        ]),
        [
          ['X-Custom', '1'],
          ['X-Custom', '2'],
        ],
      ),
  },
  {
    name: "a prefixed header takes the place of the client's own",
    prove: async (subject) =>
      assert.deepEqual(
        await arriving(subject, ['User-Agent: library', `${subject.headerPrefix}User-Agent: mine`]),
        [['User-Agent', 'mine']],
      ),
  },
  ...[
    'Authorization',
    'Cookie',
    'Host',
    'Connection',
    'Transfer-Encoding',
    'Content-Length',
    'X-Forwarded-For',
    'Content_Length',
    'Transfer.Encoding',
    'x_forwarded_for',
  ].map((name) => ({
    name: `the prefix does not let a caller set ${name}`,
    prove: async (subject: Subject) => {
      const line = `${subject.headerPrefix}${name}: 7`;
      assert.deepEqual(await arriving(subject, [line]), []);
      assert.ok(subject.provider.seen[0]?.headers.every(([, value]) => value !== '7'));
    },
  })),
  {
    name: "the caller's key stays here: the provider gets the connection's credentials",
    prove: async (subject) => {
      await subject.ask();
      const values = subject.provider.seen[0]?.all('authorization') ?? [];
      assert.equal(values.length, 1);
      if (process.env.CONFORMANCE_URL === undefined) assert.equal(values[0], 'Bearer secret-of-the-provider');
    },
  },
  {
    name: 'our own headers stay here',
    prove: async (subject) => {
      const ours = [
        'Retries: 0',
        'Retry-On: 404',
        'Decompress: false',
        'Quota-Wait: 1',
        'Timeouts: total=60',
      ];
      assert.deepEqual(await arriving(subject, [...ours, 'Base-Url-Override:', 'Accept: a/b']), [
        ['Accept', 'a/b'],
      ]);
    },
  },
  {
    name: 'the host is that of the provider',
    prove: async (subject) => {
      await subject.ask();
      assert.deepEqual(subject.provider.seen[0]?.all('host'), [`127.0.0.1:${subject.provider.port}`]);
    },
  },
  {
    name: 'a caller that waits for 100 Continue gets it, and the provider never hears of it',
    prove: async (subject) => {
      const talk = subject.open({ method: 'POST', headers: ['Expect: 100-continue', 'Content-Length: 4'] });
      await talk.until((bytes) => bytes.toString('latin1').startsWith('HTTP/1.1 100 '));
      talk.socket.write('body');
      assert.equal((await talk.ended()).status, 200);
      const [seen] = subject.provider.seen;
      assert.deepEqual(seen?.all('expect'), []);
      assert.equal((await seen?.body)?.toString(), 'body');
    },
  },
];
