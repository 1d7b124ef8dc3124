import { first, type Queryable, type Tx } from '../db/pool.ts';
import type { Role } from '../http/roles.ts';

/** Somebody who can sign in. */
export type User = {
  id: string;
  name: string;
  email: string;
  hasTwoFactor: boolean;
  /** False of who signs in at the OpenID provider alone. */
  hasPassword: boolean;
  /** Undefined: nothing any more, as when their only environment was deleted. */
  role: Role | undefined;
  /** Of a developer or viewer, with the role in each. */
  places: { environment: string; role: Role }[];
  createdAt: Date;
  lastSignedInAt: Date | undefined;
};

type Row = Omit<User, 'role' | 'lastSignedInAt'> & { isOwner: boolean; lastSignedInAt: Date | null };

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

/** Everybody, oldest first. */
export async function listUsers(db: Queryable): Promise<User[]> {
  return (await db.query<Row>(`${selectUsers} order by u.created_at, u.id`)).map(asUser);
}

/** Undefined where there is no such user. */
export async function findUser(db: Queryable, id: string): Promise<User | undefined> {
  const row = first(await db.query<Row>(`${selectUsers} where u.id = $1`, [id]));
  return row && asUser(row);
}

/** Nothing where there is no such user. */
export async function renameUser(
  tx: Tx,
  { id, name, at }: { id: string; name: string; at: Date },
): Promise<void> {
  await tx.query('update sign_in_user set name = $2, updated_at = $3 where id = $1', [id, name, at]);
}

/** Removes a user with their sessions and rights, and the links they made. Tells whether there was one. */
export async function deleteUser(tx: Tx, id: string): Promise<boolean> {
  return (await tx.query('delete from sign_in_user where id = $1 returning id', [id])).length > 0;
}

/** Ends all sessions, links and invitations, as after data that are older came back: which of them were ended is not known. */
export async function endSignIns(tx: Tx): Promise<void> {
  await tx.query('delete from sign_in_session');
  await tx.query('delete from sign_in_verification');
  await tx.query('delete from invitation');
}

/** Takes a user's second factor away and ends their sessions. Tells whether there was one. */
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

function asUser({ isOwner, lastSignedInAt, ...row }: Row): User {
  const role = isOwner
    ? 'owner'
    : row.places.some((place) => place.role === 'developer')
      ? 'developer'
      : row.places[0]?.role;
  return { ...row, role, lastSignedInAt: lastSignedInAt ?? undefined };
}
