// TRELLIS_SIGN_IN=off: for one machine alone.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { ConfigError, loadConfig } from '../../server/config/config.ts';
import { openPerson, type TestPerson } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let page: TestPerson;
before(async () => {
  trellis = await openTrellis({ TRELLIS_SIGN_IN: 'off' });
  page = openPerson(trellis);
});
after(() => trellis.close());

/** With the headers as given, Host among them, which fetch would not send. */
async function statusOf(headers: Record<string, string>, path = '/users/me'): Promise<number | undefined> {
  const sent = request(trellis.baseUrl + path, { headers, agent: false }).end();
  return new Promise((resolve, reject) => {
    sent.once('error', reject).once('response', (response) => {
      response.resume().once('end', () => resolve(response.statusCode));
    });
  });
}

test('it is refused with any address but loopback', () => {
  const settings = { TRELLIS_SIGN_IN: 'off', TRELLIS_SANDBOX: 'off' };
  for (const more of [
    { HOST: '0.0.0.0' },
    { BASE_URL: 'https://trellis.example.com' },
    { HOST: '10.0.0.1' },
  ]) {
    assert.throws(
      () => loadConfig({ ...settings, ...more }, false),
      (error) => error instanceof ConfigError && /TRELLIS_SIGN_IN=off/.test(error.message),
    );
  }
  assert.equal(loadConfig({ ...settings, HOST: '::1' }, false).signIn.isOff, true);
  assert.equal(loadConfig({}, false).signIn.isOff, false);
});

test('every user of this machine is an owner, and there are no users to sign in', async () => {
  const asked = { headers: { 'x-forwarded-for': undefined } };
  const { status, body } = await page.call('GET', '/users/me', asked);
  assert.equal(status, 200);
  assert.equal((body.data as { role: string }).role, 'owner');
  const listed = await page.call('GET', '/connections', { ...asked, environment: 'dev' });
  assert.equal(listed.status, 200);
  const signIn = await page.call('POST', '/api/auth/sign-in/email', {
    ...asked,
    body: { email: 'a@b.c', password: 'x' },
  });
  assert.equal(signIn.status, 404);
});

test('another name of this machine, and whatever was passed on, is refused, with a key too', async () => {
  const { host } = new URL(trellis.baseUrl);
  const port = host.split(':')[1];
  const good = { host, 'x-trellis-environment': 'dev' };
  assert.equal(await statusOf(good), 200);
  assert.equal(await statusOf({ ...good, host: `127.0.0.1:${port}` }), 200);
  for (const name of [
    `evil.example.com:${port}`,
    'evil.example.com',
    'localhost',
    `localhost.evil.com:${port}`,
  ])
    assert.equal(await statusOf({ ...good, host: name }), 403, name);
  for (const name of [
    'forwarded',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-forwarded-proto',
    'X-Forwarded-Anything',
    'via',
    'x-real-ip',
  ])
    assert.equal(await statusOf({ ...good, [name]: 'a' }), 403, name);
  const authorization = `Bearer ${trellis.keys.dev}`;
  assert.equal(await statusOf({ host: 'evil.example.com', authorization }, '/connections'), 403);
  assert.equal(await statusOf({ host, authorization }, '/connections'), 200);
});

/** The first line of the answer to what is sent as it stands. */
async function lineOf(target: string, lines: string[]): Promise<string> {
  const { hostname, port } = new URL(trellis.baseUrl);
  const socket = connect({ host: hostname, port: Number(port) });
  socket.write(`GET ${target} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
  const [first] = await once(socket, 'data');
  socket.destroy();
  return String(first).split('\r\n', 1)[0]!;
}

test('the socket of the connect page, and a host in the target, are held to the same', async () => {
  const { host } = new URL(trellis.baseUrl);
  const upgrade = [
    'Connection: Upgrade',
    'Upgrade: websocket',
    'Sec-WebSocket-Version: 13',
    'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
  ];
  assert.match(await lineOf('/', [`Host: ${host}`, ...upgrade]), / 101 /);
  assert.match(await lineOf('/', ['Host: evil.example.com', ...upgrade]), / 403 /);
  assert.match(await lineOf('/', [`Host: ${host}`, 'X-Forwarded-For: 1.2.3.4', ...upgrade]), / 403 /);
  const asked = [`Host: ${host}`, 'X-Trellis-Environment: dev'];
  assert.match(await lineOf('http://evil.example.com/users/me', asked), / 403 /);
  assert.match(
    await lineOf(`http://${host}/users/me`, ['Host: evil.example.com', ...asked.slice(1)]),
    / 200 /,
  );
});

test('a page of another site is refused all the same', async () => {
  const headers = { 'x-forwarded-for': undefined };
  const from = (more: object) =>
    page.call('GET', '/connections', { environment: 'dev', headers: { ...headers, ...more } });
  assert.equal((await from({})).status, 200);
  assert.equal((await from({ origin: 'http://localhost:1' })).status, 403);
  assert.equal((await from({ 'sec-fetch-site': 'same-site' })).status, 403);
  assert.equal((await page.call('GET', '/connections', { environment: undefined, headers })).status, 401);
});
