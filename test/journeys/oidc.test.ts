// Signing in at an OpenID provider: only who was invited, and only by what the provider vouches for.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import {
  acceptByEmail,
  acceptInvitation,
  createFirstOwner,
  createInvitation,
} from '../../server/users/invitations.ts';
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
    TRELLIS_OIDC_ISSUER: issuer.url,
    TRELLIS_OIDC_NAME: 'Example',
    TRELLIS_OIDC_CLIENT_ID: issuer.clientId,
    TRELLIS_OIDC_CLIENT_SECRET: issuer.clientSecret,
    TRELLIS_OUTBOUND_ALLOW: 'sign-in=127.0.0.0/8',
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
async function visit(
  claims: Claims,
  change: (url: URL) => URL | Promise<URL> = (url) => url,
  person = openPerson(trellis),
): Promise<{ to: string; status: number }> {
  issuer.next = claims;
  const begun = await person.auth('POST', '/sign-in/social', {
    provider: 'oidc',
    callbackURL: `${trellis.baseUrl}/`,
    errorCallbackURL: `${trellis.baseUrl}/sign-in`,
  });
  assert.equal(begun.status, 200, begun.text);
  const there = await fetch(String(begun.body.url), { redirect: 'manual' });
  const back = await change(new URL(there.headers.get('location') ?? ''));
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

test('the page gets the provider', async () => {
  const { body } = await openPerson(trellis).call('GET', '/users/sign-in');
  assert.deepEqual(body.data, {
    required: true,
    needs_owner: false,
    oidc: { name: 'Example' },
    mail: false,
    brand: 'trellis',
  });
});

test('a person without an invitation does not become a user', async () => {
  const { to, status } = await visit({ sub: 's1', email: 'eve@example.com', email_verified: true });
  assert.match(to, /\/sign-in\?error=/);
  assert.equal(status, 401);
  assert.equal(await usersOf('eve@example.com'), 0);
});

test('a person invited by address becomes a user with the rights of the invitation, and stays the same user', async () => {
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

test('an ID token that is not for this sign-in is refused', async () => {
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

test('a state of another browser, or a missing one, is refused', async () => {
  const claims = { sub: 's3', email: ownerEmail, email_verified: true };
  const { exchanges } = issuer;
  let theirs: URL | undefined;
  const other = await visit(claims, async (url) => {
    // Another browser has come as far as this one, and is led on with what was meant for this one.
    theirs = url;
    return new URL(`${url.origin}${url.pathname}`);
  });
  assert.equal(other.status, 401);
  const wrong = await visit(claims, () => theirs as URL);
  assert.match(wrong.to, /error=/);
  const none = await visit(claims, (url) => {
    url.searchParams.delete('state');
    return url;
  });
  assert.deepEqual([wrong.status, none.status, issuer.exchanges], [401, 401, exchanges]);
});

test('an account is known by its issuer and its subject together', async () => {
  const invited = await owner.call('POST', '/users/invitations', {
    body: { role: 'viewer', environments: ['dev'], email: 'first@example.com' },
  });
  assert.equal(invited.status, 201, invited.text);
  await visit({ sub: '1', email: 'first@example.com', email_verified: true });
  const accounts = () =>
    trellis.db.query<{ account_id: string }>(
      `select account_id from sign_in_account a join sign_in_user u on u.id = user_id
       where u.email = 'first@example.com'`,
    );
  assert.deepEqual(await accounts(), [{ account_id: `${issuer.url} 1` }]);
  // As after the setting has changed: who has this number at the issuer of now is somebody else.
  await trellis.db.query(
    `update sign_in_account set account_id = 'https://former.example.com 1' where account_id = $1`,
    [`${issuer.url} 1`],
  );
  const { to, status } = await visit({ sub: '1', email: 'mallory@example.com', email_verified: true });
  assert.match(to, /error=/);
  assert.equal(status, 401);
});

test('a sign-up that broke off is made good by the next sign-in', async () => {
  const email = 'broken@example.com';
  await owner.call('POST', '/users/invitations', { body: { role: 'viewer', environments: ['dev'], email } });
  const claims = { sub: 'b1', email, email_verified: true };
  await trellis.db.query('alter table member add constraint none check (false) not valid');
  await assert.rejects(visit(claims));
  await trellis.db.query('alter table member drop constraint none');
  assert.equal(await usersOf(email), 1);
  const person = openPerson(trellis);
  assert.equal((await visit(claims, undefined, person)).status, 200);
  const me = await person.call('GET', '/users/me');
  assert.equal((me.body.data as { role: string }).role, 'viewer');
});

test('of twenty acceptances of one invitation, by the provider and by its link, one creates the user, and none waits', async () => {
  const passwordHash = await hashPassword(password);
  for (let round = 0; round < 3; round += 1) {
    const email = `both${round}@example.com`;
    const { token } = await createInvitation(trellis.db, {
      email,
      grant: { role: 'viewer', environmentIds: [1] },
      by: undefined,
      at: new Date(),
    });
    const userId = `both${round}`;
    await trellis.db.query(
      'insert into sign_in_user (id, name, email, email_verified) values ($1, $1, $2, true)',
      [userId, email],
    );
    const user = { name: 'Both', email, passwordHash };
    const answers = await Promise.allSettled(
      Array.from({ length: 20 }, (_, n) =>
        n % 2 === 0
          ? acceptByEmail(trellis.db, { userId, at: new Date() })
          : trellis.db.transaction((tx) => acceptInvitation(tx, { token, user, at: new Date() })),
      ),
    );
    for (const answer of answers)
      if (answer.status === 'rejected')
        assert.match(String(answer.reason.code), /^(invalid_invitation|user_exists)$/);
    const members = await trellis.db.query('select from member where user_id = $1', [userId]);
    assert.equal(members.length, 1);
  }
});

test('who signs in at the provider alone is given no password by a reset', async () => {
  const users = (await owner.call('GET', '/users')).body.data as { id: string; email: string }[];
  const id = users.find(({ email }) => email === 'ida@example.com')?.id;
  const made = await owner.call('POST', `/users/${id}/password-reset`);
  assert.deepEqual([made.status, (made.body.error as { code: string }).code], [409, 'user_without_password']);
});

test('no sign-in redirects to another site', async () => {
  const begun = await openPerson(trellis).auth('POST', '/sign-in/social', {
    provider: 'oidc',
    callbackURL: 'https://evil.example.com/',
  });
  assert.equal(begun.status, 403, begun.text);
});
