import type { IncomingHttpHeaders } from 'node:http';
import { type Accounts, ownAccountOf } from './accounts.ts';
import type { Tokens } from './tokens.ts';

/** A request to an API of the sandbox. */
export interface ApiRequest {
  method: string;
  /** Path and query, not decoded. */
  rawUrl: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
  access: Access;
}

/** The response of an API; the server adds the length only. */
export interface ApiReply {
  status: number;
  headers: Record<string, string>;
  body: Buffer | string;
}

/** An API served at the sandbox's origin beside OAuth and the control routes. */
export interface Api {
  /** Whether a path (without query) belongs to this API, which then also sends the 404s. */
  matches(path: string): boolean;
  /** The path with names in place of ids and ranges, for the counts of calls. */
  routeOf(method: string, path: string): string;
  handle(request: ApiRequest): Promise<ApiReply>;
  /** Writes pending changes to disk. */
  close(): Promise<void>;
}

/**
 * The result of checking the access token of an API request.
 *
 * `missing`: no bearer token was sent; `invalid`: unknown, expired, revoked, or its account is gone or disabled.
 */
export type Access =
  | { ok: true; email: string; sub: string; scopes: Set<string>; clientId: string }
  | { ok: false; kind: 'missing' | 'invalid' };

/** The token of a bearer `Authorization` header (RFC 6750 §2.1); undefined if there is none. */
export function bearerToken(authorization: string | undefined): string | undefined {
  return /^Bearer +(\S+) *$/i.exec(authorization ?? '')?.[1];
}

/** Checks an `Authorization` header against the issued tokens. */
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
