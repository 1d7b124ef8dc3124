/**
 * What users may do, and where.
 *
 * Owns: the table `member`. Does not own: what a role lets do (`http/roles.ts`), who becomes a user (`invitations.ts`).
 */
import { first, type Queryable, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Role } from '../http/roles.ts';

/** An owner has no environments: they may do everything, wherever. */
export type Grant =
  | { role: 'owner'; environmentIds?: undefined }
  | { role: 'developer' | 'viewer'; environmentIds: readonly number[] };

/** Gives a user these rights in the place of those they had. */
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
  // An environment that is gone meanwhile is nothing to be a member of.
  await tx.query(
    `insert into member (user_id, environment_id, role, created_at)
     select $1, id, $3, $4
     from environment
     where id = any($2)`,
    [userId, grant.environmentIds, grant.role, at],
  );
}

/** Until the transaction ends nobody becomes an owner, or ceases to be one. */
export async function lockOwners(tx: Tx): Promise<void> {
  await tx.query('lock table member in share row exclusive mode');
}

/** Whether there is an owner, leaving one user out. */
export async function hasOwner(db: Queryable, but?: string): Promise<boolean> {
  const found = await db.query(
    `select from member where role = 'owner' and user_id is distinct from $1 limit 1`,
    [but ?? null],
  );
  return found.length > 0;
}

/** Throws `last_owner` where nobody but this user is an owner; call it behind `lockOwners`. */
export async function requireOtherOwner(tx: Tx, userId: string): Promise<void> {
  if (!(await hasOwner(tx, userId))) throw new AppError('last_owner');
}

/**
 * Checked in the transaction that grants something lasting. The caller's rights are cached for a second, in which a right
 * that was just revoked could be used to restore it. No other transaction revokes it until this transaction ends.
 */
export type Rights = {
  /** Throws `forbidden` unless the person is an owner still. */
  requireOwner(tx: Tx, person: { userId: string }): Promise<void>;
  /** Throws `forbidden` unless the user has this role there still. */
  requireRole(tx: Tx, user: { userId: string; environmentId: number; role: Role }): Promise<void>;
};

export const storedRights: Rights = {
  async requireOwner(tx, { userId }) {
    const found = await tx.query(`select from member where user_id = $1 and role = 'owner' for share`, [
      userId,
    ]);
    if (found.length === 0) throw new AppError('forbidden', 'You are no owner any more.');
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

/** With the sign-in switched off nobody can take a right from anybody. */
export const everybodysRights: Rights = { requireOwner: async () => {}, requireRole: async () => {} };

/** The environments of these names; throws `not_found` naming the first that there is not. */
export async function environmentIdsOf(db: Queryable, names: readonly string[]): Promise<number[]> {
  const rows = await db.query<{ id: number; name: string }>(
    'select id, name from environment where name = any($1)',
    [names],
  );
  const missing = names.find((name) => !rows.some((row) => row.name === name));
  if (missing !== undefined) throw new AppError('not_found', `There is no environment "${missing}".`);
  return rows.map(({ id }) => id);
}

type Place = { environmentId: number; environment: string; role: Role };

/** Where a user may do what; of an owner every environment. */
export async function listPlaces(
  db: Queryable,
  userId: string,
): Promise<{ isOwner: boolean; places: Place[] }> {
  const rows = await db.query<Place>(
    `select environment.id as "environmentId", environment.name as environment, member.role
     from member
     join environment on member.environment_id is null or environment.id = member.environment_id
     where member.user_id = $1
     order by environment.id`,
    [userId],
  );
  return { isOwner: first(rows)?.role === 'owner', places: rows };
}
