// What signing in leaves behind: entries in the audit log, within bounds, and rows that go when they are over.
// Slow: its tests take seconds each.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { hashPassword } from 'better-auth/crypto';
import { createFirstOwner } from '../../server/users/invitations.ts';
import { fromAnywhere, openPerson, password, type TestPerson, tokenIn } from '../support/person.ts';
import { openTrellis, type TestTrellis } from '../support/trellis.ts';

let trellis: TestTrellis;
let owner: TestPerson;
let id: string;
const email = 'owner@example.com';
before(async () => {
  trellis = await openTrellis(fromAnywhere);
  const user = { name: 'Owner', email, passwordHash: await hashPassword(password) };
  await trellis.db.transaction((tx) => createFirstOwner(tx, { user, at: new Date() }));
  owner = openPerson(trellis);
  await owner.signIn(email, password);
  id = ((await owner.call('GET', '/users/me')).body.data as { id: string }).id;
});
after(() => trellis.close());

type Entry = { actor: string; action: string; target: string; details: Record<string, unknown> };
const auditOf = async (query: string) => {
  const path = `/audit?scope=installation&limit=1000&${query}`;
  return (await owner.call('GET', path, { environment: 'dev' })).body.entries as Entry[];
};
async function invite(): Promise<string> {
  const body = { role: 'viewer', environments: ['dev'] };
  const made = await owner.call('POST', '/users/invitations', { body });
  return tokenIn((made.body.data as { link: string }).link);
}

test('wrong passwords of a user are reported once a minute, for any number of attempts from anywhere', async () => {
  const failed = () => auditOf('action=user.sign_in_failed');
  for (const round of [1, 2]) {
    const wrong = (of: string) => openPerson(trellis).signIn(of, 'not the password');
    await Promise.all([email, email, email, 'OWNER@example.com', 'nobody@example.com'].map(wrong));
    // Noted behind the answers; what there would be too much of one round is seen in the next.
    while ((await failed()).length < round) await sleep(10);
    const entries = await failed();
    assert.equal(entries.length, round, JSON.stringify(entries));
    for (const { actor, target, details } of entries) {
      assert.deepEqual([actor, target], ['nobody', id]);
      assert.match(String(details.address), /^203\.0\.113\.\d+$/);
    }
    await trellis.advance(61);
  }
});

test('an entry is committed or rolled back with its change', async () => {
  const before = (await auditOf('action=user.signed_in')).length;
  const signIn = () => openPerson(trellis).signIn(email, password);
  await trellis.db.query('alter table audit add constraint none check (false) not valid');
  const refused = await signIn();
  await trellis.db.query('alter table audit drop constraint none');
  assert.equal(refused.status, 500);
  const sessions = await trellis.db.query('select from sign_in_session where user_id = $1', [id]);
  assert.equal(sessions.length, 1);
  assert.equal((await signIn()).status, 200);
  assert.equal((await auditOf('action=user.signed_in')).length, before + 1);
});

test('an expired session has no entry of its end, and neither has one that is deleted with its user', async () => {
  const ended = async () => (await auditOf('action=user.session_ended')).length;
  const before = await ended();
  const body = { token: await invite(), name: 'Somebody', email: 'expires@example.com', password };
  await openPerson(trellis).call('POST', '/users', { body });
  await openPerson(trellis).signIn(body.email, password);
  const [row] = await trellis.db.query<{ id: string }>(
    `select id from sign_in_user where email = 'expires@example.com'`,
  );
  await trellis.db.query(
    `update sign_in_session set expires_at = now() - interval '1 s' where user_id = $1`,
    [row!.id],
  );
  await trellis.runJob('users.sweep');
  const left = await trellis.db.query('select from sign_in_session where user_id = $1', [row!.id]);
  assert.equal(left.length, 0);
  assert.equal((await owner.call('DELETE', `/users/${row!.id}`)).status, 200);
  assert.equal(await ended(), before);
});

test('expired rows are deleted, and others are kept', async () => {
  const count = async (table: string) =>
    Number((await trellis.db.query<{ count: number }>(`select count(*) as count from ${table}`))[0]?.count);
  const tables = ['sign_in_session', 'sign_in_verification', 'sign_in_rate', 'invitation'];
  const person = openPerson(trellis);
  await invite();
  await owner.call('POST', `/users/${id}/password-reset`);
  await person.signIn('nobody@example.com', password);
  const before = await Promise.all(tables.map(count));
  assert.ok(
    before.every((rows) => rows > 0),
    before.join(),
  );
  await trellis.runJob('users.sweep');
  const kept = await Promise.all(tables.map(count));
  assert.ok(
    kept.every((rows) => rows > 0),
    kept.join(),
  );
  await trellis.advance(8 * 86_400);
  await trellis.runJob('users.sweep');
  assert.deepEqual(await Promise.all(tables.map(count)), [0, 0, 0, 0]);
});
