// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  addressFaults,
  fillAddress,
  fillHeader,
  fillPath,
  isFillable,
  TemplateError,
  type TemplateFields,
} from './template.ts';

const fields: TemplateFields = {
  connectionConfig: {
    subdomain: { pattern: '[A-Za-z0-9-]+' },
    dotted: { pattern: '[a-z0-9-]+(\\.[a-z0-9-]+)*' },
    careless: { pattern: '.*' },
    host: { pattern: '[a-z0-9.-]+' },
    own: { format: 'uri' },
    tenant: {},
    path: { format: 'path' },
    guid: { pattern: '[0-9a-f]{4}' },
    bare: {},
  },
  integrationConfig: { base_url: { format: 'uri' }, region: { pattern: '[a-z]{2}' } },
  credentials: { apiKey: {} },
};
const fill = (template: string, connectionConfig: Record<string, string>) =>
  fillAddress(template, { values: { connectionConfig }, fields });
const fillBase = (base_url: string, template = '${integrationConfig.base_url}') =>
  fillAddress(template, { values: { integrationConfig: { base_url } }, fields });

describe('a value inside a host', () => {
  const template = 'https://${connectionConfig.subdomain}.example.com/api';

  test('is a label of the finished address', () => {
    assert.equal(fill(template, { subdomain: 'acme-1' }), 'https://acme-1.example.com/api');
  });

  const attacks = [
    'evil.com/',
    'evil.com',
    'a.b',
    'a/b',
    'a\\b',
    'x@evil',
    'x@evil.com/',
    'evil.com#',
    'x#',
    'x?',
    'x:80',
    'x:y@z',
    '',
    ' ',
    'a b',
    '.',
    '..',
    '-',
    '-a',
    'a-',
    '%2e',
    'evil%2ecom%2f',
    'evil。com',
    'evil．com',
    'evil｡com',
    'ａ',
    'аpple',
    'a\u0000',
    'a\n',
    'a\r\nHost: evil',
    'a\tb',
    '[::1]',
    '\u202eevil',
    'a'.repeat(64),
    '${connectionConfig.subdomain}',
    '\ud800',
    'evil.com\u2044',
  ];
  for (const attack of attacks) {
    test(`${JSON.stringify(attack).slice(0, 40)} is refused`, () => {
      for (const name of ['subdomain', 'careless']) {
        assert.throws(
          () => fill(`https://\${connectionConfig.${name}}.example.com/api`, { [name]: attack }),
          (error) => error instanceof TemplateError && (attack.length < 3 || !error.message.includes(attack)),
        );
      }
    });
  }

  test('may hold dots only where its pattern writes a dot', () => {
    const dotted = 'https://${connectionConfig.dotted}.example.com';
    assert.equal(fill(dotted, { dotted: 'eu.acme' }), 'https://eu.acme.example.com');
    for (const value of ['eu..acme', '.acme', 'acme.', 'eu.acme/..'])
      assert.throws(() => fill(dotted, { dotted: value }));
  });

  test('is refused when it is missing or inherited', () => {
    assert.throws(() => fill(template, {}), /connectionConfig.subdomain: is missing/);
    assert.throws(() => fill('https://${connectionConfig.toString}.example.com', {}), TemplateError);
  });

  test('never moves the address off the fixed end, whatever it is', () => {
    for (const name of ['subdomain', 'careless', 'dotted']) {
      fc.assert(
        fc.property(
          fc.oneof(fc.string({ unit: 'binary' }), fc.webAuthority(), fc.domain(), fc.string()),
          (value) => {
            let filled: string;
            try {
              filled = fill(`https://\${connectionConfig.${name}}.example.com:8443/api`, { [name]: value });
            } catch (error) {
              assert.ok(error instanceof TemplateError);
              return;
            }
            const url = new URL(filled);
            assert.ok(url.hostname.endsWith('.example.com'));
            assert.equal(url.port + url.pathname + url.search + url.hash + url.username, '8443/api');
          },
        ),
      );
    }
  });
});

describe('an optional field that is a segment of an address', () => {
  const optional = { connectionConfig: { account: { required: false }, tenant: {} } };
  const fill = (template: string, connectionConfig: Record<string, string>) =>
    fillAddress(template, { values: { connectionConfig }, fields: optional });

  test('is left out without a value, with its slash', () => {
    for (const [template, unset, set] of [
      ['https://x.example/${connectionConfig.account}', 'https://x.example', 'https://x.example/a%2Fb'],
      [
        'https://x.example/v1/${connectionConfig.account}/api',
        'https://x.example/v1/api',
        'https://x.example/v1/a%2Fb/api',
      ],
      [
        'https://x.example/${connectionConfig.account}/${connectionConfig.account}/c',
        'https://x.example/c',
        'https://x.example/a%2Fb/a%2Fb/c',
      ],
    ] as const) {
      assert.equal(fill(template, {}), unset);
      assert.equal(fill(template, { account: '' }), unset);
      assert.equal(fill(template, { account: 'a/b' }), set);
    }
  });

  test('is missing if it is required, or if it is only a part of a segment, of the host or of the query', () => {
    for (const address of [
      'https://x.example/${connectionConfig.tenant}',
      'https://x.example/v${connectionConfig.account}',
      'https://x.example/${connectionConfig.account}v',
      'https://x.example/${connectionConfig.account}.json/x',
      'https://${connectionConfig.account}.x.example/',
      'https://x.example/a?b=${connectionConfig.account}',
    ]) {
      assert.throws(() => fill(address, {}), /is missing|needs a pattern/, address);
    }
  });
});

describe('a value inside a path or query', () => {
  const template = 'https://example.com/t/${connectionConfig.tenant}/token?to=${connectionConfig.tenant}';

  test('is percent-encoded', () => {
    assert.equal(
      fill(template, { tenant: "a/b?c#d&e=f%'é" }),
      'https://example.com/t/a%2Fb%3Fc%23d%26e%3Df%25%27%C3%A9/token?to=a%2Fb%3Fc%23d%26e%3Df%25%27%C3%A9',
    );
  });

  for (const tenant of ['.', '..', '%2e%2e', '%2E.', '', 'a\nb', 'a\u0000', '\ud800']) {
    test(`${JSON.stringify(tenant)} is refused`, () => {
      assert.throws(() => fill(template, { tenant }), TemplateError);
    });
  }

  test('cannot make a dot segment together with the template', () => {
    assert.throws(
      () => fill('https://example.com/.${connectionConfig.tenant}/x', { tenant: '.' }),
      TemplateError,
    );
    assert.throws(
      () =>
        fill('https://example.com/${connectionConfig.bare}${connectionConfig.tenant}', {
          bare: '.',
          tenant: '.',
        }),
      TemplateError,
    );
  });

  test('must fit the pattern of its field', () => {
    assert.equal(
      fill('https://example.com/${connectionConfig.guid}', { guid: '00ff' }),
      'https://example.com/00ff',
    );
    assert.throws(
      () => fill('https://example.com/${connectionConfig.guid}', { guid: '00ff0' }),
      TemplateError,
    );
  });

  test('keeps its slashes where the field is a path, and nothing else', () => {
    const values = (path: string) => ({ values: { connectionConfig: { path } }, fields });
    assert.equal(fillPath('/${connectionConfig.path}', values('/v1/me?x')), '/v1/me%3Fx');
    for (const path of ['v1/../admin', '../x', 'a/./b', 'a/%2e%2e/b']) {
      assert.throws(() => fillPath('/${connectionConfig.path}', values(path)), TemplateError);
    }
  });

  test('never changes the shape of the address, whatever it is', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (tenant) => {
        let filled: string;
        try {
          filled = fill(template, { tenant });
        } catch (error) {
          assert.ok(error instanceof TemplateError);
          return;
        }
        const url = new URL(filled);
        assert.equal(url.host, 'example.com');
        assert.equal(decodeURIComponent(url.pathname.split('/')[2] as string), tenant);
        assert.deepEqual([...url.searchParams], [['to', tenant]]);
        assert.equal(url.pathname.split('/').length, 4);
      }),
    );
  });
});

describe('a whole address', () => {
  test('is taken as it is but for a trailing slash', () => {
    assert.equal(fillBase('https://api.example.com'), 'https://api.example.com');
    assert.equal(fillBase('https://api.example.com:8443/v1/'), 'https://api.example.com:8443/v1');
    assert.equal(
      fillBase('https://api.example.com/v1', '${integrationConfig.base_url}/token'),
      'https://api.example.com/v1/token',
    );
  });

  test('may be plain http on loopback only', () => {
    for (const base of ['http://localhost:3004', 'http://127.0.0.1:1', 'http://[::1]:3004/x']) {
      assert.equal(fillBase(base), base);
    }
    for (const base of [
      'http://example.com',
      'http://localhost.evil.com',
      'http://127.0.0.1.evil.com',
      'http://a.localhost',
    ]) {
      assert.throws(() => fillBase(base), TemplateError);
    }
  });

  const attacks = [
    'ftp://example.com',
    'javascript:alert(1)',
    '//evil.com',
    'https:/evil.com',
    'https:///evil.com',
    'https://u:p@evil.com',
    'https://good.com@evil.com',
    'https://good.com\\@evil.com',
    'https://evil.com#',
    'https://evil.com/?q',
    'https://e vil.com',
    'https://evil.com/..',
    'https://evil.com/a/%2e%2e/b',
    'https://еvil.com',
    'https://evil。com',
    'https://0x7f000001',
    'https://2130706433',
    'https://127.1',
    'https://evil.com:99999',
    'https://',
    'https://%65vil.com',
    'https://evil.com/\n',
  ];
  for (const attack of attacks) {
    test(`${JSON.stringify(attack)} is refused`, () => {
      assert.throws(() => fillBase(attack), TemplateError);
    });
  }
});

describe('a header', () => {
  const header = (apiKey: string) =>
    fillHeader('Bearer ${credentials.apiKey}', { values: { credentials: { apiKey } } });

  test('holds the value as it is', () => {
    assert.equal(header('s3cr3t=/+'), 'Bearer s3cr3t=/+');
  });

  for (const value of ['a\r\nX-Evil: 1', 'a\u0000', 'ключ', '']) {
    test(`${JSON.stringify(value)} is refused without being shown`, () => {
      assert.throws(() => header(value), {
        name: 'TemplateError',
        message: /^credentials\.apiKey: [a-z ]+$/,
      });
    });
  }
});

describe('a template of a definition', () => {
  const faults = (template: string, ownCredentialsOnly = false) =>
    addressFaults(template, { fields, ownCredentialsOnly });

  const sound = [
    'https://example.com',
    'https://example.com/token?x=1',
    'http://localhost:3004/token',
    'https://${connectionConfig.subdomain}.example.com/${connectionConfig.tenant}',
    'https://api-${connectionConfig.subdomain}.example.com:8443',
    '${integrationConfig.base_url}',
    '${integrationConfig.base_url}/oauth/token',
    'https://${integrationConfig.region}.api.example.com',
  ];
  for (const template of sound) {
    test(`${template} is accepted`, () => {
      assert.deepEqual(faults(template), []);
    });
  }

  const unsound: [template: string, reason: RegExp][] = [
    ['https://${connectionConfig.tenant}.example.com', /needs a pattern/],
    ['https://${connectionConfig.careless}.example.com', /lets through more than labels/],
    ['https://${connectionConfig.subdomain}.com', /whole host/],
    ['https://${connectionConfig.subdomain}', /whole host/],
    ['https://${connectionConfig.host}/token', /whole host/],
    ['https://example.${connectionConfig.subdomain}/token', /whole host/],
    ['${connectionConfig.own}/token', /whole host/],
    ['https://${credentials.apiKey}.example.com', /must not choose a host/],
    ['https://${connectionConfig.unheard}.example.com', /not a declared field/],
    ['https://example.com/${connectionConfig.unheard}', /not a declared field/],
    ['https://example.com/${nothing}', /no placeholder/],
    ['https://example.com/${connectionConfig.tenant', /not closed/],
    ['https://example.com:${connectionConfig.subdomain}/', /port/],
    ['https://user@example.com', /user name/],
    ['https://${connectionConfig.subdomain}@example.com', /user name/],
    ['https://example.com/#x', /fragment/],
    ['http://example.com', /https/],
    ['ftp://example.com', /starts with https/],
    ['${integrationConfig.base_url}.evil.com', /only a path/],
    ['${integrationConfig.base_url}${connectionConfig.tenant}', /only a path/],
    ['${integrationConfig.region}/x', /format: uri/],
  ];
  for (const [template, reason] of unsound) {
    test(`${template} is refused`, () => {
      assert.match(faults(template).join('; '), reason);
    });
  }

  test('may let a connection choose a whole host when every credential sent is its own', () => {
    assert.deepEqual(faults('${connectionConfig.own}/v1', true), []);
    assert.deepEqual(faults('https://${connectionConfig.host}/v1', true), []);
  });

  test('is fillable only when each placeholder has a value', () => {
    assert.equal(isFillable('${credentials.apiKey}', { credentials: { apiKey: 'x' } }), true);
    assert.equal(isFillable('${credentials.apiKey}', { credentials: { apiKey: '' } }), false);
    assert.equal(isFillable('${credentials.toString}', { credentials: {} }), false);
  });
});
