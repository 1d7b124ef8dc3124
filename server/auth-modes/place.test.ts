import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { shippedCatalog as catalog } from '../../test/support/catalog.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { TemplateError } from '../providers/template.ts';
import { type Credentials, modeNamed, renewalOf } from './modes.ts';
import { credentialsFrom, type OAuth2Credentials } from './oauth2-credentials.ts';
import { apiBase, placeCredentials, verificationRequest, withQuery } from './place.ts';

const keyed = catalog.get('private-api-key');
const google = catalog.get('google-sheet');
const key: Credentials = { type: 'API_KEY', apiKey: 's3cr3t' };
const base = { base_url: 'https://api.example.com/v2/' };
const place = (
  definition: ProviderDefinition,
  credentials: Credentials,
  integrationConfig: Record<string, string> = base,
) => placeCredentials({ definition, credentials, values: { integrationConfig } });

describe('credentials', () => {
  test('of OAuth go as bearer token', () => {
    const credentials: Credentials = { type: 'OAUTH2', access_token: 'ya29.a', raw: {} };
    assert.deepEqual(place(google, credentials), { headers: { Authorization: 'Bearer ya29.a' }, query: '' });
  });

  test('of an API key go as bearer token, or in the header that the integration names', () => {
    assert.deepEqual(place(keyed, key).headers, { Authorization: 'Bearer s3cr3t' });
    assert.deepEqual(place(keyed, key, { ...base, header_name: 'X-Api-Key' }).headers, {
      'X-Api-Key': 's3cr3t',
    });
    assert.deepEqual(place(keyed, key, { ...base, header_name: '' }).headers, {
      Authorization: 'Bearer s3cr3t',
    });
  });

  test('of a user are encoded as UTF-8 (RFC 7617 §2.1)', () => {
    const definition: ProviderDefinition = { ...keyed, auth_mode: 'BASIC', placement: [] };
    assert.deepEqual(place(definition, { type: 'BASIC', username: 'test', password: '123£' }).headers, {
      Authorization: 'Basic dGVzdDoxMjPCow==',
    });
  });

  test('that do not exist leave the request alone', () => {
    assert.deepEqual(place(catalog.get('unauthenticated'), { type: 'NONE' }), { headers: {}, query: '' });
  });

  test('are put into the query if the definition requires it, encoded', () => {
    const placement: ProviderDefinition['placement'] = [
      { in: 'query', name: 'key', value: '$'.concat('{credentials.apiKey}') },
    ];
    assert.deepEqual(place({ ...keyed, placement }, { type: 'API_KEY', apiKey: 'a&b=c #' }), {
      headers: {},
      query: 'key=a%26b%3Dc%20%23',
    });
  });

  test('are put into the body if the definition requires it, for callers that can put them there', () => {
    const placement: ProviderDefinition['placement'] = [
      { in: 'body', name: 'key', value: '$'.concat('{credentials.apiKey}') },
    ];
    assert.deepEqual(place({ ...keyed, placement }, { type: 'API_KEY', apiKey: 'a&b' }), {
      headers: {},
      query: '',
      body: { name: 'key', value: 'a&b' },
    });
  });

  test('take the place of a fixed header of the same name', () => {
    const definition = {
      ...keyed,
      api: { ...keyed.api, headers: { authorization: 'fixed', 'X-Version': '2' } },
    };
    assert.deepEqual(place(definition, key).headers, { 'X-Version': '2', Authorization: 'Bearer s3cr3t' });
  });

  for (const header_name of [
    'Host',
    'content-length',
    'Transfer-Encoding',
    'Connection',
    'X Bad',
    'X-Bad:',
    'X-Ключ',
    'X\r\nY',
  ]) {
    test(`do not go into a header called ${JSON.stringify(header_name)}`, () => {
      assert.throws(() => place(keyed, key, { ...base, header_name }), TemplateError);
    });
  }

  for (const header_name of [
    'X-Request-Id',
    'x_correlation_id',
    'Kong-Request-ID',
    'Origin',
    'Cookie',
    'B3',
    'If-Match',
  ]) {
    test(`do not go into ${header_name}, which servers return or interpret, where a setting names it`, () => {
      assert.throws(
        () => place(keyed, key, { ...base, header_name }),
        /^TemplateError: integrationConfig\.header_name: names a header that may not carry credentials: it /,
      );
      const placement: ProviderDefinition['placement'] = [
        { in: 'header', name: header_name, value: '$'.concat('{credentials.apiKey}') },
      ];
      assert.deepEqual(place({ ...keyed, placement }, key).headers, { [header_name]: 's3cr3t' });
    });
  }

  for (const header_name of [
    'X-Api-Key',
    'apikey',
    'X-Auth-Token',
    'CF-Access-Client-Secret',
    'X-Session-Id',
    'Authorization',
  ])
    test(`go into ${header_name}, where a setting names it`, () => {
      assert.deepEqual(place(keyed, key, { ...base, header_name }).headers, { [header_name]: 's3cr3t' });
    });

  test('that would end the header are refused without being shown', () => {
    assert.throws(
      () => place(keyed, { type: 'API_KEY', apiKey: 's3cr3t\r\nX-Evil: 1' }),
      (error) => error instanceof TemplateError && !error.message.includes('s3cr3t'),
    );
  });
});

describe('a verification', () => {
  const connection = (integrationConfig: Record<string, string>) => ({
    definition: keyed,
    credentials: key,
    values: { integrationConfig },
  });

  test('is the call that the integration names, under its base', () => {
    assert.deepEqual(verificationRequest(connection({ ...base, verification_path: '/me now' })), {
      method: 'GET',
      url: 'https://api.example.com/v2/me%20now',
      headers: { Authorization: 'Bearer s3cr3t' },
      query: '',
    });
  });

  test('is left out where none is named', () => {
    assert.equal(verificationRequest(connection(base)), undefined);
    assert.equal(verificationRequest({ ...connection(base), definition: google }), undefined);
  });

  test('does not leave the base', () => {
    for (const verification_path of ['../admin', '..', 'a/../../b', '/%2e%2e/x']) {
      assert.throws(() => verificationRequest(connection({ ...base, verification_path })), TemplateError);
    }
  });

  test('starts where the connection’s API does', () => {
    assert.equal(apiBase(connection(base)), 'https://api.example.com/v2');
    assert.throws(() => apiBase(connection({})), /integrationConfig.base_url: is missing/);
  });
});

test('added query pairs leave every byte that was there', () => {
  assert.equal(withQuery('/a%2Fb?x=1&x=%41', 'key=k'), '/a%2Fb?x=1&x=%41&key=k');
  assert.equal(withQuery("/v/'S'!A1", 'key=k'), "/v/'S'!A1?key=k");
  assert.equal(withQuery('/a?x', ''), '/a?x');
});

describe('imported credentials', () => {
  const accepted: [string, Record<string, unknown>, Record<string, unknown>][] = [
    [
      'OAUTH2',
      { access_token: 'a', refresh_token: 'r', expires_at: '2026-11-21T10:00:00+01:00' },
      {
        access_token: 'a',
        refresh_token: 'r',
        expires_at: '2026-11-21T09:00:00.000Z',
        raw: { access_token: 'a', refresh_token: 'r', expires_at: '2026-11-21T09:00:00.000Z' },
      },
    ],
    ['OAUTH2', { access_token: 'a' }, { access_token: 'a', raw: { access_token: 'a' } }],
    ['OAUTH2', { access_token: 'a', raw: { x: [1] } }, { access_token: 'a', raw: { x: [1] } }],
    ['API_KEY', { apiKey: 'k' }, { apiKey: 'k' }],
    ['BASIC', { username: '', password: '' }, { username: '', password: '' }],
    ['NONE', {}, {}],
  ];
  for (const [type, given, stored] of accepted) {
    test(`${type} ${JSON.stringify(given)} are taken`, () => {
      assert.deepEqual(modeNamed(type).importSchema.parse({ type, ...given }), { type, ...stored });
    });
  }

  const refused: [string, Record<string, unknown>, string][] = [
    ['OAUTH2', {}, 'access_token'],
    ['OAUTH2', { access_token: '' }, 'access_token'],
    ['OAUTH2', { access_token: 'a\nb' }, 'access_token'],
    ['OAUTH2', { access_token: 'a', expires_at: 'soon' }, 'expires_at'],
    ['OAUTH2', { access_token: 'a', expires_at: 5 }, 'expires_at'],
    ['OAUTH2', { access_token: 'a', refresh_token: null }, 'refresh_token'],
    ['OAUTH2', { access_token: 'a', more: 1 }, ''],
    ['API_KEY', { apiKey: 'k'.repeat(1025) }, 'apiKey'],
    ['API_KEY', { apiKey: 'ключ' }, 'apiKey'],
    ['API_KEY', { apiKey: '' }, 'apiKey'],
    ['BASIC', { username: 'a:b', password: '' }, 'username'],
    ['BASIC', { username: 'a', password: 'b\u0000' }, 'password'],
    ['NONE', { apiKey: 'k' }, ''],
  ];
  for (const [type, given, field] of refused) {
    test(`${type} ${JSON.stringify(given).slice(0, 50)} are refused by field`, () => {
      const read = modeNamed(type).importSchema.safeParse({ type, ...given });
      assert.equal(read.error?.issues[0]?.path.join('.'), field);
    });
  }
});

describe('OAuth credentials', () => {
  const stored: OAuth2Credentials = {
    type: 'OAUTH2',
    access_token: 'a',
    refresh_token: 'r1',
    expires_at: '2026-11-21T09:00:00.000Z',
    raw: { access_token: 'a', refresh_token: 'r1', nested: [{ refresh_token: 'r1', scope: 's' }] },
  };

  test('are shown without a refresh token anywhere', () => {
    assert.deepEqual(modeNamed('OAUTH2').toWire(stored), {
      type: 'OAUTH2',
      access_token: 'a',
      expires_at: '2026-11-21T09:00:00.000Z',
      raw: { access_token: 'a', nested: [{ scope: 's' }] },
    });
    assert.deepEqual(renewalOf(stored).toWireWithSecret(stored), stored);
  });

  test('keep their refresh token until a refresh brings another', () => {
    const tokens = { accessToken: 'b', tokenType: 'Bearer' as const, raw: { access_token: 'b' } };
    assert.deepEqual(credentialsFrom(tokens, stored), {
      type: 'OAUTH2',
      access_token: 'b',
      refresh_token: 'r1',
      raw: { access_token: 'b' },
    });
    assert.equal(credentialsFrom({ ...tokens, refreshToken: 'r2' }, stored).refresh_token, 'r2');
    assert.equal(credentialsFrom(tokens).refresh_token, undefined);
  });
});
