import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { describe, test } from 'node:test';
import { AppError } from '../errors.ts';
import { refreshToken } from './oauth2.ts';
import { type Answer, grant, json, now, provider, type Token, text } from './token-endpoint.fixture.ts';
import type { TokenFault } from './token-fault.ts';

describe('a token answer', () => {
  const read: [
    name: string,
    answer: Answer,
    departures: Partial<Token['answer']>,
    tokens: Record<string, unknown>,
  ][] = [
    ['as RFC 6749 has it', json(grant), {}, { expiresAt: 3599 }],
    ['with expires_in as text', json({ ...grant, expires_in: '1800' }), {}, { expiresAt: 1800 }],
    ['without expires_in', json({ ...grant, expires_in: undefined }), {}, { expiresAt: 3600 }],
    ['with an empty expires_in', json({ ...grant, expires_in: '' }), {}, { expiresAt: 3600 }],
    ['with expires_in null', json({ ...grant, expires_in: null }), {}, { expiresAt: 3600 }],
    ['with a tiny expires_in', json({ ...grant, expires_in: 1 }), {}, { expiresAt: 1 }],
    ['with a negative expires_in', json({ ...grant, expires_in: -5 }), {}, { expiresAt: 3600 }],
    [
      'with an endless expires_in',
      json({ ...grant, expires_in: 1e300 }),
      {},
      { expiresAt: 100 * 365 * 86400 },
    ],
    ['with refresh_token null', json({ ...grant, refresh_token: null }), {}, { refreshToken: undefined }],
    ['with an empty refresh_token', json({ ...grant, refresh_token: '' }), {}, { refreshToken: undefined }],
    ['with a rotated refresh_token', json({ ...grant, refresh_token: 'next' }), {}, { refreshToken: 'next' }],
    ['under status 201', json(grant, 201), {}, { expiresAt: 3599 }],
    ['without token_type', json({ ...grant, token_type: undefined }), { default_token_type: 'bearer' }, {}],
    [
      'with a token_type of its own',
      json({ ...grant, token_type: 'user' }),
      { bearer_token_types: ['user'] },
      {},
    ],
    [
      'form-encoded',
      text('access_token=ya29.a&expires_in=60&token_type=bearer', 'application/x-www-form-urlencoded'),
      {},
      { expiresAt: 60 },
    ],
    [
      'form-encoded as text/plain',
      text('access_token=ya29.a&expires_in=60&token_type=bearer', 'text/plain'),
      { format: 'form' },
      { expiresAt: 60 },
    ],
    [
      'nested',
      json({ ok: true, authed: { user: grant } }),
      { token_path: 'authed.user' },
      { expiresAt: 3599 },
    ],
    ['with scopes as a list', json({ ...grant, scope: ['a', 'b'] }), {}, { scopes: ['a', 'b'] }],
    [
      'with a broken id_token on refresh',
      json({ ...grant, id_token: 'broken', refresh_token: 'next' }),
      {},
      { refreshToken: 'next' },
    ],
    [
      'with refresh_token_expires_in',
      json({ ...grant, refresh_token_expires_in: '604799' }),
      {},
      { refreshExpiresAt: 604799 },
    ],
  ];
  for (const [name, answer, departures, tokens] of read) {
    test(`${name} is read`, async (t) => {
      const { context, calls } = await provider(t, answer, departures);
      const outcome = await refreshToken({ ...context, refreshToken: '1//r' });
      assert.ok(outcome.ok, JSON.stringify(outcome));
      assert.equal(outcome.tokens.accessToken, 'ya29.a');
      for (const [key, expected] of Object.entries(tokens)) {
        const value: unknown = outcome.tokens[key as keyof typeof outcome.tokens];
        assert.deepEqual(value instanceof Date ? (value.getTime() - now.getTime()) / 1000 : value, expected);
      }
      assert.deepEqual(calls[0]?.form, {
        grant_type: 'refresh_token',
        refresh_token: '1//r',
        client_id: 'id:1',
        client_secret: 's3cr3t&',
      });
    });
  }

  test('is kept whole as the raw answer', async (t) => {
    const { context } = await provider(t, json({ ok: 1, in: { ...grant, extra: [null] } }), {
      token_path: 'in',
    });
    const outcome = await refreshToken({ ...context, refreshToken: 'r' });
    assert.ok(outcome.ok);
    assert.deepEqual(outcome.tokens.raw, { ok: 1, in: { ...grant, extra: [null] } });
    assert.equal(outcome.tokens.scopes?.join(), 'openid,email');
  });

  const grantError = (error: string, more: Record<string, unknown> = {}, status = 400) =>
    json({ error, ...more }, status);
  const html = '<!DOCTYPE html><html><title>Sorry...</title>automated queries</html>';
  const faults: [
    name: string,
    answer: Answer,
    departures: Partial<Token['answer']>,
    fault: Partial<TokenFault>,
  ][] = [
    [
      'invalid_grant',
      grantError('invalid_grant', { error_description: 'Token has been expired or revoked.' }),
      {},
      {
        kind: 'dead_grant',
        error: 'invalid_grant',
        description: 'Token has been expired or revoked.',
        httpStatus: 400,
      },
    ],
    [
      'invalid_rapt',
      grantError('invalid_grant', { error_subtype: 'invalid_rapt' }),
      {},
      { kind: 'session_policy', subtype: 'invalid_rapt' },
    ],
    [
      'rapt_required',
      grantError('invalid_grant', { error_subtype: 'rapt_required' }),
      {},
      { kind: 'session_policy', subtype: 'rapt_required' },
    ],
    [
      'an unknown subtype',
      grantError('invalid_grant', { error_subtype: 'x' }),
      {},
      { kind: 'dead_grant', subtype: 'x' },
    ],
    [
      'a text that names another cause',
      grantError('invalid_grant', { error_description: 'invalid_client admin_policy_enforced' }),
      {},
      { kind: 'dead_grant' },
    ],
    ['admin_policy_enforced', grantError('admin_policy_enforced'), {}, { kind: 'blocked_by_admin' }],
    [
      'access_denied',
      grantError('access_denied', { error_description: 'Account restricted' }),
      {},
      { kind: 'blocked_by_admin' },
    ],
    ['org_internal', grantError('org_internal', {}, 403), {}, { kind: 'blocked_by_admin', httpStatus: 403 }],
    [
      'invalid_client',
      grantError('invalid_client', {}, 401),
      {},
      { kind: 'client_misconfigured', httpStatus: 401 },
    ],
    [
      'invalid_client with a challenge',
      json({ error: 'invalid_client' }, 401, { 'www-authenticate': 'Basic realm="x"' }),
      {},
      { kind: 'client_misconfigured', error: 'invalid_client' },
    ],
    [
      'deleted_client',
      grantError('deleted_client', {}, 401),
      {},
      { kind: 'client_misconfigured', isOfClient: true },
    ],
    ['unauthorized_client', grantError('unauthorized_client', {}, 401), {}, { kind: 'client_misconfigured' }],
    [
      'internal_failure',
      grantError('internal_failure'),
      {},
      { kind: 'transient', error: 'internal_failure' },
    ],
    ['an unheard code', grantError('constructor'), {}, { kind: 'protocol', error: 'constructor' }],
    [
      'a 500 with a code that would kill',
      grantError('invalid_grant', {}, 500),
      {},
      { kind: 'transient', error: 'server_error', httpStatus: 500 },
    ],
    [
      'a 503 with Retry-After',
      json({}, 503, { 'retry-after': '7' }),
      {},
      { kind: 'transient', httpStatus: 503, retryAfterMs: 7000 },
    ],
    [
      'a 429',
      json({ error: 'invalid_grant' }, 429, { 'retry-after': '2' }),
      {},
      { kind: 'transient', httpStatus: 429, retryAfterMs: 2000 },
    ],
    ['a 429 without a code', json({}, 429), {}, { kind: 'transient', httpStatus: 429 }],
    [
      'a 403 HTML page',
      text(html, 'text/html', 403),
      {},
      { kind: 'transient', error: 'html', httpStatus: 403 },
    ],
    ['a 200 HTML page', text(html, 'text/html'), {}, { kind: 'transient', error: 'html' }],
    [
      'an HTML page said to be a form',
      text(html, 'application/x-www-form-urlencoded'),
      {},
      { kind: 'transient', error: 'html' },
    ],
    [
      'an error under 200',
      json({ error: 'bad_verification_code' }),
      {},
      { kind: 'protocol', error: 'bad_verification_code' },
    ],
    ['invalid_grant under 200', json({ ok: false, error: 'invalid_grant' }), {}, { kind: 'dead_grant' }],
    [
      'an error under 200 in a field of its own',
      json({ failure: { code: 'invalid_client' } }),
      { error_in_success: 'failure.code' },
      { kind: 'client_misconfigured' },
    ],
    ['no access_token', json({ token_type: 'Bearer' }), {}, { kind: 'protocol', error: 'invalid_answer' }],
    ['no token_type', json({ access_token: 'a' }), {}, { kind: 'protocol', error: 'invalid_answer' }],
    [
      'a DPoP token',
      json({ ...grant, token_type: 'DPoP' }),
      {},
      { kind: 'protocol', error: 'token_type_unsupported' },
    ],
    ['a list', json([1]), {}, { kind: 'protocol', error: 'not_json' }],
    [
      'half a document',
      text('{"access_token":"ya', 'application/json'),
      {},
      { kind: 'protocol', error: 'not_json' },
    ],
    [
      'a nested error',
      json({ error: { code: 403, status: 'X' } }, 403),
      {},
      { kind: 'protocol', error: 'invalid_answer', httpStatus: 403 },
    ],
    [
      'a redirect',
      (response) => response.writeHead(302, { location: 'https://evil.example' }).end(),
      {},
      { kind: 'protocol', error: 'redirect', httpStatus: 302 },
    ],
    [
      'more than 1 MB',
      (response) =>
        response
          .writeHead(200, { 'content-type': 'application/json' })
          .end(`{"a":"${'x'.repeat(1024 * 1024)}"}`),
      {},
      { kind: 'protocol', error: 'too_large' },
    ],
    ['a broken connection', (response) => response.destroy(), {}, { kind: 'transient', error: 'network' }],
    [
      'a connection that breaks half-way',
      (response) =>
        response.writeHead(200, { 'content-length': '100' }).write('{"a', () => response.destroy()),
      {},
      { kind: 'transient', error: 'network' },
    ],
  ];
  for (const [name, answer, departures, expected] of faults) {
    test(`with ${name} is ${expected.kind}`, async (t) => {
      const { context } = await provider(t, answer, departures);
      const outcome = await refreshToken({ ...context, refreshToken: 'r' });
      assert.ok(!outcome.ok);
      assert.partialDeepStrictEqual(outcome.fault, expected);
    });
  }

  for (const [name, answer] of [
    ['never comes', () => {}],
    ['never ends', (response: ServerResponse) => response.writeHead(200).write('{')],
  ] as [string, Answer][]) {
    test(`that ${name} is given up and transient`, async (t) => {
      const { context } = await provider(t, answer, { timeout_ms: 60 });
      const outcome = await refreshToken({ ...context, refreshToken: 'r' });
      assert.ok(!outcome.ok);
      assert.partialDeepStrictEqual(outcome.fault, { kind: 'transient', error: 'timeout' });
    });
  }

  test('from an address that may not be reached is the operator’s to see', async (t) => {
    const { context } = await provider(t, json(grant));
    const guarded = async () => {
      throw new TypeError('fetch failed', { cause: new AppError('unavailable') });
    };
    await assert.rejects(refreshToken({ ...context, fetch: guarded, refreshToken: 'r' }), AppError);
  });

  test('is requested with the client in a header if the provider requires it', async (t) => {
    const { context, calls } = await provider(t, json(grant));
    const definition = {
      ...context.definition,
      token: { ...(context.definition.token as Token), auth_method: 'client_secret_basic' as const },
    };
    assert.ok((await refreshToken({ ...context, definition, refreshToken: 'r' })).ok);
    // RFC 6749 §2.3.1: both are form-encoded before they are joined.
    assert.equal(calls[0]?.headers.authorization, `Basic ${btoa('id%3A1:s3cr3t%26')}`);
    assert.deepEqual(calls[0]?.form, { grant_type: 'refresh_token', refresh_token: 'r' });
  });
});
