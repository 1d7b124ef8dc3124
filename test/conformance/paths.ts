import assert from 'node:assert/strict';
import type { Promised, Subject } from './subject.ts';

/** What a router, a URL parser or a client library would change on the way. */
const kept: [string, string][] = [
  ['a sheet range in quotes with an exclamation mark', "/v4/spreadsheets/S/values/'Sheet1'!A1:append"],
  ['an encoded slash', '/values/%27Q1%2F2024%20data%27%21A1%3AB2'],
  ['a verb behind a colon', '/v4/spreadsheets/S:batchUpdate'],
  ['a verb behind a slash and a colon', '/v4/spreadsheets/S/:batchUpdate'],
  ['a slash at the end', '/v4/spreadsheets/S/'],
  ['slashes in a row behind the first segment', '/a//b///c'],
  ['a percent sign that encodes nothing', '/bad%zz/%'],
  ['lower and upper case of escapes', '/%2f%2F%c3%A9'],
  ['letters that were escaped without need', '/%41%7E%2D'],
  ['braces, pipes, carets and quotes', '/{curly}|pipe^"quote"<>`'],
  ['an escaped question mark and number sign', '/a%3Fb%23c'],
  ['dots inside a name', '/a..b/...c/.hidden/x.'],
  ['dots that are escaped twice', '/%252e%252e/x'],
  ['a whole address as part of the path', '/fetch/https://other.example/page?x=1'],
  ['the root alone', '/'],
  ['an empty query', '/x?'],
  ['a repeated query parameter', '/x?ranges=A1&ranges=B2&ranges=A1'],
  ['the order of query parameters', '/x?b=1&a=2&c=3'],
  ['plus signs and escaped blanks in a query', '/x?q=a+b%20c%2B'],
  ['empty pairs and values in a query', '/x?&&a=&=b&flag&c=='],
  ['question marks and slashes in a query', '/x?next=/y?z=1&p=a/b'],
  ['a dot segment in a query', '/x?file=../../etc/passwd'],
  ['a path of 7,000 characters', `/${'long-'.repeat(1400)}`],
];

/** What some server behind us could read as another path or another host. */
const refused: [string, string][] = [
  ['two slashes at the start', '//evil.example/x'],
  ['a parent segment', '/a/../b'],
  ['a parent segment at the end', '/a/..'],
  ['a current segment', '/a/./b'],
  ['an escaped parent segment', '/a/%2e%2e/b'],
  ['a half-escaped parent segment', '/a/.%2E/b'],
  ['a parent segment between escaped slashes', '/a%2f..%2fb'],
  ['a parent segment between escaped backslashes', '/a%5c..%5cb'],
  ['a parent segment with a path parameter', '/a/..;x=1/b'],
  ['a parent segment with an escaped path parameter', '/a/..%3bx=1/b'],
  ['a backslash', '/a\\b'],
  ['a backslash in place of the second slash', '/\\evil.example/x'],
  ['a number sign', '/a#b'],
  ['a character beyond ASCII', '/caf\u00e9'],
];

export const paths: Promised[] = [
  ...kept.map(([what, path]) => ({
    name: `the path arrives byte for byte: ${what}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ path });
      assert.equal(reply.status, 200);
      assert.equal(subject.provider.seen[0]?.line, `GET ${path} HTTP/1.1`);
    },
  })),
  ...refused.map(([what, path]) => ({
    name: `a path that could lead elsewhere is refused and reaches nobody: ${what}`,
    prove: async (subject: Subject) => {
      const reply = await subject.ask({ path });
      assert.equal(reply.status, 400);
      assert.deepEqual(subject.provider.seen, []);
    },
  })),
];
