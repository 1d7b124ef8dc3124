/**
 * What surrounds better-auth without loading it: its open routes and their fields, rules of passwords and cookies, the key
 * of the sign-in.
 */

import type { Config } from '../config/config.ts';
import { destroyDataKey, insertDataKey } from '../data-keys/store.ts';
import type { Queryable } from '../db/pool.ts';
import type { DataKey, Vault } from '../vault.ts';
import type { SignIn, SignInParts } from './sign-in.ts';

/** Loads better-auth, 7 MB of code, at the first sign-in: a node that only programs call never loads it. */
export function lazySignIn(parts: SignInParts): SignIn {
  let made: ReturnType<SignIn> | undefined;
  return () => {
    made ??= import('./sign-in.ts').then(({ createSignIn }) => createSignIn(parts));
    return made;
  };
}

/**
 * The secret that signs cookies and seals second factors: a subkey of its own data key. So it is the same on every node,
 * does not change in a rotation of the master keys, and is never in the database. Throws if the data key is lost, for
 * example in a database that was restored without its keys.
 */
export async function signInSecret(db: Queryable, vault: Vault): Promise<string> {
  const key = (await findKey(db, vault)) ?? (await makeKey(db, vault));
  return key.subkey('sign-in').export().toString('base64');
}

async function makeKey(db: Queryable, vault: Vault): Promise<DataKey> {
  const { id, key } = await insertDataKey(db, vault);
  const made = await db.query(
    `insert into sign_in_key (data_key)
     values ($1)
     on conflict do nothing
     returning data_key`,
    [id],
  );
  if (made.length > 0) return key;
  // Another node was faster.
  await destroyDataKey(db, id);
  const found = await findKey(db, vault);
  if (found === undefined) throw new Error('The key of the sign-in was removed while it was made.');
  return found;
}

async function findKey(db: Queryable, vault: Vault): Promise<DataKey | undefined> {
  const [row] = await db.query<{ wrapped: Buffer | null }>(
    `select wrapped
     from sign_in_key
     left join data_key on data_key.id = sign_in_key.data_key`,
  );
  if (row === undefined) return undefined;
  if (row.wrapped !== null) return vault.unwrap(row.wrapped);
  throw new Error(
    'The data key of the sign-in is missing. After a restore without data keys, run "trellis keys restore FILE" ' +
      'first.',
  );
}

/** The header that gives better-auth the address of a sign-in: no client can set it (`sign-in-routes.ts`). */
export const addressHeader = 'x-sign-in-address';

/** NIST SP 800-63B §3.1.1 recommends 15 without a second factor, and at least 8. */
export const shortestPassword = 12;
export const longestPassword = 128;

/** The open routes of better-auth, with the fields of their bodies. All other routes and fields are blocked. */
export const openPaths: ReadonlyMap<string, readonly string[]> = new Map([
  ['GET /get-session', []],
  ['POST /sign-in/email', ['email', 'password']],
  ['POST /sign-in/social', ['provider', 'callbackURL', 'errorCallbackURL']],
  ['GET /callback/oidc', []],
  ['POST /sign-out', []],
  ['GET /list-sessions', []],
  ['POST /revoke-session', ['token']],
  ['POST /revoke-sessions', []],
  ['POST /revoke-other-sessions', []],
  ['POST /change-password', ['currentPassword', 'newPassword']],
  ['POST /reset-password', ['token', 'newPassword']],
  ['POST /two-factor/enable', ['password']],
  ['POST /two-factor/disable', ['password']],
  ['POST /two-factor/get-totp-uri', ['password']],
  // Without `trustDevice`: with it a browser needs no code for a month, and nothing can end that.
  ['POST /two-factor/verify-totp', ['code']],
  ['POST /two-factor/verify-backup-code', ['code']],
  ['POST /two-factor/generate-backup-codes', ['password']],
]);

/** Open routes that change nothing: without a valid session they answer so, and the browser keeps its cookie. */
export const reading: ReadonlySet<string> = new Set(['GET /get-session', 'GET /list-sessions']);

/** Further open routes if mails can be sent. */
export const openPathsWithMail: typeof openPaths = new Map([['POST /request-password-reset', ['email']]]);

/** Fields that the service sets, for every caller: a new password ends all other sessions. */
export const ownFields: ReadonlyMap<string, object> = new Map([
  ['POST /change-password', { revokeOtherSessions: true }],
]);

/** Whether the service is called over https. */
export function isHttps(baseUrl: string): boolean {
  return new URL(baseUrl).protocol === 'https:';
}

/**
 * The prefix of the names of cookies. With https, a browser accepts cookies with `__Host-` only from this host, over a secure
 * connection (RFC 6265bis §4.1.3.2).
 */
export function cookiePrefix({ brand, baseUrl }: Pick<Config, 'brand' | 'baseUrl'>): string {
  return isHttps(baseUrl) ? `__Host-${brand.word}` : brand.word;
}
