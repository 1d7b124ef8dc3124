import { createHash } from 'node:crypto';
import type { Queryable, Tx } from '../db/pool.ts';
import { resetLink, resetMs } from './set-up.ts';
import { newToken, newUserId } from './tokens.ts';

/**
 * A link with which a user sets a new password, once. It stands where better-auth looks for those that it makes itself, and is
 * hashed as it hashes them (`storeIdentifier: 'hashed'`): SHA-256 as base64url.
 */
export async function makeReset(
  tx: Tx,
  { userId, baseUrl, at }: { userId: string; baseUrl: string; at: Date },
): Promise<{ link: string; expiresAt: Date }> {
  const token = newToken();
  const expiresAt = new Date(at.getTime() + resetMs);
  await tx.query(
    `insert into sign_in_verification (id, identifier, value, expires_at, created_at, updated_at)
     values ($1, $2, $3, $4, $5, $5)`,
    [
      newUserId(),
      createHash('sha256').update(`reset-password:${token}`).digest('base64url'),
      userId,
      expiresAt,
      at,
    ],
  );
  return { link: resetLink(baseUrl, token), expiresAt };
}

/** Links of one user that are good at the same time: who asks for more is sent none, so that nobody's box is filled. */
const mostResets = 5;

/** Whether a link that was just made for this user may be mailed. */
export async function mayMailReset(
  db: Queryable,
  { userId, at }: { userId: string; at: Date },
): Promise<boolean> {
  const live = await db.query('select from sign_in_verification where value = $1 and expires_at > $2', [
    userId,
    at,
  ]);
  return live.length <= mostResets;
}
