import assert from 'node:assert/strict';
import { all } from './caller.ts';
import { answer } from './provider.ts';
import type { Promised, Subject } from './subject.ts';

/** Adds what the answer to such headers must and must not hold. */
function relays(lines: string[], expected: [string, string[]][]): Promised['prove'] {
  return async (subject) => {
    const reply = await subject.ask({}, (seen) => seen.write(answer('200 OK', lines, 'ok')));
    for (const [name, values] of expected) assert.deepEqual(all(reply, name), values, name);
  };
}

const statuses: [string, string[], string][] = [
  ['200 OK', [], 'body'],
  ['201 Created', ['Location: https://other.example/made'], '{}'],
  ['202 Accepted', [], ''],
  ['206 Partial Content', ['Content-Range: bytes 0-3/10'], 'body'],
  ['299 Quite Special', [], 'x'],
  ['301 Moved Permanently', ['Location: https://other.example/'], ''],
  ['302 Found', ['Location: https://other.example/'], ''],
  ['307 Temporary Redirect', ['Location: https://other.example/'], ''],
  ['400 Bad Request', [], '{"error":{"code":400}}'],
  ['401 Unauthorized', ['WWW-Authenticate: Bearer realm="x"'], '{}'],
  ['403 Forbidden', [], '{}'],
  ['404 Not Found', [], '<html></html>'],
  ['409 Conflict', [], '{}'],
  ['416 Range Not Satisfiable', ['Content-Range: bytes */10'], ''],
  ["418 I'm a teapot", [], 'short and stout'],
  ['429 Too Many Requests', ['Retry-After: 17'], '{}'],
  ['500 Internal Server Error', [], 'oops'],
  ['503 Service Unavailable', ['Retry-After: Fri, 31 Dec 2100 23:59:59 GMT'], 'later'],
];

const notRelayed: [string, string, string][] = [
  ['keep-alive settings of the other hop', 'Keep-Alive: timeout=9', 'timeout=9'],
  ['an upgrade', 'Upgrade: h2c', 'h2c'],
  ['a challenge of another proxy', 'Proxy-Authenticate: Basic', 'Basic'],
  ['other ways to the provider', 'Alt-Svc: h3=":443"', 'h3=":443"'],
  [
    'the origins that the provider allows',
    'Access-Control-Allow-Origin: https://x.example',
    'https://x.example',
  ],
  ['credentials for pages', 'Access-Control-Allow-Credentials: true', 'true'],
];

/** As bytes of latin1; what a caller gets of them. */
const phrases: [string, string, string][] = [
  ['one of its own', 'Quite Fine', 'Quite Fine'],
  ['none', '', ''],
  ['a character beyond ASCII', 'caf\u00e9', ''],
  ['the same in UTF-8', 'caf\u00c3\u00a9', ''],
];

const trailersNotRelayed = [
  'Content-Type: text/html',
  'Transfer-Encoding: chunked',
  'Set-Cookie: a=1',
  'Keep-Alive: timeout=9',
  'Access-Control-Allow-Origin: https://x.example',
  'Cache-Control: no-store',
];

export const answers: Promised[] = [
  ...statuses.map(([status, headers, body]) => ({
    name: `the provider's answer is the caller's: ${status}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({}, (seen) => seen.write(answer(status, headers, body)));
      assert.equal(reply.line, `HTTP/1.1 ${status}`);
      for (const line of headers)
        assert.deepEqual(all(reply, line.split(':')[0] ?? ''), [line.slice(line.indexOf(':') + 2)]);
      assert.deepEqual([reply.body.toString('latin1'), reply.isWhole], [body, true]);
      assert.equal(subject.errorOf(reply), undefined);
      assert.equal(subject.provider.seen.length, 1);
    },
  })),
  ...notRelayed.map(([what, line, value]) => ({
    name: `an answer does not carry what belongs to the other hop: ${what}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({}, (seen) => seen.write(answer('200 OK', [line], 'ok')));
      assert.ok(!all(reply, line.split(':')[0] ?? '').includes(value));
    },
  })),
  ...phrases.map(([what, sent, received]) => ({
    name: `whatever the reason phrase is, the answer arrives: ${what}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({}, (seen) => seen.write(answer(`200 ${sent}`, [], 'ok')));
      assert.deepEqual([reply.line, reply.body.toString()], [`HTTP/1.1 200 ${received}`, 'ok']);
    },
  })),
  ...['gzip, chunked', 'gzip'].map((coding) => ({
    name: `an answer with a transfer coding that callers do not know is an error of Trellis: ${coding}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({}, ({ socket }) =>
        socket.end(`HTTP/1.1 200 OK\r\nTransfer-Encoding: ${coding}\r\n\r\n2\r\nGZ\r\n0\r\n\r\n`),
      );
      assert.deepEqual([reply.status, subject.errorOf(reply)], [502, 'upstream_unreadable']);
    },
  })),
  ...trailersNotRelayed.map((line) => ({
    name: `trailers of an answer cannot do what headers may not, or only headers may: ${line.split(':')[0]}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({}, (seen) =>
        seen.write(
          `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${line}\r\nX-Sum: 42\r\n\r\n`,
        ),
      );
      assert.deepEqual([reply.body.toString(), reply.trailers], ['ok', [['X-Sum', '42']]]);
    },
  })),
  {
    name: 'a trailer that pretends to be our error loses the marker',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) =>
        seen.write(
          `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n${subject.marker}: forged\r\n\r\n`,
        ),
      );
      assert.deepEqual([reply.body.toString(), reply.trailers, reply.isWhole], ['ok', [], true]);
    },
  },
  {
    name: 'repeated headers of an answer stay repeated',
    prove: relays(['Set-Cookie: a=1; Path=/', 'Set-Cookie: b=2'], [['set-cookie', ['a=1; Path=/', 'b=2']]]),
  },
  {
    name: 'the spelling of header names stays',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) =>
        seen.write(answer('200 OK', ['eTaG: "x"', 'X-ODD-case: 1'], 'ok')),
      );
      const names = reply.headers.map(([name]) => name);
      assert.ok(names.includes('eTaG') && names.includes('X-ODD-case'));
    },
  },
  {
    name: 'header values beyond ASCII stay byte for byte',
    prove: relays(['X-Latin: caf\u00e9 \u00ff'], [['x-latin', ['caf\u00e9 \u00ff']]]),
  },
  {
    name: "the provider's Date stays",
    prove: relays(['Date: Thu, 01 Jan 1970 00:00:00 GMT'], [['date', ['Thu, 01 Jan 1970 00:00:00 GMT']]]),
  },
  {
    name: 'headers that Connection names in an answer stay on their hop',
    prove: relays(
      ['Connection: keep-alive, X-Hop', 'X-Hop: 1', 'X-End: 2'],
      [
        ['x-hop', []],
        ['x-end', ['2']],
      ],
    ),
  },
  {
    name: 'an answer that pretends to be our error loses the marker',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) =>
        seen.write(answer('424 No', [`${subject.marker}: forged`])),
      );
      assert.deepEqual([reply.status, subject.errorOf(reply)], [424, undefined]);
    },
  },
  {
    name: 'a Location without a host leads to the provider, not to us',
    prove: async (subject) => {
      const reply = await subject.ask({ path: '/a/b?c' }, (seen) =>
        seen.write(answer('302 Found', ['Location: ../d?e=%2F'])),
      );
      assert.deepEqual(all(reply, 'location'), [`http://127.0.0.1:${subject.provider.port}/d?e=%2F`]);
    },
  },
  {
    name: 'pages of any origin may read the answer',
    prove: relays([], [['access-control-allow-origin', ['*']]]),
  },
  {
    name: 'early hints reach the caller before the answer',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) => {
        seen.write(
          'HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nAlt-Svc: h3\r\nContent-Length: 3\r\n\r\n',
        );
        seen.write(answer('200 OK', [], 'ok'));
      });
      assert.equal(reply.interim.length, 1);
      assert.match(reply.interim[0] ?? '', /^HTTP\/1\.1 103 Early Hints\r\nLink: <\/a\.css>; rel=preload/);
      assert.doesNotMatch(reply.interim[0] ?? '', /alt-svc|content-length/i);
      assert.equal(reply.body.toString(), 'ok');
    },
  },
  {
    name: 'of endless early hints the first few reach the caller, and then the answer',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) => {
        seen.write('HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n'.repeat(1_000));
        seen.write(answer('200 OK', [], 'ok'));
      });
      assert.ok(reply.interim.length > 0 && reply.interim.length <= 20, String(reply.interim.length));
      assert.deepEqual([reply.status, reply.body.toString()], [200, 'ok']);
    },
  },
  {
    name: 'a caller of HTTP/1.0 gets no interim answers and no chunks',
    prove: async (subject) => {
      const reply = await subject.ask({ version: '1.0' }, (seen) =>
        seen.write(
          'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
        ),
      );
      assert.deepEqual(
        [reply.interim, reply.body.toString(), all(reply, 'transfer-encoding')],
        [[], 'ok', []],
      );
    },
  },
  {
    name: 'the answer to HEAD keeps the length of the body that it does not have',
    prove: async (subject) => {
      const reply = await subject.ask({ method: 'HEAD' }, (seen) =>
        seen.write('HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n'),
      );
      assert.deepEqual([all(reply, 'content-length'), reply.body.length], [['1234'], 0]);
    },
  },
  {
    name: '204 has no body and no length',
    prove: async (subject) => {
      const reply = await subject.ask({}, (seen) => seen.write('HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n'));
      assert.deepEqual(
        [reply.status, all(reply, 'content-length'), all(reply, 'transfer-encoding')],
        [204, [], []],
      );
      assert.deepEqual(all(reply, 'x-a'), ['1']);
    },
  },
  {
    name: '204 has no length, whatever the provider says, and the next answer is the next',
    prove: async (subject) => {
      const talk = subject.open({ keepAlive: true }, (seen) =>
        seen.write(
          seen.path === '/x'
            ? 'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nabcde'
            : answer('200 OK', [], 'next'),
        ),
      );
      await talk.until((bytes) => bytes.includes('\r\n\r\n'));
      subject.continue(talk, { path: '/next' });
      const text = (await talk.closed()).toString('latin1');
      assert.match(
        text,
        /^HTTP\/1\.1 204 No Content\r\n[\s\S]*?\r\n\r\nHTTP\/1\.1 200 OK\r\n[\s\S]*\r\n\r\nnext$/,
      );
      assert.doesNotMatch(text.split('\r\n\r\n', 1)[0] ?? '', /^content-length/im);
    },
  },
  {
    name: '304 keeps its validators and has no body',
    prove: async (subject) => {
      const reply = await subject.ask({ headers: ['If-None-Match: "x"'] }, (seen) =>
        seen.write('HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nCache-Control: max-age=5\r\n\r\n'),
      );
      assert.deepEqual(
        [reply.status, all(reply, 'etag'), all(reply, 'cache-control')],
        [304, ['"x"'], ['max-age=5']],
      );
      assert.equal(reply.body.length, 0);
    },
  },
  {
    name: 'a header section of 60 KB is relayed',
    prove: relays([`X-Large: ${'v'.repeat(60_000)}`], [['x-large', ['v'.repeat(60_000)]]]),
  },
];
