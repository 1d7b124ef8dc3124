import type { SignInConfig } from '../config/sign-in.ts';
import type { Db } from '../db/pool.ts';
import { createFirstOwner, createSetUp } from './invitations.ts';
import { hasOwner } from './members.ts';

/**
 * Ensures that a user can become the owner: the user of TRELLIS_ADMIN_EMAIL, or the user that opens the link that is
 * returned here and written to the log. Undefined if there is an owner, or if the sign-in is switched off. Merely being
 * the first visitor gives no rights.
 */
export async function prepareOwner(
  db: Db,
  {
    settings,
    baseUrl,
    hashPassword,
    at,
  }: {
    settings: SignInConfig;
    baseUrl: string;
    hashPassword: (password: string) => Promise<string>;
    at: Date;
  },
): Promise<string | undefined> {
  if (settings.isOff || (await hasOwner(db))) return undefined;
  const { admin } = settings;
  if (admin === undefined) return invitationLink(baseUrl, (await createSetUp(db, at)).token);
  const { email, password } = admin;
  const passwordHash = await hashPassword(password);
  const user = { name: email.split('@', 1)[0] ?? email, email, passwordHash };
  await db.transaction((tx) => createFirstOwner(tx, { user, at }));
  return undefined;
}

/** How long the link for a new password is good. */
export const resetMs = 3_600_000;

/** Where an invitation or a set-up is accepted. */
export function invitationLink(baseUrl: string, token: string): string {
  return `${baseUrl}/app/invitation#${token}`;
}

/** Where somebody sets a new password. */
export function resetLink(baseUrl: string, token: string): string {
  return `${baseUrl}/app/reset-password#${token}`;
}
