/**
 * The rights of users.
 *
 * Owns: the table `member`. Does not own: the rights of a role (`http/auth/caller.ts`), how users are made (`invitations.ts`).
 */
import type { Queryable, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Role } from '../http/auth/caller.ts';

/** An owner has no list of environments: the role covers all of them. */
export type Grant =
  | { role: 'owner'; environmentIds?: undefined }
  | { role: 'developer' | 'viewer'; environmentIds: readonly number[] };

/** Replaces the rights of a user. */
export async function putGrant(
  tx: Tx,
  { userId, grant, at }: { userId: string; grant: Grant; at: Date },
): Promise<void> {
  await tx.query('delete from member where user_id = $1', [userId]);
  if (grant.role === 'owner') {
    await tx.query('insert into member (user_id, role, created_at) values ($1, $2, $3)', [
      userId,
      'owner',
      at,
    ]);
    return;
  }
  // An environment that was deleted meanwhile is skipped.
  await tx.query(
    `insert into member (user_id, environment_id, role, created_at)
     select $1, id, $3, $4
     from environment
     where id = any($2)`,
    [userId, grant.environmentIds, grant.role, at],
  );
}

/** Until the transaction ends, no user becomes an owner or stops being one. */
export async function lockOwners(tx: Tx): Promise<void> {
  await tx.query('lock table member in share row exclusive mode');
}

/** Whether there is an owner, not counting the user `but`. */
export async function hasOwner(db: Queryable, but?: string): Promise<boolean> {
  const found = await db.query(
    `select from member where role = 'owner' and user_id is distinct from $1 limit 1`,
    [but ?? null],
  );
  return found.length > 0;
}

/** Throws `last_owner` if this user is the only owner; call it after `lockOwners`. */
export async function requireOtherOwner(tx: Tx, userId: string): Promise<void> {
  if (!(await hasOwner(tx, userId))) throw new AppError('last_owner');
}

/**
 * Checked in the transaction that grants something lasting. The caller's rights are cached for a second, in which a right
 * that was just revoked could be used to restore it. No other transaction revokes it until this transaction ends.
 */
export type Rights = {
  /** Throws `forbidden` if the person is no longer an owner. */
  requireOwner(tx: Tx, person: { userId: string }): Promise<void>;
  /** Throws `forbidden` if the user no longer has this role in the environment. */
  requireRole(tx: Tx, user: { userId: string; environmentId: number; role: Role }): Promise<void>;
};

export const storedRights: Rights = {
  async requireOwner(tx, { userId }) {
    const found = await tx.query(`select from member where user_id = $1 and role = 'owner' for share`, [
      userId,
    ]);
    if (found.length === 0) throw new AppError('forbidden', 'You are no longer an owner.');
  },
  async requireRole(tx, { userId, environmentId, role }) {
    const found = await tx.query(
      `select from member
       where user_id = $1 and role = $3 and (environment_id = $2 or environment_id is null)
       for share`,
      [userId, environmentId, role],
    );
    if (found.length === 0) throw new AppError('forbidden', 'Your role in this environment has changed.');
  },
};

/** If the sign-in is switched off, no right can be revoked. */
export const everybodysRights: Rights = { requireOwner: async () => {}, requireRole: async () => {} };

/** The IDs of these environments; throws `not_found` with the first name that does not exist. */
export async function environmentIdsOf(db: Queryable, names: readonly string[]): Promise<number[]> {
  const rows = await db.query<{ id: number; name: string }>(
    'select id, name from environment where name = any($1)',
    [names],
  );
  const missing = names.find((name) => !rows.some((row) => row.name === name));
  if (missing !== undefined) throw new AppError('not_found', `There is no environment "${missing}".`);
  return rows.map(({ id }) => id);
}

type Membership = { environmentId: number; environment: string; role: Role };

/** The rights of a user by environment; an owner has all. */
export async function listPlaces(
  db: Queryable,
  userId: string,
): Promise<{ isOwner: boolean; places: Membership[] }> {
  const rows = await db.query<Membership>(
    `select environment.id as "environmentId", environment.name as environment, member.role
     from member
     join environment on member.environment_id is null or environment.id = member.environment_id
     where member.user_id = $1
     order by environment.id`,
    [userId],
  );
  return { isOwner: rows[0]?.role === 'owner', places: rows };
}
