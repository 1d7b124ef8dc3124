import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { AppError } from '../errors.ts';
import { type ProxyRule, proxyRules, readProxyRule } from '../http/auth/proxy-rule.ts';
import { bytesOf, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';
import { isPermitted, type JudgedCall, type RuleList, requirePermission } from './rules.ts';

const rule = (text: string): ProxyRule => {
  const [, effect, rest] = /^(allow|deny) (.*)$/.exec(text)!;
  const read = readProxyRule(effect as 'allow' | 'deny', rest!);
  assert.ok(read, text);
  return read;
};
const listOf = (...texts: string[]) => [{ of: 'key' as const, rules: texts.map(rule) }];
const passes = (rules: string[], request: string, headers: string[] = []): boolean => {
  const [method = '', target = ''] = request.split(' ');
  return isPermitted(listOf(...rules), { method, target, headers });
};
const passing = (rules: string[], requests: string[]) => requests.filter((request) => passes(rules, request));

test('a list with an allow refuses all else, and a deny wins over it', () => {
  const rules = ['allow GET,POST /v4/spreadsheets/**', 'deny POST /v4/spreadsheets/*:batchUpdate'];
  const requests = [
    'GET /v4/spreadsheets/a',
    'POST /v4/spreadsheets',
    'POST /v4/spreadsheets/a/values/A1:append',
    'POST /v4/spreadsheets/a:batchUpdate',
    'POST /v4/spreadsheets/a%3AbatchUpdate',
    'POST /v4/spreadsheets/a:BATCHUPDATE',
    'DELETE /v4/spreadsheets/a',
    'GET /v4/spreadsheetsx',
    'GET /drive/v3/files',
  ];
  assert.deepEqual(passing(rules, requests), requests.slice(0, 3));
});

test('without an allow everything passes that nothing denies', () => {
  assert.deepEqual(passing(['deny DELETE /**'], ['GET /a', 'DELETE /a', 'POST /']), ['GET /a', 'POST /']);
  assert.ok(passes([], 'DELETE /a//b%2e'));
});

test('a star is a part of one segment, two are the rest', () => {
  const requests = ['GET /a', 'GET /a/', 'GET /a/b', 'GET /a/b/', 'GET /a/b/c', 'GET /ab', 'GET /A/b'];
  assert.deepEqual(passing(['allow /a/*'], requests), ['GET /a/b', 'GET /a/b/']);
  assert.deepEqual(passing(['allow /a/**'], requests), requests.slice(0, 5));
  assert.deepEqual(passing(['allow /a*'], requests), ['GET /a', 'GET /a/', 'GET /ab']);
  assert.deepEqual(passing(['allow /'], ['GET /', 'GET /a']), ['GET /']);
});

test('a rule for GET is one for HEAD, and for no other method', () => {
  assert.deepEqual(passing(['allow GET /**'], ['GET /a', 'HEAD /a', 'POST /a', 'OPTIONS /a']), [
    'GET /a',
    'HEAD /a',
  ]);
  assert.deepEqual(passing(['deny GET /**'], ['GET /a', 'HEAD /a', 'POST /a']), ['POST /a']);
});

test('deny rules apply to every spelling that a server may accept', () => {
  const spellings = [
    '/admin/users', '/ADMIN/users', '/%61dmin/users', '/adm%69n/users', '/admin/users/', '/admin./users',
    '/admin%20/users', '/a%64min%2fusers', '/admin%2Fusers', '/admin%5cusers', '/admin//users', '/x/..;/admin/users',
    '/admin;a=b/users', '/%2561dmin/users', '/%C0%AFadmin/users', '/%ef%bd%81dmin/users', '/admin%00/users',
    '/x/%EF%BC%8E%EF%BC%8E/admin/users', '/%zz/../admin/users', '/%c5%bfecret',
  ]; // biome-ignore format: a list reads better in lines
  assert.deepEqual(
    passing(
      ['deny /admin/**', 'deny /secret'],
      spellings.map((path) => `GET ${path}`),
    ),
    [],
  );
});

test('allow rules match a path as it is written, and decoded once', () => {
  const rules = ["allow /v4/spreadsheets/*/values/'Sheet 1'!A1"];
  assert.ok(passes(rules, "GET /v4/spreadsheets/id/values/'Sheet%201'!A1?x=%2F%2F"));
  assert.ok(passes(rules, 'GET /v4/spreadsheets/id/values/%27Sheet%201%27%21A1'));
  assert.ok(!passes(rules, "GET /V4/spreadsheets/id/values/'Sheet%201'!A1"));
  assert.ok(!passes(rules, "GET /v4/spreadsheets/id/values/'Sheet%25201'!A1"));
});

test('no header and no parameter turns an allowed call into another one', () => {
  const rules = ['allow POST /a'];
  for (const name of [
    'X-HTTP-Method-Override',
    'x-http-method',
    'X_Method_Override',
    'X-Original-URL',
    'x-rewrite-url',
    'X-Method',
    'HTTP-Method-Override',
    'X-Original-Uri',
    'X_Rewrite-URI',
  ]) {
    assert.ok(!passes(rules, 'POST /a', ['accept', '*/*', name, 'DELETE']), name);
  }
  for (const pair of [
    '$httpMethod=DELETE',
    '%24httpmethod=DELETE',
    'x=1&_method=delete',
    'x=1;_METHOD=delete',
    '$httpHeaders=x',
    '_HttpMethod=DELETE',
    '$method=DELETE',
    '_method[]=DELETE',
    '_method%5Bx%5D=DELETE',
    '+.method=DELETE',
    '%5Bmethod=DELETE',
    'x.http.method.override=DELETE',
    'method=delete',
    'Method[]=%50UT',
  ]) {
    assert.ok(!passes(rules, `POST /a?${pair}`), pair);
  }
  assert.ok(passes(rules, 'POST /a?method=x&amethod=put&x=_method', ['accept', 'x-http-method']));
});

test('a definition names further overrides of its API', () => {
  const overrides = { headers: ['X-Do'], query: ['soap_action'] };
  const lists: RuleList[] = [{ of: 'key', rules: [rule('allow POST /a')] }];
  const isFree = (target: string, headers: string[] = [], own = overrides) =>
    isPermitted(lists, { method: 'POST', target, headers, overrides: own });
  assert.ok(!isFree('/a', ['x_do', 'delete']));
  assert.ok(!isFree('/a?SOAP_Action[]=delete'));
  assert.ok(isFree('/a?soap=1', ['x-do-not', '1']));
  assert.ok(isFree('/a?soap_action=delete', ['x-do', '1'], { headers: [], query: [] }));
});

test('the error names whose rule it was, and which', () => {
  const call: JudgedCall = { method: 'DELETE', target: '/a/b', headers: [] };
  const errorOf = (lists: Parameters<typeof requirePermission>[0]) => {
    try {
      requirePermission(lists, call);
    } catch (error) {
      assert.ok(error instanceof AppError);
      return { code: error.code, status: error.status, payload: error.payload, message: error.message };
    }
    return undefined;
  };
  assert.equal(errorOf([]), undefined);
  assert.deepEqual(errorOf(listOf('deny DELETE,PUT /a/*')), {
    code: 'proxy_rule_denied',
    status: 403,
    payload: { of: 'key', rule: 'deny DELETE,PUT /a/*' },
    message: 'The rules of the key refuse this call: "deny DELETE,PUT /a/*".',
  });
  assert.deepEqual(errorOf([...listOf('allow /**'), { of: 'integration', rules: [rule('allow GET /**')] }]), {
    code: 'proxy_rule_denied',
    status: 403,
    payload: { of: 'integration' },
    message: 'The rules of the integration refuse this call: no rule allows its method and path.',
  });
});

test('an ambiguous rule is refused', () => {
  const refused = [
    '',
    'a',
    '/a//b',
    '/a/../b',
    '/a/.',
    '/a%2fb',
    '/a?b',
    '/a;b',
    '/**/a',
    '/a**',
    '/a/*b*',
    '/***',
    '/a\\b',
  ];
  for (const path of refused) {
    assert.ok(!proxyRules.safeParse([{ effect: 'allow', path }]).success, path);
  }
  for (const path of ['/', '/a', '/a/', '/*', '/**', '/a/*/b/**', '/a/*:verb', "/a/'Sheet 1'!A*"]) {
    assert.ok(proxyRules.safeParse([{ effect: 'allow', path }]).success, path);
  }
  assert.ok(!proxyRules.safeParse([{ effect: 'allow', methods: ['get'], path: '/a' }]).success);
  assert.ok(!proxyRules.safeParse([{ effect: 'allow', methods: [], path: '/a' }]).success);
});

/** A path as some lenient server may read it: decoded until nothing changes, resolved, without parameters and case. */
function asLenientServerReads(target: string): string {
  let path = target.split('?')[0]!;
  for (let before = ''; before !== path; ) {
    before = path;
    path = path.replace(/%([0-9a-f]{2})/gi, (_, hex: string) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
  }
  const resolved: string[] = [];
  for (const segment of path.toLowerCase().replaceAll('\\', '/').split('/')) {
    const name = segment.split(';')[0]!.replace(/[\0. ]+$/, (end) => (/^\.\.?$/.test(segment) ? end : ''));
    if (name === '..') resolved.pop();
    else if (name !== '' && name !== '.') resolved.push(name);
  }
  return `/${resolved.join('/')}`;
}

test('no spelling of a path gets past a rule (fuzz)', () => {
  const spelled = (text: string) =>
    fc
      .array(fc.constantFrom('as is', 'escaped', 'twice', 'upper'), {
        minLength: text.length,
        maxLength: text.length,
      })
      .map((ways) =>
        [...text]
          .map((letter, at) => {
            const hex = letter.charCodeAt(0).toString(16).padStart(2, '0');
            if (ways[at] === 'escaped') return `%${hex}`;
            if (ways[at] === 'twice') return `%25${hex}`;
            return ways[at] === 'upper' ? letter.toUpperCase() : letter;
          })
          .join(''),
      );
  const part = fc.oneof(
    { weight: 4, arbitrary: fc.constantFrom('open', 'shut', 'a') },
    { weight: 2, arbitrary: spelled('shut') },
    { weight: 2, arbitrary: spelled('open') },
    { weight: 1, arbitrary: spelled('..') },
    fc.constantFrom(
      '',
      '.',
      '..',
      ';x',
      'shut;x',
      'shut.',
      'shut%20',
      'shut%00',
      '%c0%ae',
      '%',
      'a%2fshut',
      '..%5cshut',
    ),
  );
  const path = fc
    .tuple(
      fc.array(part, { maxLength: 5 }),
      fc.array(fc.constantFrom('/', '//', '%2f', '%5c', '/./', '/../'), { minLength: 5, maxLength: 5 }),
    )
    .map(
      ([parts, joints]) =>
        `/${parts.map((text, at) => text + (at + 1 < parts.length ? joints[at] : '')).join('')}`,
    );
  fc.assert(
    fc.property(path, fc.constantFrom('', '?q=/shut/x'), (text, query) => {
      const read = asLenientServerReads(text);
      const isShut = /^\/shut(\/|$)/.test(read);
      if (isShut) assert.ok(!passes(['deny /shut/**'], `GET ${text}${query}`), text);
      if (passes(['allow /open/*'], `GET ${text}${query}`)) assert.match(read, /^\/open\/[^/]+$/, text);
    }),
    { numRuns: 20_000 },
  );
});

test('a refused call does not reach the provider, whichever rule refuses it and however it comes there', async (t) => {
  const seen: string[] = [];
  const upstream = await startHttp((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    if (request.url === '/open/moved') response.writeHead(302, { location: '/shut' }).end();
    else response.end('ok');
  });
  const proxy = await startProxy({
    definition: definitionAt(`${upstream.url}/`, { redirects: 'same_origin' }),
    keyRules: [rule('allow GET,POST /open/**'), rule('allow GET /shut')],
    proxyRules: [rule('deny /shut')],
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const ask = async (path: string, method = 'GET', headers: Record<string, string> = {}) => {
    const answer = await send(`${proxy.url}/proxy${path}`, { method, headers }).answer;
    return {
      status: answer.statusCode,
      code: answer.headers['x-trellis-error'],
      body: (await bytesOf(answer)).toString(),
    };
  };
  assert.equal((await ask('/open/a')).status, 200);
  const refused = await ask('/shut');
  assert.deepEqual([refused.status, refused.code], [403, 'proxy_rule_denied']);
  const { error } = JSON.parse(refused.body);
  assert.deepEqual(
    [error.status, error.details[0].metadata],
    ['PERMISSION_DENIED', { of: 'integration', rule: 'deny /shut' }],
  );
  assert.equal((await ask('/open/a', 'DELETE')).status, 403);
  assert.equal((await ask('/open%2fa')).status, 403);
  assert.equal(
    (await ask('/open/a', 'POST', { 'trellis-proxy-X-HTTP-Method-Override': 'DELETE' })).status,
    403,
  );
  assert.equal((await ask('/open/moved')).status, 302);
  assert.deepEqual(seen, ['GET /open/a', 'GET /open/moved']);
});
