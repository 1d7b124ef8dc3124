// biome-ignore-all lint/suspicious/noTemplateCurlyInString: definitions contain templates
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { changes } from './catalogue/changes.ts';
import { definitionOf as ofOpenConnector } from './catalogue/open-connector.ts';
import { definitionOf as ofOpenApi } from './catalogue/openapi.ts';

const on = '2026-11-28';

describe('a definition from an OpenAPI file', () => {
  const entry = { file: 'x.json', scheme: 'key', display_name: 'X', categories: ['other'], server: 0 };
  const file = (scheme: object, more: object = {}) => ({
    openapi: '3.0.0',
    info: { title: 'X', 'x-origin': [{ url: 'https://x.example/openapi.json' }], ...more },
    externalDocs: { url: 'https://docs.x.example' },
    servers: [{ url: 'https://api.x.example/v1/' }, { url: 'http://api.x.example' }],
    components: { securitySchemes: { key: scheme } },
  });
  const header = { type: 'apiKey', in: 'header', name: 'X-Key' };

  test('has the facts of the file, and names it', () => {
    assert.deepEqual(ofOpenApi(entry, { document: file(header), on }), {
      display_name: 'X',
      categories: ['other'],
      docs: 'https://docs.x.example',
      level: 'documented',
      source: { on, page: 'https://x.example/openapi.json' },
      auth_mode: 'API_KEY',
      placement: [{ in: 'header', name: 'X-Key', value: '${credentials.apiKey}' }],
      api: { base_url: 'https://api.x.example/v1' },
    });
  });

  test('says that callers may repeat the path of the base address', () => {
    const read = ofOpenApi({ ...entry, repeated_base_path: 'cut' }, { document: file(header), on });
    assert.deepEqual(typeof read === 'object' && read.api, {
      base_url: 'https://api.x.example/v1',
      repeated_base_path: 'cut',
    });
  });

  test('has a call that verifies a key if the file has its path', () => {
    const document = { ...file(header), paths: { '/me': { get: {} }, '/keys': { post: {} } } };
    const read = ofOpenApi({ ...entry, verification: '/me' }, { document, on });
    assert.deepEqual(typeof read === 'object' && read.verification, { path: '/me' });
    for (const path of ['/keys', '/other']) {
      assert.match(String(ofOpenApi({ ...entry, verification: path }, { document, on })), /no GET/);
    }
  });

  test('takes the scopes of an authorization code flow with their descriptions', () => {
    const code = {
      authorizationUrl: 'https://x.example/authorize',
      tokenUrl: 'https://x.example/token',
      scopes: { read: 'Read  things', 'not a scope': 'x' },
    };
    const read = ofOpenApi(entry, {
      document: file({ type: 'oauth2', flows: { authorizationCode: code } }),
      on,
    });
    assert.ok(typeof read === 'object');
    assert.equal(read.auth_mode, 'OAUTH2');
    assert.deepEqual(read.token, { url: 'https://x.example/token' });
    assert.deepEqual(read.scopes, {
      catalogue: { read: { sensitivity: 'sensitive', description: 'Read things.' } },
    });
  });

  const omissions: [string, object, object, RegExp][] = [
    ['whose file others wrote', header, { 'x-unofficialSpec': true }, /not the provider’s own/],
    ['whose file has no address', header, { 'x-origin': [] }, /where the provider publishes it/],
    [
      'whose key has an unknown form',
      { type: 'apiKey', in: 'header', name: 'Authorization' },
      {},
      /how the key is written/,
    ],
    ['whose key is a cookie', { type: 'apiKey', in: 'cookie', name: 'k' }, {}, /a key in a cookie/],
    [
      'whose flow is relative',
      { type: 'oauth2', flows: { clientCredentials: { tokenUrl: '/token', scopes: {} } } },
      {},
      /addresses of the flow are incomplete/,
    ],
  ];
  for (const [what, scheme, more, why] of omissions) {
    test(`is none for an API ${what}`, () => {
      assert.match(String(ofOpenApi(entry, { document: file(scheme, more), on })), why);
    });
  }

  test('is none for an address without TLS', () => {
    assert.match(
      String(ofOpenApi({ ...entry, server: 1 }, { document: file(header), on })),
      /no https address/,
    );
  });
});

describe('a definition from OpenConnector', () => {
  const DEFINITION = `import type { ProviderDefinition } from "x";
export const provider: ProviderDefinition = {
  service: "x", displayName: "X", categories: ["Data"], authTypes: ["api_key"],
  auth: [{ type: "api_key", label: "Key", description: "Create it at https://x.example/keys.", extraFields: [] }],
  homepageUrl: "https://x.example",
};`;
  const EXECUTORS = `import { version } from "./runtime.ts";
const apiBaseUrl = "https://api.x.example";
export const proxy: Proxy = defineProviderProxy({
  service,
  baseUrl: \`\${apiBaseUrl}/v2\`,
  auth: { type: "api_key_authorization", prefix: "Token " },
  customizeRequest({ headers }) {
    if (!headers.has("accept")) {
      headers.set("accept", "application/json");
    }
    headers.set("x-version", version);
  },
});`;
  const read = (t: TestContext, executors: string, definition = DEFINITION) => {
    const providers = mkdtempSync(join(tmpdir(), 'open-connector-'));
    t.after(() => rmSync(providers, { recursive: true }));
    mkdirSync(join(providers, 'x'));
    writeFileSync(join(providers, 'x/definition.ts'), definition);
    writeFileSync(join(providers, 'x/executors.ts'), executors);
    writeFileSync(join(providers, 'x/runtime.ts'), 'export const version = "3";');
    return ofOpenConnector({ folder: 'x', categories: ['data'] }, { providers, on });
  };

  test('has the literals of its folder, and no more than the level "community"', (t) => {
    assert.deepEqual(read(t, EXECUTORS), {
      display_name: 'X',
      categories: ['data'],
      docs: 'https://x.example/keys',
      level: 'community',
      source: {
        on,
        page: 'https://github.com/oomol-lab/open-connector/blob/main/src/providers/x/executors.ts',
      },
      auth_mode: 'API_KEY',
      placement: [{ in: 'header', name: 'Authorization', value: 'Token ${credentials.apiKey}' }],
      api: { base_url: 'https://api.x.example/v2', headers: { 'x-version': '3' } },
    });
  });

  const omissions: [string, string, string, RegExp][] = [
    ['whose address is computed', '`${apiBaseUrl}/v2`', 'baseUrlOf(context)', /address is not fixed/],
    ['whose requests are signed', 'headers.set("x-version", version)', 'sign(headers)', /changed by code/],
    ['whose key is in a place of its own', 'api_key_authorization', 'signed', /place of the key/],
  ];
  for (const [what, from, to, why] of omissions) {
    test(`is none for a provider ${what}`, (t) => {
      assert.ok(EXECUTORS.includes(from));
      assert.match(String(read(t, EXECUTORS.replace(from, to))), why);
    });
  }

  test('is none for a provider that takes more than a key', (t) => {
    const definition = DEFINITION.replace(
      'extraFields: []',
      'extraFields: [{ key: "site", required: true }]',
    );
    assert.match(String(read(t, EXECUTORS, definition)), /more than a key/);
  });
});

test('an import tells what is new, gone and different', () => {
  const before = new Map([
    ['gone', {}],
    ['kept', { docs: 'a', source: { on: '2026-11-01' } }],
  ]);
  const after = new Map([
    ['kept', { docs: 'b', source: { on } }],
    ['new', {}],
  ]);
  assert.deepEqual(changes(before, after), [
    'removed gone',
    'changed kept: docs was "a", is "b"',
    'added new',
  ]);
});
