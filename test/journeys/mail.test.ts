// Links by mail, where SMTP_URL is set.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { hashPassword } from 'better-auth/crypto';
import { ConfigError, loadConfig } from '../../server/config/config.ts';
import { createFirstOwner } from '../../server/users/invitations.ts';
import { type MailServer, openMailServer } from '../support/mail-server.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let server: MailServer;
let trellis: TestTrellis;
let owner: TestPerson;
const email = 'owner@example.com';
before(async () => {
  server = await openMailServer();
  trellis = await openTrellis({
    ...fromAnywhere,
    SMTP_URL: server.url,
    SMTP_FROM: 'Trellis <trellis@example.com>',
  });
  const user = { name: 'Ada', email, passwordHash: await hashPassword(password) };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(email, password);
});
after(async () => {
  await trellis.close();
  await server.close();
});

/** The newest mail, as it reads: quoted-printable folds long lines (RFC 2045 §6.7). */
async function mail(count: number): Promise<{ to: string; text: string; link: string }> {
  while (server.mails.length < count) await sleep(10);
  const { to, text: raw } = server.mails[count - 1]!;
  const text = raw
    .replace(/=\n/g, '')
    .replace(/=([0-9A-F]{2})/g, (_, code) => String.fromCharCode(Number.parseInt(code, 16)));
  return { to, text, link: /http\S+/.exec(text)?.[0] ?? '' };
}
const invite = async (to?: string) => {
  const body = { role: 'viewer', environments: ['dev'], ...(to && { email: to }) };
  const { status, body: answer } = await owner.call('POST', '/users/invitations', { body });
  assert.equal(status, 201);
  return answer.data as { link: string; mailed: boolean };
};
const ask = (person: TestPerson, of: string) => person.auth('POST', '/request-password-reset', { email: of });

test("an invitation with an address is mailed there, with the inviter's name, and returned nevertheless", async () => {
  const made = await invite('Dee@Example.com');
  assert.equal(made.mailed, true);
  const { to, text, link } = await mail(1);
  assert.deepEqual([to, link], ['dee@example.com', made.link]);
  assert.match(text, /^From: Trellis <trellis@example\.com>$/m);
  assert.match(text, /^Ada invites you/m);
  const body = { token: tokenIn(link), name: 'Dee', email: to, password };
  assert.equal((await openPerson(trellis).call('POST', '/users', { body })).status, 201);
  assert.equal((await invite()).mailed, false);
  assert.equal(server.mails.length, 1);
});

test('mail that the mail server refuses is not lost, and no log contains its link', async () => {
  server.refuse(true);
  const made = await invite('eve@example.com');
  server.refuse(false);
  assert.equal(made.mailed, false);
  assert.match(made.link, /#/);
});

test('a forgotten password gets a link, and an unknown address gets the same response', async () => {
  const signIn = await openPerson(trellis).call('GET', '/users/sign-in', { environment: undefined });
  assert.equal((signIn.body.data as { mail: boolean }).mail, true);
  const unknown = await ask(openPerson(trellis), 'nobody@example.com');
  const known = await ask(openPerson(trellis), 'dee@example.com');
  assert.deepEqual([known.status, known.text], [unknown.status, unknown.text]);
  assert.equal(known.status, 200);
  const { to, link } = await mail(2);
  assert.equal(to, 'dee@example.com');
  assert.ok(link.startsWith(`${trellis.baseUrl}/app/reset-password#`), link);
  trellis.watch.made('link', tokenIn(link));
  const set = { token: tokenIn(link), newPassword: 'another good password' };
  assert.equal((await openPerson(trellis).auth('POST', '/reset-password', set)).status, 200);
  assert.equal((await openPerson(trellis).signIn(to, set.newPassword)).status, 200);
});

test("an owner's reset is mailed to the user, and is good once", async () => {
  const users = (await owner.call('GET', '/users')).body.data as { id: string; email: string }[];
  const { id } = users.find((user) => user.email === 'dee@example.com')!;
  const made = (await owner.call('POST', `/users/${id}/password-reset`)).body.data as {
    link: string;
    mailed: boolean;
  };
  const { to, link } = await mail(3);
  assert.deepEqual([made.mailed, to, link], [true, 'dee@example.com', made.link]);
});

test('mailboxes are protected: a user has at most five valid links, and an address may request five an hour', async () => {
  const answers = await Promise.all(Array.from({ length: 8 }, () => ask(openPerson(trellis), email)));
  assert.ok(answers.every(({ status }) => status === 200));
  // Each is mailed behind its answer: what was asked for afterwards comes later.
  await mail(8);
  const person = openPerson(trellis);
  const asked = [];
  for (let n = 0; n < 6; n += 1) asked.push((await ask(person, 'nobody@example.com')).status);
  assert.deepEqual(asked, [200, 200, 200, 200, 200, 429]);
  assert.equal(server.mails.filter(({ to }) => to === email).length, 5);
});

test('a pending second factor does not count as a password reset', async () => {
  const [{ id = '' } = {}] = await trellis.db.query<{ id: string }>(
    'select id from sign_in_user where email = $1',
    [email],
  );
  await trellis.db.query('delete from sign_in_verification');
  await trellis.db.query(
    `insert into sign_in_verification (id, identifier, value, expires_at)
     select 'w' || n, 'w' || n, $1, now() + interval '10 minutes' from generate_series(1, 6) n`,
    [id],
  );
  const { length } = server.mails;
  assert.equal((await ask(openPerson(trellis), email)).status, 200);
  assert.equal((await mail(length + 1)).to, email);
});

test('an incomplete pair of settings or an invalid address is refused, and no password is printed', () => {
  const faultsOf = (settings: Record<string, string>) => {
    try {
      loadConfig(settings, false);
    } catch (error) {
      assert.ok(error instanceof ConfigError);
      return error.faults.join('\n');
    }
    return '';
  };
  const from = { SMTP_FROM: 'a@example.com' };
  assert.match(faultsOf(from), /set together/);
  assert.match(faultsOf({ SMTP_URL: 'smtp://localhost' }), /set together/);
  const wrong = faultsOf({ ...from, SMTP_URL: 'https://me:hidden@example.com' });
  assert.match(wrong, /SMTP_URL must be/);
  assert.ok(!wrong.includes('hidden'));
  assert.match(faultsOf({ SMTP_URL: 'smtp://localhost', SMTP_FROM: 'nobody' }), /SMTP_FROM must be/);
  assert.equal(faultsOf({ ...from, SMTP_URL: 'smtps://me:secret@mail.example.com:465' }), '');
});
