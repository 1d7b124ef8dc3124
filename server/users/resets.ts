import { createHash } from 'node:crypto';
import type { Db, Tx } from '../db/pool.ts';
import { resetLink, resetMs } from './set-up.ts';
import { newToken, newUserId } from './tokens.ts';

/**
 * A link with which a user sets a new password, once. It stands where better-auth looks for those that it makes itself, and is
 * hashed as it hashes them (`storeIdentifier: 'hashed'`): SHA-256 as base64url.
 */
export async function makeReset(
  tx: Tx,
  {
    userId,
    by,
    baseUrl,
    at,
  }: {
    userId: string;
    /** The user who makes it, with whose owner's rights it ends; undefined: the command line. */
    by: string | undefined;
    baseUrl: string;
    at: Date;
  },
): Promise<{ link: string; expiresAt: Date }> {
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

/** Ends the links that this user made for others. */
export async function endResetsBy(tx: Tx, userId: string): Promise<void> {
  await tx.query('delete from sign_in_verification where made_by = $1', [userId]);
}

const identifierOf = (token: string) =>
  createHash('sha256').update(`reset-password:${token}`).digest('base64url');

/** Links of one user that are valid at a time. No further link is mailed, so that no mailbox is filled. */
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
