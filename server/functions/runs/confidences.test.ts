// Slow: its functions run in processes of their own.

import assert from 'node:assert/strict';
import { after, before, beforeEach, test } from 'node:test';
import { createActions } from '../actions/actions.ts';
import { hidden, Secrets } from '../context/secrets.ts';
import { getFunction } from '../deploys/store.ts';
import { openRunsBench, type RunsBench, syncOf } from './runs.fixture.ts';

/** What a run may not write down, and what one that says that it reads may not do. */
let bench: RunsBench;
before(async () => {
  bench = await openRunsBench();
});
after(() => bench.end());
beforeEach(async () => {
  await bench.db.query('delete from run');
  await bench.db.query('delete from function');
});

const token = `access-"${crypto.randomUUID()}`;

test('a secret that a run received is neither in its log nor in its error', async () => {
  await bench.deploy(
    'rows',
    syncOf(`
      const connection = await nango.getConnection();
      await nango.log('all of it', connection);
      await nango.log('the token is ' + (await nango.getToken()).apiKey);
      const error = new Error('refused: Bearer ' + (await nango.getToken()).apiKey);
      throw error;
    `),
  );
  const { id, dataKey } = await bench.connect('ada');
  const credentials = { type: 'API_KEY', apiKey: token };
  await bench.db.query('update connection set credentials = $1 where id = $2', [
    dataKey.sealJson(credentials, 'credentials'),
    id,
  ]);
  await bench.one.runner.runDue();
  const [run] = await bench.runs();
  assert.equal(run?.error?.message, `refused: Bearer ${hidden}`);
  const stored = JSON.stringify([await bench.lines(), run]);
  assert.match(stored, /all of it.*the token is \[hidden\]/);
  assert.equal(stored.includes(token.slice(8)), false);
});

test('secrets are distinguished from the text around them', () => {
  const secrets = new Secrets();
  secrets.addCredentials({
    type: 'OAUTH2',
    access_token: 'a/long+token=1',
    expires_at: '2026-11-22T00:00:00Z',
    raw: { token_type: 'bearer-type', scope: 'everything.read', id_token: 'another-token' },
  });
  secrets.addCredentials({ username: 'ada', password: 'pass word' });
  secrets.addVariables([
    { name: 'STRIPE_KEY', value: 'sk_live_12345' },
    { name: 'REGION', value: 'eu-central-1' },
    { name: 'PIN_TOKEN', value: '1234' },
  ]);
  const text =
    'a/long+token=1 a%2Flong%2Btoken%3D1 2026-11-22T00:00:00Z bearer-type everything.read another-token ' +
    'ada YWRhOnBhc3Mgd29yZA== sk_live_12345 eu-central-1 1234';
  assert.equal(
    secrets.hide(text),
    `${hidden} ${hidden} 2026-11-22T00:00:00Z bearer-type everything.read ${hidden} ` +
      `ada ${hidden} ${hidden} eu-central-1 1234`,
  );
  assert.deepEqual(secrets.hideIn({ 'another-token': [1, null, 'x another-token'] }), {
    [hidden]: [1, null, `x ${hidden}`],
  });
});

test('a read-only action cannot write, whatever its input', async () => {
  const seen: (string | undefined)[] = [];
  bench.serve(({ method }, response) => {
    seen.push(method);
    response.end('{}');
  });
  await bench.deploy(
    'look',
    `exports.default = {
       type: 'action', description: 'A test.', readOnly: true,
       async exec(nango, { ask, with: given }) {
         if (ask === 'uncontrolledFetch') given.url = new URL(given.url);
         return nango[ask](given).then(() => 'done', (error) => error.code);
       },
     };`,
    'action',
  );
  await bench.connect('eve');
  const { db, now, one } = bench;
  const actions = createActions({ db, connections: one.reader, runner: one.runner, now });
  const connection = await one.reader.get({ ...bench.place, connectionId: 'eve' });
  const found = await getFunction(db, { ...bench.place, name: 'look' });
  const call = (ask: string, given: object) =>
    actions
      .call({
        connection,
        found,
        environment: 'dev',
        input: { ask, with: given },
        signal: new AbortController().signal,
      })
      .then((json) => JSON.parse(json.toString()) as unknown);
  for (const [ask, given] of [
    ['get', { endpoint: '/a' }],
    ['proxy', { endpoint: '/a', method: 'HEAD' }],
  ] as const)
    assert.equal(await call(ask, given), 'done');
  assert.deepEqual(seen, ['GET', 'HEAD']);
  for (const [ask, given] of [
    ['post', { endpoint: '/a' }],
    ['delete', { endpoint: '/a' }],
    ['proxy', { endpoint: '/a', method: 'OPTIONS' }],
    ['get', { endpoint: '/a', headers: { 'X-HTTP-Method-Override': 'DELETE' } }],
    ['get', { endpoint: '/a?_method=delete' }],
    ['get', { endpoint: '/a', params: { $method: 'PUT' } }],
    ['setMetadata', { a: 1 }],
    ['updateMetadata', { a: 1 }],
    ['uncontrolledFetch', { url: 'https://127.0.0.1/', method: 'POST' }],
    ['uncontrolledFetch', { url: 'https://127.0.0.1/?_method=put' }],
  ] as const)
    assert.equal(await call(ask, given), 'action_is_read_only', `${ask} ${JSON.stringify(given)}`);
  assert.deepEqual(seen, ['GET', 'HEAD']);
});
