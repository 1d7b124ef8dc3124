// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { cp, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { authModes } from '../../server/auth-modes/modes.ts';
import { loadCatalog, providersDirectory } from '../../server/providers/catalog.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/**
 * A key that may change integrations, import connections and call through the proxy, and may not read credentials, tries to
 * read them: by the settings of integrations, by what it sends, and by what servers return by default.
 */
const secret = 's3cr3t-api-key-of-ada';
const scopes = [
  'integrations:read',
  'integrations:write',
  'connections:read',
  'connections:write',
  'activity:read',
  'connect_sessions:write',
  'proxy:read',
  'proxy:write',
];

const definition = (placement: string, more = '') => `display_name: Own
categories: [other]
docs: https://example.com/docs
auth_mode: API_KEY
logo: private-api-key.svg
integration_config:
  base_url: { title: Base, description: Base address., format: uri, example: https://api.example.com }
  prefix: { title: Prefix, description: What stands before the key., required: false }
  realm: { title: Realm, description: The owner of the API., required: false }
credentials:
  apiKey: { title: API key, description: The key., secret: true }
placement:
  - ${placement}
${more}`;

let trellis: TestTrellis;
let definitions: string;
let origin: string;
/** Another origin, which credentials must not reach. */
let elsewhere: string;
const reached: string[] = [];
let key: string;

/** What Rails, Envoy, CORS middleware and servers that build addresses return of a request. */
function echo({ headers, url = '' }: IncomingMessage, response: ServerResponse): void {
  for (const [name, value] of Object.entries(headers)) {
    if (/request-id|correlation-id|trace|baggage|idempotency-key|x-echo/.test(name))
      response.setHeader(name, String(value));
  }
  response.setHeader('access-control-allow-origin', headers.origin ?? '*');
  const [path = '', query = ''] = url.split('?');
  if (path === '/moved')
    response.setHeader('location', `http://${headers['x-forwarded-host'] ?? headers.host}/new?${query}`);
  if (path === '/away') response.setHeader('location', `${elsewhere}/new?${query}`);
  if (path === '/pages') response.setHeader('link', `<${origin}/pages?${query}&page=2>; rel="next"`);
  response.statusCode = response.hasHeader('location') ? 307 : 200;
  response.end(path === '/cookie' ? String(headers.cookie) : 'ok');
}

const servers = [
  createServer(echo),
  createServer(({ headers, url }, response) => {
    reached.push(JSON.stringify(headers) + url);
    response.end('thanks');
  }),
];

before(async () => {
  [origin, elsewhere] = (await Promise.all(
    servers.map(async (server) => {
      await once(server.listen(0, '127.0.0.1'), 'listening');
      return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    }),
  )) as [string, string];
  definitions = await mkdtemp(join(tmpdir(), 'trellis-test-providers-'));
  await cp(providersDirectory, definitions, { recursive: true });
  const api = 'api: { base_url: "${integrationConfig.base_url}" }\n';
  await writeFile(
    join(definitions, 'in-query.yaml'),
    definition('{ in: query, name: api_key, value: "${credentials.apiKey}" }', api),
  );
  await writeFile(
    join(definitions, 'with-prefix.yaml'),
    definition(
      '{ in: header, name: X-Api-Key, value: "${integrationConfig.prefix}${credentials.apiKey}" }',
      'api: { base_url: "${integrationConfig.base_url}/${integrationConfig.realm}" }\n',
    ),
  );
  trellis = await openTrellis(
    { TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' },
    { catalog: loadCatalog(definitions, authModes) },
  );
  key = await trellis.keyWith(...scopes);
  for (const [unique_key, provider, config] of [
    ['bearer', 'private-api-key', {}],
    ['named', 'private-api-key', { header_name: 'X-Api-Key' }],
    ['query', 'in-query', {}],
    ['prefixed', 'with-prefix', { prefix: 'k-', realm: 'ada' }],
  ] as const) {
    await made('/integrations', {
      unique_key,
      provider,
      integration_config: { base_url: origin, ...config },
    });
    await made('/connections', { ...placeOf(unique_key), credentials: { type: 'API_KEY', apiKey: secret } });
  }
});

after(async () => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  await trellis.close();
  await rm(definitions, { recursive: true });
});

async function made(path: string, body: object): Promise<void> {
  const answer = await trellis.call('POST', path, { body });
  assert.ok(answer.status === 200 || answer.status === 201, answer.text);
}

const placeOf = (integration: string) => ({ provider_config_key: integration, connection_id: 'ada' });
const call = (method: string, path: string, body?: object) =>
  trellis.call(method, path, { key, ...(body && { body }) });
const patch = (integration: string, integration_config: Record<string, string>) =>
  call('PATCH', `/integrations/${integration}`, { integration_config });
const proxied = (integration: string, path: string, headers: Record<string, string> = {}) =>
  trellis.call('GET', `/proxy${path}`, {
    key,
    headers: { 'provider-config-key': integration, 'connection-id': 'ada', ...headers },
  });

type Attempt = [what: string, act: () => Promise<Awaited<ReturnType<typeof call>>>, answer: string | number];

const attempts: Attempt[] = [
  // Settings that place the credentials.
  ['a header that servers return', () => patch('named', { header_name: 'X-Request-Id' }), 'invalid_body'],
  ['the same in another spelling', () => patch('bearer', { header_name: 'x_request_id' }), 'invalid_body'],
  ['a header of cross-origin requests', () => patch('named', { header_name: 'Origin' }), 'invalid_body'],
  ['a header that no list names', () => patch('named', { header_name: 'X-Echo' }), 'forbidden'],
  ['a first header name', () => patch('bearer', { header_name: 'X-Echo' }), 'forbidden'],
  ['no header name any more', () => patch('named', { header_name: '' }), 'forbidden'],
  ['what stands before the key', () => patch('prefixed', { prefix: 'x' }), 'forbidden'],
  // Settings that choose the address.
  ['another host', () => patch('named', { base_url: elsewhere }), 'forbidden'],
  ['another path of the host', () => patch('named', { base_url: `${origin}/echo` }), 'forbidden'],
  ['another owner by the path', () => patch('prefixed', { realm: 'mallory' }), 'forbidden'],
  ['origins for Base-Url-Override', () => patch('named', { allowed_base_urls: elsewhere }), 'forbidden'],
  [
    'Base-Url-Override alone',
    () => proxied('named', '/', { 'base-url-override': elsewhere }),
    'base_url_override_not_allowed',
  ],
  ['a path that is tried with new keys', () => patch('named', { verification_path: 'echo' }), 200],
  // The integration as a whole.
  [
    'a rename, to put another in its place',
    () => call('PATCH', '/integrations/named', { unique_key: 'old' }),
    'invalid_body',
  ],
  [
    'another integration of the same ID',
    () =>
      call('POST', '/integrations', {
        unique_key: 'named',
        provider: 'private-api-key',
        integration_config: { base_url: elsewhere },
      }),
    'integration_exists',
  ],
  [
    'a quickstart over it',
    () =>
      call('POST', '/integrations/quickstart', {
        unique_key: 'named',
        provider: 'private-api-key',
        integration_config: { base_url: elsewhere },
      }),
    200,
  ],
  ['a deletion, to create it again', () => call('DELETE', '/integrations/named'), 'integration_in_use'],
  // The connection.
  [
    'an import without credentials',
    () =>
      call('POST', '/connections', {
        ...placeOf('named'),
        credentials: {},
        connection_config: { header_name: 'X-Request-Id' },
      }),
    'invalid_body',
  ],
  [
    'parameters of the protocol',
    () =>
      call('POST', '/connect/sessions', {
        end_user: { id: 'ada' },
        integrations_config_defaults: { named: { authorization_params: { redirect_uri: elsewhere } } },
      }),
    'invalid_body',
  ],
  // What a call sends.
  [
    'a placeholder in a header',
    () => proxied('named', '/', { 'trellis-proxy-x-echo': '${credentials.apiKey}' }),
    200,
  ],
  ['a placeholder in the path', () => proxied('named', '/moved?to=%24%7Bcredentials.apiKey%7D'), 307],
  [
    'a host for the addresses of answers',
    () => proxied('query', '/moved', { 'trellis-proxy-x-forwarded-host': new URL(elsewhere).host }),
    307,
  ],
  ['a redirect to another origin', () => proxied('named', '/away'), 307],
  // What answers repeat.
  ['a query in a redirect', () => proxied('query', '/moved?a=1'), 307],
  ['a query in a redirect to another origin', () => proxied('query', '/away?a=1'), 307],
  ['a query in links', () => proxied('query', '/pages?a=1'), 200],
  ['a cookie', () => proxied('named', '/cookie', { cookie: 'a=b' }), 200],
  // What is stored of calls.
  ['the activity log', () => call('GET', '/operations?limit=100'), 200],
  ['the connection', () => call('GET', '/connections/ada?provider_config_key=named'), 200],
];

for (const [what, act, expected] of attempts) {
  test(`no credentials are read through ${what}`, async () => {
    const { status, body, text, headers } = await act();
    const { code } = (body.error ?? {}) as { code?: string };
    assert.equal(typeof expected === 'number' ? status : code, expected, text);
    // What the upstream gets after a change that was taken is in the answers too.
    const answers = await Promise.all(
      ['bearer', 'named', 'query', 'prefixed'].map((one) => proxied(one, '/')),
    );
    for (const one of [{ text, headers }, ...answers])
      assert.ok(!`${one.text}${JSON.stringify([...one.headers])}`.includes(secret), one.text);
    assert.deepEqual(reached, []);
  });
}

test('TRACE, by which a server returns a whole request, is refused', async () => {
  const { hostname, port } = new URL(trellis.baseUrl);
  const socket = connectSocket(Number(port), hostname);
  socket.end(
    `TRACE /proxy/ HTTP/1.1\r\nHost: ${hostname}\r\nAuthorization: Bearer ${key}\r\nConnection-Id: ada\r\n` +
      'Provider-Config-Key: named\r\nConnection: close\r\n\r\n',
  );
  let text = '';
  for await (const part of socket) text += part;
  assert.match(text, /^HTTP\/1\.1 405 /);
});
