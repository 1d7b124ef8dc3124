import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import fc from 'fast-check';
import { authModes } from '../auth-modes/modes.ts';
import { apiBase } from '../auth-modes/place.ts';
import { AppError } from '../errors.ts';
import { loadCatalog } from '../providers/catalog.ts';
import { baseOf, namesToCut, originsOf, overrideOf, targetAt } from './attempt.ts';

const providers = join(import.meta.dirname, '../../providers');
const google = 'https://sheets.googleapis.com';

type Rest = {
  baseUrl?: string;
  forbidQuery?: string[];
  override?: string;
  allowedOrigins?: Set<string>;
};

function target(rawUrl: string, rest: Rest = {}): string {
  const { baseUrl = google, forbidQuery = ['key', 'access_token'], allowedOrigins = new Set() } = rest;
  const base = rest.override ? overrideOf(rest.override, allowedOrigins) : baseOf(baseUrl);
  const found = targetAt(base, { rawUrl, forbidQuery: namesToCut(forbidQuery) });
  return found.origin + found.path;
}

function refused(code: string): (error: unknown) => boolean {
  return (error) => error instanceof AppError && error.code === code;
}

test('path and query go on byte for byte', () => {
  for (const path of [
    "/v4/spreadsheets/S1/values/'Sheet1'!A1:append",
    '/v4/spreadsheets/S1/values/%27Q1%2F2024%20data%27%21A1%3AB2',
    '/v4/spreadsheets/S1:batchUpdate',
    '/v4/spreadsheets/S1/:batchUpdate',
    '/v4/spreadsheets/S1/',
    '/v4/spreadsheets/S1/values:batchGet?ranges=A1&ranges=B2%2C&ranges=C3',
    '/files?q=name%3D%27a+b%27&empty=&flag&&x==',
    '/broken%zz/%',
    '/a//b///c',
    '/%252e%252e/x',
    '/web/https://other.example/page',
    '/?',
  ]) {
    assert.equal(target(`/proxy${path}`), google + path);
  }
});

test("the provider's base address keeps its path and may be repeated by the caller", () => {
  const baseUrl = 'https://api.example.com/rest/v1';
  assert.equal(target('/proxy/users?x=1', { baseUrl }), `${baseUrl}/users?x=1`);
  assert.equal(target(`/proxy/${google}/v4/spreadsheets/S1?a=%2F`), `${google}/v4/spreadsheets/S1?a=%2F`);
  assert.equal(target(`/proxy/${baseUrl}/users`, { baseUrl }), `${baseUrl}/users`);
  assert.equal(target(`/proxy/${google}.evil.example/x`), `${google}/${google}.evil.example/x`);
});

test("the base address's path may be repeated where the definition says so, and is cut once", () => {
  const at = (path: string, baseUrl = 'https://api.example.com/api/v1') =>
    targetAt(baseOf(baseUrl), { rawUrl: path, forbidQuery: new Set(), cutsBasePath: true }).path;
  for (const path of ['/proxy/users?x=%2F', '/proxy/api/v1/users?x=%2F', '/api/v1/users?x=%2F']) {
    assert.equal(at(path), '/api/v1/users?x=%2F');
  }
  assert.equal(at('/proxy/https://api.example.com/api/v1/users'), '/api/v1/users');
  assert.equal(at('/proxy/api/v1'), '/api/v1/');
  assert.equal(at('/proxy/api/v1?x'), '/api/v1/?x');
  assert.equal(at('/proxy/api/v1/api/v1/users'), '/api/v1/api/v1/users');
  for (const path of ['/api/v10/users', '/api', '/API/v1/users', '/api%2Fv1/users', '/users/api/v1']) {
    assert.equal(at(`/proxy${path}`), `/api/v1${path}`);
  }
  assert.equal(at('/proxy/users', 'https://api.example.com'), '/users');
  for (const path of ['/proxy/api/v1/../users', '/proxy/api/v1//other.example/x', '/proxy/api/v1/%2e%2e/x']) {
    assert.throws(() => at(path), refused('invalid_proxy_path'));
  }
  assert.equal(
    target('/proxy/api/v1/users', { baseUrl: 'https://api.example.com/api/v1' }).slice(23),
    '/api/v1/api/v1/users',
  );
});

test('each definition that cuts its base path has one, and both spellings lead to the same address', () => {
  const cutting = loadCatalog(providers, authModes)
    .list()
    .filter(({ api }) => api.repeated_base_path === 'cut');
  assert.ok(cutting.some(({ name }) => name === 'asana'));
  for (const { api } of cutting) {
    const base = baseOf(api.base_url!.replace(/\$\{[^}]*\}/g, 'com'));
    assert.notEqual(base.prefix, '');
    const at = (rawUrl: string) =>
      targetAt(base, { rawUrl, forbidQuery: new Set(), cutsBasePath: true }).path;
    assert.equal(at(`/proxy${base.prefix}/things`), `${base.prefix}/things`);
    assert.equal(at('/proxy/things'), `${base.prefix}/things`);
  }
});

test('callers of these providers reach the address that its documentation has, by each spelling of the path', () => {
  const catalog = loadCatalog(providers, authModes);
  for (const [name, paths, url] of [
    ['apollo', ['/v1/contacts', '/api/v1/contacts'], 'https://api.apollo.io/api/v1/contacts'],
    ['asana', ['/tasks', '/api/1.0/tasks'], 'https://app.asana.com/api/1.0/tasks'],
    ['bamboohr', ['/v1/employees', '/api/v1/employees'], 'https://com.bamboohr.com/api/v1/employees'],
    ['clicksend', ['/account', '/v3/account'], 'https://rest.clicksend.com/v3/account'],
    ['close', ['/v1/lead/', '/api/v1/lead/'], 'https://api.close.com/api/v1/lead/'],
    [
      'copper',
      ['/v1/people/1', '/developer_api/v1/people/1'],
      'https://api.copper.com/developer_api/v1/people/1',
    ],
    ['datadog', ['/v2/users', '/api/v2/users'], 'https://api.com/api/v2/users'],
    ['discord', ['/v10/users/@me', '/api/v10/users/@me'], 'https://discord.com/api/v10/users/@me'],
    [
      'docusign',
      ['/v2.1/accounts', '/restapi/v2.1/accounts'],
      'https://com.docusign.net/restapi/v2.1/accounts',
    ],
    ['egnyte', ['/v1/fs/Shared', '/pubapi/v1/fs/Shared'], 'https://com.egnyte.com/pubapi/v1/fs/Shared'],
    [
      'google-analytics',
      ['/v1beta/properties/1:runReport'],
      'https://analyticsdata.googleapis.com/v1beta/properties/1:runReport',
    ],
    ['paylocity', ['/v2/companies', '/api/v2/companies'], 'https://api.paylocity.com/api/v2/companies'],
    ['pinterest', ['/pins', '/v5/pins'], 'https://api.pinterest.com/v5/pins'],
    ['pipedrive', ['/v1/deals', '/api/v1/deals'], 'https://com.pipedrive.com/api/v1/deals'],
    ['sentry', ['/0/projects/', '/api/0/projects/'], 'https://sentry.io/api/0/projects/'],
    ['shortcut', ['/member', '/api/v3/member'], 'https://api.app.shortcut.com/api/v3/member'],
    ['supabase', ['/projects', '/v1/projects'], 'https://api.supabase.com/v1/projects'],
    ['tumblr', ['/user/info', '/v2/user/info'], 'https://api.tumblr.com/v2/user/info'],
    ['wrike', ['/folders', '/api/v4/folders'], 'https://com.wrike.com/api/v4/folders'],
    ['zoho-desk', ['/v1/tickets', '/api/v1/tickets'], 'https://desk.zoho.com/api/v1/tickets'],
  ] as const) {
    const { api } = catalog.get(name);
    const base = baseOf(api.base_url!.replace(/\$\{[^}]*\}/g, 'com'));
    const cutsBasePath = api.repeated_base_path === 'cut';
    for (const path of paths) {
      const found = targetAt(base, { rawUrl: `/proxy${path}`, forbidQuery: new Set(), cutsBasePath });
      assert.equal(found.origin + found.path, url);
    }
  }
});

test('the base address has the account of the connection, if the connection names one', () => {
  const catalog = loadCatalog(providers, authModes);
  const credentials = { type: 'OAUTH2' as const, access_token: 'token', raw: {} };
  for (const [name, field, base] of [
    ['azure-devops', 'organization', 'https://dev.azure.com'],
    ['basecamp', 'accountId', 'https://3.basecampapi.com'],
  ] as const) {
    const at = (connectionConfig: Record<string, string>, path: string) => {
      const definition = catalog.get(name);
      const filled = apiBase({
        definition,
        credentials,
        values: { connectionConfig, integrationConfig: {} },
      });
      const cutsBasePath = definition.api.repeated_base_path === 'cut';
      const found = targetAt(baseOf(filled), { rawUrl: path, forbidQuery: new Set(), cutsBasePath });
      return found.origin + found.path;
    };
    assert.equal(at({ [field]: '123' }, '/proxy/projects'), `${base}/123/projects`);
    assert.equal(at({}, '/proxy/123/projects'), `${base}/123/projects`);
  }
});

test('a path without our prefix is sent whole', () => {
  assert.equal(target('/v4/spreadsheets/S1?fields=a'), `${google}/v4/spreadsheets/S1?fields=a`);
});

test('forbidden pairs are cut out of the query, however they are spelled, and nothing else', () => {
  assert.equal(target('/proxy/x?a=1&key=K&b=%20+2'), `${google}/x?a=1&b=%20+2`);
  assert.equal(target('/proxy/x?%6bey=K&access%5Ftoken=T&monkey=1'), `${google}/x?monkey=1`);
  assert.equal(target('/proxy/x?key'), `${google}/x`);
  assert.equal(target('/proxy/x?a=key&&'), `${google}/x?a=key&&`);
});

test('a pair is cut out by every spelling that some server takes for the forbidden one', () => {
  const cut = [
    'KEY=2',
    'key[]=2',
    'key[a]=2',
    '?key=2',
    '+key=2',
    'access-token=2',
    'Access.Token=2',
    'key%00b=2',
  ];
  for (const pair of [...cut, 'key=2;x', ';key=2', 'key=1;KEY=2'])
    assert.equal(
      target(`/proxy/x?a=1&${pair}&b=3`),
      `${google}/x?a=1${pair === ';key=2' ? '&' : ''}&b=3`,
      pair,
    );
  assert.equal(target('/proxy/x?a=1;key=2;b=3'), `${google}/x?a=1;b=3`);
  assert.equal(target('/proxy/x?a=1;key=2'), `${google}/x?a=1`);
  assert.equal(target('/proxy/x?key=1;key=2'), `${google}/x`);
  for (const kept of ['a=1;monkey=2', 'a=;&;', 'q=a%3Bkey=2', 'keys=1', '[key]=1'])
    assert.equal(target(`/proxy/x?${kept}`), `${google}/x?${kept}`);
});

test('a call to Google loses parameters that its servers accept as credentials, headers or another method', () => {
  for (const provider of ['google-sheet', 'google-drive']) {
    const forbidQuery = loadCatalog(providers, authModes).get(provider).api.forbid.query;
    const cut = 'key=K&$httpHeaders=Authorization:x&%24httpMethod=DELETE&%24httpHeaders=y&oauth_token=T';
    assert.equal(target(`/proxy/x?a=1&${cut}&$fields=b`, { forbidQuery }), `${google}/x?a=1&$fields=b`);
  }
});

test('a path that a server could resolve elsewhere is refused', () => {
  for (const path of [
    '//evil.example/x',
    '/\\evil.example/x',
    '/a\\b',
    '/a/../b',
    '/a/./b',
    '/..',
    '/a/%2e%2e/b',
    '/a/.%2E/b',
    '/a%2f..%2fb',
    '/a/..;x=1/b',
    '/a/..%3bx/b',
    '/a/..%5cb',
    '/a b',
    '/a\u0000b',
    '/a\u00e9',
    '/a#b',
    '/a?b#c',
  ]) {
    assert.throws(() => target(`/proxy${path}`), refused('invalid_proxy_path'), path);
  }
});

test('an override is accepted only if the integration names its origin', () => {
  const allowedOrigins = originsOf(' https://eu.example.com/ignored, https://us.example.com:8443 ,nonsense');
  const to = (override: string) => target('/proxy/v1/x', { override, allowedOrigins });
  assert.equal(to('https://eu.example.com'), 'https://eu.example.com/v1/x');
  assert.equal(to('https://us.example.com:8443/base/'), 'https://us.example.com:8443/base/v1/x');
  assert.equal(to(''), `${google}/v1/x`);
  for (const override of [
    'https://evil.example',
    'http://eu.example.com',
    'https://eu.example.com:444',
    'https://eu.example.com@evil.example',
    'https://user@eu.example.com',
    'https://eu.example.com?x',
    'https://eu.example.com#x',
    'https://eu.example.com\\@evil.example',
    'ftp://eu.example.com',
    'eu.example.com',
    google,
  ]) {
    assert.throws(() => to(override), refused('base_url_override_not_allowed'), override);
  }
});

test('an integration without an address is an error', () => {
  assert.throws(() => target('/proxy/x', { baseUrl: '' }), refused('unsupported_provider'));
});

test('any target stays at the origin, or is refused', () => {
  const part = fc.constantFrom(
    '/',
    '\\',
    '..',
    '.',
    '%2e',
    '%2f',
    '@',
    ':',
    '?',
    '#',
    'evil.example',
    'https:',
    '//',
  );
  fc.assert(
    fc.property(fc.array(fc.oneof(part, fc.string({ maxLength: 6 })), { maxLength: 8 }), (parts) => {
      const path = `/${parts.join('')}`;
      let found: string;
      try {
        found = target(`/proxy${path}`, { forbidQuery: [] });
      } catch (error) {
        assert.ok(error instanceof AppError);
        return;
      }
      assert.equal(found, google + path);
      assert.equal(new URL(found).origin, google);
      // A parser that resolves dot segments or backslashes finds none: as many segments as were sent.
      const segments = (text: string) => text.split('/').length;
      assert.equal(segments(new URL(found).pathname), segments(path.split('?')[0] ?? ''));
    }),
    { numRuns: 2000 },
  );
});
