// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { createServer, type IncomingHttpHeaders } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, type TestContext, test } from 'node:test';
import { shippedCatalog } from '../../test/support/catalog.ts';
import { definitionSchema, type ProviderDefinition } from '../providers/definition.ts';
import { TemplateError } from '../providers/template.ts';
import { authModes, renewalOf } from './modes.ts';
import { now } from './token-endpoint.fixture.ts';
import { type TwoStepCredentials, twoStep } from './two-step.ts';

type Answer = { status?: number; body: unknown; headers?: Record<string, string> };
type Call = { method: string; url: string; headers: IncomingHttpHeaders; body: string };

const field = (more: object = {}) => ({ title: 'A field', description: 'A field.', ...more });
const sound = {
  display_name: 'Bank',
  categories: ['other'],
  docs: 'https://example.com',
  logo: 'private-api-key.svg',
  auth_mode: 'TWO_STEP',
  connection_config: { shop: field({ pattern: '[a-z]+' }) },
  integration_config: { base_url: field({ format: 'uri' }), key: field({ required: false }) },
  credentials: { user: field(), pass: field({ secret: true }), code: field({ required: false }) },
  api: { base_url: '${integrationConfig.base_url}' },
  login: {
    url: '${integrationConfig.base_url}/login',
    json: { user: { name: '${credentials.user}', pass: '${credentials.pass}', code: '${credentials.code}' } },
    answer: { token: 'data.0.token', expires_in: 'data.0.ttl', error: 'fault.code' },
  },
};
const parse = (changes: object = {}) => definitionSchema(authModes).safeParse({ ...sound, ...changes });
const faultsOf = (changes: object) =>
  parse(changes).error?.issues.map(({ path, message }) => `${path.join('.')}: ${message}`) ?? [];

const own: TwoStepCredentials = {
  type: 'TWO_STEP',
  fields: { user: 'ada', pass: 'a-long-password' },
  raw: {},
};

/** Requests a token from a provider on loopback that gives these answers, one after the other. */
async function ask(
  t: TestContext,
  answers: Answer[],
  {
    login = {},
    credentials = own,
    refresh = {},
  }: { login?: object; credentials?: TwoStepCredentials; refresh?: object } = {},
) {
  const calls: Call[] = [];
  const server = createServer(async (request, response) => {
    const body = Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>)).toString();
    calls.push({ method: request.method!, url: request.url!, headers: request.headers, body });
    const { status = 200, body: answer, headers = {} } = answers[calls.length - 1]!;
    const text = typeof answer === 'string' ? answer : JSON.stringify(answer);
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(text);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.after(() => server.close());
  const base_url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const parsed = parse({ login: { ...sound.login, ...login }, refresh }).data;
  assert.ok(parsed, 'the definition is valid');
  const outcome = await renewalOf(credentials).request({
    definition: { ...parsed, name: 'bank' } as ProviderDefinition,
    client: { clientId: '', clientSecret: '', scopes: [] },
    values: { integrationConfig: { base_url } },
    credentials,
    secret: '',
    fetch,
    now,
  });
  if (!outcome.ok) assert.ok(!JSON.stringify(outcome.fault).includes(own.fields.pass!));
  return { outcome, calls };
}
const granted = { data: [{ token: 'the-token', ttl: 600 }] };

describe('a request with the credentials', () => {
  test('has the values as JSON texts, and omits members without a value', async (t) => {
    const pass = 'a"}, "admin": true, {"\\ü€${credentials.user}';
    const { outcome, calls } = await ask(t, [{ body: granted }], {
      credentials: { ...own, fields: { user: 'ada', pass } },
      login: { headers: { 'X-User': '${credentials.user}', 'X-Code': '${credentials.code}' } },
    });
    assert.deepEqual(JSON.parse(calls[0]!.body), { user: { name: 'ada', pass } });
    assert.deepEqual([calls[0]!.headers['x-user'], calls[0]!.headers['x-code']], ['ada', undefined]);
    assert.equal(calls[0]!.headers['content-type'], 'application/json');
    assert.ok(outcome.ok);
    assert.equal(outcome.tokens.accessToken, 'the-token');
    assert.equal(outcome.tokens.expiresAt?.getTime(), now.getTime() + 600_000);
  });

  test('has them as a form, or as HTTP Basic', async (t) => {
    const { calls } = await ask(t, [{ body: granted }], {
      credentials: { ...own, fields: { user: 'ada&admin=1', pass: 'p=ü' } },
      login: {
        json: undefined,
        form: { u: '${credentials.user}', c: '${credentials.code}', grant: 'x' },
        basic: { username: '${credentials.user}', password: '${credentials.pass}' },
      },
    });
    assert.equal(calls[0]!.body, 'u=ada%26admin%3D1&grant=x');
    const basic = calls[0]!.headers.authorization?.replace('Basic ', '') ?? '';
    assert.equal(Buffer.from(basic, 'base64').toString(), 'ada&admin=1:p=ü');
  });

  test('is not sent with a control character or a value that does not fit into its header', async (t) => {
    for (const user of ['ada\r\nX-Admin: 1', 'ada\0', '€']) {
      const credentials = { ...own, fields: { user, pass: 'p' } };
      const login = { headers: { 'X-User': '${credentials.user}' } };
      await assert.rejects(ask(t, [], { credentials, login }), TemplateError);
    }
  });
});

describe('the response', () => {
  for (const [name, answer, body, life_s] of [
    [
      'a lifetime in milliseconds',
      { token: 't', expires_in: 'e', expires_in_unit: 'ms' },
      { t: 'x', e: 9e5 },
      900,
    ],
    ['a date', { token: 't', expires_at: 'e' }, { t: 'x', e: '2026-11-21T09:10:00Z' }, 600],
    ['a lifetime of 0', { token: 't', expires_in: 'e' }, { t: 'x', e: 0 }, 1234],
    ['no lifetime', { token: 't' }, { t: 'x' }, 1234],
    ['only the token', {}, '"x"', 1234],
  ] as const) {
    test(`may have ${name}`, async (t) => {
      const { outcome } = await ask(t, [{ body }], {
        login: { answer },
        refresh: { default_expires_in_s: 1234 },
      });
      assert.ok(outcome.ok);
      assert.deepEqual([outcome.tokens.accessToken, outcome.tokens.session?.life_s], ['x', life_s]);
    });
  }

  const said = [
    [{ status: 401, body: {} }, {}, 'dead_grant', 'status_401'],
    [{ status: 400, body: { fault: { code: 'bad_pw' } } }, {}, 'dead_grant', 'bad_pw'],
    [{ status: 404, body: {} }, {}, 'protocol', 'status_404'],
    [{ status: 200, body: { fault: { code: 'bad_pw' } } }, {}, 'protocol', 'bad_pw'],
    [
      { status: 200, body: { fault: { code: 'bad_pw' } } },
      { errors: { bad_pw: 'dead_grant' } },
      'dead_grant',
      'bad_pw',
    ],
    [
      { status: 401, body: { fault: { code: 'late' } } },
      { errors: { late: 'transient' } },
      'transient',
      'late',
    ],
    [{ status: 403, body: { fault: { code: 'a-long-password' } } }, {}, 'dead_grant', 'unknown_error'],
    [
      { status: 403, body: { fault: { code: 'no ada here' } } },
      { refused: [401] },
      'protocol',
      'unknown_error',
    ],
    [{ status: 429, body: {} }, { errors: { status_429: 'dead_grant' } }, 'transient', 'status_429'],
    [{ status: 503, body: {} }, {}, 'transient', 'server_error'],
    [{ status: 302, body: {}, headers: { location: '/x' } }, {}, 'protocol', 'redirect'],
    [{ status: 200, body: '<html>' }, {}, 'transient', 'html'],
    [{ status: 200, body: 'token=1' }, {}, 'protocol', 'not_json'],
    [{ status: 200, body: { data: [{ token: 7 }] } }, {}, 'protocol', 'invalid_answer'],
    [{ status: 200, body: { data: [{ token: 'a\r\nb' }] } }, {}, 'protocol', 'invalid_answer'],
    [{ status: 200, body: { data: {} } }, {}, 'protocol', 'invalid_answer'],
  ] as const;
  for (const [answer, login, kind, error] of said) {
    test(`${answer.status} ${JSON.stringify(answer.body)} is ${kind} with ${JSON.stringify(login)}`, async (t) => {
      const { outcome } = await ask(t, [answer], { login });
      assert.deepEqual(outcome.ok ? outcome : [outcome.fault.kind, outcome.fault.error], [kind, error]);
    });
  }
});

describe('a refresh token', () => {
  const login = {
    answer: { ...sound.login.answer, refresh_token: 'data.0.next' },
    renewal: {
      url: '${integrationConfig.base_url}/renew',
      headers: { Authorization: 'Bearer ${credentials.refreshToken}' },
    },
  };
  const next = (token: string, next?: string) => ({ body: { data: [{ token, ttl: 600, next }] } });

  test('is stored apart, and renews the token', async (t) => {
    const first = await ask(t, [next('one', 'r-1')], { login });
    assert.ok(first.outcome.ok);
    const stored = twoStep.renewal.after(first.outcome.tokens, { previous: own, secret: '' });
    assert.equal(stored.refresh_token, 'r-1');
    assert.ok(!JSON.stringify(twoStep.toWire(stored)).includes('r-1'));
    const { outcome, calls } = await ask(t, [next('two')], { login, credentials: stored });
    assert.deepEqual([calls[0]!.url, calls[0]!.headers.authorization], ['/renew', 'Bearer r-1']);
    assert.ok(outcome.ok);
    // Without a successor it stays valid.
    assert.equal(
      twoStep.renewal.after(outcome.tokens, { previous: stored, secret: '' }).refresh_token,
      'r-1',
    );
  });

  test('that is refused is replaced by the credentials, and an outage is not a refusal', async (t) => {
    const credentials = { ...own, token: 'one', refresh_token: 'r-1' };
    const again = await ask(t, [{ status: 401, body: {} }, next('two', 'r-2')], { login, credentials });
    assert.deepEqual(
      again.calls.map(({ url }) => url),
      ['/renew', '/login'],
    );
    assert.ok(again.outcome.ok && again.outcome.tokens.session?.refresh_token === 'r-2');
    const down = await ask(t, [{ status: 503, body: {} }], { login, credentials });
    assert.equal(down.outcome.ok ? '' : down.outcome.fault.kind, 'transient');
  });
});

test('credentials are shown without what renews them, unless it is requested', () => {
  const expires_at = '2026-11-21T10:00:00.000Z';
  const credentials = { ...own, token: 't', refresh_token: 'r', expires_at, life_s: 600, raw: { a: 1 } };
  const shown = { type: 'TWO_STEP', token: 't', expires_at, raw: { a: 1 } };
  assert.deepEqual(twoStep.toWire(credentials), shown);
  const whole = { ...shown, ...own.fields, refresh_token: 'r' };
  assert.deepEqual(twoStep.renewal.toWireWithSecret(credentials), whole);
});

describe('a definition is refused', () => {
  const login = (changes: object) => ({ login: { ...sound.login, ...changes } });
  for (const [name, changes, message] of [
    ['without the request', { login: undefined }, /^login: a TWO_STEP provider needs it/],
    [
      'with a credential in an address',
      login({ url: 'https://x.example.com/${credentials.user}' }),
      /^login.url: a credential/,
    ],
    [
      'with a host of the connection',
      login({ url: 'https://${connectionConfig.shop}/login' }),
      /^login.url: .* whole host/,
    ],
    [
      'with a host of the credentials',
      login({ url: 'https://${credentials.user}.x.example.com' }),
      /must not choose a host/,
    ],
    ['with plain http', login({ url: 'http://x.example.com' }), /^login.url: the address must be https/],
    ['with two bodies', login({ form: {} }), /^login.json: a request has one body/],
    ['with a body of GET', login({ method: 'GET' }), /^login.method: a GET request has no body/],
    ['with a framing header', login({ headers: { Host: 'x' } }), /^login.headers.Host: is set by/],
    [
      'with an unknown field',
      login({ json: { a: [{ b: '${credentials.pin}' }] } }),
      /^login.json.a.0.b: credentials.pin/,
    ],
    [
      'with a refresh token that nothing sends',
      login({ answer: { refresh_token: 'r' } }),
      /^login.renewal: belongs/,
    ],
    [
      'with a field of another meaning',
      { credentials: { ...sound.credentials, token: field() } },
      /^credentials.token: /,
    ],
    ['with a token section', { token: { url: 'https://x.example.com' } }, /^token: /],
  ] as const) {
    test(name, () => {
      assert.deepEqual(faultsOf({}), []);
      assert.match(faultsOf(changes).join('\n'), message);
    });
  }
});

test('each shipped definition has the credentials that its request names', () => {
  const shipped = shippedCatalog.list().filter(({ auth_mode }) => auth_mode === 'TWO_STEP');
  assert.ok(shipped.length >= 8);
  for (const { name, login, api, placement, credentials, level } of shipped) {
    const texts = JSON.stringify([login, api.headers, placement]);
    for (const field of Object.keys(credentials)) assert.ok(texts.includes(`\${credentials.${field}}`), name);
    assert.equal(level, 'documented', name);
    assert.ok(
      Object.values(credentials).some(({ secret }) => secret),
      name,
    );
  }
});
