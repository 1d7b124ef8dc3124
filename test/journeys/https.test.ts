// Under an https BASE_URL: cookies that no other host can set, and Strict-Transport-Security on our own answers.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect } from 'node:net';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { acceptInvitation, prepareOwner } from '../../server/users/invitations.ts';
import { password, tokenIn } from '../support/person.ts';
import { connect as connectAccount, openTrellis, type TestTrellis } from '../support/trellis.ts';

const origin = 'https://trellis.example.com';
const hsts = 'max-age=31536000';
let plain: TestTrellis;
let secure: { url: string; close(): Promise<void> };
before(async () => {
  plain = await openTrellis();
  const node = await plain.serveAnother({ BASE_URL: origin });
  secure = { url: node.listensAt, close: node.close };
});
after(async () => {
  await secure.close();
  await plain.close();
});

test('the cookie of the dashboard is __Host-, Secure, at / and without a domain; one without the prefix counts for nothing', async () => {
  const link = await prepareOwner(plain.db, {
    settings: { isOff: false, admin: undefined, oidc: undefined },
    baseUrl: origin,
    hashPassword,
    at: new Date(),
  });
  const email = 'owner@example.com';
  await plain.db.transaction(async (tx) =>
    acceptInvitation(tx, {
      token: tokenIn(link ?? ''),
      user: { name: 'Owner', email, passwordHash: await hashPassword(password) },
      at: new Date(),
    }),
  );
  const page = { origin, 'sec-fetch-site': 'same-origin', 'content-type': 'application/json' };
  const signedIn = await fetch(`${secure.url}/api/auth/sign-in/email`, {
    method: 'POST',
    headers: page,
    body: JSON.stringify({ email, password }),
  });
  assert.equal(signedIn.status, 200, await signedIn.text());
  assert.equal(signedIn.headers.get('strict-transport-security'), hsts);
  const lines = signedIn.headers.getSetCookie();
  assert.ok(lines.length > 0);
  for (const line of lines) {
    assert.match(line, /^__Host-trellis\.\w+=/);
    assert.match(line, /; Path=\/(;|$)/);
    assert.match(line, /; Secure(;|$)/);
    assert.match(line, /; HttpOnly(;|$)/);
    assert.doesNotMatch(line, /domain/i);
  }
  const [name = '', value = ''] = lines
    .find((line) => line.includes('session_token'))!
    .split(';', 1)[0]!
    .split(/=(.*)/s);
  plain.watch.made('cookie', value);
  const me = async (cookie: string) => {
    const answer = await fetch(`${secure.url}/users/me`, {
      headers: { cookie, 'x-trellis-environment': '*' },
    });
    await answer.body?.cancel();
    return answer.status;
  };
  const session = async (cookie: string) =>
    (await fetch(`${secure.url}/api/auth/get-session`, { headers: { ...page, cookie } })).json();
  assert.equal(await me(`${name}=${value}`), 200);
  assert.ok(await session(`${name}=${value}`));
  // What a host beside ours, or a page over http, could have set.
  for (const other of [
    'trellis.session_token',
    '__Secure-trellis.session_token',
    'x__Host-trellis.session_token',
  ]) {
    assert.equal(await me(`${other}=${value}`), 401, other);
    assert.equal(await session(`${other}=${value}`), null, other);
  }
  assert.equal(await me(`trellis.session_token=planted; ${name}=${value}`), 200);
});

test('our own answers have Strict-Transport-Security under https alone, and those of providers are unchanged', async () => {
  const body = { provider: 'google-sheet', unique_key: 'google-sheet' };
  await plain.call('POST', '/integrations/quickstart', { body });
  await plain.control('POST', 'accounts', { email: 'ada@example.com' });
  const connected = { integration: 'google-sheet', provider: 'google-sheet', account: 'ada@example.com' };
  const { headers: ofConnection } = await connectAccount(plain, connected);
  const own: [string, Record<string, string>?][] = [
    ['/'],
    ['/health'],
    ['/no-such-path'],
    ['/connections'],
    ['/oauth/callback?state=x'],
    ['/%E0%A4%A'],
    ['/proxy/no-such-connection'],
    ['/proxy/x', { 'access-control-request-method': 'GET' }],
  ];
  for (const [url, strict] of [
    [secure.url, hsts],
    [plain.baseUrl, null],
  ] as const) {
    for (const [path, headers] of own) {
      const answer = await fetch(url + path, {
        method: headers ? 'OPTIONS' : 'GET',
        headers: headers ?? {},
        redirect: 'manual',
      });
      await answer.body?.cancel();
      assert.equal(answer.headers.get('strict-transport-security'), strict, `${url}${path}`);
    }
    const socket = connect(Number(new URL(url).port), '127.0.0.1');
    socket.end('GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n');
    const [refused] = (await once(socket, 'data')) as [Buffer];
    assert.equal(/strict-transport-security: max-age/.test(refused.toString()), strict !== null);
  }
  const proxied = await fetch(`${secure.url}/proxy/v4/spreadsheets/none`, {
    headers: { ...ofConnection, authorization: `Bearer ${plain.keys.dev}` },
  });
  assert.equal(proxied.headers.get('x-trellis-error'), null);
  assert.equal(proxied.status, 404);
  await proxied.body?.cancel();
  assert.equal(proxied.headers.get('strict-transport-security'), null);
});
