import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { writeConnectSettings } from '../environments/connect-settings.ts';
import { environmentKey } from '../environments/store.ts';
import type { AppError } from '../errors.ts';
import { type ConnectBench, openConnectBench } from './connect.fixture.ts';
import { leadsToOwnPages, readSettings, sessionInput } from './session-input.ts';

const base = 'https://trellis.example/in/here';

for (const own of [
  'https://trellis.example/in/here/oauth/connect/x?connect_session_token=y',
  'https://trellis.example/in/here/oauth',
  'https://trellis.example/in/here/connect',
  'https://trellis.example/in/here/connect/?session_token=y',
  'HTTPS://me:secret@Trellis.EXAMPLE:443/in/here/connect#x',
  'https://trellis。example/in/here/oauth/connect/x',
  'http://trellis.example/in/here/oauth/connect/x',
  'https:\\\\trellis.example\\in\\here\\oauth\\connect',
  'https://trellis.example/in/else/../here/./oauth/connect/x',
  'https://trellis.example/in/else/%2e%2E/here/oauth/connect/x',
  'https://trellis.example/in/here/%6fauth/connect/x',
  'https://trellis.example/in/here/%256Fauth/connect/x',
  'https://trellis.example/in/here/app%2f..%2foauth/connect/x',
  'https://trellis.example/in/here/app%5c..%5coauth/connect/x',
  'https://trellis.example//in/here///oauth/connect/x',
  'https://trellis.example/in/here/o\tauth/connect/x',
]) {
  test(`a page that connects is known by ${JSON.stringify(own)}`, () => {
    assert.equal(leadsToOwnPages(own, base), true);
    assert.equal(leadsToOwnPages(own, `${base}/`), true);
  });
}

for (const other of [
  'https://trellis.example/in/here',
  'https://trellis.example/in/here/app/connect/',
  'https://trellis.example/in/here/connected?to=/oauth/connect/x',
  'https://trellis.example/in/here/oauth-done#/oauth/',
  'https://trellis.example/connect/done',
  'https://trellis.example/in/here/100%/%C3%A9%ff?%',
  'https://trellis.example/in/here/../oauth/connect/x',
  'https://trellis.example:8443/in/here/connect/',
  'https://app.trellis.example/in/here/connect/',
  'https://trellis.example@app.example/in/here/connect/',
]) {
  test(`an application may be at ${JSON.stringify(other)}`, () => {
    assert.equal(leadsToOwnPages(other, base), false);
  });
}

test('without a path prefix of the service, the application may have other paths of the same host', () => {
  assert.equal(leadsToOwnPages('http://localhost:3003/connected', 'http://localhost:3003'), false);
  assert.equal(leadsToOwnPages('http://localhost:3000/connect/', 'http://localhost:3003'), false);
  assert.equal(leadsToOwnPages('http://localhost:3003/connect/', 'http://localhost:3003'), true);
});

let bench: ConnectBench;
before(async () => {
  bench = await openConnectBench();
});
after(() => bench.end());

test('a session that was made before such links were refused leads to none', async () => {
  const token = await bench.session({ end_user: { id: 'u1' }, allowed_integrations: ['sheets'] });
  const link = `${bench.baseUrl}/oauth/connect/sheets?connect_session_token=x`;
  const key = await environmentKey(bench.db, {
    environmentId: bench.environment.id,
    vault: bench.reading.vault,
  });
  const store = (address: string) => {
    const settings = { return_url: address, overrides: { sheets: { docs_connect: address } } };
    return bench.db.query('update connect_session set settings = $1', [
      key.sealJson(settings, 'connect session'),
    ]);
  };
  const reported = async () => {
    const [{ return_url }, { choices }] = [await bench.progress(token), await bench.choices(token)];
    return [return_url, choices[0].docs_connect];
  };
  await store(link);
  assert.deepEqual(await reported(), [null, null]);
  const free = `${bench.baseUrl}/app`;
  await store(free);
  assert.deepEqual(await reported(), [free, free]);
});

test('a deep link is returned to while the environment allows its scheme', async () => {
  const environmentId = bench.environment.id;
  const allow = (schemes: string[] | null) =>
    bench.db.transaction((tx) =>
      writeConnectSettings(tx, { environmentId, change: { return_schemes: schemes } }),
    );
  const settingsOf = (address: string) =>
    readSettings(bench.db, {
      body: { end_user: { id: 'u1' }, return_url: sessionInput.shape.return_url.parse(address) },
      environmentId,
      reading: bench.reading,
      baseUrl: bench.baseUrl,
    });
  const isRefused = (address: string) =>
    assert.rejects(settingsOf(address), (error: AppError) => {
      assert.equal(error.code, 'invalid_body');
      assert.match(error.message + JSON.stringify(error.errors), /return_schemes/);
      return true;
    });
  await isRefused('myapp://done');
  await allow(['myapp', 'com.example.app']);
  for (const address of ['myapp://done', 'MyApp://done?x=1', 'com.example.app:/done', 'https://app.example/'])
    assert.equal((await settingsOf(address)).return_url, address);
  for (const address of [
    'javascript:alert(1)',
    'java\nscript:alert(1)',
    'data:text/html,x',
    'file:///etc/passwd',
    'blob:https://x/y',
    'otherapp://done',
    'myapp2://done',
    'vbscript:x',
    'intent://x#Intent;end',
    'about:blank',
  ])
    await isRefused(address);

  const token = await bench.session({
    end_user: { id: 'u1' },
    allowed_integrations: ['sheets'],
    return_url: 'myapp://done',
  });
  assert.equal((await bench.progress(token)).return_url, 'myapp://done');
  await allow(['com.example.app']);
  assert.equal((await bench.progress(token)).return_url, null);
  await allow(null);
});
