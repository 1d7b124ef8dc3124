import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ProxyRule, readProxyRule } from '../http/auth/proxy-rule.ts';
import { bytesOf, definitionAt, send, startHttp, startProxy } from './proxy.fixture.ts';
import { isPermitted, type JudgedCall } from './rules.ts';

const rule = (text: string): ProxyRule => {
  const [, effect, rest] = /^(allow|deny) (.*)$/.exec(text)!;
  return readProxyRule(effect as 'allow' | 'deny', rest!)!;
};
const listOf = (...texts: string[]) => [{ of: 'key' as const, rules: texts.map(rule) }];

test("a rule has the path that a caller writes, whatever the API's base address holds before it", () => {
  const passesAt = (rules: string[], target: string, rest: Partial<JudgedCall> = {}) =>
    isPermitted(listOf(...rules), { method: 'GET', target, basePath: '/api/v1', headers: [], ...rest });
  assert.ok(!passesAt(['deny /chat.delete'], '/api/v1/chat.delete'));
  assert.ok(!passesAt(['deny /chat.delete'], '/api/v1/CHAT.delete/'));
  assert.ok(passesAt(['deny /chat.delete'], '/api/v1/chat.post'));
  assert.ok(passesAt(['allow /chat.*'], '/api/v1/chat.post?x=1'));
  assert.ok(!passesAt(['allow /api/**'], '/api/v1/chat.post'));
  assert.ok(passesAt(['allow /'], '/api/v1') && passesAt(['allow /'], '/api/v1/'));
  for (const outside of ['/api/v2/chat.post', '/api/v10', '/api', '/', '/API/v1/chat.post']) {
    assert.ok(!passesAt(['allow /**'], outside) && !passesAt(['deny /x'], outside), outside);
    assert.ok(passesAt([], outside), outside);
  }
});

test("at an origin of the caller's choice, deny rules apply from either base path", () => {
  const isElsewhere = true;
  const passesAt = (rules: string[], target: string) =>
    isPermitted(listOf(...rules), { method: 'GET', target, basePath: '/api', headers: [], isElsewhere });
  for (const target of ['/chat.delete', '/api/chat.delete', '/API/chat.delete', '/%61pi/chat.delete/']) {
    assert.ok(!passesAt(['deny /chat.delete'], target), target);
    assert.ok(!passesAt(['allow /**', 'deny /chat.delete'], target), target);
  }
  assert.ok(passesAt(['deny /chat.delete'], '/chat.post'));
  assert.ok(passesAt(['allow /chat.*'], '/chat.post') && passesAt(['allow /chat.*'], '/api/chat.post'));
  assert.ok(
    !passesAt(['allow /chat.*'], '/admin/chat.post') && !passesAt(['allow /chat.*'], '/API/chat.post'),
  );
});

test("deny rules apply after any address that the caller chose, allow rules after the API's own", () => {
  const passesAt = (rules: string[], target: string, overridePath?: string, isElsewhere = false) =>
    isPermitted(listOf(...rules), {
      method: 'GET',
      target,
      basePath: '/api',
      headers: [],
      isElsewhere,
      overridePath,
    });
  for (const isElsewhere of [false, true]) {
    for (const target of ['/api/v2/shut', '/api/V2/Shut/', '/api/v2/shut?x=1']) {
      assert.ok(!passesAt(['deny /shut'], target, '/api/v2', isElsewhere), target);
      assert.ok(!passesAt(['deny /v2/shut'], target, '/api/v2', isElsewhere), target);
    }
    assert.ok(passesAt(['deny /shut'], '/api/v2/open', '/api/v2', isElsewhere));
    assert.ok(!passesAt(['allow /open'], '/api/v2/open', '/api/v2', isElsewhere));
    assert.ok(passesAt(['allow /v2/open'], '/api/v2/open', '/api/v2', isElsewhere));
  }
  assert.ok(!passesAt(['deny /shut'], '/v2/shut', '/v2', true));
  assert.ok(passesAt(['deny /shut'], '/api/v2/shut'), 'as the caller writes it');
});

test('rules hold behind a base path, through overrides, a repeated address, redirects and root aliases', async (t) => {
  const seen: string[] = [];
  const upstream = await startHttp((request, response) => {
    seen.push(`${request.url}`);
    const location = /^\/api\/open\/to(.*)$/.exec(request.url ?? '')?.[1];
    if (location) response.writeHead(302, { location }).end();
    else response.end('ok');
  });
  const other = upstream.url.replace('127.0.0.1', 'localhost');
  const proxy = await startProxy({
    definition: definitionAt(`${upstream.url}/api/`, { redirects: 'same_origin' }),
    integrationConfig: { allowed_base_urls: `${other},${upstream.url}` },
    keyRules: [rule('allow /open/**'), rule('allow /v4/spreadsheets/**'), rule('allow /shut')],
    proxyRules: [rule('deny /shut'), rule('deny /v4/spreadsheets/shut')],
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const statusOf = async (path: string, override?: string) => {
    const headers = override === undefined ? {} : { 'base-url-override': override };
    const answer = await send(`${proxy.url}${path}`, { headers }).answer;
    await bytesOf(answer);
    return answer.statusCode;
  };
  const passed: [string, string?][] = [
    ['/proxy/open/a'],
    [`/proxy/${upstream.url}/api/open/a`],
    ['/v4/spreadsheets/a'],
    ['/proxy/open/to/api/open/b'],
    ['/proxy/open/a', `${other}/api`],
    ['/proxy/api/open/a', other],
    ['/proxy/open/a', other],
    ['/proxy/open/a', `${upstream.url}/api`],
    ['/proxy/a', `${upstream.url}/api/open`],
  ];
  for (const [path, override] of passed)
    assert.equal(await statusOf(path, override), 200, `${path} ${override}`);
  assert.deepEqual(seen, [
    '/api/open/a', '/api/open/a', '/api/v4/spreadsheets/a', '/api/open/to/api/open/b', '/api/open/b',
    '/api/open/a', '/api/open/a', '/open/a', '/api/open/a', '/api/open/a',
  ]); // biome-ignore format: a list reads better in lines
  seen.length = 0;
  const refused: [string, string?][] = [
    ['/proxy/shut'],
    ['/proxy/api/open/a'],
    [`/proxy/${upstream.url}/api/shut`],
    [`/proxy/${upstream.url}/open/a`],
    ['/v4/spreadsheets/shut'],
    ['/proxy/shut', `${other}/api`],
    ['/proxy/api/shut', other],
    ['/proxy/shut', other],
    ['/proxy/shut', `${other}/v2`],
    ['/proxy/open/a', `${other}/admin`],
    ['/proxy/shut', `${upstream.url}/api/open`],
    // At the API's own origin nothing lies beside its base address.
    ['/proxy/open/a', upstream.url],
    ['/proxy/api/shut', upstream.url],
  ];
  for (const [path, override] of refused)
    assert.equal(await statusOf(path, override), 403, `${path} ${override}`);
  assert.deepEqual(seen, []);
  for (const path of ['/api/shut', '/open/b', '/apix/open/b']) {
    assert.equal(await statusOf(`/proxy/open/to${path}`), 302, path);
  }
  assert.equal(seen.length, 3, 'no redirect to there is followed');
});

test('rules see a path without the base path that the caller repeats, a deny rule may repeat it, and an override cuts nothing', async (t) => {
  const seen: string[] = [];
  const upstream = await startHttp((request, response) => {
    seen.push(`${request.url}`);
    response.end('ok');
  });
  const other = upstream.url.replace('127.0.0.1', 'localhost');
  const proxy = await startProxy({
    definition: definitionAt(`${upstream.url}/api`, { repeated_base_path: 'cut' }),
    integrationConfig: { allowed_base_urls: other },
    keyRules: [
      rule('allow /open/**'),
      rule('allow /api/open/**'),
      rule('allow /shut'),
      rule('allow /closed'),
    ],
    proxyRules: [rule('deny /shut'), rule('deny /api/closed')],
  });
  t.after(async () => {
    await proxy.close();
    await upstream.close();
  });
  const statusOf = async (path: string, override = '') => {
    const answer = await send(`${proxy.url}${path}`, { headers: { 'base-url-override': override } }).answer;
    await bytesOf(answer);
    return answer.statusCode;
  };
  const passed = ['/proxy/open/a?b', '/proxy/api/open/a?b', '/proxy/api/api/open/a'];
  for (const path of passed) assert.equal(await statusOf(path), 200, path);
  assert.equal(await statusOf('/proxy/api/open/a', `${other}/api`), 200);
  assert.equal(await statusOf('/proxy/a', `${upstream.url}/api/open`), 200, 'below its own base address');
  assert.deepEqual(seen, [
    '/api/open/a?b', '/api/open/a?b', '/api/api/open/a', '/api/api/open/a', '/api/open/a',
  ]); // biome-ignore format: a list reads better in lines
  seen.length = 0;
  for (const path of ['/proxy/shut', '/proxy/api/shut', '/proxy/api', '/proxy/closed', '/proxy/api/closed'])
    assert.equal(await statusOf(path), 403, path);
  for (const override of [`${upstream.url}/api`, `${upstream.url}/api/open`])
    assert.equal(await statusOf('/proxy/shut', override), 403, override);
  assert.deepEqual(seen, []);
});
