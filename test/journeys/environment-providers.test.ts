// biome-ignore-all lint/suspicious/noTemplateCurlyInString: templates are what is tested
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

/** Definitions that an environment makes at run time: their checks, their life, and connections by them. */
let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
before(async () => {
  trellis = await openTrellis({ TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8,::1/128' });
  another = await trellis.serveAnother();
});
after(async () => {
  await another.close();
  await trellis.close();
});

const head = 'display_name: Acme\ncategories: [crm]\ndocs: https://acme.example/docs\n';
const keyed = (title = 'Acme') => `${head.replace('Acme', title)}auth_mode: API_KEY
placement: [{ in: header, name: X-Key, value: "\${credentials.apiKey}" }]
api: { base_url: ${trellis.sandbox.url} }
`;
/** Generic OAuth 2.0, client credentials, two-step and basic, all at the sandbox. */
const generic = (): Record<string, string> => ({
  'own-oauth': `${head}auth_mode: OAUTH2
authorization: { url: ${trellis.sandbox.url}/o/oauth2/v2/auth, params: { access_type: offline } }
token: { url: ${trellis.sandbox.url}/token }
scopes: { default: [email], catalogue: { email: { sensitivity: non_sensitive, description: Your address. } } }
api: { base_url: ${trellis.sandbox.url} }
sandbox: { authorization: /o/oauth2/v2/auth, token: /token }
`,
  'own-machine': `${head}auth_mode: OAUTH2_CC
token: { url: ${trellis.sandbox.url}/token, params: { scope: https://www.googleapis.com/auth/drive.file } }
api: { base_url: ${trellis.sandbox.url} }
`,
  'own-login': `${head}auth_mode: TWO_STEP
credentials:
  username: { title: User, description: Your user name. }
  password: { title: Password, description: Your password., secret: true }
login:
  url: ${trellis.sandbox.url}/login
  form: { username: "\${credentials.username}", password: "\${credentials.password}" }
  answer: { token: session.token, expires_in: ttl_ms, expires_in_unit: ms, error: errors.0.reason }
api: { base_url: ${trellis.sandbox.url} }
`,
  'own-basic': `${head}auth_mode: BASIC\napi: { base_url: ${trellis.sandbox.url} }\n`,
});

type Answer = Awaited<ReturnType<TestTrellis['call']>>;
const create = (name: string, definition: string, key?: string) =>
  trellis.call('POST', '/providers', { body: { name, definition }, ...(key && { key }) });
const replace = (name: string, definition: string, key?: string) =>
  trellis.call('PUT', `/providers/${name}`, { body: { definition }, ...(key && { key }) });
const remove = (name: string) => trellis.call('DELETE', `/providers/${name}`);
const codeOf = ({ body }: Answer) => (body.error as { code: string }).code;
const messagesOf = ({ body }: Answer) =>
  (body.error as { errors: { message: string }[] }).errors.map(({ message }) => message);
async function made(answer: Promise<Answer>): Promise<Record<string, unknown>> {
  const { status, text, body } = await answer;
  assert.ok(status === 200 || status === 201, text);
  return (body.data ?? body) as Record<string, unknown>;
}
const integrate = (provider: string, unique_key: string, more: object = {}) =>
  trellis.call('POST', '/integrations', { body: { provider, unique_key, ...more } });

test('an account connects by a key, and the API gets it as the new definition says', async () => {
  const data = await made(create('own-acme', keyed()));
  assert.partialDeepStrictEqual(data, { name: 'own-acme', origin: 'environment', definition: keyed() });
  await made(integrate('own-acme', 'acme'));
  const credentials = { type: 'API_KEY', apiKey: 'k-1' };
  await made(
    trellis.call('POST', '/connections', {
      body: { provider_config_key: 'acme', connection_id: 'ada', credentials },
    }),
  );
  for (const from of [trellis, another]) {
    const { connections } = (await from.call('GET', '/connections')).body as {
      connections: { provider: string }[];
    };
    assert.deepEqual([connections[0]?.provider], ['own-acme']);
    const answer = await from.call('GET', '/proxy/drive/v3/files', {
      headers: { 'provider-config-key': 'acme', 'connection-id': 'ada' },
    });
    assert.equal(answer.status, 401, 'the sandbox knows no X-Key');
    assert.equal(answer.headers.get('x-trellis-error'), null, answer.text);
  }
  const logo = await trellis.call('GET', '/providers/logos/own-acme.svg', { key: undefined });
  assert.match(logo.text, /<title>acme<\/title>/);
});

test('OAuth 2.0, client credentials, a sign-in, and a password work as in shipped definitions', async () => {
  for (const [name, text] of Object.entries(generic())) await made(create(name, text));
  const client = (await trellis.control('POST', 'clients', {
    redirect_uris: ['https://app.example/callback'],
  })) as { client_id: string; client_secret: string };
  trellis.watch.made('client_secret', client.client_secret);
  const { client_id, client_secret } = client;
  const [username, password] = [client_id, client_secret];
  await made(integrate('own-oauth', 'oauth', { credentials: { type: 'TEST' } }));
  for (const key of ['machine', 'login', 'basic']) await made(integrate(`own-${key}`, key));
  const open = async (key: string) => {
    const session = await made(
      trellis.call('POST', '/connect/sessions', {
        body: { end_user: { id: 'ada' }, allowed_integrations: [key] },
      }),
    );
    return String(session.token);
  };
  const forms = {
    machine: ['oauth2', { client_id, client_secret }],
    login: ['two-step', { username, password }],
  } as const;
  for (const [key, [mode, body]] of Object.entries(forms)) {
    const path = mode === 'oauth2' ? '/oauth2/auth' : `/auth/${mode}`;
    const connected = await trellis.call('POST', `${path}/${key}?connect_session_token=${await open(key)}`, {
      key: undefined,
      body,
    });
    assert.equal(connected.status, 200, connected.text);
    const answer = await trellis.call('GET', '/proxy/drive/v3/files', {
      headers: { 'provider-config-key': key, 'connection-id': String(connected.body.connectionId) },
    });
    assert.equal(answer.status, 200, `${key}: ${answer.text}`);
  }
  const begun = await fetch(
    `${trellis.baseUrl}/oauth/connect/oauth?connect_session_token=${await open('oauth')}`,
    { redirect: 'manual' },
  );
  const { redirect } = (await trellis.control('POST', 'authorize', {
    url: begun.headers.get('location'),
    account: 'ada@example.com',
  })) as { redirect: string };
  const cookie = begun.headers.getSetCookie().map((line) => line.split(';', 1)[0]);
  const landed = await fetch(redirect, { headers: { cookie: cookie.join('; ') }, redirect: 'manual' });
  assert.equal(landed.status, 200, await landed.text());
  const of = (await trellis.call('GET', '/connections?integrationId=oauth')).body as {
    connections: { connection_id: string; token: unknown }[];
  };
  const [{ connection_id: id } = { connection_id: '' }] = of.connections;
  const renewed = await trellis.call('POST', `/connections/${id}/refresh?provider_config_key=oauth`);
  assert.equal(renewed.status, 200, renewed.text);
  const removed = await trellis.call('DELETE', `/connections/${id}?provider_config_key=oauth`);
  assert.equal(removed.status, 200, removed.text);
});

test('a wrong definition is refused with its lines, and nothing is stored', async () => {
  const fault = async (definition: string) => {
    const answer = await create('own-wrong', definition);
    assert.deepEqual([answer.status, codeOf(answer)], [400, 'invalid_body'], answer.text);
    return messagesOf(answer).join('\n');
  };
  const text = keyed();
  assert.match(await fault(text.replace('API_KEY', 'API_KEYS')), /^Line 4: auth_mode: /);
  assert.match(await fault(`${text}unknown: 1\n`), /^Line 7: unknown: is no key that is known here$/);
  assert.match(await fault(text.replace(/base_url: \S+/, 'base_url: http://acme.example')), /https/);
  assert.match(await fault(text.replace('credentials.apiKey', 'credentials.other')), /^Line 5: placement/);
  assert.match(await fault(`${head}  bad: [`), /^Line \d/);
  assert.match(await fault('- a list'), /mapping/);
  assert.match(await fault('extends: no-such-provider'), /^Line 1: extends "no-such-provider"/);
  assert.match(await fault('definitions: { own-a: {} }'), /one definition/);
  assert.match(await fault('extends: google-sheet'), /channels: is only allowed in a file/);
  assert.match(await fault('extends: google-sheet'), /revocation\.unit: must be token/);
  assert.match(await fault(`${text}  root_aliases: [/oauth]`), /root_aliases|Line/);
  const deep = `${'['.repeat(20_000)}${']'.repeat(20_000)}`;
  assert.match(await fault(deep), /nested too deeply|mapping/);
  const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${[...'bcdefghi'].map((one, at) => `${one}: &${one} [${Array(9).fill(`*${'abcdefgh'[at]}`).join()}]`).join('\n')}`;
  assert.match(await fault(bomb), /aliases/);
  const field = (name: string, description: string) =>
    `  ${name}: { title: X, description: ${description} }\n`;
  const many = Array.from({ length: 20 }, (_, at) => field(`x${at}`, '*long')).join('');
  const large = `${text}connection_config:\n${field('x', `&long ${'z'.repeat(20_000)}`)}${many}`;
  assert.match(await fault(large), /too large/);
  for (const slow of [
    '(a+)+',
    '(a|a)*',
    'a*a*a*',
    '(?=a)a',
    '(a)\\1',
    'a?'.repeat(25),
    '(',
    '(a{2}){30}',
    `(a+){${'0'.repeat(20)}1,}b`,
  ]) {
    const field = `connection_config: { x: { title: X, description: X., pattern: '${slow}' } }\n`;
    assert.match(await fault(text + field), /x\.pattern: /, slow);
  }
  for (const fast of [
    '[a-z0-9][a-z0-9-]*',
    '(?:eu|us|ap)',
    '[\\w.+-]+@[\\w.-]+',
    '[A-Z]{2,4}\\d{6}',
    '\\p{L}+\\u{20}\\d',
  ]) {
    const field = `connection_config: { x: { title: X, description: X., pattern: '${fast}' } }\n`;
    await made(create('own-fast', text + field));
    await made(remove('own-fast'));
  }
  const found = await trellis.call('GET', '/providers/own-wrong');
  assert.equal(found.status, 404);
});

test('a name is in use once in an environment, is never that of a shipped provider, and others do not see it', async () => {
  for (const name of ['google-sheet', 'acme', 'own-', 'own-A', `own-${'a'.repeat(97)}`, 'own-a/b']) {
    const answer = await create(name, keyed());
    assert.deepEqual([answer.status, codeOf(answer)], [400, 'invalid_body'], name);
  }
  const twenty = await Promise.all(Array.from({ length: 20 }, () => create('own-once', keyed())));
  assert.deepEqual(twenty.map(({ status }) => status).toSorted(), [200, ...Array(19).fill(409)]);
  assert.ok(twenty.filter(({ status }) => status === 409).every((one) => codeOf(one) === 'provider_exists'));
  const { prod } = trellis.keys;
  assert.equal((await trellis.call('GET', '/providers/own-once', { key: prod })).status, 404);
  assert.equal((await create('own-once', keyed('Of prod'), prod)).status, 200);
  const listed = async (key?: string) => {
    const { body } = await trellis.call('GET', '/providers?search=own-once', key ? { key } : {});
    return (body.data as { display_name: string }[]).map(({ display_name }) => display_name);
  };
  assert.deepEqual([await listed(), await listed(prod)], [['Acme'], ['Of prod']]);
});

test('a replaced definition is in use within a second, on all nodes', async () => {
  await made(create('own-moved', keyed()));
  await made(integrate('own-moved', 'moved'));
  await made(
    trellis.call('POST', '/connections', {
      body: {
        provider_config_key: 'moved',
        connection_id: 'ada',
        credentials: { type: 'API_KEY', apiKey: 'k-1' },
      },
    }),
  );
  const narrow = await trellis.keyWith('integrations:write', 'integrations:read');
  assert.equal((await replace('own-moved', keyed('Renamed'), narrow)).status, 200);
  const moved = keyed().replace('X-Key', 'X-Other');
  const refused = await replace('own-moved', moved, narrow);
  assert.deepEqual([refused.status, codeOf(refused)], [403, 'forbidden'], refused.text);
  assert.equal((await replace('own-moved', moved)).status, 200);
  const mode = await replace(
    'own-moved',
    keyed()
      .replace('API_KEY', 'NONE')
      .replace(/placement.*\n/, ''),
  );
  assert.deepEqual([mode.status, codeOf(mode)], [409, 'provider_in_use'], mode.text);
  const read = await made(another.call('GET', '/providers/own-moved'));
  assert.equal(read.definition, moved);
  assert.equal((await replace('own-none', keyed())).status, 404);
  assert.equal((await replace('google-sheet', keyed())).status, 404);
});

test('a replaced definition that needs more than a connection has is an error that names it', async () => {
  await made(create('own-more', keyed()));
  await made(integrate('own-more', 'more'));
  const place = { provider_config_key: 'more', connection_id: 'ada' };
  await made(
    trellis.call('POST', '/connections', {
      body: { ...place, credentials: { type: 'API_KEY', apiKey: 'k-1' } },
    }),
  );
  const field = 'connection_config: { region: { title: Region, description: X. } }\n';
  const base = 'base_url: "http://127.0.0.1/${connectionConfig.region}"';
  await made(replace('own-more', keyed().replace(/base_url: \S+/, base) + field));
  const call = () =>
    another.call('GET', '/proxy/x', { headers: { 'provider-config-key': 'more', 'connection-id': 'ada' } });
  let answer = await call();
  while (answer.headers.get('x-trellis-error') === null) answer = await call();
  assert.deepEqual([answer.status, codeOf(answer)], [424, 'integration_misconfigured'], answer.text);
  assert.match(answer.text, /connectionConfig\.region/);
  const { body } = await trellis.call('GET', '/connections/ada?provider_config_key=more');
  assert.deepEqual([body.connection_id, body.errors], ['ada', []]);
});

test('a definition that an integration uses cannot be deleted, also if both come at once', async () => {
  await made(create('own-used', keyed()));
  const outcomes = await Promise.all(
    Array.from({ length: 20 }, (_, at) =>
      at % 2 ? remove('own-used') : integrate('own-used', `used-${at}`),
    ),
  );
  const { body } = await trellis.call('GET', '/integrations');
  const users = (body.data as { provider: string }[]).filter(({ provider }) => provider === 'own-used');
  const isThere = (await trellis.call('GET', '/providers/own-used')).status === 200;
  assert.equal(isThere, users.length > 0);
  for (const one of outcomes)
    assert.ok([200, 400, 404, 409].includes(one.status), `${one.status} ${one.text}`);
  if (!isThere) return;
  const refused = await remove('own-used');
  assert.deepEqual([refused.status, codeOf(refused)], [409, 'provider_in_use']);
});

test('a change of what is read from responses needs the scopes of secrets, as one of addresses does', async () => {
  const narrow = await trellis.keyWith('integrations:write', 'integrations:read');
  const text = generic()['own-oauth']!;
  const shown = text.replace('/token }\nscopes', '/token, answer: { scope: refresh_token } }\nscopes');
  assert.notEqual(shown, text);
  const refused = await replace('own-oauth', shown, narrow);
  assert.deepEqual([refused.status, codeOf(refused)], [403, 'forbidden'], refused.text);
});

test('a new definition does not take over integrations or tokens that wait for their revocation', async () => {
  const { db } = trellis;
  await made(create('own-left', keyed()));
  await made(integrate('own-left', 'left'));
  // As of a file of the operator that is gone.
  await db.query("delete from provider_definition where name = 'own-left'");
  const taken = await create('own-left', keyed());
  assert.deepEqual([taken.status, codeOf(taken)], [409, 'provider_exists'], taken.text);

  await made(create('own-waiting', keyed()));
  await db.query(
    `insert into revocation
       (environment_id, connection, about, is_forced, secrets, next_at, created_at)
     select environment_id, 0, '{"provider": "own-waiting"}', false, '', now() + interval '1 hour', now()
     from provider_definition
     where name = 'own-waiting'`,
  );
  const refused = await remove('own-waiting');
  assert.deepEqual([refused.status, codeOf(refused)], [409, 'provider_in_use'], refused.text);
  const narrow = await trellis.keyWith('integrations:write', 'integrations:read');
  const moved = await replace('own-waiting', keyed().replace('X-Key', 'X-Other'), narrow);
  assert.deepEqual([moved.status, codeOf(moved)], [403, 'forbidden'], moved.text);
  await db.query("delete from revocation where about ->> 'provider' = 'own-waiting'");
  await made(remove('own-waiting'));
});

test('a session lists the definitions of its environment without their texts', async () => {
  const session = await made(
    trellis.call('POST', '/connect/sessions', { body: { end_user: { id: 'ada' } } }),
  );
  const { status, body } = await trellis.call('GET', '/providers/own-acme', { key: String(session.token) });
  assert.equal(status, 200);
  assert.equal((body.data as { definition?: string }).definition, undefined);
});
