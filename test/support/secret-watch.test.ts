import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openTestDatabase } from './database.ts';
import { openSecretWatch } from './secret-watch.ts';
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

test('a secret in an answer is found, unless the route gives it to who asked', () => {
  const watch = openSecretWatch();
  watch.made('access_token', token);
  const text = JSON.stringify({ credentials: { access_token: token } });
  watch.answered('GET /connections/c1?provider_config_key=k', { status: 200, text });
  assert.deepEqual(watch.leaks(), []);
  watch.answered('GET /connections?limit=1', { status: 200, text });
  watch.answered('GET /connections/c1?provider_config_key=k', { status: 424, text });
  assert.deepEqual(watch.leaks(), [
    'access_token in the answer 200 of GET /connections?limit=1',
    'access_token in the answer 424 of GET /connections/c1?provider_config_key=k',
  ]);
});

test('what is long gone from memory was looked through before', () => {
  const watch = openSecretWatch();
  watch.made('key', key);
  watch.log.write(`called with ${key}`);
  for (let line = 0; line < 20; line += 1) watch.log.write('x'.repeat(1024 * 1024));
  assert.match(watch.leaks().join(), /key in the log/);
});

test('a refresh token is given only where it was asked for', () => {
  const watch = openSecretWatch();
  watch.made('refresh_token', token);
  watch.answered('GET /connections/c1?provider_config_key=k&refresh_token=true', {
    status: 200,
    text: token,
  });
  assert.deepEqual(watch.leaks(), []);
  watch.answered('GET /connections/c1?provider_config_key=k', { status: 200, text: token });
  assert.equal(watch.leaks().length, 1);
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

test('a secret that is readable in the database is found, as text and as bytes', async () => {
  const { db, drop } = await openTestDatabase();
  try {
    for (const [column, value] of [
      ['text', `it is ${token}`],
      ['bytea', Buffer.from(`it is ${token}`)],
    ] as const) {
      const watch = openSecretWatch();
      watch.made('refresh_token', token);
      await db.query(`create table leak (it ${column})`);
      await db.query('insert into leak values ($1)', [value]);
      await watch.readDatabase(db);
      await db.query('drop table leak');
      assert.deepEqual(watch.leaks(), ['refresh_token in the table public.leak']);
    }
  } finally {
    await drop();
  }
});

test('a whole service tells its watch of keys, tokens and codes, and a leak of any fails its end', async () => {
  const trellis = await openTrellis();
  const { connectionId } = await connect(trellis);
  const { body } = await trellis.call('GET', `/connections/${connectionId}?provider_config_key=google-sheet`);
  const { access_token: accessToken } = body.credentials as { access_token: string };
  trellis.app.log.info(`somebody logs ${accessToken}`);
  trellis.app.log.debug(`somebody logs ${trellis.keys.dev}`);
  await assert.rejects(trellis.close(), (error) => {
    assert.match(String(error), /access_token in the log/);
    assert.match(String(error), /key in the log/);
    return true;
  });
});
