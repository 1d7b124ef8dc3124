// Signing in at an OpenID provider: only who was invited, and only by what the provider vouches for.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner } from '../../server/users/invitations.ts';
import { type Claims, type OidcIssuer, startOidcIssuer } from '../support/oidc-issuer.ts';
import { fromAnywhere, openPerson, password, type TestPerson } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let issuer: OidcIssuer;
let trellis: TestTrellis;
let owner: TestPerson;
const ownerEmail = 'owner@example.com';
before(async () => {
  issuer = await startOidcIssuer();
  trellis = await openTrellis({
    ...fromAnywhere,
    ...{ TRELLIS_OIDC_ISSUER: issuer.url, TRELLIS_OIDC_NAME: 'Example' },
    ...{ TRELLIS_OIDC_CLIENT_ID: issuer.clientId, TRELLIS_OIDC_CLIENT_SECRET: issuer.clientSecret },
    TRELLIS_OUTBOUND_ALLOW: '127.0.0.0/8',
  });
  const user = { name: 'Owner', email: ownerEmail, passwordHash: await hashPassword(password) };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(ownerEmail, password);
});
after(async () => {
  // What the service keeps open to it ends with it, also where closing the service fails.
  await issuer.close();
  await trellis.close();
});

/** Goes there and back; answers where it ends, and whether somebody is signed in. */
async function visit(claims: Claims, change = (url: URL) => url): Promise<{ to: string; status: number }> {
  issuer.next = claims;
  const person = openPerson(trellis);
  const begun = await person.auth('POST', '/sign-in/social', {
    provider: 'oidc',
    callbackURL: `${trellis.baseUrl}/`,
    errorCallbackURL: `${trellis.baseUrl}/sign-in`,
  });
  assert.equal(begun.status, 200, begun.text);
  const there = await fetch(String(begun.body.url), { redirect: 'manual' });
  const back = change(new URL(there.headers.get('location') ?? ''));
  const landed = await person.call('GET', back.pathname + back.search, {
    environment: undefined,
    headers: { 'sec-fetch-site': 'cross-site' },
  });
  assert.equal(landed.status, 302, landed.text);
  return {
    to: landed.headers.get('location') ?? '',
    status: (await person.call('GET', '/users/me')).status,
  };
}
const usersOf = async (email: string) =>
  (await trellis.db.query('select from sign_in_user where email = $1', [email])).length;

test('the page is told of the provider', async () => {
  const { body } = await openPerson(trellis).call('GET', '/users/sign-in');
  assert.deepEqual(body.data, { required: true, oidc: { name: 'Example' }, mail: false, brand: 'trellis' });
});

test('whoever was not invited becomes no user', async () => {
  const { to, status } = await visit({ sub: 's1', email: 'eve@example.com', email_verified: true });
  assert.match(to, /\/sign-in\?error=/);
  assert.equal(status, 401);
  assert.equal(await usersOf('eve@example.com'), 0);
});

test('whoever was invited by address becomes a user with the rights of the invitation, again and again the same', async () => {
  const invited = await owner.call('POST', '/users/invitations', {
    body: { role: 'viewer', environments: ['dev'], email: 'Ida@example.com' },
  });
  assert.equal(invited.status, 201);
  const claims = { sub: 's2', email: 'ida@example.com', email_verified: true, name: 'Ida' };
  for (let time = 0; time < 2; time += 1) {
    assert.deepEqual(await visit(claims), { to: `${trellis.baseUrl}/`, status: 200 });
  }
  assert.equal(await usersOf('ida@example.com'), 1);
  const [member] = await trellis.db.query<{ role: string }>(
    'select role from member join sign_in_user u on u.id = user_id where u.email = $1',
    [claims.email],
  );
  assert.equal(member?.role, 'viewer');
  const kept = await trellis.db.query(
    'select from sign_in_account where coalesce(access_token, refresh_token, id_token) is not null',
  );
  assert.equal(kept.length, 0);
});

test('a user with a password is known by the address that the provider vouches for', async () => {
  assert.equal((await visit({ sub: 's3', email: ownerEmail, email_verified: true })).status, 200);
  assert.equal((await owner.call('GET', '/users/me')).status, 200);
});

test('an ID token that is not for this sign-in signs nobody in', async () => {
  const good = { sub: 's3', email: ownerEmail, email_verified: true };
  const past = Math.floor(Date.now() / 1000) - 3_600;
  const bad: Claims[] = [
    { ...good, nonce: 'another' },
    { ...good, aud: 'another' },
    { ...good, iss: 'http://127.0.0.1:1' },
    { ...good, iat: past, exp: past + 60 },
    { sub: 's4', email: ownerEmail, email_verified: false },
    { sub: 's4', email: ownerEmail },
  ];
  for (const claims of bad) {
    const { to, status } = await visit(claims);
    assert.match(to, /\/sign-in\?error=/, JSON.stringify(claims));
    assert.equal(status, 401, JSON.stringify(claims));
  }
});

test('a state of another browser, or none, signs nobody in', async () => {
  const claims = { sub: 's3', email: ownerEmail, email_verified: true };
  const { exchanges } = issuer;
  const wrong = await visit(claims, (url) => {
    url.searchParams.set('state', 'a'.repeat(32));
    return url;
  });
  const none = await visit(claims, (url) => {
    url.searchParams.delete('state');
    return url;
  });
  assert.deepEqual([wrong.status, none.status, issuer.exchanges], [401, 401, exchanges]);
});

test('nobody is led to another site', async () => {
  const begun = await openPerson(trellis).auth('POST', '/sign-in/social', {
    provider: 'oidc',
    callbackURL: 'https://evil.example.com/',
  });
  assert.equal(begun.status, 403, begun.text);
});
