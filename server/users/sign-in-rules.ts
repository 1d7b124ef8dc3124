/** Which of better-auth's routes are open and with what, and what passwords have to be. Loads nothing of better-auth. */

import type { Config } from '../config/config.ts';

/** The header that gives better-auth the address of a sign-in: no client can set it (`sign-in-routes.ts`). */
export const addressHeader = 'x-sign-in-address';

/** Shorter passwords are refused (NIST SP 800-63B §3.1.1 asks for 15 where there is no second factor, 8 at least). */
export const shortestPassword = 12;
export const longestPassword = 128;

/** What of better-auth is open, with the fields of a body that reach it; the rest of its routes, and of its fields, is not. */
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
  // Without `trustDevice`, by which a browser would pass without a code for a month, and nothing would end it.
  ['POST /two-factor/verify-totp', ['code']],
  ['POST /two-factor/verify-backup-code', ['code']],
  ['POST /two-factor/generate-backup-codes', ['password']],
]);

/** Of these, what changes nothing: whose session has ended is told so, and keeps its cookie. */
export const reading: ReadonlySet<string> = new Set(['GET /get-session', 'GET /list-sessions']);

/** What is open besides where mails are sent. */
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
 * What the names of the cookies begin with. Under https a browser takes those that begin with `__Host-` from this very
 * host alone, over a secure connection (RFC 6265bis §4.1.3.2).
 */
export function cookiePrefix({ brand, baseUrl }: Pick<Config, 'brand' | 'baseUrl'>): string {
  return isHttps(baseUrl) ? `__Host-${brand.word}` : brand.word;
}
