import assert from 'node:assert/strict';
import { createSecretKey, randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { exportKeys } from '../../server/ops/backup/key-file.ts';
import { DataKey, openVault } from '../../server/vault.ts';
import { openTestDatabase } from './database.ts';
import { openSecretWatch } from './secret-watch.ts';
import { watchedVault } from './secret-watch-server.ts';
import { connect, openTrellis } from './trellis.ts';

const token = 'ya29.a-token-of-some-length';
const key = 'trs_dev_a-key-of-some-length';

test('a secret in a log line is found', () => {
  const watch = openSecretWatch();
  watch.made('key', key);
  watch.log.write('{"msg":"all is well"}\n');
  watch.assertClean();
  watch.log.write(`{"msg":"called with ${key}"}\n`);
  assert.throws(() => watch.assertClean(), /key in the log/);
  assert.ok(!watch.leaks().join().includes(key), 'and is not told on');
});

test('a secret in an answer is found, unless the route gives it to a key that may have it', () => {
  const watch = openSecretWatch();
  watch.made('access_token', token);
  const text = JSON.stringify({ credentials: { access_token: token } });
  const scopes = ['connections:read', 'connections:credentials'];
  const route = 'GET /connections/c1?provider_config_key=k';
  watch.answered(route, { status: 200, text, scopes });
  watch.answered(route, { status: 200, text, scopes: ['*'] });
  assert.deepEqual(watch.leaks(), []);
  watch.answered('GET /connections?limit=1', { status: 200, text, scopes });
  watch.answered(route, { status: 424, text, scopes });
  watch.answered(route, { status: 201, text, scopes: ['connections:read'] });
  watch.answered(route, { status: 203, text });
  watch.answered('GET /connections/metadata?provider_config_key=k', { status: 200, text, scopes });
  watch.answered('GET /connections/c1?x=1', { status: 200, text, scopes });
  assert.deepEqual(watch.leaks(), [
    'access_token in the answer 200 of GET /connections?limit=1',
    `access_token in the answer 424 of ${route}`,
    `access_token in the answer 201 of ${route}`,
    `access_token in the answer 203 of ${route}`,
    'access_token in the answer 200 of GET /connections/metadata?provider_config_key=k',
    'access_token in the answer 200 of GET /connections/c1?x=1',
  ]);
});

test('a secret in a header of an answer is found', () => {
  const watch = openSecretWatch();
  watch.made('key', key);
  watch.answered('GET /providers', { status: 200, text: '', headers: new Headers({ 'x-who': key }) });
  assert.deepEqual(watch.leaks(), ['key in the header x-who of the answer 200 of GET /providers']);
});

test('a secret is found as part of an address, of a form, and as Basic credentials', () => {
  const code = '4/0Aa-code-of-some-length';
  const refreshToken = '1//0a-token-of-some-length';
  const clientSecret = 'GOCSPX-a-secret-of-some-length';
  for (const [kind, secret, line] of [
    ['code', code, `GET /oauth/callback?code=${encodeURIComponent(code)}`],
    ['refresh_token', refreshToken, new URLSearchParams({ refresh_token: refreshToken }).toString()],
    ...['a', 'ab', 'abc'].map(
      (id) => ['client_secret', clientSecret, `Basic ${btoa(`${id}:${clientSecret}`)}`] as const,
    ),
  ] as const) {
    const watch = openSecretWatch();
    watch.made(kind, secret);
    watch.log.write(line);
    assert.equal(watch.leaks().length, 1, line);
    assert.match(watch.leaks().join(), new RegExp(`^${kind} in the log: .*\\*\\*\\*`));
  }
});

test('the state, the code and the cookie of a trip are known, and given to its browser alone', () => {
  const [state, code, cookie] = ['a-state-of-some-length', '4/0Aa-code-of-some-length', 'c'.repeat(43)];
  const headers = [
    ['location', `https://provider.example/auth?state=${state}`],
    ['set-cookie', `trellis_connect_0f3a=${cookie}; Path=/; HttpOnly`],
  ] as [string, string][];
  const watch = openSecretWatch();
  watch.answered('GET /oauth/connect/k?connect_session_token=a-token-of-some-length', {
    status: 302,
    text: '',
    headers,
  });
  const callback = `/oauth/callback?state=${state}&code=${encodeURIComponent(code)}`;
  watch.answered(`GET ${callback}`, { status: 200, text: 'done' });
  assert.deepEqual(watch.leaks(), []);
  watch.log.write(`visited ${callback} with ${cookie}`);
  watch.answered(`GET ${callback}`, { status: 200, text: `done: ${state}` });
  watch.answered('GET /providers', { status: 200, text: '', headers });
  assert.deepEqual(
    watch.leaks().map((leak) => leak.replace(/log: .*/, 'log')),
    [
      'state in the log',
      'code in the log',
      'cookie in the log',
      'state in the answer 200 of GET /oauth/callback?state=***&code=***',
      'state in the header location of the answer 200 of GET /providers',
      'cookie in the header set-cookie of the answer 200 of GET /providers',
    ],
  );
});

test('what no longer fits into memory is looked through, also for secrets that were made since', () => {
  const watch = openSecretWatch();
  watch.log.write(`called with ${key}`);
  watch.answered('GET /providers', { status: 200, text: `it is ${token}` });
  for (let line = 0; line < 20; line += 1) watch.log.write('x'.repeat(1024 * 1024));
  watch.made('key', key);
  watch.made('access_token', token);
  assert.deepEqual(watch.leaks(), [
    'key in the log: called with ***',
    'access_token in the answer 200 of GET /providers',
  ]);
});

test('a refresh token is returned only on request, to a key that may read it', () => {
  const watch = openSecretWatch();
  watch.made('refresh_token', token);
  const scopes = ['connections:credentials', 'connections:refresh_tokens'];
  const route = 'GET /connections/c1?provider_config_key=k';
  watch.answered(`${route}&refresh_token=true`, { status: 200, text: token, scopes });
  assert.deepEqual(watch.leaks(), []);
  watch.answered(route, { status: 200, text: token, scopes });
  watch.answered(`${route}&refresh_token=true`, {
    status: 200,
    text: token,
    scopes: ['connections:credentials'],
  });
  assert.equal(watch.leaks().length, 2);
});

test('an import gives back what was sent, and other tokens to a key alone that may read them', () => {
  const watch = openSecretWatch();
  watch.made('access_token', token);
  const [sent, text] = [{ credentials: { access_token: token } }, `{"token":"${token}"}`];
  const write = ['connections:write'];
  const import_ = (of: object) => watch.answered('POST /connections', { status: 201, text, ...of });
  import_({ sent, scopes: write });
  import_({ scopes: [...write, 'connections:credentials'] });
  assert.deepEqual(watch.leaks(), []);
  import_({ sent: { credentials: {} }, scopes: write });
  assert.deepEqual(watch.leaks(), ['access_token in the answer 201 of POST /connections']);
});

test('the keys of webhooks are given by their own two routes, and by none below them', () => {
  const watch = openSecretWatch();
  const signing = 'whsec_a-key-of-some-length';
  watch.made('signing_key', signing);
  const answer = { status: 200, text: signing, scopes: ['keys'] };
  watch.answered('GET /environment/webhook-signing-key', answer);
  watch.answered('POST /environment/webhook-signing-key/rotate', answer);
  assert.deepEqual(watch.leaks(), []);
  watch.answered('GET /environment/webhook-signing-key/history', answer);
  assert.equal(watch.leaks().length, 1);
});

test('a secret in a file is found', () => {
  const watch = openSecretWatch();
  watch.made('key', key);
  watch.readText('a file of keys', `{"key":"${key}"}`);
  assert.deepEqual(watch.leaks(), ['key in a file of keys']);
});

test('what was sent in a body, or came from the provider, is known as a secret', async () => {
  const watch = openSecretWatch();
  watch.answered('POST /connections', {
    status: 201,
    text: '{}',
    sent: { credentials: { refresh_token: token } },
  });
  const body = (async function* () {
    yield Buffer.from(JSON.stringify({ access_token: `${token}-2` }));
  })();
  const fetchFor = () => async () => ({ status: 200, headers: { get: () => null }, body });
  const init = { method: 'POST', headers: {}, body: `code=${token}-3`, redirect: 'manual' as const };
  const answer = await watch.watched(fetchFor)({ isTest: true })('http://x', {
    ...init,
    signal: new AbortController().signal,
  });
  await Array.fromAsync(answer.body ?? []);
  for (const secret of [token, `${token}-2`, `${token}-3`]) {
    watch.log.write(`${secret}.`);
  }
  assert.deepEqual(
    new Set(watch.leaks().map((leak) => leak.split(' ', 1)[0])),
    new Set(['refresh_token', 'access_token', 'code']),
  );
});

test('a secret of any kind is found however it is encoded', () => {
  const secret = '1//0a+token/of "some" length';
  const bytes = Buffer.from(secret);
  const forms = [
    JSON.stringify({ it: secret }),
    encodeURIComponent(secret),
    new URLSearchParams({ it: secret }).toString(),
    bytes.toString('hex'),
    bytes.toString('hex').toUpperCase(),
    ...['', 'a', 'ab'].flatMap((before) => [
      Buffer.from(`${before}${secret}, and more`).toString('base64'),
      Buffer.from(`${before}${secret}, and more`).toString('base64url'),
      encodeURIComponent(Buffer.from(before + secret).toString('base64')),
    ]),
  ];
  for (const text of forms) {
    const watch = openSecretWatch();
    watch.made('refresh_token', secret);
    watch.log.write(`before ${text} after`);
    assert.equal(watch.leaks().length, 1, text);
  }
});

test('a key of bytes is found in hexadecimal and in Base64', () => {
  const dataKey = Buffer.from(Array.from({ length: 32 }, (_, n) => (n * 37) % 256));
  for (const encoding of ['hex', 'base64', 'base64url'] as const) {
    const watch = openSecretWatch();
    watch.made('data_key', dataKey);
    watch.log.write(`it is ${dataKey.toString(encoding)}`);
    assert.match(watch.leaks().join('; '), /^data_key in the log: it is \*\*\*.{0,2}$/);
  }
});

test('a secret that is readable in the database is found, in whichever table, column and form', async () => {
  const { db, drop } = await openTestDatabase();
  const encoded = Buffer.from(`{"it":"${token}"}`).toString('base64');
  try {
    await db.query('create schema elsewhere');
    for (const [table, column, value] of [
      ['public.leak', 'text', `it is ${token}`],
      ['public.leak', 'bytea', Buffer.from(`it is ${token}`)],
      ['public.leak', 'bytea', Buffer.from(`it is ${encoded}`)],
      ['public.leak', 'jsonb', JSON.stringify({ a: [{ it: token }] })],
      ['public.leak', 'text[]', ['x', encoded]],
      ['elsewhere.leak', 'text', token],
    ] as const) {
      const watch = openSecretWatch();
      watch.made('refresh_token', token);
      await db.query(`create table ${table} (other int, it ${column}) partition by range (other)`);
      await db.query(`create table ${table}_first partition of ${table} for values from (0) to (9)`);
      await db.query(`insert into ${table} values (1, $1)`, [value]);
      await watch.readDatabase(db);
      await db.query(`drop table ${table}`);
      assert.deepEqual(watch.leaks(), [`refresh_token in the table ${table}_first`]);
    }
  } finally {
    await drop();
  }
});

test('a whole service tells its watch of keys, tokens and trips, and a leak of any fails its end', async () => {
  const trellis = await openTrellis();
  const logged: string[] = [];
  const { connectionId } = await connect({
    ...trellis,
    watch: {
      ...trellis.watch,
      answered(route, answer) {
        trellis.watch.answered(route, answer);
        logged.push(route, ...Array.from(answer.headers ?? [], ([, value]) => value));
      },
    },
  });
  const { body } = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=google-sheet`);
  const { access_token: accessToken } = body.credentials as { access_token: string };
  assert.deepEqual(trellis.watch.leaks(), []);
  for (const line of [`somebody logs ${accessToken}`, trellis.keys.dev, ...logged])
    trellis.app.log.info(line);
  await assert.rejects(trellis.close(), (error) => {
    for (const kind of ['access_token', 'key', 'session_token', 'code', 'state', 'cookie'])
      assert.match(String(error), new RegExp(`${kind} in the log`));
    return true;
  });
});

test('a file of the keys of a whole service holds no secret', async () => {
  const trellis = await openTrellis();
  const directory = await mkdtemp(join(tmpdir(), 'trellis-key-file-'));
  try {
    await connect(trellis);
    await trellis.keyWith('records:read');
    const file = join(directory, 'keys');
    await exportKeys(trellis.db, file);
    const text = await readFile(file, 'utf8');
    trellis.watch.readText('a file of keys', text);
    const all = await trellis.db.query<{ hash: Buffer }>('select hash from api_key');
    for (const { hash } of all) assert.ok(text.includes(hash.toString('base64')), 'it has the keys');
  } finally {
    await rm(directory, { recursive: true });
    await trellis.close();
  }
});

test('what another client than ours is answered is watched too, whether a route or the proxy answers', async () => {
  const trellis = await openTrellis();
  const { headers } = await connect(trellis);
  const secret = 'a-secret-as-an-address';
  const authorization = `Bearer ${trellis.keys.dev}`;
  await trellis.call('PATCH', '/integrations/google-sheet', { body: { display_name: secret } });
  trellis.watch.made('password', secret);
  for (const path of ['/integrations', `/proxy/${secret}`]) {
    const answer = await fetch(trellis.baseUrl + path, { headers: { ...headers, authorization } });
    await answer.text();
  }
  await assert.rejects(trellis.close(), (error) => {
    assert.match(String(error), /password in the answer 200 of GET \/integrations/);
    assert.match(String(error), /password in the answer 404 of GET \/proxy/);
    return true;
  });
});

test('every data key that a vault makes or unwraps is known, and every secret that they seal', () => {
  const plain = openVault([{ id: 'k', key: createSecretKey(randomBytes(32)) }]);
  const [earlier, watch] = [plain.createDataKey(), openSecretWatch()];
  const vault = watchedVault(plain, watch);
  const keys = [vault.createDataKey().key, vault.unwrap(earlier.wrapped)];
  for (const [n, key] of keys.entries())
    watch.log.write(`${n}: ${DataKey.rootOf(key).toString('base64url')}`);
  watch.log.write(vault.masterKeys[0].key.export().toString('hex'));
  const [verifier, signing] = ['a-verifier-of-some-length', `whsec_${randomBytes(24).toString('base64')}`];
  keys[0]?.sealJson({ code_verifier: verifier }, 'auth attempt');
  keys[1]?.seal(signing, 'signing key 1');
  keys[1]?.sealJson({ password: 'of the application' }, 'metadata');
  watch.log.write(`${verifier} of the application ${signing}`);
  const kinds = watch.leaks().map((leak) => leak.replace(/ in the log: .*/, ''));
  assert.deepEqual(new Set(kinds), new Set(['data_key', 'master_key', 'code_verifier', 'signing_key']));
});
