// All routes with all callers: exactly what docs/reference/scopes.md and the API document say passes.
// Slow: it starts services with all interfaces and keys.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { createKey } from '../../server/environments/keys.ts';
import { getEnvironment } from '../../server/environments/store.ts';
import { scopes } from '../../server/http/auth/caller.ts';
import { openPaths } from '../../server/users/sign-in-rules.ts';
import { readDocument } from '../support/openapi.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, presentName } from './scenario.ts';
import { prepareScenarios, scenarios } from './scenarios.ts';

type Described = {
  deprecated?: boolean;
  security?: Record<string, unknown>[];
  'x-scope'?: string | string[];
};

let trellis: TestTrellis;
let given: Fixture;
let documented: Map<string, Described>;
/** A key for each scope alone. */
const alone = new Map<string, string>();
/** Callers who are served nowhere, or only where `mayPass` says so, and how they are refused. */
const others: {
  what: string;
  key: string;
  refusal: [number, string];
  mayPass?: (name: string) => boolean;
}[] = [];

before(async () => {
  trellis = await openTrellis();
  given = await prepareScenarios(trellis);
  const { paths } = await readDocument(trellis);
  documented = new Map(
    Object.entries(paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, described]) => [
        `${method.toUpperCase()} ${path === '/' ? path : path.replace(/\/$/, '')}`,
        described,
      ]),
    ),
  );
  for (const scope of scopes) alone.set(scope, await trellis.keyWith(scope));
  await prepareOthers();
});
after(() => trellis.close());

async function prepareOthers(): Promise<void> {
  const environment = await getEnvironment(trellis.db, 'dev');
  const expired = await createKey(trellis.db, {
    environment,
    name: 'expired',
    scopes: ['*'],
    expiresAt: new Date(Date.now() - 1000),
  });
  const revoked = await trellis.call('POST', '/environment/api-keys', {
    body: { name: 'revoked', scopes: ['*'] },
  });
  const { id, secret } = revoked.body.data as { id: number; secret: string };
  await trellis.call('DELETE', `/environment/api-keys/${id}`);
  const session = await trellis.call('POST', '/connect/sessions', {
    body: { end_user: { id: 'ada' }, allowed_integrations: ['google-sheet'] },
  });
  const { token } = session.body.data as { token: string };
  const takesSession = (name: string) =>
    documented.get(name)?.security?.some((way) => 'session' in way) === true;
  others.push(
    { what: 'a wrong key', key: 'trs_dev_0000000000000000000000', refusal: [401, 'unknown_account'] },
    { what: 'an expired key', key: expired.secret, refusal: [401, 'unknown_account'] },
    { what: 'a revoked key', key: secret, refusal: [401, 'unknown_account'] },
    { what: 'a key without scopes', key: await trellis.keyWith(), refusal: [403, 'forbidden'] },
    { what: 'a session', key: token, refusal: [401, 'unknown_account'], mayPass: takesSession },
    {
      what: 'a key that reads',
      key: await trellis.keyWith(...scopes.filter((scope) => scope.endsWith(':read'))),
      refusal: [403, 'forbidden'],
      mayPass: (name) => scopeOf(name).endsWith(':read'),
    },
  );
  // Off the proxy no ticket is read any further; which of them pass there is in tickets.test.ts and ticket-callers.test.ts.
  const made = await trellis.call('POST', '/tickets', {
    body: {
      provider_config_key: 'google-sheet',
      connection_id: given.connectionId,
      methods: ['GET', 'POST', 'PATCH', 'PUT', 'DELETE'],
      paths: ['/**'],
    },
  });
  const { ticket } = made.body.data as { ticket: string };
  others.push({ what: 'a ticket for all', key: ticket, refusal: [403, 'forbidden'], mayPass: isProxied });
}

const keyOf = (of: string) => others.find(({ what }) => what === of)!.key;
const methodOf = (name: string) => name.split(' ', 1)[0]!;
const routeOf = (name: string) => name.replace(/ \(.*\)$/, '');
const isProxied = (name: string) => / \/(proxy|v4)\//.test(name);
/** Which keys and tickets pass there is in mcp.test.ts. */
const isMcp = (name: string) => name === 'POST /mcp';

/** The scope that docs/reference/scopes.md names for each route. */
const inDocs = new Map<string, string[]>();
const [, keysPage = ''] = readFileSync(
  join(import.meta.dirname, '../../docs/reference/scopes.md'),
  'utf8',
).split(/^## /m);
for (const [, first = '', text = ''] of keysPage.matchAll(/^\| (`[a-z_:]+`[^|]*) \| (.*) \|$/gm)) {
  const [scope] = [...first.matchAll(/`([a-z_:]+)`/g)].map(([, name]) => name!);
  for (const [, route] of text.matchAll(/`([A-Z]+ \/[^`]+)`/g))
    inDocs.set(route!, [...(inDocs.get(route!) ?? []), scope!]);
}

/** What a request needs: the scope that is documented for its route. */
function scopeOf(name: string): string {
  const { scope } = scenarios[name]!;
  if (scope !== undefined) return scope;
  if (isProxied(name)) return ['GET', 'HEAD'].includes(methodOf(name)) ? 'proxy:read' : 'proxy:write';
  const [only, ...more] = inDocs.get(routeOf(presentName(name))) ?? [];
  assert.ok(only !== undefined && more.length === 0, `${name} in docs/reference/scopes.md`);
  return only;
}

test('docs/reference/scopes.md names every scope, and the scope of every route', () => {
  const named = [...keysPage.matchAll(/^\| (`[a-z_:]+`[^|]*) \|/gm)].flatMap(([, first = '']) =>
    [...first.matchAll(/`([a-z_:]+)`/g)].map(([, scope]) => scope!),
  );
  assert.deepEqual(named.sort(), [...scopes].sort());
  const inDocument = [...documented].flatMap(([route, { deprecated, 'x-scope': scope }]) =>
    scope === undefined || deprecated === true || isProxied(route) ? [] : [[route, [scope].flat()] as const],
  );
  assert.deepEqual(Object.fromEntries([...inDocs].sort()), Object.fromEntries(inDocument.sort()));
});

test('the table holds every route that wants a key', () => {
  const wanted = [...documented].flatMap(([route, { security = [] }]) =>
    security.some((way) => 'key' in way) && !isProxied(route) && !isMcp(route) ? [route] : [],
  );
  const listed = Object.keys(scenarios)
    .filter((name) => !isProxied(name))
    .map(routeOf);
  assert.deepEqual([...new Set(wanted)].sort(), [...new Set(listed)].sort());
});

test('every route is documented or open to anyone, so that the table is complete', () => {
  const undocumented = served(trellis.app.printRoutes({ commonPrefix: false })).filter(
    (route) => !documented.has(route) && !route.startsWith('HEAD '),
  );
  assert.deepEqual(
    undocumented.filter((route) => !/^GET \/docs(\/|\*|$)/.test(route)).sort(),
    [
      ...Array.from(openPaths.keys(), (open) => open.replace(' ', ' /api/auth')),
      // The tests that providers send of an address.
      'GET /webhook/{environment}/{key}',
      // Answered with 405, in the words of their protocol.
      'DELETE /mcp',
      'GET /mcp',
      // The dashboard, which asks for everything else as its user.
      'GET /app',
      'GET /app*',
      'GET /assets/{file}',
      'GET /invitation',
      'GET /reset-password',
      // Files for everybody: the guides, and what pages of applications load.
      'GET /guides',
      'GET /guides*',
      'GET /llms.txt',
      'GET /connect.js',
      'GET /sdk/trellis-client.tgz',
    ].sort(),
  );
});

test('a HEAD takes what its GET takes', async () => {
  const readings = Object.entries(scenarios).filter(([name]) => methodOf(name) === 'GET' && !isProxied(name));
  for (const [name, { request }] of readings) {
    const { path, ...options } = request(given);
    const ask = async (key: string | undefined) =>
      (await trellis.call('HEAD', path, { ...options, key })).status;
    const none = await ask(undefined);
    // Streams have no HEAD.
    if (none === 404) continue;
    assert.equal(none, 401, name);
    for (const { what, key, refusal, mayPass } of others)
      if (mayPass?.(name) !== true) assert.equal(await ask(key), refusal[0], `${name}: ${what}`);
    for (const [scope, key] of alone) {
      const status = await ask(key);
      assert.equal(status === 403, scope !== scopeOf(name), `${name}: ${scope}: ${status}`);
    }
  }
});

test('a key counts in the Authorization header alone, after the word Bearer', async () => {
  const key = trellis.keys.dev;
  const elsewhere = { 'x-api-key': key, cookie: `key=${key}`, 'proxy-authorization': `Bearer ${key}` };
  for (const [name, { request }] of Object.entries(scenarios)) {
    const { path, headers, ...options } = request(given);
    const query = new URLSearchParams({ authorization: `Bearer ${key}`, access_token: key, api_key: key });
    const asked = `${path}${path.includes('?') ? '&' : '?'}${query}`;
    const ask = (given: Record<string, string>) =>
      trellis.call(methodOf(name), asked, { ...options, key: undefined, headers: { ...headers, ...given } });
    assert.equal((await ask(elsewhere)).status, 401, name);
    for (const authorization of [key, `Basic ${btoa(`${key}:`)}`, `Basic ${btoa(`:${key}`)}`, `Token ${key}`])
      assert.equal((await ask({ authorization })).status, 401, `${name}: ${authorization.slice(0, 6)}`);
  }
});

for (const [name, { request, also }] of Object.entries(scenarios)) {
  test(`${name}: a caller without access gets an error with the required scope`, async () => {
    const { path, ...options } = request(given);
    const isBodiless = methodOf(name) === 'HEAD';
    const ask = async (key: string | undefined) => {
      const { status, body, text } = await trellis.call(methodOf(name), path, { ...options, key });
      return { status, code: isBodiless ? undefined : codeOf(body), text };
    };
    const refused = ([status, code]: [number, string]) => [status, isBodiless ? undefined : code];

    const none = await ask(undefined);
    assert.deepEqual([none.status, none.code], refused([401, 'missing_auth_header']));
    for (const { what, key, refusal, mayPass } of others) {
      if (mayPass?.(name) === true) continue;
      const answer = await ask(key);
      assert.deepEqual([answer.status, answer.code], refused(refusal), what);
    }
    const scope = scopeOf(name);
    for (const [other, key] of alone) {
      if (other === scope || other === also) continue;
      const answer = await ask(key);
      assert.deepEqual([answer.status, answer.code], refused([403, 'forbidden']), other);
      if (!isBodiless) assert.ok(answer.text.includes(scope), answer.text);
    }
  });
}

for (const [name, { request, foreign }] of Object.entries(scenarios)) {
  test(`${name}: a key of another environment finds nothing of this one`, async () => {
    const { path, ...options } = request(given);
    const answer = await trellis.call(methodOf(name), path, { ...options, key: trellis.keys.prod });
    assert.equal(answer.status, foreign, answer.text);
    assert.ok(!answer.text.includes('ada@example.com'), answer.text);
    if (answer.status >= 400 && methodOf(name) !== 'HEAD') assert.match(codeOf(answer.body), /^[a-z_]+$/);
  });
}

test('a revoked key is refused on every route of every node within a second, and so are its tickets', async () => {
  const another = await trellis.serveAnother();
  try {
    const made = await trellis.call('POST', '/environment/api-keys', { body: { name: 'x', scopes: ['*'] } });
    const { id, secret } = made.body.data as { id: number; secret: string };
    const { body } = await trellis.call('POST', '/tickets', {
      ...scenarios['POST /tickets']!.request(given),
      key: secret,
    });
    const { ticket } = body.data as { ticket: string };
    const proxied = scenarios['GET /proxy/v4/spreadsheets/none']!.request(given);
    for (const { call } of [trellis, another]) {
      assert.equal((await call('GET', '/integrations', { key: secret })).status, 200);
      assert.equal((await call('GET', proxied.path, { ...proxied, key: ticket })).status, 404);
    }
    assert.equal((await trellis.call('DELETE', `/environment/api-keys/${id}`, { key: secret })).status, 200);
    const revokedAt = performance.now();
    const refusedBy = async (call: TestTrellis['call']) => {
      for (const [name, { request }] of Object.entries(scenarios)) {
        const { path, ...options } = request(given);
        assert.equal((await call(methodOf(name), path, { ...options, key: secret })).status, 401, name);
      }
      const answer = await call('GET', proxied.path, { ...proxied, key: ticket });
      assert.deepEqual([answer.status, codeOf(answer.body)], [401, 'invalid_ticket']);
    };
    await refusedBy(trellis.call);
    await wait(Math.max(0, 1000 - (performance.now() - revokedAt)));
    await refusedBy(another.call);
  } finally {
    await another.close();
  }
});

for (const [name, { request, right }] of Object.entries(scenarios)) {
  test(`${name}: a caller with its scope is served, and no other`, async () => {
    const { path, ...options } = request(given);
    const keys = [alone.get(scopeOf(name))!];
    if (methodOf(name) === 'GET' && scopeOf(name).endsWith(':read')) keys.push(keyOf('a key that reads'));
    if (documented.get(name)?.security?.some((way) => 'session' in way)) keys.push(keyOf('a session'));
    for (const key of keys) {
      const answer = await trellis.call(methodOf(name), path, { ...options, key });
      assert.equal(answer.status, right, answer.text);
    }
  });
}

test('keys and tickets open no route of a session', async () => {
  const ofSessions = [...documented].filter(
    ([, { security = [] }]) => security.length > 0 && !security.some((way) => 'key' in way),
  );
  assert.ok(ofSessions.length >= 5, String(ofSessions.length));
  for (const [route] of ofSessions) {
    const path = route.split(' ')[1]!.replace(/\{\w+\}/g, 'google-sheet');
    for (const key of [trellis.keys.dev, keyOf('a ticket for all')]) {
      assert.equal((await trellis.call(methodOf(route), path, { key })).status, 401, route);
    }
  }
});

test('routes that are open to anyone need no key', async () => {
  for (const path of ['/health', '/ready', '/openapi.json', '/docs/']) {
    assert.equal((await trellis.call('GET', path, { key: undefined })).status, 200, path);
  }
});

/** The routes in the tree that Fastify prints, written as in the document. */
function served(tree: string): string[] {
  const parents: string[] = [];
  return tree.split('\n').flatMap((line) => {
    const [, indent = '', part = '', methods = ''] = /^([│ ]*)[├└]── (\S+)(?: \((.*)\))?$/.exec(line) ?? [];
    if (part === '') return [];
    const depth = indent.length / 4;
    const path = `${parents.slice(0, depth).join('')}${part}`.replace(/^\/\//, '/');
    parents.splice(depth, Number.POSITIVE_INFINITY, part);
    const written = path.replace(/:(\w+)/g, '{$1}');
    return methods.split(', ').flatMap((method) => (method === '' ? [] : [`${method} ${written}`]));
  });
}

function codeOf(body: Record<string, unknown>): string {
  return String((body.error as { code?: unknown } | undefined)?.code);
}
