import assert from 'node:assert/strict';
import fc from 'fast-check';
import { type Ask, all } from './caller.ts';
import type { Promised, Subject } from './subject.ts';

const badOverrides: [string, (port: number) => string][] = [
  ['another host', () => 'https://evil.example'],
  ['another port of an allowed host', (port) => `http://localhost:${port + 1}`],
  ['another scheme of an allowed host', (port) => `https://localhost:${port}`],
  ['an allowed host as user name', (port) => `http://localhost:${port}@evil.example`],
  ['a user name before an allowed host', (port) => `http://user@localhost:${port}`],
  ['a query', (port) => `http://localhost:${port}?x=`],
  ['a number sign', (port) => `http://localhost:${port}#`],
  ['a backslash', (port) => `http://localhost:${port}\\@evil.example`],
  ['another protocol', () => 'file:///etc/passwd'],
  ['no address', () => 'localhost'],
  ['the address of cloud metadata', () => 'http://169.254.169.254'],
];

const missing: [string, string, number, string][] = [
  ['the key', 'authorization', 401, 'missing_auth_header'],
  ['the connection', 'connection-id', 400, 'invalid_headers'],
  ['the integration', 'provider-config-key', 400, 'invalid_headers'],
];
const wrong: [string, string, string, number, string][] = [
  [
    'another key',
    'authorization',
    'Bearer trs_dev_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
    401,
    'unknown_account',
  ],
  ['another way to say who one is', 'authorization', 'Basic eDp5', 401, 'malformed_auth_header'],
  ['a connection that is not there', 'connection-id', 'nobody', 400, 'unknown_connection'],
  ['an integration that is not there', 'provider-config-key', 'nothing', 404, 'unknown_provider_config'],
];

const ambiguous: [string, Ask][] = [
  ['two Hosts', { headers: ['Host: other.example'] }],
  [
    'chunks in HTTP/1.0',
    {
      method: 'POST',
      version: '1.0',
      headers: ['Transfer-Encoding: chunked', 'Connection: keep-alive'],
      body: '0\r\n\r\n',
      keepAlive: true,
    },
  ],
];

export const safety: Promised[] = [
  ...ambiguous.map(([what, ask]) => ({
    name: `what could be read as another request is refused, and the connection closed: ${what}`,
    prove: async (subject: Subject) => {
      const talk = subject.open(ask);
      if (ask.keepAlive) subject.continue(talk, { version: '1.0' });
      const reply = await talk.ended();
      assert.deepEqual([reply.status, subject.errorOf(reply)], [400, 'malformed_request']);
      assert.deepEqual([all(reply, 'connection'), subject.provider.seen.length], [['close'], 0]);
    },
  })),
  ...missing.map(([what, name, status, code]) => ({
    name: `a call without ${what} is refused, marked as ours`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ without: [name] });
      assert.deepEqual(
        [reply.status, subject.errorOf(reply), subject.provider.seen.length],
        [status, code, 0],
      );
      assert.deepEqual(all(reply, 'access-control-allow-origin'), ['*']);
    },
  })),
  ...wrong.map(([what, name, value, status, code]) => ({
    name: `a call with ${what} is refused, marked as ours`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ without: [name], headers: [`${name}: ${value}`] });
      assert.deepEqual(
        [reply.status, subject.errorOf(reply), subject.provider.seen.length],
        [status, code, 0],
      );
    },
  })),
  {
    name: 'TRACE is refused: it would show the credentials',
    prove: async (subject) => {
      const reply = await subject.ask({ method: 'TRACE' });
      assert.deepEqual(
        [reply.status, subject.errorOf(reply), subject.provider.seen.length],
        [405, 'method_not_allowed', 0],
      );
      assert.match(all(reply, 'allow')[0] ?? '', /GET/);
    },
  },
  {
    name: 'CONNECT is refused: there are no tunnels here',
    prove: async (subject) => {
      const reply = await subject.ask({ method: 'CONNECT' });
      assert.deepEqual(
        [reply.status, subject.errorOf(reply), subject.provider.seen.length],
        [405, 'method_not_allowed', 0],
      );
    },
  },
  {
    name: 'a preflight of a browser is answered here, without a key',
    prove: async (subject) => {
      const headers = [
        'Origin: https://a.example',
        'Access-Control-Request-Method: PUT',
        'Access-Control-Request-Headers: x-a',
      ];
      const reply = await subject.ask({ method: 'OPTIONS', without: ['authorization'], headers });
      assert.deepEqual([reply.status, subject.provider.seen.length], [204, 0]);
      assert.match(all(reply, 'access-control-allow-methods')[0] ?? '', /PUT/);
      assert.deepEqual(all(reply, 'access-control-allow-headers'), ['x-a']);
    },
  },
  {
    name: 'an override that the integration allows leads there, with its path',
    prove: async (subject) => {
      const headers = [`Base-Url-Override: http://localhost:${subject.provider.port}/base/`];
      assert.equal((await subject.ask({ path: '/x?a=1', headers })).status, 200);
      const [seen] = subject.provider.seen;
      assert.deepEqual(
        [seen?.path, seen?.all('host')],
        ['/base/x?a=1', [`localhost:${subject.provider.port}`]],
      );
    },
  },
  {
    name: 'an empty override is none',
    prove: async (subject) => {
      assert.equal((await subject.ask({ headers: ['Base-Url-Override:'] })).status, 200);
      assert.deepEqual(subject.provider.seen[0]?.all('host'), [`127.0.0.1:${subject.provider.port}`]);
    },
  },
  ...badOverrides.map(([what, override]) => ({
    name: `an override that the integration does not allow is refused: ${what}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ headers: [`Base-Url-Override: ${override(subject.provider.port)}`] });
      assert.deepEqual([reply.status, subject.errorOf(reply)], [400, 'base_url_override_not_allowed']);
      assert.deepEqual(subject.provider.seen, []);
    },
  })),
  {
    name: 'a provider that nobody runs is unreachable, and nothing was sent',
    prove: async (subject) => {
      // Allowed for the suite's own service; elsewhere the override is refused, which is as safe.
      const reply = await subject.ask({
        method: 'POST',
        body: '{}',
        headers: ['Base-Url-Override: http://127.0.0.1:1'],
      });
      assert.ok(
        ['upstream_unreachable', 'base_url_override_not_allowed'].includes(subject.errorOf(reply) ?? ''),
      );
    },
  },
  {
    name: 'whatever path is asked for arrives unchanged or is refused',
    prove: (subject) => {
      const piece = fc.constantFrom(
        '/',
        '\\',
        '..',
        '.',
        '%2e',
        '%2F',
        '%5c',
        '@',
        ':',
        '?',
        ';',
        '%',
        '&',
        'evil.example',
        'a',
      );
      const path = fc.array(fc.oneof(piece, fc.string({ maxLength: 3 })), { maxLength: 7 });
      return fc.assert(
        fc.asyncProperty(path, async (parts) => {
          const asked = `/${parts.join('').replace(/[^\x21-\x7e]|#/g, '')}`;
          const reply = await subject.ask({ path: asked });
          const [seen] = subject.provider.seen;
          if (reply.status === 200) assert.equal(seen?.path, asked);
          else assert.deepEqual([reply.status, seen], [400, undefined]);
        }),
        { numRuns: 150 },
      );
    },
  },
  {
    name: 'whatever header is sent, the provider gets its own host and the credentials of the connection alone',
    prove: async (subject) => {
      await subject.ask();
      const placed = subject.provider.seen[0]?.all('authorization') ?? [];
      assert.equal(placed.length, 1);
      const prefix = fc.constantFrom('', subject.headerPrefix, subject.headerPrefix.toUpperCase());
      const known = fc.constantFrom(
        'authorization',
        'Host',
        'cookie',
        'X-Forwarded-Host',
        'Via',
        'accept',
        'te',
        'x-a',
        'Connection-Id',
        ':path',
      );
      const name = fc.oneof(known, fc.stringMatching(/^[A-Za-z0-9-]{1,12}$/));
      const value = fc.stringMatching(/^[\x21-\x7e]{1,10}$/);
      return fc.assert(
        fc.asyncProperty(fc.array(fc.tuple(prefix, name, value), { maxLength: 4 }), async (lines) => {
          const headers = lines
            .filter(
              ([start, given]) =>
                start !== '' ||
                !/^(host|authorization|connection-id|content-length|transfer-encoding|expect|upgrade|connection|:path)$/i.test(
                  given,
                ),
            )
            .map(([start, given, text]) => `${start}${given}: ${text}`);
          const reply = await subject.ask({ headers });
          const [seen] = subject.provider.seen;
          // What a header of Trellis does not allow is refused; all else arrives.
          if (seen === undefined) assert.ok(subject.errorOf(reply), reply.line);
          else {
            assert.deepEqual(seen.all('host'), [`127.0.0.1:${subject.provider.port}`]);
            assert.deepEqual(seen.all('authorization'), placed);
            assert.equal(seen.all('cookie').length, 0);
          }
        }),
        { numRuns: 150 },
      );
    },
  },
  {
    name: 'whatever override is asked for, nothing leaves the allowed origins',
    prove: (subject) => {
      const piece = fc.constantFrom(
        'http://',
        'https://',
        'localhost',
        `:${subject.provider.port}`,
        '@',
        '/',
        '\\',
        '..',
        '#',
        '?',
        '.evil.example',
        '%2f',
        '%00',
        ':1',
      );
      return fc.assert(
        fc.asyncProperty(fc.array(piece, { minLength: 1, maxLength: 6 }), async (parts) => {
          const override = parts.join('');
          const reply = await subject.ask({ headers: [`Base-Url-Override: ${override}`] });
          const [seen] = subject.provider.seen;
          if (seen !== undefined)
            assert.equal(URL.parse(override)?.origin, `http://localhost:${subject.provider.port}`);
          else assert.equal(reply.status, 400);
        }),
        { numRuns: 150 },
      );
    },
  },
];
