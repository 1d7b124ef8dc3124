/**
 * Links that make users: an invitation, or the set-up that makes the first owner.
 *
 * Owns: the table `invitation`, and how users are made. Does not own: rights (`members.ts`), signing in (`sign-in.ts`).
 */
import { writeAudit } from '../activity/audit.ts';
import type { SignInConfig } from '../config/sign-in.ts';
import { type Db, isViolationOf, type Queryable, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Role } from '../http/auth/caller.ts';
import { hashOfToken, invitationLink, newToken, newUserId } from './links.ts';
import { type Grant, hasOwner, lockOwners, putGrant } from './members.ts';

export type Invitation = {
  id: number;
  isSetUp: boolean;
  email: string | undefined;
  role: Role;
  environments: string[];
  /** The user who made it; undefined: the command line. */
  createdBy: string | undefined;
  createdAt: Date;
  expiresAt: Date;
};

const invitationMs = 7 * 86_400_000;
const setUpMs = 86_400_000;
/** Attempts with one link. Each may reveal whether an address has a user, and costs a hash of a password. */
const maxTries = 20;

/**
 * Makes an invitation; its token is returned only here. `by` is the user who made it; undefined: the command line. Throws
 * `user_exists` if the address has a user: nobody could use the link.
 */
export async function createInvitation(
  tx: Queryable,
  { email, grant, by, at }: { email: string | undefined; grant: Grant; by: string | undefined; at: Date },
): Promise<NewInvitation> {
  const known = await tx.query('select from sign_in_user where email = $1', [email?.toLowerCase() ?? null]);
  if (known.length > 0) throw new AppError('user_exists');
  return insert(tx, { email, grant, by, at, validMs: invitationMs, isSetUp: false });
}

/** The link of a start without an owner. The links of earlier starts stay valid for their day. */
export async function createSetUp(tx: Queryable, at: Date): Promise<NewInvitation> {
  await tx.query('delete from invitation where expires_at <= $1', [at]);
  return insert(tx, { grant: { role: 'owner' }, at, validMs: setUpMs, isSetUp: true });
}

type NewInvitation = { id: number; token: string; expiresAt: Date };

async function insert(
  tx: Queryable,
  given: {
    email?: string | undefined;
    grant: Grant;
    by?: string | undefined;
    at: Date;
    validMs: number;
    isSetUp: boolean;
  },
): Promise<NewInvitation> {
  const { email, grant, by, at, isSetUp } = given;
  const expiresAt = new Date(at.getTime() + given.validMs);
  const token = newToken();
  const [row] = await tx.query<{ id: number }>(
    `insert into invitation (hash, is_set_up, email, role, environment_ids, created_by, created_at, expires_at)
     values ($1, $2, $3, $4, $5, $6, $7, $8)
     returning id`,
    [
      hashOfToken(token),
      isSetUp,
      email?.toLowerCase() ?? null,
      grant.role,
      grant.environmentIds ?? [],
      by ?? null,
      at,
      expiresAt,
    ],
  );
  return { id: row!.id, token, expiresAt };
}

const selectInvitations = `
  select invitation.id, is_set_up as "isSetUp", email, role, created_by as "createdBy", created_at as "createdAt",
    expires_at as "expiresAt",
    array(select name from environment where id = any(environment_ids) order by id) as environments
  from invitation`;

type InvitationRow = Omit<Invitation, 'email' | 'createdBy'> & {
  email: string | null;
  createdBy: string | null;
};
const asInvitation = (row: InvitationRow): Invitation => ({
  ...row,
  email: row.email ?? undefined,
  createdBy: row.createdBy ?? undefined,
});

/** Open invitations, without those of the set-up. */
export async function listInvitations(db: Queryable, at: Date): Promise<Invitation[]> {
  const rows = await db.query<InvitationRow>(
    `${selectInvitations} where not is_set_up and expires_at > $1 order by invitation.id`,
    [at],
  );
  return rows.map(asInvitation);
}

/** Throws `invalid_invitation` if the token is unknown, used or expired. */
export async function getInvitation(
  db: Queryable,
  { token, at }: { token: string; at: Date },
): Promise<Invitation> {
  const [row] = await db.query<InvitationRow>(`${selectInvitations} where hash = $1 and expires_at > $2`, [
    hashOfToken(token),
    at,
  ]);
  if (row === undefined || (row.isSetUp && (await hasOwner(db)))) throw new AppError('invalid_invitation');
  return asInvitation(row);
}

/** Returns the role of the invitation that was removed; undefined if there was none. */
export async function deleteInvitation(tx: Queryable, id: number): Promise<{ role: Role } | undefined> {
  const sql = 'delete from invitation where id = $1 and not is_set_up returning role';
  const [deleted] = await tx.query<{ role: Role }>(sql, [id]);
  return deleted;
}

/** Removes the invitations that this user made. */
export async function endInvitationsBy(tx: Tx, userId: string): Promise<void> {
  await tx.query('delete from invitation where created_by = $1', [userId]);
}

/** Counts an attempt to accept a link; throws `invalid_invitation` if there is none, or after too many attempts. */
export async function countTry(db: Queryable, { token, at }: { token: string; at: Date }): Promise<void> {
  const counted = await db.query(
    `update invitation
     set tries = tries + 1
     where hash = $1 and expires_at > $2 and tries < $3
     returning id`,
    [hashOfToken(token), at, maxTries],
  );
  if (counted.length === 0) throw new AppError('invalid_invitation');
}

/** Whether there is an invitation for this address. */
export async function hasInvitation(
  db: Queryable,
  { email, at }: { email: string; at: Date },
): Promise<boolean> {
  const found = await db.query('select from invitation where email = $1 and expires_at > $2 limit 1', [
    email.toLowerCase(),
    at,
  ]);
  return found.length > 0;
}

type NewUser = { name: string; email: string; passwordHash: string };

/**
 * Uses an invitation and makes its user, who signs in with a password. Of parallel calls with one link, one succeeds.
 * Throws `invalid_invitation`, or `user_exists`, after which the link is still valid.
 */
export async function acceptInvitation(
  tx: Tx,
  { token, user, at }: { token: string; user: NewUser; at: Date },
): Promise<{ id: string; email: string }> {
  // Before anything else, for every link: two simultaneous set-up links would deadlock otherwise.
  await lockOwners(tx);
  const [taken] = await tx.query<UsedInvitation>(
    `delete from invitation
     where hash = $1 and expires_at > $2
     returning id, is_set_up, email, role, environment_ids`,
    [hashOfToken(token), at],
  );
  if (taken === undefined) throw new AppError('invalid_invitation');
  if (taken.is_set_up) {
    if (await hasOwner(tx)) throw new AppError('invalid_invitation');
    await tx.query('delete from invitation where is_set_up');
  }
  // The invited user counts as the owner of the invited address: the inviter is responsible for the address.
  const email = taken.email ?? user.email.toLowerCase();
  const id = await createUser(tx, { ...user, email, isVerified: taken.email !== null, at });
  await putGrant(tx, { userId: id, grant: grantOf(taken), at });
  const how = taken.is_set_up ? 'set-up' : `invitation ${taken.id}`;
  await auditCreatedUser(tx, { id, role: taken.role, how });
  return { id, email };
}

/** Makes the owner of TRELLIS_ADMIN_EMAIL if there is no owner; returns whether one was made. */
export async function createFirstOwner(tx: Tx, { user, at }: { user: NewUser; at: Date }): Promise<boolean> {
  await lockOwners(tx);
  if (await hasOwner(tx)) return false;
  const id = await createUser(tx, { ...user, email: user.email.toLowerCase(), isVerified: true, at });
  await putGrant(tx, { userId: id, grant: { role: 'owner' }, at });
  await tx.query('delete from invitation where is_set_up');
  await auditCreatedUser(tx, { id, role: 'owner', how: 'TRELLIS_ADMIN_EMAIL' });
  return true;
}

/**
 * Accepts the invitation of a user without rights, by an address that was vouched for, and grants its rights; nothing if
 * no invitation is open. It applies at each sign-in: a user that the OpenID provider introduces exists before that.
 */
export async function acceptByEmail(db: Db, { userId, at }: { userId: string; at: Date }): Promise<void> {
  const awaited = await db.query(
    `select from invitation
     join sign_in_user u on u.email = invitation.email
     where u.id = $1 and u.email_verified and not exists (select from member where user_id = u.id)
     limit 1`,
    [userId],
  );
  if (awaited.length > 0) await db.transaction((tx) => takeByEmail(tx, { userId, at }));
}

async function takeByEmail(tx: Tx, { userId, at }: { userId: string; at: Date }): Promise<void> {
  // Locked as when a link is accepted: otherwise the two would deadlock.
  await lockOwners(tx);
  const taken = await tx.query<UsedInvitation>(
    `delete from invitation
     using sign_in_user u
     where u.id = $1 and u.email = invitation.email and invitation.expires_at > $2
       and not exists (select from member where user_id = u.id)
     returning invitation.id, is_set_up, invitation.email, role, environment_ids`,
    [userId, at],
  );
  const [newest] = taken.sort((one, other) => other.id - one.id);
  if (newest === undefined) return;
  await putGrant(tx, { userId, grant: grantOf(newest), at });
  await auditCreatedUser(tx, { id: userId, role: newest.role, how: `invitation ${newest.id}` });
}

type UsedInvitation = {
  id: number;
  is_set_up: boolean;
  email: string | null;
  role: Role;
  environment_ids: number[];
};

function grantOf({ role, environment_ids: environmentIds }: UsedInvitation): Grant {
  return role === 'owner' ? { role } : { role, environmentIds };
}

async function createUser(tx: Tx, user: NewUser & { isVerified: boolean; at: Date }): Promise<string> {
  const id = newUserId();
  try {
    await tx.query(
      `insert into sign_in_user (id, name, email, email_verified, created_at, updated_at)
       values ($1, $2, $3, $4, $5, $5)`,
      [id, user.name, user.email, user.isVerified, user.at],
    );
  } catch (error) {
    if (isViolationOf(error, 'sign_in_user_email_unique')) throw new AppError('user_exists');
    throw error;
  }
  await tx.query(
    `insert into sign_in_account (id, user_id, provider_id, account_id, password, created_at, updated_at)
     values ($1, $2, 'credential', $2, $3, $4, $4)`,
    [newUserId(), id, user.passwordHash, user.at],
  );
  return id;
}

async function auditCreatedUser(
  tx: Tx,
  { id, role, how }: { id: string; role: Role; how: string },
): Promise<void> {
  await writeAudit(tx, {
    environmentId: undefined,
    actor: `user:${id}`,
    action: 'user.created',
    target: id,
    details: { role, by: how },
  });
}

/**
 * Ensures that a user can become the owner: the user of TRELLIS_ADMIN_EMAIL, or the user that opens the link that is
 * returned here and written to the log. Undefined if there is an owner, or if the sign-in is switched off. Merely being
 * the first visitor gives no rights.
 */
export async function prepareOwner(
  db: Db,
  given: {
    settings: SignInConfig;
    baseUrl: string;
    hashPassword: (password: string) => Promise<string>;
    at: Date;
  },
): Promise<string | undefined> {
  const { settings, baseUrl, hashPassword, at } = given;
  if (settings.isOff || (await hasOwner(db))) return undefined;
  const { admin } = settings;
  if (admin === undefined) return invitationLink(baseUrl, (await createSetUp(db, at)).token);
  const { email, password } = admin;
  const passwordHash = await hashPassword(password);
  const user = { name: email.split('@', 1)[0] ?? email, email, passwordHash };
  await db.transaction((tx) => createFirstOwner(tx, { user, at }));
  return undefined;
}
