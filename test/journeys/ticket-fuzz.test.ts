// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import fc from 'fast-check';
import { openTicketed, type Ticketed } from './ticket-subject.ts';

/** Of the provider's base address: a ticket's paths are meant behind it. */
const basePath = '/base';
let ticketed: Ticketed;

before(async () => {
  ticketed = await openTicketed({ basePath });
});
after(() => ticketed.close());

/** A path as some lenient server may read it: decoded until nothing changes, resolved, without parameters and case. */
function asLenientServerReads(target: string): string {
  let path = target.split('?')[0]!;
  for (let earlier = ''; earlier !== path; ) {
    earlier = path;
    path = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
  const resolved: string[] = [];
  for (const segment of path.replaceAll('\\', '/').split('/')) {
    const name = segment.split(';')[0]!;
    if (name === '..') resolved.pop();
    else if (name !== '' && name !== '.') resolved.push(name);
  }
  return `/${resolved.join('/')}`;
}

test('nothing outside a ticket reaches the provider, however it is spelled (fuzz)', async () => {
  const { ask, provider } = ticketed;
  const ticket = await ticketed.ticketOf({ methods: ['GET', 'PUT'], paths: ['/open/*', '/deep/in/**'] });
  provider.answering = (request, response) => {
    const to: string | undefined = /[?&]to=([^&]*)/.exec(request.url ?? '')?.[1];
    if (to !== undefined) response.writeHead(302, { location: decodeURIComponent(to) });
    response.end();
  };
  const spelled = (text: string) =>
    fc
      .array(fc.constantFrom('as is', 'as is', 'escaped', 'twice'), {
        minLength: text.length,
        maxLength: text.length,
      })
      .map((ways) =>
        [...text]
          .map((letter, at) => {
            const hex = letter.charCodeAt(0).toString(16).padStart(2, '0');
            if (ways[at] === 'escaped') return `%${hex}`;
            return ways[at] === 'twice' ? `%25${hex}` : letter;
          })
          .join(''),
      );
  const part = fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom('open', 'deep', 'in', 'a', 'shut') },
    { weight: 1, arbitrary: fc.oneof(spelled('open'), spelled('shut'), spelled('..')) },
    {
      weight: 2,
      arbitrary: fc.constantFrom('', '.', '..', ';x', 'open;x', '..;x', 'a%2f..%2fshut', '%c0%ae', '..%5c'),
    },
  );
  const joint = fc.oneof(
    { weight: 30, arbitrary: fc.constant('/') },
    fc.constantFrom('//', '%2f', '%5c', '/./', '/../'),
  );
  const pathText = fc
    .oneof(
      { weight: 1, arbitrary: fc.array(fc.tuple(joint, part), { minLength: 1, maxLength: 5 }) },
      fc
        .tuple(
          fc.constantFrom<[string, string][]>(
            [['/', 'open']],
            [
              ['/', 'deep'],
              ['/', 'in'],
            ],
          ),
          fc.array(fc.tuple(joint, part), { maxLength: 3 }),
        )
        .map(([head, rest]) => [...head, ...rest]),
    )
    .map((parts) => parts.flat().join(''));
  // Of the paths above few lie inside: without these hardly a redirect would be followed.
  const inside = fc.constantFrom('/open/a', '/open/shut', '/deep/in', '/deep/in/a/b');
  const target = fc.oneof({ weight: 3, arbitrary: pathText }, { weight: 1, arbitrary: inside });
  const call = fc.record({
    method: fc.constantFrom(
      'GET',
      'GET',
      'GET',
      'HEAD',
      'PUT',
      'PUT',
      'POST',
      'DELETE',
      'OPTIONS',
      'PROPFIND',
    ),
    path: target,
    query: fc.oneof(
      fc.constantFrom(
        '',
        '',
        '?q=/shut',
        '?$httpMethod=DELETE',
        '?a=1&%5Fmethod=DELETE',
        '?x;_METHOD=DELETE',
        '?$httpHeaders=x',
      ),
      fc
        .tuple(fc.constantFrom(basePath, basePath, basePath, '', '/BASE'), target)
        .map(([base, to]) => `?to=${encodeURIComponent(base + to)}`),
    ),
    headers: fc.oneof(
      { weight: 3, arbitrary: fc.constant<Record<string, string>>({}) },
      fc.constantFrom<Record<string, string>>(
        { 'trellis-proxy-X-HTTP-Method-Override': 'DELETE' },
        { 'trellis-proxy-x_method_override': 'DELETE' },
        { 'Trellis-Proxy-X-Original-URL': '/shut' },
        { 'X-Rewrite-URL': '/shut' },
        { 'Base-Url-Override': 'http://127.0.0.1:1/shut' },
        { 'Connection-Id': 'bob' },
      ),
    ),
  });
  let [passed, followed] = [0, 0];
  await fc.assert(
    fc.asyncProperty(call, async ({ method, path, query, headers }) => {
      provider.seen = [];
      await ask(ticket, `/proxy${path}${query}`, { method, headers });
      for (const { method: asked, url = '', headers: got } of provider.seen) {
        assert.ok(['GET', 'HEAD', 'PUT'].includes(asked ?? ''), String(asked));
        assert.match(asLenientServerReads(url), /^\/base\/(open\/[^/]+|deep\/in(\/.*)?)$/, url);
        assert.doesNotMatch(url, /method|httpHeaders/i);
        const names = Object.keys(got).map((name) => name.replaceAll('_', '-'));
        assert.ok(!names.some((name) => /override|original-url|rewrite-url/.test(name)), names.join());
      }
      passed += provider.seen.length;
      if (provider.seen.length > 1) followed += 1;
    }),
    { numRuns: 2_500 },
  );
  assert.ok(passed > 200 && followed > 10, `${passed} calls passed, ${followed} redirects were followed`);
});
