// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, type TestContext, test } from 'node:test';
import { authModes } from '../auth-modes/modes.ts';
import { CatalogError, loadCatalog, openCatalog, UnknownProviderError } from './catalog.ts';
import { readFields } from './fields.ts';
import { monogram, toWire } from './routes.ts';
import { NoSandboxError, withSandbox } from './sandbox.ts';
import { missingScopes } from './scopes.ts';
import { parsedText, readSources } from './source.ts';

const providers = join(import.meta.dirname, '../../providers');
const shipped = loadCatalog(providers, authModes);

function folder(t: TestContext, files: Record<string, string>): string {
  const directory = mkdtempSync(join(tmpdir(), 'catalog-'));
  t.after(() => rmSync(directory, { recursive: true }));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(directory, name), text);
  return directory;
}
function faultsOf(directory: string): string[] {
  try {
    loadCatalog(directory, authModes).list();
  } catch (error) {
    assert.ok(error instanceof CatalogError);
    return error.faults.map(({ file, line, message }) => `${file}:${line}: ${message}`);
  }
  assert.fail('the catalogue was accepted');
}
const soundYaml = `display_name: Example
categories: [other]
docs: https://example.com
logo: example.svg
auth_mode: NONE
api:
  base_url: https://api.example.com
`;

describe('a collection', () => {
  const entry = (base: string) =>
    soundYaml
      .replace('https://api.example.com', base)
      .split('\n')
      .map((line) => `    ${line}`)
      .join('\n');
  const collection = (...names: string[]) =>
    `definitions:\n${names.map((name) => `  ${name}:\n${entry(`https://${name}.example.com`)}`).join('\n')}`;

  test('holds definitions under their names, and is none itself', (t) => {
    const directory = folder(t, {
      'many.yaml': collection('one', 'two'),
      'three.yaml': 'extends: one\ndisplay_name: Three\n',
    });
    const catalog = loadCatalog(directory, authModes);
    assert.deepEqual(
      catalog.list().map(({ name, api }) => [name, api.base_url]),
      [
        ['one', 'https://one.example.com'],
        ['three', 'https://one.example.com'],
        ['two', 'https://two.example.com'],
      ],
    );
  });

  test('has its faults at their lines, and takes no name twice', (t) => {
    const directory = folder(t, {
      'many.yaml': collection('one', 'two').replace('https://two.', 'http://two.'),
      'one.yaml': soundYaml,
    });
    const [twice, base] = faultsOf(directory);
    assert.match(base ?? '', /^many\.yaml:18: api\.base_url: the address must be https/);
    assert.equal(twice, 'one.yaml:1: "one" is also defined in many.yaml');
  });

  test('is read from parsed.jsonl, and each definition when it is first used', (t) => {
    const directory = folder(t, { 'many.yaml': collection('one', 'two') });
    const parsed = parsedText(directory);
    writeFileSync(join(directory, 'parsed.jsonl'), parsed);
    assert.equal(loadCatalog(directory, authModes).list().length, 2);
    writeFileSync(join(directory, 'parsed.jsonl'), parsed.replace('https://two.', 'http://two.'));
    const catalog = loadCatalog(directory, authModes);
    assert.equal(catalog.get('one').api.base_url, 'https://one.example.com');
    assert.throws(() => catalog.get('two'), /many\.yaml:\d+: api\.base_url: the address must be https/);
  });
});

describe('the shipped definitions', () => {
  test('are sixty and more, with the family of Google, and abstract bases are no providers', () => {
    const names = shipped.list().map(({ name }) => name);
    const isGoogle = (name: string) => name.startsWith('google-') || name === 'youtube';
    const oauth = shipped.list().filter(({ auth_mode }) => auth_mode === 'OAUTH2');
    assert.ok(oauth.filter(({ name }) => !isGoogle(name)).length >= 60);
    assert.ok(names.filter(isGoogle).length >= 15);
    for (const name of [
      'google-sheet',
      'google-drive',
      'private-api-key',
      'unauthenticated',
      'github',
      'slack',
    ])
      assert.ok(names.includes(name), name);
    for (const base of ['google', 'atlassian', 'microsoft', 'zoho']) {
      assert.equal(shipped.find(base), undefined);
      assert.throws(() => shipped.get(base), UnknownProviderError);
    }
  });

  test('say how far their facts reach, where they were found and when', () => {
    for (const { name, level, source } of shipped.list()) {
      assert.ok(source ? Date.parse(source.on) > Date.parse('2026-11-01') : level === 'community', name);
      assert.notEqual(level, 'verified', `${name}: no report of a real account is known`);
    }
  });

  test('have a logo of the service, without scripts and references to elsewhere, or a monogram', () => {
    const logos = readdirSync(join(providers, 'logos'));
    const used = new Set(shipped.list().map(({ logo }) => logo));
    for (const logo of logos) {
      assert.ok(used.has(logo), logo);
      const text = readFileSync(join(providers, 'logos', logo), 'utf8');
      assert.match(text, /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"/, logo);
      assert.doesNotMatch(text, /<(script|style|image|foreignObject)|\son\w+=|href="[^#]/, logo);
      assert.ok(text.length < 10_000, logo);
    }
    for (const { name, logo, display_name } of shipped.list()) {
      if (logos.includes(logo)) continue;
      assert.equal(logo, `${name}.svg`);
      const sign = monogram({ name, title: display_name });
      assert.match(
        sign,
        /^<svg xmlns="http:\/\/www\.w3\.org\/2000\/svg"[^<]*<title>[^<]+<\/title>.*>[\p{L}\p{N}]{1,2}<\/text><\/svg>\n$/u,
      );
    }
    const lettersOf = (title: string) => />([^<]*)<\/text>/.exec(monogram({ name: 'x', title }))?.[1];
    assert.deepEqual(['Ably', 'Ably Control', '17TRACK', 'x'].map(lettersOf), ['Ab', 'AC', '17', 'x']);
    assert.doesNotMatch(monogram({ name: 'x', title: '<b> "&' }), /<b>|"&/);
  });

  test('are found by a part of either name in any case', () => {
    const found = (search: string) => shipped.list(search).map(({ name }) => name);
    assert.deepEqual(found('GOOGLE-SHEET'), ['google-sheet']);
    assert.deepEqual(found('sHeEt'), ['google-sheet', 'smartsheet']);
    assert.deepEqual(
      shipped.listWith('api.root_aliases').map(({ name }) => name),
      shipped
        .list()
        .filter(({ api }) => api.root_aliases.length > 0)
        .map(({ name }) => name),
    );
    assert.deepEqual(found('API (api'), ['private-api-key']);
    assert.deepEqual(found('nobody'), []);
  });

  test('are written down in parsed.jsonl as they are', () => {
    const hint = 'run node scripts/providers.ts';
    assert.equal(readFileSync(join(providers, 'parsed.jsonl'), 'utf8'), parsedText(providers), hint);
  });

  test('hold the facts of Google', () => {
    const { authorization, token, revocation, issuer, scopes, api } = shipped.get('google-sheet');
    assert.equal(authorization?.url, 'https://accounts.google.com/o/oauth2/v2/auth');
    assert.deepEqual(authorization.params, {
      access_type: 'offline',
      prompt: 'consent',
      include_granted_scopes: 'true',
    });
    assert.deepEqual(Object.keys(authorization.browser_params), ['login_hint', 'prompt', 'hd']);
    assert.equal(token?.url, 'https://oauth2.googleapis.com/token');
    assert.deepEqual(
      [revocation?.url, revocation?.unit, revocation?.client_auth],
      ['https://oauth2.googleapis.com/revoke', 'project', 'none'],
    );
    assert.deepEqual([issuer?.url, issuer?.iss_in_callback], ['https://accounts.google.com', 'required']);
    assert.deepEqual(scopes.default, ['openid', 'email', 'https://www.googleapis.com/auth/spreadsheets']);
    assert.equal(scopes.catalogue['https://www.googleapis.com/auth/spreadsheets']?.sensitivity, 'sensitive');
    assert.deepEqual(api.forbid, {
      headers: ['x-goog-user-project', 'x-goog-api-key'],
      query: ['key', 'access_token', 'oauth_token', '$httpHeaders', '$httpMethod'],
    });
    assert.deepEqual(api.root_aliases, ['/v4/spreadsheets']);
  });

  test('define pagination, beside that of their base', () => {
    const wayOf = (name: string) => shipped.get(name).api.paginate;
    assert.deepEqual(wayOf('google-calendar'), {
      ...wayOf('google-drive'),
      response_path: 'items',
      limit_name_in_request: 'maxResults',
    });
    const ways = [
      'asana',
      'calendly',
      'hubspot',
      'notion',
      'okta',
      'zendesk',
      'zoho-books',
      'zoho-crm',
      'zoom',
    ].map((name) => wayOf(name)?.type);
    assert.deepEqual(ways, [
      'cursor',
      'link',
      'cursor',
      'cursor',
      'link',
      'link',
      'offset',
      'offset',
      'cursor',
    ]);
  });

  test('are shown under the keys that official clients read', () => {
    const wire = toWire(shipped.get('google-sheet'), {
      logosUrl: 'https://t.example/logos',
      redirectUri: 'https://t.example/oauth/callback',
      modes: authModes,
    });
    assert.equal(wire.logo_url, 'https://t.example/logos/google-sheet.svg');
    assert.equal(wire.auth_mode, 'OAUTH2');
    assert.equal(wire.level, 'documented');
    assert.equal(wire.source?.on, '2026-11-21');
    assert.equal(wire.verified?.on, '2026-11-21');
    const imported = shipped.list().find(({ level }) => level === 'community')!;
    const { verified, source } = toWire(imported, { logosUrl: '', redirectUri: '', modes: authModes });
    assert.deepEqual([verified, source], [null, imported.source]);
    assert.equal(wire.authorization_url, 'https://accounts.google.com/o/oauth2/v2/auth');
    assert.deepEqual(wire.proxy, {
      base_url: 'https://sheets.googleapis.com',
      paginate: {
        type: 'cursor',
        cursor_path_in_response: 'nextPageToken',
        cursor_name_in_request: 'pageToken',
      },
    });
    assert.ok(wire.available_scopes?.includes('openid'));
    assert.equal(
      JSON.parse(
        JSON.stringify(
          toWire(shipped.get('private-api-key'), { logosUrl: '', redirectUri: '', modes: authModes }),
        ),
      ).credentials.apiKey.secret,
      true,
    );
  });
});

describe('a definition that extends another', () => {
  test('merges mappings, replaces lists and removes null values', (t) => {
    const directory = folder(t, {
      'base.yaml': `${soundYaml}  headers: { X-One: "1", X-Two: "2" }\n  pass_headers: [X-A, X-B]\nabstract: true\n`,
      'middle.yaml': 'extends: base\nabstract: true\ndisplay_name: Middle\n',
      'leaf.yaml': 'extends: middle\napi:\n  headers: { X-Two: null, X-Three: "3" }\n  pass_headers: [X-C]\n',
    });
    const leaf = loadCatalog(directory, authModes).get('leaf');
    assert.equal(leaf.display_name, 'Middle');
    assert.deepEqual(leaf.api.headers, { 'X-One': '1', 'X-Three': '3' });
    assert.deepEqual(leaf.api.pass_headers, ['X-C']);
  });

  test('is refused when the chain has no end', (t) => {
    const faults = faultsOf(
      folder(t, {
        'a.yaml': 'extends: b\n',
        'b.yaml': 'abstract: true\n\nextends: a\n',
        'c.yaml': 'extends: gone\n',
      }),
    );
    assert.deepEqual(faults, [
      'a.yaml:1: extends itself by way of "a"',
      'b.yaml:3: extends itself by way of "b"',
      'c.yaml:1: extends "gone", which is no readable file here',
    ]);
  });

  test('has the faults of its base reported at their place in the base', (t) => {
    const faults = faultsOf(
      folder(t, {
        'base.yaml': `abstract: true\n${soundYaml}`.replace('NONE', 'MAGIC'),
        'leaf.yaml': 'extends: base\n',
      }),
    );
    assert.equal(faults.length, 1);
    assert.match(faults[0] as string, /^base\.yaml:6: auth_mode: /);
  });
});

describe('the entries of parsed.jsonl', () => {
  const parsed = (files: Record<string, string>) =>
    Object.entries(files)
      .map(
        ([file, text]) =>
          `${JSON.stringify([file, hash('sha256', text), { docs: 'https://parsed.example' }])}\n`,
      )
      .join('');
  const other = soundYaml.replace('Example', 'Other');

  test('counts for the text it was made from, and for no other', (t) => {
    const directory = folder(t, {
      'base.yaml': soundYaml,
      'one.yaml': 'extends: base\n',
      'parsed.jsonl': parsed({ 'base.yaml': other, 'one.yaml': 'extends: base\n' }),
    });
    assert.deepEqual(faultsOf(directory)[0]?.slice(0, 9), 'one.yaml:');
    writeFileSync(join(directory, 'one.yaml'), 'extends: base\n# now another text\n');
    assert.equal(loadCatalog(directory, authModes).get('one').docs, 'https://example.com');
  });

  test('is left alone where it cannot be read', (t) => {
    for (const text of ['', '{', '[]\n', '[1,2]\nnull\n', '\u0000'])
      assert.equal(
        loadCatalog(folder(t, { 'one.yaml': soundYaml, 'parsed.jsonl': text }), authModes).list().length,
        1,
      );
  });

  test('takes no line from a fault', (t) => {
    const text = soundYaml.replace('NONE', 'MAGIC');
    const directory = folder(t, { 'one.yaml': text });
    const read = faultsOf(directory);
    writeFileSync(join(directory, 'parsed.jsonl'), parsedText(directory));
    assert.match(read[0]!, /^one\.yaml:5: auth_mode: /);
    assert.deepEqual(faultsOf(directory), read);
  });
});

describe('a faulty catalogue', () => {
  test('is reported with file and line, all faults at once', (t) => {
    const faults = faultsOf(
      folder(t, {
        'one.yaml': soundYaml
          .replace('categories: [other]', 'categories: other')
          .replace('https://api', 'http://api'),
        'two.yaml': `${soundYaml}colour: red\n`,
        'six.yaml': soundYaml.replace('https://api', 'http://api'),
        'three.yaml': 'display_name: [unclosed\n',
        'four.yaml': `${soundYaml}display_name: Again\n`,
        'Five.yaml': soundYaml,
      }),
    );
    const found = (start: string) => faults.some((fault) => fault.startsWith(start));
    for (const start of [
      'one.yaml:2: categories:',
      'six.yaml:7: api.base_url: the address must be https',
      'two.yaml:',
      'four.yaml:8:',
      'Five.yaml:1:',
    ]) {
      assert.ok(found(start), `${start} in ${faults.join('\n')}`);
    }
    assert.ok(faults.some((fault) => /^three\.yaml:\d/.test(fault)));
  });

  test('is one that verifies credentials at an API without an address', (t) => {
    const sound = soundYaml.replace('https://api.example.com', 'none');
    assert.deepEqual(
      faultsOf(
        folder(t, {
          'a.yaml': sound,
          'b.yaml': `${sound}verification: { path: /me }\n`,
          'c.yaml': `${sound}verification: { path: /me, base_url: https://id.example.com }\n`,
        }),
      ),
      ['b.yaml:8: verification.base_url: is required if the API has none'],
    );
  });

  test('is one whose placeholder is undeclared or has no pattern in a host', (t) => {
    const faults = faultsOf(
      folder(t, {
        'a.yaml': soundYaml.replace(
          'https://api.example.com',
          '"https://${connectionConfig.sub}.example.com"',
        ),
        'b.yaml': `${soundYaml.replace('https://api.example.com', '"https://${connectionConfig.sub}.example.com"')}connection_config:\n  sub: { title: S, description: D }\n`,
        'c.yaml': `${soundYaml}  headers:\n    X-Tenant: "\${connectionConfig.tenant}"\n`,
      }),
    );
    assert.deepEqual(faults, [
      'a.yaml:7: api.base_url: connectionConfig.sub is not a declared field',
      'b.yaml:7: api.base_url: connectionConfig.sub is part of a host and needs a pattern',
      'c.yaml:9: api.headers.X-Tenant: connectionConfig.tenant is not a declared field',
    ]);
  });

  test('is one that lets a browser or a parameter list set what belongs to the protocol', (t) => {
    const oauth = (extra: string) =>
      `${soundYaml.replace('NONE', 'OAUTH2')}token: { url: "https://example.com/token" }\nauthorization:\n  url: https://example.com/auth\n${extra}`;
    for (const name of ['client_id', 'redirect_uri', 'state', 'response_type', 'code_challenge', 'scope']) {
      for (const extra of [
        `  browser_params: { ${name}: { pattern: "x" } }\n`,
        `  params: { ${name}: x }\n`,
      ]) {
        assert.match(faultsOf(folder(t, { 'a.yaml': oauth(extra) })).join(), /belongs to the protocol/);
      }
    }
  });
});

describe('the sandbox of a definition', () => {
  test('takes every address with it', () => {
    for (const name of ['google-sheet', 'google-drive']) {
      const moved = withSandbox(shipped.get(name), 'http://localhost:3004/');
      assert.equal(moved.issuer?.url, 'http://localhost:3004');
      assert.equal(moved.authorization?.url, 'http://localhost:3004/o/oauth2/v2/auth');
      assert.equal(moved.token?.url, 'http://localhost:3004/token');
      assert.equal(moved.revocation?.url, 'http://localhost:3004/revoke');
      assert.equal(moved.userinfo?.url, 'http://localhost:3004/v1/userinfo');
      assert.equal(moved.issuer?.jwks_url, 'http://localhost:3004/oauth2/v3/certs');
      assert.equal(moved.api.base_url, 'http://localhost:3004');
      assert.equal(moved.channels?.base_url, 'http://localhost:3004');
      const { docs: _docs, source: _source, scopes: _scopes, channels: _channels, ...reachable } = moved;
      const { other_base_urls: others, ...api } = reachable.api;
      // What a caller names stays as it is; where it leads does not.
      assert.doesNotMatch(JSON.stringify([{ ...reachable, api }, Object.values(others)]), /https:\/\//);
    }
    const drive = 'https://www.googleapis.com';
    assert.deepEqual(shipped.get('google-sheet').api.other_base_urls, { [drive]: drive });
    const moved = withSandbox(shipped.get('google-sheet'), 'http://localhost:3004');
    assert.deepEqual(moved.api.other_base_urls, { [drive]: 'http://localhost:3004' });
  });

  test('is refused where there is none', () => {
    assert.throws(() => withSandbox(shipped.get('private-api-key'), 'http://localhost:3004'), NoSandboxError);
  });
});

describe('granted scopes', () => {
  const definition = shipped.get('google-sheet');
  const wanted = ['openid', 'email', 'https://www.googleapis.com/auth/spreadsheets'];

  test('count under each of their aliases, in any order, among others', () => {
    const granted = [...wanted.slice(2), 'x', 'https://www.googleapis.com/auth/userinfo.email', 'openid'];
    assert.deepEqual(missingScopes(definition, { wanted, granted }), []);
  });

  test('need not be named where the provider never names them', () => {
    const wanted = ['openid', 'offline_access', 'Mail.Read'];
    const granted = ['openid', 'https://graph.microsoft.com/Mail.Read'];
    assert.deepEqual(missingScopes(shipped.get('outlook'), { wanted, granted }), []);
    assert.deepEqual(missingScopes(shipped.get('jira'), { wanted, granted }), [
      'offline_access',
      'Mail.Read',
    ]);
  });

  test('that were unticked are named', () => {
    assert.deepEqual(missingScopes(definition, { wanted, granted: ['openid', 'email'] }), wanted.slice(2));
  });
});

describe('the fields of a form', () => {
  const form = shipped.get('private-api-key').integration_config;

  test('are read when they fit, empty optional ones left out', () => {
    assert.deepEqual(readFields(form, { base_url: 'https://a.example', header_name: '' }), {
      ok: true,
      values: { base_url: 'https://a.example' },
    });
  });

  test('are refused by name, without their value', () => {
    const read = readFields(form, {
      base_url: 7,
      header_name: 'X Bad: secret',
      verification_path: '/a?b',
      more: 'x',
    });
    assert.ok(!read.ok);
    assert.deepEqual(read.issues.map(({ field }) => field).sort(), [
      'base_url',
      'header_name',
      'more',
      'verification_path',
    ]);
    assert.doesNotMatch(JSON.stringify(read.issues), /secret/);
    assert.ok(!readFields(form, {}).ok);
    assert.ok(!readFields(form, { base_url: `https://${'a'.repeat(9000)}` }).ok);
  });
});

describe("the operator's definitions", () => {
  const faultsOfOwn = (directory: string): string[] => {
    try {
      openCatalog(directory, authModes);
    } catch (error) {
      assert.ok(error instanceof CatalogError);
      return error.faults.map(({ file, line, message }) => `${file}:${line}: ${message}`);
    }
    assert.fail('the catalogue was accepted');
  };

  test('are added to those that ship, and may extend them', (t) => {
    const own = folder(t, {
      'own-crm.yaml': soundYaml,
      'own-base.yaml': `${soundYaml}abstract: true\n`,
      'own-leaf.yaml': 'extends: own-base\ndisplay_name: Leaf\n',
      'own-hub.yaml': 'extends: github\ndisplay_name: Our GitHub\n',
      'notes.txt': 'no definition',
    });
    const catalog = openCatalog(own, authModes);
    assert.equal(catalog.list().length, shipped.list().length + 3);
    assert.deepEqual(catalog.own(), { count: 3, replaced: [], updated: 0 });
    assert.equal(catalog.get('own-leaf').display_name, 'Leaf');
    assert.equal(catalog.get('own-hub').token?.url, shipped.get('github').token?.url);
  });

  test('replace one that ships by the same name, extend it by that name, and change no other', (t) => {
    const own = folder(t, {
      'github.yaml': 'extends: github\napi:\n  base_url: https://github.example.com/api/v3\n',
      'google.yaml': `${soundYaml}abstract: true\n`,
    });
    const catalog = openCatalog(own, authModes);
    assert.deepEqual(catalog.own(), { count: 1, replaced: ['github'], updated: 0 });
    assert.equal(catalog.get('github').api.base_url, 'https://github.example.com/api/v3');
    assert.equal(catalog.get('github').token?.url, shipped.get('github').token?.url);
    assert.deepEqual(catalog.get('google-sheet'), shipped.get('google-sheet'));
  });

  test('keep the auth mode of one that they replace, and take no path of the service', (t) => {
    const own = folder(t, {
      'github.yaml': soundYaml,
      'own-one.yaml': `${soundYaml}  root_aliases: [/connections]\n`,
      'own-two.yaml': `${soundYaml}  root_aliases: [/v4/spreadsheets]\n`,
    });
    assert.deepEqual(faultsOfOwn(own), [
      `${join(own, 'github.yaml')}:5: auth_mode: must be OAUTH2, as in the definition that ships by this name`,
      `${join(own, 'own-one.yaml')}:8: api.root_aliases: may only hold paths of definitions that ship`,
    ]);
  });

  test('have their faults with folder, file and line, and no file is passed over', (t) => {
    const own = folder(t, {
      'own-one.yml': soundYaml,
      'own-two.yaml': 'extends: own-two\n',
      'own-three.yaml': 'display_name: [\n',
      'Own.yaml': soundYaml,
    });
    const faults = faultsOfOwn(own).map((fault) => fault.slice(own.length + 1));
    assert.match(faults.find((fault) => fault.startsWith('own-three.yaml:')) ?? '', /^own-three\.yaml:\d: /);
    assert.deepEqual(
      faults.filter((fault) => !fault.startsWith('own-three.yaml:')),
      [
        'Own.yaml:1: the name must be lower-case with hyphens',
        'own-one.yml:1: the name of the file must end with .yaml',
        'own-two.yaml:1: extends "own-two", which is no readable file here',
      ],
    );
  });

  test('have names that begin with own- for themselves', () => {
    assert.deepEqual(
      readSources(providers).sources.filter(({ name }) => name.startsWith('own-')),
      [],
    );
  });

  test('are read again as a whole or not at all', async (t) => {
    const own = folder(t, { 'own-one.yaml': soundYaml });
    const catalog = openCatalog(own, authModes);
    const accept = async () => {};
    writeFileSync(join(own, 'own-two.yaml'), soundYaml);
    await assert.rejects(
      catalog.reload(() => Promise.reject(new Error('not these'))),
      /not these/,
    );
    assert.equal(catalog.find('own-two'), undefined);
    writeFileSync(join(own, 'own-three.yaml'), 'display_name: Three\n');
    await assert.rejects(catalog.reload(accept), CatalogError);
    assert.equal(catalog.find('own-two'), undefined);
    rmSync(join(own, 'own-three.yaml'));
    await catalog.reload(accept);
    assert.equal(catalog.get('own-two').display_name, 'Example');
    assert.equal(catalog.own().count, 2);
  });
});
