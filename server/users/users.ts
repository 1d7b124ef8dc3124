import type { Db, Queryable, Tx } from '../db/pool.ts';
import type { Role } from '../http/auth/caller.ts';
import { text } from '../http/text.ts';
import type { Job } from '../jobs/jobs.ts';

/** A user of the dashboard. */
export type User = {
  id: string;
  name: string;
  email: string;
  hasTwoFactor: boolean;
  /** False for a user who signs in only at the OpenID provider. */
  hasPassword: boolean;
  /** Undefined: no role, for example after the user's only environment was deleted. */
  role: Role | undefined;
  /** Environments of a developer or viewer, with the role in each. */
  places: { environment: string; role: Role }[];
  createdAt: Date;
  lastSignedInAt: Date | undefined;
};

type UserRow = Omit<User, 'role' | 'lastSignedInAt'> & { isOwner: boolean; lastSignedInAt: Date | null };

const selectUsers = `
  select u.id, u.name, u.email, u.two_factor_enabled as "hasTwoFactor", u.created_at as "createdAt",
    exists (select from member where user_id = u.id and role = 'owner') as "isOwner",
    (
      select coalesce(json_agg(json_build_object('environment', e.name, 'role', m.role) order by e.id), '[]')
      from member m
      join environment e on e.id = m.environment_id
      where m.user_id = u.id
    ) as places,
    u.last_signed_in_at as "lastSignedInAt",
    exists (select from sign_in_account where user_id = u.id and password is not null) as "hasPassword"
  from sign_in_user u`;

/** All users, oldest first. */
export async function listUsers(db: Queryable): Promise<User[]> {
  return (await db.query<UserRow>(`${selectUsers} order by u.created_at, u.id`)).map(asUser);
}

/** Undefined if there is no such user. */
export async function findUser(db: Queryable, id: string): Promise<User | undefined> {
  const [row] = await db.query<UserRow>(`${selectUsers} where u.id = $1`, [id]);
  return row && asUser(row);
}

/** No effect if there is no such user. */
export async function renameUser(
  tx: Tx,
  { id, name, at }: { id: string; name: string; at: Date },
): Promise<void> {
  await tx.query('update sign_in_user set name = $2, updated_at = $3 where id = $1', [id, name, at]);
}

/** Removes a user with the user's sessions, rights and links. Returns whether there was one. */
export async function deleteUser(tx: Tx, id: string): Promise<boolean> {
  return (await tx.query('delete from sign_in_user where id = $1 returning id', [id])).length > 0;
}

/** Ends all sessions, links and invitations: after a restore of older data it is unknown which of them were ended since. */
export async function endSignIns(tx: Tx): Promise<void> {
  await tx.query('delete from sign_in_session');
  await tx.query('delete from sign_in_verification');
  await tx.query('delete from invitation');
}

/** Removes a user's second factor and ends the user's sessions. Returns whether there was one. */
export async function removeSecondFactor(tx: Tx, id: string): Promise<boolean> {
  const removed = await tx.query(
    `update sign_in_user
     set two_factor_enabled = false, updated_at = now()
     where id = $1 and two_factor_enabled
     returning id`,
    [id],
  );
  if (removed.length === 0) return false;
  await tx.query('delete from sign_in_two_factor where user_id = $1', [id]);
  await tx.query('delete from sign_in_session where user_id = $1', [id]);
  return true;
}

function asUser({ isOwner, lastSignedInAt, ...row }: UserRow): User {
  const role = isOwner
    ? 'owner'
    : row.places.some((place) => place.role === 'developer')
      ? 'developer'
      : row.places[0]?.role;
  return { ...row, role, lastSignedInAt: lastSignedInAt ?? undefined };
}

/** Longer than a code of an authenticator is valid: its own 30 seconds, and those before and after them. */
export const codeMs = 300_000;

/** Marks a code as used, and returns whether it was unused. Of parallel calls one gets true. */
export async function useCode(
  db: Queryable,
  { userId, code, at }: { userId: string; code: string; at: Date },
): Promise<boolean> {
  const used = await db.query(
    `insert into sign_in_code (user_id, code, used_at)
     values ($1, $2, $3)
     on conflict (user_id, code) do update
     set used_at = excluded.used_at
     where sign_in_code.used_at <= $4
     returning user_id`,
    [userId, code, at, new Date(at.getTime() - codeMs)],
  );
  return used.length > 0;
}

/** One line, because mails show a name beside links. */
export const personName = text({ min: 1, max: 100 }).refine(
  (name) => !/[\p{Cc}\u2028\u2029]/u.test(name),
  'contains a line break or another control character',
);

/** The name that another service gives, in a form that is valid here. */
export function asPersonName(name: string): string {
  return name
    .toWellFormed()
    .replace(/[\p{Cc}\u2028\u2029]+/gu, ' ')
    .slice(0, 100)
    .toWellFormed();
}

/** Longer than the window of every limit on attempts. */
const longestRateWindowMs = 3_600_000;
/** Rows of each kind that one statement removes; the next run removes others. */
const maxAtOnce = 10_000;

/** Removes expired sessions, links and codes, and old counts of attempts. Used invitations were removed before. */
async function sweepSignIn(db: Db, at: Date): Promise<void> {
  for (const [table, over, than] of [
    ['sign_in_session', 'expires_at <= $1', at],
    ['sign_in_verification', 'expires_at <= $1', at],
    ['invitation', 'expires_at <= $1', at],
    ['sign_in_code', 'used_at <= $1', new Date(at.getTime() - codeMs)],
    ['sign_in_rate', 'last_request < $1', at.getTime() - longestRateWindowMs],
  ] as const) {
    await db.query(
      `delete from ${table}
       where ctid = any(array(select ctid from ${table} where ${over} limit ${maxAtOnce}))`,
      [than],
    );
  }
}

/** Each minute on one node. */
export function signInSweepJob({ db, now }: { db: Db; now: () => Date }): Job<Record<string, never>> {
  return { name: 'users.sweep', run: () => sweepSignIn(db, now()) };
}
