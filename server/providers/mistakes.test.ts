// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
/** The author of a definition gets each kind of mistake reported at start, with its file and its line. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { authModes } from '../auth-modes/modes.ts';
import { CatalogError, loadCatalog } from './catalog.ts';

const soundYaml = `display_name: Example
categories: [other]
docs: https://example.com/docs
level: documented
source: { on: 2026-11-21, page: https://example.com/oauth }
auth_mode: OAUTH2
connection_config:
  shop:
    title: Shop
    description: What stands before .example.com.
    pattern: '[a-z0-9-]+'
    example: acme
integration_config:
  host:
    title: Host
    description: The host name.
    pattern: '[a-z-]+(\\.[a-z-]+)+'
    example: a.example
authorization:
  url: https://\${connectionConfig.shop}.example.com/authorize
  params: { prompt: consent }
  browser_params: { login: { pattern: '[a-z]+' } }
token:
  url: https://\${connectionConfig.shop}.example.com/token
  answer: { bearer_token_types: [bot] }
  errors: { gone: dead_grant }
refresh: { default_expires_in_s: 60 }
revocation: { url: https://example.com/revoke, unit: token }
userinfo: { url: https://example.com/me }
scopes:
  default: [read]
  catalogue:
    read: { sensitivity: sensitive, description: See it. }
placement:
  - { in: header, name: Authorization, value: 'Bearer \${credentials.accessToken}' }
api:
  base_url: https://api.example.com
  headers: { X-Version: "1" }
`;

function faultsOf(t: TestContext, files: Record<string, string>): string[] {
  const directory = mkdtempSync(join(tmpdir(), 'mistakes-'));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  try {
    loadCatalog(directory, authModes);
  } catch (error) {
    assert.ok(error instanceof CatalogError);
    assert.match(error.message, new RegExp(`^The provider definitions have ${error.faults.length} fault`));
    return error.faults.map(({ file, line, message }) => `${file}:${line}: ${message}`);
  }
  return [];
}

/** What is wrong, what becomes what in the sound file, and the fault, which stands on the first changed line. */
const mistakes: [string, string, string, RegExp][] = [
  [
    'a key that nothing knows',
    'auth_mode: OAUTH2',
    'auth_mode: OAUTH2\ncolour: red',
    /^colour: is no key that is known here$/,
  ],
  ['a key that nothing knows, further in', 'docs: h', 'api_docs: h', /^api_docs: is no key/],
  ['a text where a list belongs', '[other]', 'other', /categories: .*array/],
  ['an empty name', 'display_name: Example', "display_name: ''", /display_name: /],
  ['a number where a text belongs', 'X-Version: "1"', 'X-Version: 1', /api\.headers\.X-Version: .*string/],
  ['a text where a number belongs', '_s: 60', '_s: soon', /refresh\.default_expires_in_s: .*number/],
  ['a life of nothing', '_s: 60', '_s: 0', /refresh\.default_expires_in_s: /],
  ['a mode that does not exist', 'OAUTH2', 'OAUTH3', /auth_mode: /],
  ['documentation without https', 'docs: https', 'docs: http', /docs: /],
  ['a date that is none', '2026-11-21', '2026-21-11', /source\.on: Invalid ISO date/],
  [
    'a sunset without a day',
    'auth_mode: OAUTH2',
    'auth_mode: OAUTH2\nsunset: [{ on: soon, ends: It ends., page: https://example.com }]',
    /sunset\.0\.on: Invalid ISO date/,
  ],
  ['a source that names no page', ', page: https://example.com/oauth', '', /source\.page: /],
  ['facts that are documented nowhere', 'source:', '# source:', /level: "documented" requires a source/],
  ['a level that does not exist', 'documented', 'certain', /level: /],
  [
    'an address without https',
    'https://api.example.com',
    'http://api.example.com',
    /api\.base_url: the address must be https/,
  ],
  [
    'an address without a scheme',
    'https://example.com/me',
    'example.com/me',
    /userinfo\.url: an address starts with/,
  ],
  ['an address with a user name', 'https://api', 'https://me@api', /api\.base_url: .*no user name/],
  [
    'an address with a fragment',
    'https://example.com/revoke',
    "'https://example.com/revoke#x'",
    /revocation\.url: .*fragment/,
  ],
  [
    'an address with a space',
    'https://example.com/revoke',
    "'https://example.com/re voke'",
    /revocation\.url: .*space/,
  ],
  [
    'an address with a backslash',
    'https://example.com/revoke',
    "'https://example.com\\revoke'",
    /revocation\.url: .*backslash/,
  ],
  [
    'a placeholder of a field that is not declared',
    '{connectionConfig.shop}.example.com/token',
    '{connectionConfig.store}.example.com/token',
    /token\.url: connectionConfig\.store is not a declared field/,
  ],
  [
    'a placeholder that is none',
    '${connectionConfig.shop}.example.com/token',
    '${shop}.example.com/token',
    /token\.url: "\$\{shop\}" is no placeholder/,
  ],
  [
    'a placeholder that is not closed',
    '${connectionConfig.shop}.example.com/token',
    '${connectionConfig.shop.example.com/token',
    /token\.url: a placeholder is not closed/,
  ],
  [
    'a credential that chooses a host',
    '${connectionConfig.shop}.example.com/token',
    '${credentials.accessToken}.example.com/token',
    /token\.url: credentials\.accessToken is a credential/,
  ],
  [
    'a connection that chooses the whole host',
    '${connectionConfig.shop}.example.com/token',
    '${connectionConfig.shop}/token',
    /token\.url: connectionConfig\.shop would choose the whole host/,
  ],
  [
    'a connection that chooses all but the top of a host',
    '${connectionConfig.shop}.example.com/token',
    '${connectionConfig.shop}.com/token',
    /token\.url: connectionConfig\.shop would choose the whole host/,
  ],
  [
    'a whole address out of a field of another format',
    'base_url: https://api.example.com',
    'base_url: ${integrationConfig.host}',
    /api\.base_url: integrationConfig\.host brings a whole address/,
  ],
  [
    'a placeholder in a header that is not declared',
    '"1"',
    '"${connectionConfig.v}"',
    /api\.headers\.X-Version: connectionConfig\.v/,
  ],
  [
    'a placeholder of a credential that no mode has',
    'credentials.accessToken}',
    'credentials.token}',
    /placement\.0\.value: credentials\.token/,
  ],
  ['a header name that is none', 'X-Version: "1"', '"X Version": "1"', /is no header name/],
  [
    'a parameter of the protocol',
    '{ prompt: consent }',
    '{ state: mine }',
    /authorization\.params: .*belongs to the protocol/,
  ],
  ['a parameter of the protocol from the browser', 'login: {', 'redirect_uri: {', /belongs to the protocol/],
  [
    'scopes under a name of the protocol',
    'params: { prompt: consent }',
    'scope_param: state',
    /authorization\.scope_param: belongs to the protocol/,
  ],
  [
    'a pattern that is no regular expression',
    "'[a-z]+' } }",
    "'[a-z' } }",
    /login\.pattern: is no valid regular expression/,
  ],
  ['a meaning that no error has', 'gone: dead_grant', 'gone: dead', /token\.errors\.gone: /],
  ['a unit of revocation that does not exist', 'unit: token', 'unit: all', /revocation\.unit: /],
  ['a scope with a space', 'default: [read]', 'default: [read it]', /scopes\.default\.0: is no scope token/],
  [
    'a default scope that is not in the catalogue',
    'default: [read]',
    'default: [read, write]',
    /scopes\.default\.1: "write" is not in the catalogue/,
  ],
  [
    'a sensitivity that does not exist',
    'sensitivity: sensitive',
    'sensitivity: secret',
    /scopes\.catalogue\.read\.sensitivity: /,
  ],
  ['a body that cannot be written', '  answer: {', '  body: xml\n  answer: {', /token\.body: /],
  ['a place for credentials that does not exist', 'in: header', 'in: cookie', /placement\.0\.in: /],
  [
    'a call that tries credentials which go into a body',
    'placement:\n  - { in: header',
    'verification: { path: /me }\nplacement:\n  - { in: body',
    /^verification: the request that verifies credentials has no body/,
  ],
  ['a field without a title', '    title: Shop\n', '', /connection_config\.shop\.title: /],
  [
    'a token parameter that belongs to the protocol',
    '  answer: {',
    '  params: { grant_type: password }\n  answer: {',
    /token\.params\.grant_type: belongs to the protocol/,
  ],
  [
    'a credential among the parameters of a token request',
    '  answer: {',
    "  params: { key: '${credentials.apiKey}' }\n  answer: {",
    /token\.params\.key: a credential is not allowed here/,
  ],
  [
    'a token parameter out of a field that is not declared',
    '  answer: {',
    "  params: { audience: '${integrationConfig.audience}' }\n  answer: {",
    /token\.params\.audience: integrationConfig\.audience is not a declared field/,
  ],
  [
    'a sandbox without the page to consent on',
    'placement:',
    'sandbox: { token: /token }\nplacement:',
    /sandbox.*: an OAUTH2 provider needs it/,
  ],
  [
    'a key that stands there twice',
    'categories: [other]',
    'display_name: Twice',
    /[Mm]ap keys must be unique/,
  ],
  ['a list that is not closed', '[other]', '[other', /./],
  ['a tab for indentation', '  shop:', '\tshop:', /./],
  [
    'a header for credentials that a setting of any form names',
    'name: Authorization,',
    'name: "${integrationConfig.host}",',
    /a header name must be fixed, or one placeholder of a field with "format: header_name"$/,
  ],
  [
    'a query parameter for credentials that a setting names',
    'in: header, name: Authorization,',
    'in: query, name: "${connectionConfig.shop}",',
    /the name in the query that carries credentials must be fixed$/,
  ],
];

describe('a definition is refused, with file and line, for', () => {
  test('nothing where it is sound', (t) => {
    assert.deepEqual(faultsOf(t, { 'one.yaml': soundYaml }), []);
  });

  test('a page to consent on where a client asks for itself', (t) => {
    const definition = soundYaml.replace('auth_mode: OAUTH2', 'auth_mode: OAUTH2_CC');
    assert.deepEqual(faultsOf(t, { 'one.yaml': definition }), [
      'one.yaml:19: authorization: an OAUTH2_CC provider sends nobody there',
    ]);
  });

  for (const [what, from, to, message] of mistakes) {
    test(what, (t) => {
      const at = soundYaml.indexOf(from);
      assert.ok(at >= 0, `"${from}" is not in the sound file`);
      const text = soundYaml.slice(0, at) + to + soundYaml.slice(at + from.length);
      const [first = '', ...others] = faultsOf(t, { 'one.yaml': text, 'sound.yaml': soundYaml });
      const lines = text.split('\n');
      const changed = lines.findIndex((line, index) => line !== soundYaml.split('\n')[index]) + 1;
      assert.ok(
        [first, ...others].some((fault) => {
          const [, line = '', told = ''] = /^one\.yaml:(\d+): (.*)$/s.exec(fault) ?? [];
          return Math.abs(Number(line) - changed) <= 1 && message.test(told);
        }),
        `line ${changed} in ${[first, ...others].join('\n')}`,
      );
    });
  }

  const withoutLine = (start: string) =>
    soundYaml
      .split('\n')
      .filter((line) => !line.startsWith(start))
      .join('\n');
  const without = (section: string) => soundYaml.replace(new RegExp(`^${section}:.*\\n(?: .*\\n)*`, 'm'), '');
  const whole: [string, Record<string, string>, string | RegExp][] = [
    [
      'an OAuth provider without a token endpoint',
      { 'one.yaml': without('token') },
      /^one\.yaml:1: token: an OAUTH2/,
    ],
    [
      'an OAuth provider without an authorization endpoint',
      { 'one.yaml': without('authorization') },
      /^one\.yaml:1: authorization: an OAUTH2/,
    ],
    ['a provider without an API', { 'one.yaml': without('api') }, /^one\.yaml:1: api: /],
    [
      'a provider without a name',
      { 'one.yaml': withoutLine('display_name') },
      /^one\.yaml:1: display_name: /,
    ],
    [
      'a key that goes nowhere',
      { 'one.yaml': without('placement').replace('OAUTH2', 'API_KEY') },
      /^one\.yaml:\d+: placement: an API_KEY/,
    ],
    [
      'a file that holds no mapping',
      { 'one.yaml': '- a\n- b\n' },
      'one.yaml:1: the file must hold a mapping',
    ],
    ['an empty file', { 'one.yaml': '' }, 'one.yaml:1: the file must hold a mapping'],
    [
      'a name with a capital',
      { 'One.yaml': soundYaml },
      'One.yaml:1: the name must be lower-case with hyphens',
    ],
    [
      'a base that is not there',
      { 'one.yaml': 'display_name: One\nextends: gone\n' },
      'one.yaml:2: extends "gone", which is no readable file here',
    ],
    [
      'a base that is broken',
      { 'one.yaml': 'extends: two\n', 'two.yaml': 'a: [\n' },
      /^one\.yaml:1: extends "two"/,
    ],
    [
      'a circle of bases',
      { 'one.yaml': 'extends: two\n', 'two.yaml': '\nextends: one\n' },
      'two.yaml:2: extends itself by way of "two"',
    ],
    [
      'a mistake in a base, where it stands',
      { 'one.yaml': 'extends: two\n', 'two.yaml': `abstract: true\n${soundYaml.replace('OAUTH2', 'MAGIC')}` },
      /^two\.yaml:7: auth_mode: /,
    ],
    [
      'a mistake on top of a base, where it stands',
      { 'one.yaml': '\nextends: two\napi:\n  base_url: http://x.example\n', 'two.yaml': soundYaml },
      /^one\.yaml:4: api\.base_url: the address must be https/,
    ],
  ];
  for (const [what, files, expected] of whole) {
    test(what, (t) => {
      const faults = faultsOf(t, files);
      const isTold = (fault: string) =>
        typeof expected === 'string' ? fault === expected : expected.test(fault);
      assert.ok(faults.some(isTold), faults.join('\n'));
    });
  }
});
