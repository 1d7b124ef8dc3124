// Slow: it starts processes of its own.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { hashPassword } from 'better-auth/crypto';
import { runCommand } from '../../test/support/command.ts';
import { openTestDatabase, type TestDatabase, urlOf } from '../../test/support/database.ts';
import { createFirstOwner, getInvitation } from '../users/invitations.ts';

let database: TestDatabase;
const email = 'owner@example.com';
before(async () => {
  database = await openTestDatabase();
  const passwordHash = await hashPassword('correct horse battery');
  const user = { name: 'Ada\tOwner', email, passwordHash };
  await database.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
});
after(() => database.drop());

const trellis = (args: string[], more: Record<string, string> = {}) =>
  runCommand(['user', ...args], {
    DATABASE_URL: urlOf(database.target),
    BASE_URL: 'https://trellis.example.com',
    ...more,
  });
const lastAudit = async () =>
  (
    await database.db.query<{ actor: string; action: string }>(
      'select actor, action from audit order by id desc limit 1',
    )
  )[0];

test('the list has a line for each user, whatever their names hold', async () => {
  const { stdout, code } = await trellis(['list']);
  assert.equal(code, 0);
  assert.match(stdout, /^owner@example\.com\tAda Owner\towner\t-\tno\t-$/m);
  const [user] = JSON.parse((await trellis(['list', '--json'])).stdout) as object[];
  assert.partialDeepStrictEqual(user, {
    name: 'Ada\tOwner',
    email,
    role: 'owner',
    environments: [],
    two_factor: false,
    last_signed_in_at: null,
  });
});

test('an invitation is printed as a link that is good, and nothing else', async () => {
  const { stdout, stderr, code } = await trellis(['invite', '--role', 'owner', '--email', 'Bob@example.com']);
  assert.equal(code, 0, stderr);
  const [, token = ''] = /^https:\/\/trellis\.example\.com\/app\/invitation#(\S+)\n$/.exec(stdout) ?? [];
  const found = await getInvitation(database.db, { token, at: new Date() });
  assert.deepEqual([found.role, found.email], ['owner', 'bob@example.com']);
  assert.deepEqual(await lastAudit(), { actor: 'command line', action: 'invitation.created' });
  for (const [code, args, words] of [
    [2, ['invite', '--role', 'owner', '--environment', 'dev'], /--environment is required for/],
    [2, ['invite', '--role', 'boss'], /Allowed choices are owner, developer, viewer/],
    [1, ['invite', '--role', 'viewer', '--environment', 'none'], /no environment "none"/],
    [2, ['invite', '--role', 'owner', '--email', 'bob@localhost'], /not a valid e-mail address/],
    [1, ['invite', '--role', 'owner', '--email', email], /user has this e-mail address already/],
  ] as const) {
    const refused = await trellis([...args]);
    assert.equal(refused.code, code);
    assert.match(refused.stderr, words);
  }
});

test('a reset link is made for a user that there is', async () => {
  const made = await trellis(['reset-link', 'OWNER@example.com']);
  assert.match(made.stdout, /^https:\/\/trellis\.example\.com\/app\/reset-password#[\w-]{43}\n$/);
  assert.deepEqual(await lastAudit(), { actor: 'command line', action: 'user.password_reset_made' });
  const unknown = await trellis(['reset-link', 'nobody@example.com']);
  assert.equal(unknown.code, 1);
  assert.match(unknown.stderr, /no user "nobody@example\.com"/);
});

test('a second factor is taken away once, with the sessions', async () => {
  const { db } = database;
  await db.query('update sign_in_user set two_factor_enabled = true');
  await db.query(
    `insert into sign_in_two_factor (id, user_id, secret, backup_codes) select 'a', id, 's', 'b' from sign_in_user`,
  );
  await db.query(
    `insert into sign_in_session (id, user_id, token, expires_at)
     select 'a', id, 't', now() + interval '1 day'
     from sign_in_user`,
  );
  assert.equal((await trellis(['remove-second-factor', email])).code, 0);
  assert.deepEqual(await lastAudit(), { actor: 'command line', action: 'user.second_factor_removed' });
  for (const table of ['sign_in_two_factor', 'sign_in_session'])
    assert.equal((await db.query(`select from ${table}`)).length, 0, table);
  assert.match((await trellis(['remove-second-factor', email])).stderr, /has no second factor/);
});

test('an unknown command is reported, and without sign-in there are no users', async () => {
  for (const args of [['reset-link'], ['reset-link', 'a', 'b']]) {
    const { code, stderr } = await trellis(args);
    assert.equal(code, 2);
    assert.match(stderr, /trellis user reset-link/);
  }
  const off = { TRELLIS_SIGN_IN: 'off', BASE_URL: 'http://localhost:3003' };
  assert.match((await trellis(['list'], off)).stderr, /TRELLIS_SIGN_IN is off/);
});
