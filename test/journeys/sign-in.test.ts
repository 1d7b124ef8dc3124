// People at the dashboard: the first owner, signing in, second factors, invitations, resets, sessions.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { acceptInvitation, prepareOwner } from '../../server/users/invitations.ts';
import { codeMs, useCode } from '../../server/users/users.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn, totpCode } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let owner: TestPerson;
before(async () => {
  trellis = await openTrellis(fromAnywhere);
});
after(() => trellis.close());

const codeOf = ({ status, body }: { status: number; body: Record<string, unknown> }) => [
  status,
  (body.error as { code?: string } | undefined)?.code ?? body.code,
];
const dataOf = <T>({ body }: { body: Record<string, unknown> }) => body.data as T;
const setUpLink = (signIn: Partial<{ admin: { email: string; password: string }; isOff: boolean }> = {}) =>
  prepareOwner(trellis.db, {
    settings: { isOff: false, admin: undefined, oidc: undefined, ...signIn },
    baseUrl: trellis.baseUrl,
    hashPassword,
    at: new Date(),
  });
const newUser = (token: string, email: string) => ({ token, name: 'Somebody', email, password });
async function invite(given: object): Promise<string> {
  const made = await owner.call('POST', '/users/invitations', { body: given });
  assert.equal(made.status, 201, made.text);
  return tokenIn(dataOf<{ link: string }>(made).link);
}
async function join(email: string, given: object): Promise<TestPerson> {
  const person = openPerson(trellis);
  const made = await person.call('POST', '/users', { body: newUser(await invite(given), email) });
  assert.equal(made.status, 201, made.text);
  assert.equal((await person.signIn(email, password)).status, 200);
  return person;
}

test('of twenty concurrent uses of the set-up link one creates the owner, and no later use does', async () => {
  const [link = '', other = ''] = [await setUpLink(), await setUpLink()];
  const token = tokenIn(link);
  const stored = await trellis.db.query<{ hash: Buffer }>('select hash from invitation');
  assert.ok(stored.every(({ hash }) => !hash.includes(token)));
  const first = await openPerson(trellis).call('POST', '/users/invitation', { body: { token } });
  assert.equal(dataOf<{ kind: string }>(first).kind, 'setup');

  const passwordHash = await hashPassword(password);
  const tries = Array.from({ length: 20 }, (_, n) =>
    trellis.db.transaction((tx) =>
      acceptInvitation(tx, {
        token: tokenIn(n % 2 === 0 ? link : other),
        user: { name: 'Owner', email: `owner${n}@example.com`, passwordHash },
        at: new Date(),
      }),
    ),
  );
  const answers = await Promise.allSettled(tries);
  const [made, ...more] = answers.flatMap((answer) => (answer.status === 'fulfilled' ? [answer.value] : []));
  assert.ok(made !== undefined && more.length === 0);
  for (const answer of answers)
    if (answer.status === 'rejected') assert.equal(answer.reason.code, 'invalid_invitation');
  const late = { body: newUser(token, 'late@example.com') };
  assert.deepEqual(codeOf(await openPerson(trellis).call('POST', '/users', late)), [
    404,
    'invalid_invitation',
  ]);
  const [row] = await trellis.db.query<{ count: number }>('select count(*) as count from sign_in_user');
  assert.equal(row?.count, 1);
  assert.equal(await setUpLink(), undefined);
  assert.equal(await setUpLink({ admin: { email: 'late@example.com', password } }), undefined);

  owner = openPerson(trellis);
  assert.equal((await owner.signIn(made.email, password)).status, 200);
  const me = dataOf<{ role: string; environments: { name: string }[] }>(await owner.call('GET', '/users/me'));
  assert.equal(me.role, 'owner');
  assert.deepEqual(
    me.environments.map(({ name }) => name),
    ['dev', 'prod'],
  );
});

test('a wrong link, an old one, and a sign-up without a link create no user', async () => {
  const person = openPerson(trellis);
  const body = newUser('a'.repeat(43), 'eve@example.com');
  assert.deepEqual(codeOf(await person.call('POST', '/users', { body })), [404, 'invalid_invitation']);
  assert.equal((await person.call('POST', '/users', { body: { ...body, token: 'x' } })).status, 400);
  const token = await invite({ role: 'viewer', environments: ['dev'] });
  await trellis.db.query(`update invitation set expires_at = now() - interval '1 s'`);
  assert.deepEqual(codeOf(await person.call('POST', '/users', { body: { ...body, token } })), [
    404,
    'invalid_invitation',
  ]);
  const signUp = await person.auth('POST', '/sign-up/email', { name: 'Eve', email: body.email, password });
  assert.deepEqual(codeOf(signUp), [404, 'not_found']);
});

test('a wrong password gets the same error as an unknown address, and too many attempts must wait', async () => {
  const person = openPerson(trellis);
  const unknown = await person.signIn('nobody@example.com', password);
  const { email } = dataOf<{ email: string }>(await owner.call('GET', '/users/me'));
  const wrong = await person.signIn(email, 'not the password');
  assert.deepEqual([wrong.status, wrong.text], [unknown.status, unknown.text]);
  assert.equal(wrong.status, 401);
  for (let n = 0; n < 3; n += 1) await person.signIn(email, 'not the password');
  const held = await person.signIn(email, password);
  assert.equal(held.status, 429);
  assert.match(held.headers.get('retry-after') ?? '', /^[1-9]\d?$/);
  assert.equal((await openPerson(trellis).signIn(email, password)).status, 200);
});

test('the cookie is out of reach of scripts and of other sites, and no answer to it may be read elsewhere', async () => {
  const person = openPerson(trellis);
  const { email } = dataOf<{ email: string }>(await owner.call('GET', '/users/me'));
  const signedIn = await person.signIn(email, password);
  const cookies = signedIn.headers.getSetCookie();
  assert.ok(cookies.some((line) => line.startsWith('trellis.session_token=')));
  for (const line of cookies) assert.match(line, /; HttpOnly; SameSite=Lax/i);
  for (const answer of [signedIn, await person.call('GET', '/connections', { environment: 'dev' })]) {
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get('access-control-allow-origin'), null);
  }
});

test('an invitation makes one user, with the rights it names and its address', async () => {
  const given = { role: 'developer', environments: ['dev'], email: 'Dee@example.com' };
  const token = await invite(given);
  const person = openPerson(trellis);
  const another = await person.call('POST', '/users', { body: newUser(token, 'other@example.com') });
  assert.deepEqual(codeOf(another), [400, 'invalid_body']);
  assert.equal(
    (await person.call('POST', '/users', { body: newUser(token, 'dee@example.com') })).status,
    201,
  );
  const again = await person.call('POST', '/users', { body: newUser(token, 'dee@example.com') });
  assert.deepEqual(codeOf(again), [404, 'invalid_invitation']);
  assert.equal((await person.signIn('dee@example.com', password)).status, 200);
  const me = dataOf<{ role: string; environments: object[] }>(await person.call('GET', '/users/me'));
  assert.equal(me.role, 'developer');
  assert.equal(me.environments.length, 1);
  assert.deepEqual(codeOf(await person.call('GET', '/connections', { environment: 'prod' })), [
    403,
    'forbidden',
  ]);
  assert.deepEqual(codeOf(await person.call('GET', '/users')), [403, 'forbidden']);

  const taken = await invite({ role: 'viewer', environments: ['dev'] });
  const twice = () => openPerson(trellis).call('POST', '/users', { body: newUser(taken, 'dee@example.com') });
  assert.deepEqual(codeOf(await twice()), [409, 'user_exists']);
  const listed = dataOf<{ id: number }[]>(await owner.call('GET', '/users/invitations'));
  for (const { id } of listed)
    assert.equal((await owner.call('DELETE', `/users/invitations/${id}`)).status, 200);
  assert.deepEqual(codeOf(await twice()), [404, 'invalid_invitation']);
});

test('with a second factor the password alone does not sign in, and a backup code is valid once', async () => {
  const email = 'two@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const enabled = await person.auth('POST', '/two-factor/enable', { password });
  assert.equal(enabled.status, 200, enabled.text);
  const { totpURI, backupCodes } = enabled.body as { totpURI: string; backupCodes: string[] };
  const secret = new URL(totpURI).searchParams.get('secret') ?? '';
  // Each is good once, and the one before and behind it, too.
  const code = (steps = 0) => totpCode(secret, new Date(Date.now() + steps * 30_000));
  assert.equal((await person.auth('POST', '/two-factor/verify-totp', { code: code() })).status, 200);
  const [row] = await trellis.db.query<{ secret: string; backup_codes: string }>(
    'select secret, backup_codes from sign_in_two_factor',
  );
  assert.ok(row !== undefined && !row.secret.includes(secret) && !row.backup_codes.includes(backupCodes[0]!));

  const again = openPerson(trellis);
  const asked = await again.signIn(email, password);
  assert.equal(asked.body.twoFactorRedirect, true);
  assert.deepEqual(codeOf(await again.call('GET', '/users/me')), [401, 'not_signed_in']);
  assert.equal((await again.auth('POST', '/two-factor/verify-totp', { code: '000000' })).status, 401);
  const behind = code(1);
  const good = await again.auth('POST', '/two-factor/verify-totp', { code: behind, trustDevice: true });
  assert.equal(good.status, 200, good.text);
  assert.ok(good.headers.getSetCookie().every((line) => !/trust/.test(line)));
  assert.equal(dataOf<{ two_factor: boolean }>(await again.call('GET', '/users/me')).two_factor, true);
  // A browser that has been through it is asked again, and a code that was used signs in nobody else.
  assert.equal((await again.signIn(email, password)).body.twoFactorRedirect, true);
  const overlooking = openPerson(trellis);
  await overlooking.signIn(email, password);
  const used = await overlooking.auth('POST', '/two-factor/verify-totp', { code: behind });
  assert.deepEqual(codeOf(used), [401, 'INVALID_CODE']);

  for (const status of [200, 401]) {
    const lost = openPerson(trellis);
    await lost.signIn(email, password);
    const answer = await lost.auth('POST', '/two-factor/verify-backup-code', { code: backupCodes[0] });
    assert.equal(answer.status, status, answer.text);
  }
});

test('of twenty who come with the same code at once one is signed in', async () => {
  const [{ id = '' } = {}] = await trellis.db.query<{ id: string }>('select id from sign_in_user limit 1');
  const use = (at: Date) => useCode(trellis.db, { userId: id, code: '123456', at });
  const at = new Date();
  const answers = await Promise.all(Array.from({ length: 20 }, () => use(at)));
  assert.equal(answers.filter((isFirst) => isFirst).length, 1);
  // By then it is shown no more; that it comes again by chance is nobody's fault.
  assert.equal(await use(new Date(at.getTime() + codeMs)), true);
});

test('a new password ends every other session, and sign-ins that began with the former one', async () => {
  const email = 'renews@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const other = openPerson(trellis);
  await other.signIn(email, password);
  const { id } = dataOf<{ id: string }>(await person.call('GET', '/users/me'));
  const made = await owner.call('POST', `/users/${id}/password-reset`);
  const token = tokenIn(dataOf<{ link: string }>(made).link);
  const newPassword = 'another good password';
  const given = { currentPassword: password, newPassword, revokeOtherSessions: false };
  const changed = await person.auth('POST', '/change-password', given);
  assert.equal(changed.status, 200, changed.text);
  assert.equal((await person.call('GET', '/users/me')).status, 200);
  assert.deepEqual(codeOf(await other.call('GET', '/users/me')), [401, 'not_signed_in']);
  const late = await openPerson(trellis).auth('POST', '/reset-password', { token, newPassword: password });
  assert.equal(late.status, 400);
});

test('who signs in while the password is being changed has no session of the former one', async () => {
  const email = 'meanwhile@example.com';
  await join(email, { role: 'viewer', environments: ['dev'] });
  // The password is changed when it was found right, and before there is a session.
  await trellis.db.query(`
    create function changes() returns trigger language plpgsql as $$ begin
      update sign_in_account set password = 'other' where user_id = new.user_id;
      return new;
    end $$`);
  await trellis.db.query(
    'create trigger changes before insert on sign_in_session for each row execute function changes()',
  );
  const person = openPerson(trellis);
  const answer = await person.signIn(email, password);
  await trellis.db.query('drop function changes cascade');
  assert.deepEqual(codeOf(answer), [401, 'INVALID_EMAIL_OR_PASSWORD']);
  assert.equal((await person.call('GET', '/users/me')).status, 401);
});

test('the time of the last sign-in is kept when the sessions are deleted', async () => {
  const email = 'away@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  await person.auth('POST', '/sign-out', {});
  const users = dataOf<{ email: string; last_signed_in_at: string | null }[]>(
    await owner.call('GET', '/users'),
  );
  assert.ok(users.find((user) => user.email === email)?.last_signed_in_at);
});

test('a page that requests its session extends it to seven days, and nothing else does', async () => {
  const email = 'lasting@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const { id } = dataOf<{ id: string }>(await person.call('GET', '/users/me'));
  const daysLeft = async () => {
    const [row] = await trellis.db.query<{ days: number }>(
      'select round(extract(epoch from expires_at - now()) / 86400)::int as days from sign_in_session where user_id = $1',
      [id],
    );
    return row?.days;
  };
  await trellis.db.query(
    `update sign_in_session set expires_at = now() + interval '2 days' where user_id = $1`,
    [id],
  );
  assert.equal((await person.call('GET', '/users/me')).status, 200);
  assert.equal(await daysLeft(), 2);
  assert.equal((await person.auth('GET', '/get-session')).status, 200);
  assert.equal(await daysLeft(), 7);
});

test('an answer to a session that has ended takes no cookie away, which may be of the session after it', async () => {
  const person = await join('replaced@example.com', { role: 'viewer', environments: ['dev'] });
  const former = person.cookie();
  const given = { currentPassword: password, newPassword: `${password} 2`, revokeOtherSessions: true };
  assert.equal((await person.auth('POST', '/change-password', given)).status, 200);
  for (const path of ['/get-session', '/list-sessions']) {
    const late = await fetch(`${trellis.baseUrl}/api/auth${path}`, { headers: { cookie: former } });
    assert.deepEqual(
      [late.status === 200 ? await late.json() : null, late.headers.getSetCookie()],
      [null, []],
    );
  }
  assert.equal((await person.call('GET', '/users/me')).status, 200);
});

test('people name themselves in a line of a hundred characters, and set nothing else of themselves', async () => {
  const email = 'named@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const rename = (name: unknown) => person.call('PATCH', '/users/me', { body: { name } });
  for (const name of ['', 'x'.repeat(101), null, { a: 1 }, 'A\nB', 'A\u2028B'])
    assert.equal((await rename(name)).status, 400, JSON.stringify(name));
  assert.equal((await rename('Zoë Ó Súilleabháin')).status, 200);
  assert.equal(dataOf<{ name: string }>(await person.call('GET', '/users/me')).name, 'Zoë Ó Súilleabháin');
  assert.equal((await person.auth('POST', '/update-user', { name: 'x', image: 'javascript:0' })).status, 404);
});

test('tries are counted by route, however it is spelled', async () => {
  const person = openPerson(trellis);
  for (const path of [
    '/sign-in/email',
    '/sign-in/email/',
    '/sign-in/so%63ial',
    '/s%69gn-in/email',
    '/sign-in/email?a=1',
  ])
    await person.auth('POST', path, { email: 'nobody@example.com', password });
  const { status } = await person.auth('POST', '/sign-in/email/', { email: 'nobody@example.com', password });
  assert.equal(status, 401);
  const keys = await trellis.db.query<{ key: string }>(
    `select key from sign_in_rate where key like '%/s%n-in/%'`,
  );
  const routes = new Set(keys.map(({ key }) => key.replace(/^[^/]*\|?/, '')));
  assert.deepEqual([...routes].map((route) => route.slice(route.indexOf('/'))).toSorted(), [
    '/sign-in/email',
    '/sign-in/social',
  ]);
});

test('sessions are listed and ended, here at once', async () => {
  const email = 'many@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const other = openPerson(trellis);
  await other.signIn(email, password);
  assert.equal((await other.call('GET', '/users/me')).status, 200);
  const sessions = await person.auth('GET', '/list-sessions');
  assert.equal((sessions.body as unknown as object[]).length, 2, sessions.text);
  assert.equal((await person.auth('POST', '/revoke-other-sessions', {})).status, 200);
  assert.deepEqual(codeOf(await other.call('GET', '/users/me')), [401, 'not_signed_in']);
  assert.equal((await person.auth('POST', '/sign-out', {})).status, 200);
  assert.deepEqual(codeOf(await person.call('GET', '/users/me')), [401, 'not_signed_in']);
});

test('a cookie that was kept is worth nothing after the sign-out', async () => {
  const person = await join('kept@example.com', { role: 'viewer', environments: ['dev'] });
  const cookie = person.cookie();
  assert.equal((await openPerson(trellis).call('GET', '/users/me', { headers: { cookie } })).status, 200);
  await person.auth('POST', '/sign-out', {});
  const late = await openPerson(trellis).call('GET', '/users/me', { headers: { cookie } });
  assert.deepEqual(codeOf(late), [401, 'not_signed_in']);
  const forged = cookie.replace(/=([^.]{4})/, '=AAAA');
  const answer = await openPerson(trellis).call('GET', '/users/me', { headers: { cookie: forged } });
  assert.deepEqual(codeOf(answer), [401, 'not_signed_in']);
});

test('an owner makes a reset link, which sets a password once and ends the sessions', async () => {
  const email = 'lost@example.com';
  const person = await join(email, { role: 'viewer', environments: ['dev'] });
  const { id } = dataOf<{ id: string }>(await person.call('GET', '/users/me'));
  assert.deepEqual(codeOf(await person.call('POST', `/users/${id}/password-reset`)), [403, 'forbidden']);
  const made = await owner.call('POST', `/users/${id}/password-reset`);
  const token = tokenIn(dataOf<{ link: string }>(made).link);
  const inTable = await trellis.db.query(
    `select from sign_in_verification where identifier like '%' || $1 || '%'`,
    [token],
  );
  assert.equal(inTable.length, 0);
  const set = (newPassword: string) =>
    openPerson(trellis).auth('POST', '/reset-password', { token, newPassword });
  assert.equal((await set('short')).status, 400);
  assert.equal((await set('another good password')).status, 200);
  assert.equal((await set('a third good password')).status, 400);
  assert.deepEqual(codeOf(await person.call('GET', '/users/me')), [401, 'not_signed_in']);
  assert.equal((await openPerson(trellis).signIn(email, password)).status, 401);
  assert.equal((await openPerson(trellis).signIn(email, 'another good password')).status, 200);
});

test('a removed user is refused at once, and the last owner cannot be removed', async () => {
  const person = await join('gone@example.com', { role: 'developer', environments: ['dev', 'prod'] });
  const { id } = dataOf<{ id: string }>(await person.call('GET', '/users/me'));
  assert.equal((await person.call('GET', '/connections', { environment: 'prod' })).status, 200);
  const patch = { role: 'viewer', environments: ['dev'] };
  assert.equal((await owner.call('PATCH', `/users/${id}`, { body: patch })).status, 200);
  assert.equal((await person.call('GET', '/connections', { environment: 'prod' })).status, 403);
  assert.equal((await owner.call('DELETE', `/users/${id}`)).status, 200);
  assert.deepEqual(codeOf(await person.call('GET', '/users/me')), [401, 'not_signed_in']);
  const me = dataOf<{ id: string }>(await owner.call('GET', '/users/me')).id;
  assert.deepEqual(codeOf(await owner.call('DELETE', `/users/${me}`)), [409, 'last_owner']);
  assert.deepEqual(codeOf(await owner.call('PATCH', `/users/${me}`, { body: patch })), [409, 'last_owner']);
});

test('owners make, rename and delete environments, but not one that is in use', async () => {
  const make = (name: string) => owner.call('POST', '/environments', { body: { name } });
  assert.equal((await make('staging')).status, 201);
  assert.deepEqual(codeOf(await make('staging')), [409, 'environment_exists']);
  assert.equal((await make('Not A Name')).status, 400);
  assert.equal((await owner.call('GET', '/connections', { environment: 'staging' })).status, 200);
  const renamed = await owner.call('PATCH', '/environments/staging', { body: { name: 'qa' } });
  assert.equal(renamed.status, 200, renamed.text);
  assert.equal((await owner.call('GET', '/connections', { environment: 'staging' })).status, 403);
  const integration = {
    provider: 'private-api-key',
    unique_key: 'notes',
    integration_config: { base_url: 'https://api.example.com' },
  };
  const made = await owner.call('POST', '/integrations', { environment: 'qa', body: integration });
  assert.equal(made.status, 200, made.text);
  const connected = await owner.call('POST', '/connections', {
    environment: 'qa',
    body: {
      provider_config_key: 'notes',
      connection_id: 'a',
      credentials: { type: 'API_KEY', apiKey: 'k-123456789012345' },
    },
  });
  assert.equal(connected.status, 201, connected.text);
  assert.deepEqual(codeOf(await owner.call('DELETE', '/environments/qa')), [409, 'environment_in_use']);
  const gone = await owner.call('DELETE', '/connections/a?provider_config_key=notes', { environment: 'qa' });
  assert.equal(gone.status, 200, gone.text);
  assert.equal((await owner.call('DELETE', '/environments/qa')).status, 200);
  assert.deepEqual(codeOf(await owner.call('DELETE', '/environments/qa')), [404, 'not_found']);
  assert.deepEqual(codeOf(await owner.call('DELETE', '/environments/dev')), [403, 'forbidden']);
});

type Entry = { actor: string; action: string; target: string; details: Record<string, unknown> };
const auditOf = async (query: string) => {
  const { status, body, text } = await owner.call('GET', `/audit?scope=installation&limit=1000&${query}`, {
    environment: 'dev',
  });
  assert.equal(status, 200, text);
  return body.entries as Entry[];
};

test('changes of users and by users are in the audit log, for owners alone', async () => {
  const entries = await auditOf('');
  const actions = [...new Set(entries.map(({ action }) => action))].toSorted();
  assert.deepEqual(actions, [
    // Of an environment that was deleted.
    'connection.deleted',
    'connection.imported',
    'environment.created',
    'environment.deleted',
    'environment.renamed',
    'integration.created',
    'invitation.created',
    'invitation.deleted',
    'user.changed',
    'user.code_refused',
    'user.created',
    'user.password_changed',
    'user.password_reset_made',
    'user.removed',
    'user.renamed',
    'user.session_ended',
    'user.sign_in_failed',
    'user.signed_in',
    'user.two_factor_enabled',
  ]);
  const [signedIn] = await auditOf('action=user.signed_in');
  assert.match(String(signedIn?.details.address), /^203\.0\.113\.\d+$/);
  const ofDev = await owner.call('GET', '/audit?limit=1000', { environment: 'dev' });
  assert.ok((ofDev.body.entries as Entry[]).every(({ action }) => !action.startsWith('user.')));
  const developer = await join('audits@example.com', { role: 'developer', environments: ['dev'] });
  const refused = await developer.call('GET', '/audit?scope=installation', { environment: 'dev' });
  assert.deepEqual(codeOf(refused), [403, 'forbidden']);
  assert.deepEqual(codeOf(await trellis.call('GET', '/audit?scope=installation')), [403, 'forbidden']);
});
