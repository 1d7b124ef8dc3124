// A right that was taken is gone for good, on every node; and what it made goes with it.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner, createInvitation } from '../../server/users/invitations.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let another: Awaited<ReturnType<TestTrellis['serveAnother']>>;
let owner: TestPerson;
let provider: Server;
let passwordHash: string;
const ownerEmail = 'owner@example.com';
before(async () => {
  trellis = await openTrellis({ ...fromAnywhere, TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8' });
  another = await trellis.serveAnother();
  passwordHash = await hashPassword(password);
  const user = { name: 'Owner', email: ownerEmail, passwordHash };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(ownerEmail, password);
});
after(async () => {
  provider?.close();
  await another.close();
  await trellis.close();
});

const codeOf = ({ status, body }: { status: number; body: Record<string, unknown> }) => [
  status,
  (body.error as { code?: string } | undefined)?.code ?? body.code,
];
const dataOf = <T>({ body }: { body: Record<string, unknown> }) => body.data as T;
const onAnother = () => openPerson({ baseUrl: another.baseUrl, watch: trellis.watch });
const viewer = { role: 'viewer', environments: ['dev'] };

/** A user who is signed in at the node that is given, and whose rights it has just looked up. */
async function join(email: string, given: object, person = onAnother()) {
  const made = await owner.call('POST', '/users/invitations', { body: given });
  assert.equal(made.status, 201, made.text);
  const token = tokenIn(dataOf<{ link: string }>(made).link);
  const joined = await openPerson(trellis).call('POST', '/users', {
    body: { token, name: 'Somebody', email, password },
  });
  assert.equal(joined.status, 201, joined.text);
  assert.equal((await person.signIn(email, password)).status, 200);
  assert.equal((await person.call('GET', '/users/me')).status, 200);
  return { person, id: dataOf<{ id: string }>(joined).id };
}

test('an owner who is demoted on one node gains no right on another node with a stale cache', async () => {
  const { person, id } = await join('less@example.com', { role: 'owner' });
  const me = dataOf<{ id: string }>(await owner.call('GET', '/users/me')).id;
  const asked: [string, string, object?][] = [
    ['PATCH', `/users/${id}`, { role: 'owner' }],
    ['DELETE', `/users/${me}`],
    ['POST', '/users/invitations', { role: 'owner' }],
    ['POST', `/users/${me}/password-reset`],
    ['POST', '/environments', { name: 'mine' }],
  ];
  assert.equal((await owner.call('PATCH', `/users/${id}`, { body: viewer })).status, 200);
  const answers = await Promise.all(
    asked.map(([method, path, body]) => person.call(method, path, body === undefined ? {} : { body })),
  );
  for (const answer of answers) assert.deepEqual(codeOf(answer), [403, 'forbidden'], answer.text);
  assert.equal((await owner.call('GET', '/users/me')).status, 200);
});

test('a developer who is removed on one node creates no key on another node with a stale cache', async () => {
  const { person, id } = await join('gone@example.com', { role: 'developer', environments: ['dev'] });
  const make = (name: string) =>
    person.call('POST', '/environment/api-keys', {
      environment: 'dev',
      body: { name, scopes: ['connections:read'] },
    });
  assert.equal((await make('before')).status, 201);
  assert.equal((await owner.call('DELETE', `/users/${id}`)).status, 200);
  const late = await make('after');
  assert.ok([401, 403].includes(late.status), late.text);
});

test('with the rights of an owner go the invitations and reset links that they made', async () => {
  const me = dataOf<{ id: string }>(await owner.call('GET', '/users/me')).id;
  for (const [email, end] of [
    ['demoted@example.com', (id: string) => owner.call('PATCH', `/users/${id}`, { body: viewer })],
    ['removed@example.com', (id: string) => owner.call('DELETE', `/users/${id}`)],
  ] as const) {
    const { person, id } = await join(email, { role: 'owner' });
    const invited = await person.call('POST', '/users/invitations', { body: { role: 'owner' } });
    const reset = await person.call('POST', `/users/${me}/password-reset`);
    const listed = dataOf<{ created_by: string }[]>(await owner.call('GET', '/users/invitations'));
    assert.ok(listed.some(({ created_by: by }) => by === id));
    assert.equal((await end(id)).status, 200);
    const back = await openPerson(trellis).call('POST', '/users', {
      body: {
        token: tokenIn(dataOf<{ link: string }>(invited).link),
        name: 'Back',
        email: `back-${email}`,
        password,
      },
    });
    assert.deepEqual(codeOf(back), [404, 'invalid_invitation']);
    const set = await openPerson(trellis).auth('POST', '/reset-password', {
      token: tokenIn(dataOf<{ link: string }>(reset).link),
      newPassword: 'a password of theirs',
    });
    assert.equal(set.status, 400, set.text);
  }
});

test('an existing user cannot be invited, and a link has a limited number of attempts', async () => {
  const twice = await owner.call('POST', '/users/invitations', {
    body: { ...viewer, email: 'OWNER@example.com' },
  });
  assert.deepEqual(codeOf(twice), [409, 'user_exists']);
  const grant = { role: 'viewer' as const, environmentIds: [1] };
  const { token } = await createInvitation(trellis.db, {
    email: undefined,
    grant,
    by: undefined,
    at: new Date(),
  });
  await trellis.db.query('update invitation set tries = 19');
  const guess = () =>
    openPerson(trellis).call('POST', '/users', { body: { token, name: 'Eve', email: ownerEmail, password } });
  assert.deepEqual(codeOf(await guess()), [409, 'user_exists']);
  assert.deepEqual(codeOf(await guess()), [404, 'invalid_invitation']);
});

test('an environment stays while grants of its connections wait to be revoked, and its keys and provider definitions end with it', async () => {
  assert.equal((await owner.call('POST', '/environments', { body: { name: 'passing' } })).status, 201);
  const made = await owner.call('POST', '/environment/api-keys', {
    environment: 'passing',
    body: { name: 'own', scopes: ['keys', 'environment:read', 'integrations:write'] },
  });
  const { secret: key } = dataOf<{ secret: string }>(made);
  assert.equal((await trellis.call('GET', '/environment/settings', { key })).status, 200);
  const definition = 'extends: private-api-key\ndisplay_name: Ours\n';
  const defined = await trellis.call('POST', '/providers', { key, body: { name: 'own-api', definition } });
  assert.equal(defined.status, 200, defined.text);
  await trellis.db.query(
    `insert into revocation (environment_id, connection, about, is_forced, secrets, next_at, created_at)
     select id, 1, '{}', false, '', 'infinity', now() from environment where name = 'passing'`,
  );
  assert.deepEqual(codeOf(await owner.call('DELETE', '/environments/passing')), [409, 'environment_in_use']);
  await trellis.db.query('delete from revocation');
  assert.equal((await owner.call('DELETE', '/environments/passing')).status, 200);
  assert.deepEqual(await trellis.db.query('select name from provider_definition'), []);
  const body = { name: 'late', scopes: ['keys'] };
  const late = await trellis.call('POST', '/environment/api-keys', { key, body });
  assert.deepEqual(codeOf(late), [401, 'unknown_account']);
  const { entries } = (
    await owner.call('GET', '/audit?scope=installation&action=key.created', { environment: 'dev' })
  ).body as { entries: { target: string }[] };
  assert.ok(entries.some(({ target }) => target === 'own'));
});

test('a redirect of a provider leads no page of the service to our own routes', async () => {
  provider = createServer((_request, response) => {
    const location = `${trellis.baseUrl}/environments/precious`;
    response.writeHead(307, { location, 'content-location': location, 'set-cookie': 'a=b' }).end();
  }).listen(0, '127.0.0.1');
  await once(provider, 'listening');
  const baseUrl = `http://127.0.0.1:${(provider.address() as AddressInfo).port}`;
  const integration = {
    provider: 'private-api-key',
    unique_key: 'leads',
    integration_config: { base_url: baseUrl },
  };
  assert.equal((await trellis.call('POST', '/integrations', { body: integration })).status, 200);
  const connected = await trellis.call('POST', '/connections', {
    body: {
      provider_config_key: 'leads',
      connection_id: 'a',
      credentials: { type: 'API_KEY', apiKey: 'k-123456789012345' },
    },
  });
  assert.equal(connected.status, 201, connected.text);
  const headers = { 'connection-id': 'a', 'provider-config-key': 'leads' };
  const ofPage = await owner.call('DELETE', '/proxy/things/1', { environment: 'dev', headers });
  assert.equal(ofPage.status, 307, ofPage.text);
  assert.equal(ofPage.headers.get('location'), null);
  assert.equal(ofPage.headers.get('set-cookie'), null);
  assert.equal(ofPage.headers.get('x-trellis-location'), `${trellis.baseUrl}/environments/precious`);
  const ofKey = await trellis.call('DELETE', '/proxy/things/1', { headers });
  assert.equal(ofKey.headers.get('location'), `${trellis.baseUrl}/environments/precious`);
});
