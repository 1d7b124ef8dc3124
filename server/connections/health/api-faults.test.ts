import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { shippedCatalog as catalog } from '../../../test/support/catalog.ts';
import { type ApiAnswer, classifyAnswer } from './api-faults.ts';

const google = catalog.get('google-sheet');
const plain = catalog.get('unauthenticated');

const answer = (status: number, body: unknown = '', headers: Record<string, string> = {}): ApiAnswer => ({
  status,
  headers,
  body: typeof body === 'string' ? body : JSON.stringify(body),
});
const refused = (reason: string, metadata: Record<string, unknown> = {}) => ({
  error: {
    code: 403,
    details: [
      { '@type': 'type.googleapis.com/google.rpc.Help', links: [] },
      { '@type': 'type.googleapis.com/google.rpc.ErrorInfo', reason, domain: 'googleapis.com', metadata },
    ],
  },
});
/** The error format of older Google APIs. */
const older = (code: number, reason: string) => ({
  error: { code, message: 'x', errors: [{ domain: 'usageLimits', reason, message: 'x' }] },
});
const page = '<!DOCTYPE html><html><title>Sorry...</title></html>';
const html = { 'content-type': 'text/html; charset=UTF-8' };

describe('an answer is judged by status and reason', () => {
  const accepted = 'https://www.googleapis.com/auth/drive https://www.googleapis.com/auth/spreadsheets';
  const challenge = {
    'www-authenticate': `Bearer realm="x", error="insufficient_scope", scope="${accepted}"`,
  };
  const activationUrl =
    'https://console.developers.google.com/apis/api/sheets.googleapis.com/overview?project=1';
  const perUser = {
    service: 'sheets.googleapis.com',
    quota_metric: 'sheets.googleapis.com/read_requests',
    quota_limit: 'ReadRequestsPerMinutePerUser',
    quota_limit_value: '60',
  };
  const perProject = { ...perUser, quota_limit: 'ReadRequestsPerMinutePerProject' };
  const cases: [string, ApiAnswer, ReturnType<typeof classifyAnswer>][] = [
    ['401', answer(401, { error: { code: 401 } }), { kind: 'token' }],
    [
      '403 for want of a scope, with the scopes that would do',
      answer(403, refused('ACCESS_TOKEN_SCOPE_INSUFFICIENT'), challenge),
      { kind: 'scope_missing', accepted: accepted.split(' ') },
    ],
    [
      '403 for want of a scope, without a challenge',
      answer(403, refused('ACCESS_TOKEN_SCOPE_INSUFFICIENT')),
      { kind: 'scope_missing', accepted: [] },
    ],
    [
      '403 of an API that is switched off',
      answer(403, refused('SERVICE_DISABLED', { service: 'sheets.googleapis.com', activationUrl })),
      { kind: 'api_disabled', service: 'sheets.googleapis.com', activationUrl },
    ],
    [
      '403 of an API that is switched off, with an address that is no link',
      answer(403, refused('SERVICE_DISABLED', { activationUrl: 'javascript:alert(1)' })),
      { kind: 'api_disabled' },
    ],
    [
      '403 of a file',
      answer(403, { error: { code: 403, status: 'PERMISSION_DENIED' } }),
      { kind: 'resource' },
    ],
    ['404', answer(404, { error: { code: 404 } }), { kind: 'resource' }],
    ['404 page', answer(404, page, html), { kind: 'resource' }],
    ['400', answer(400, { error: { code: 400 } }), { kind: 'request' }],
    [
      '429 of one account',
      answer(429, refused('RATE_LIMIT_EXCEEDED', perUser)),
      { kind: 'rate_limited', of: 'connection', evidence: perUser },
    ],
    [
      '429 of the whole client',
      answer(429, refused('RATE_LIMIT_EXCEEDED', perProject)),
      { kind: 'rate_limited', of: 'integration', evidence: perProject },
    ],
    ['429 that says no more', answer(429), { kind: 'rate_limited', of: 'connection', evidence: {} }],
    [
      '403 of one account by an older API',
      answer(403, older(403, 'userRateLimitExceeded')),
      { kind: 'rate_limited', of: 'connection', evidence: { reason: 'userRateLimitExceeded' } },
    ],
    [
      '403 of the whole client by an older API',
      answer(403, older(403, 'rateLimitExceeded')),
      { kind: 'rate_limited', of: 'integration', evidence: { reason: 'rateLimitExceeded' } },
    ],
    [
      '429 by an older API, whose one reason means the account',
      answer(429, older(429, 'rateLimitExceeded')),
      { kind: 'rate_limited', of: 'connection', evidence: {} },
    ],
    [
      '403 of both shapes, of which the newer one counts',
      answer(403, {
        error: {
          ...older(403, 'rateLimitExceeded').error,
          ...refused('RATE_LIMIT_EXCEEDED', perUser).error,
        },
      }),
      { kind: 'rate_limited', of: 'connection', evidence: perUser },
    ],
    [
      '403 of a file by an older API',
      answer(403, older(403, 'insufficientFilePermissions')),
      { kind: 'resource' },
    ],
    ['403 of storage by an older API', answer(403, older(403, 'storageQuotaExceeded')), { kind: 'resource' }],
    ['429 page', answer(429, page, html), { kind: 'abuse_guard' }],
    ['403 page without a content type', answer(403, page), { kind: 'abuse_guard' }],
    ['500', answer(500, { error: { code: 500 } }), { kind: 'transient' }],
    ['503 page', answer(503, page, html), { kind: 'transient' }],
  ];
  for (const [name, given, expected] of cases) {
    test(name, () => assert.deepEqual(classifyAnswer(google, given), expected));
  }
});

test('a provider without reasons of its own is judged by the status alone', () => {
  assert.deepEqual(classifyAnswer(plain, answer(403, refused('SERVICE_DISABLED'))), { kind: 'resource' });
  assert.deepEqual(classifyAnswer(plain, answer(403, page, html)), { kind: 'resource' });
  assert.equal(classifyAnswer(plain, answer(429, page, html)).kind, 'rate_limited');
});

test('a body that is cut off, nonsense or hostile is judged by the status', () => {
  for (const body of [
    '',
    '{"error":{"details":[',
    'null',
    '[]',
    '{"error":null}',
    '{"error":{"details":[null]}}',
    '{"error":{"errors":[null]}}',
    '{"error":{"errors":[{"reason":["rateLimitExceeded"]}]}}',
    '{"error":{"errors":[{"reason":"constructor"}]}}',
  ]) {
    assert.deepEqual(classifyAnswer(google, answer(403, body)), { kind: 'resource' }, body);
  }
  const inherited = refused('constructor', { quota_limit: 7 });
  assert.deepEqual(classifyAnswer(google, answer(403, inherited)), { kind: 'resource' });
});
