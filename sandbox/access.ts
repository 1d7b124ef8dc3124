import { type Accounts, ownAccountOf } from './accounts.ts';
import type { Tokens } from './tokens.ts';

/**
 * Who stands behind an API request: the judgement of its access token, handed to each API of the sandbox.
 *
 * `missing`: no bearer token was sent; `invalid`: unknown, expired, revoked, or its account is gone or disabled.
 */
export type Access =
  | { ok: true; email: string; sub: string; scopes: Set<string>; clientId: string }
  | { ok: false; kind: 'missing' | 'invalid' };

/** The token of a bearer `Authorization` header (RFC 6750 §2.1); undefined when there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
}

/** Judges an `Authorization` header against the tokens in circulation. */
export function checkAccess(
  authorization: string | undefined,
  known: { tokens: Tokens; accounts: Accounts },
): Access {
  const token = bearerToken(authorization);
  if (token === undefined) return { ok: false, kind: 'missing' };
  const found = known.tokens.findAccess(token);
  const isOwn = found !== undefined && found.sub === found.clientId;
  const account = isOwn ? ownAccountOf(found.clientId) : found && known.accounts.find(found.sub);
  if (found === undefined || account === undefined || account.standing === 'disabled')
    return { ok: false, kind: 'invalid' };
  return {
    ok: true,
    email: account.email,
    sub: account.sub,
    scopes: new Set(found.scopes),
    clientId: found.clientId,
  };
}
