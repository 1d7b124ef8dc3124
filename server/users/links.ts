/**
 * Links that are given to people: their tokens and addresses, and links for a new password.
 *
 * Does not own: links of invitations (`invitations.ts`), which links are mailed (`sign-in.ts`).
 */
import { createHash, randomBytes } from 'node:crypto';
import type { Db, Tx } from '../db/pool.ts';

/** The part of a link after the #: 256 random bits. A browser does not send that part of an address. */
export function newToken(): string {
  return randomBytes(32).toString('base64url');
}

/** The stored form of a token. */
export function hashOfToken(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

/** In the form of better-auth: 32 characters, 192 random bits. */
export function newUserId(): string {
  return randomBytes(24).toString('base64url');
}

/** How long a link for a new password is valid. */
export const resetMs = 3_600_000;

/** The page that accepts an invitation or a set-up. */
export function invitationLink(baseUrl: string, token: string): string {
  return `${baseUrl}/app/invitation#${token}`;
}

/** The page that sets a new password. */
export function resetLink(baseUrl: string, token: string): string {
  return `${baseUrl}/app/reset-password#${token}`;
}

/**
 * Makes a link with which a user sets a new password once. It is stored in the table and with the hash of better-auth's own
 * links (`storeIdentifier: 'hashed'`): SHA-256 as base64url.
 */
export async function makeReset(
  tx: Tx,
  given: {
    userId: string;
    /** The owner who makes it: the link ends with that user's rights; undefined: the command line. */
    by: string | undefined;
    baseUrl: string;
    at: Date;
  },
): Promise<{ link: string; expiresAt: Date }> {
  const { userId, by, baseUrl, at } = given;
  const token = newToken();
  const expiresAt = new Date(at.getTime() + resetMs);
  await tx.query(
    `insert into sign_in_verification
       (id, identifier, value, reset_of, made_by, expires_at, created_at, updated_at)
     values ($1, $2, $3, $3, $4, $5, $6, $6)`,
    [newUserId(), identifierOf(token), userId, by ?? null, expiresAt, at],
  );
  return { link: resetLink(baseUrl, token), expiresAt };
}

/** Removes the links that this user made for others. */
export async function endResetsBy(tx: Tx, userId: string): Promise<void> {
  await tx.query('delete from sign_in_verification where made_by = $1', [userId]);
}

const identifierOf = (token: string) =>
  createHash('sha256').update(`reset-password:${token}`).digest('base64url');

/** Valid links of one user at a time. No further link is mailed. */
const maxResets = 5;

/**
 * Whether a link that better-auth has just made may be mailed: not beyond `maxResets`, and not to a user without a password,
 * who signs in by the OpenID provider. The link is marked as one of this user. Calls for one user run one after another:
 * each counts itself and the calls before it.
 */
export function mayMailReset(
  db: Db,
  { userId, token, at }: { userId: string; token: string; at: Date },
): Promise<boolean> {
  return db.transaction(async (tx) => {
    await tx.query('select from sign_in_user where id = $1 for no key update', [userId]);
    await tx.query('update sign_in_verification set reset_of = $2 where identifier = $1', [
      identifierOf(token),
      userId,
    ]);
    const [{ live = 0, has_password: hasPassword = false } = {}] = await tx.query<{
      live: number;
      has_password: boolean;
    }>(
      `select
         (select count(*) from sign_in_verification where reset_of = $1 and expires_at > $2) as live,
         exists (select from sign_in_account where user_id = $1 and password is not null) as has_password`,
      [userId, at],
    );
    return hasPassword && live <= maxResets;
  });
}
