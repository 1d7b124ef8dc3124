import { randomBytes } from 'node:crypto';
import type { Client } from './clients.ts';
import type { Clock } from './clock.ts';
import { isMailScope } from './oauth/scopes.ts';

/** A bearer token for the APIs. All times are milliseconds of the sandbox's clock. */
export interface AccessToken {
  token: string;
  clientId: string;
  projectNumber: string;
  sub: string;
  scopes: string[];
  offline: boolean;
  expiresAt: number;
}

/** A refresh token. Ended tokens are kept for a while, since Google distinguishes "revoked" from "never existed". */
export interface RefreshToken {
  token: string;
  clientId: string;
  projectNumber: string;
  sub: string;
  scopes: string[];
  /** The time of the consent; kept by the successors of a rotated token. */
  consentedAt: number;
  issuedAt: number;
  usedAt: number;
  /** The predecessor, which ends when this token is used. */
  supersedes?: string;
  /** For tokens with a fixed lifetime only, such as those of a project in testing. */
  expiresAt?: number;
  endedAt?: number;
}

/** The value of `expires_in`; the token is valid for one second longer, like Google's. */
export const accessTokenSeconds = 3599;
/** The lifetime of a refresh token of a project in testing, in seconds. */
export const testingSeconds = 604_799;
/** The limit of live refresh tokens of an account and client; one more silently revokes the oldest. */
export const refreshTokenLimit = 100;

const dayMs = 86_400_000;
const unusedLimitMs = 183 * dayMs;
const keepEndedMs = 30 * dayMs;
/** The limit of stored tokens of each kind. Above it ended tokens are dropped, then the oldest. */
const maxRemembered = 20_000;

/** The store of issued tokens. The rules for issuing tokens are in oauth/. */
export class Tokens {
  #clock: Clock;
  #access = new Map<string, AccessToken>();
  #refresh = new Map<string, RefreshToken>();
  /** Access tokens that ended before their expiry. */
  #ended = new Map<string, AccessToken>();

  constructor(clock: Clock, saved: { accessTokens: AccessToken[]; refreshTokens: RefreshToken[] }) {
    this.#clock = clock;
    for (const token of saved.accessTokens) this.#access.set(token.token, token);
    for (const token of saved.refreshTokens) this.#refresh.set(token.token, token);
  }

  /** The tokens to store on disk. Drops expired access tokens and refresh tokens that ended long ago. */
  snapshot(): { accessTokens: AccessToken[]; refreshTokens: RefreshToken[] } {
    const now = this.#clock.now();
    for (const [key, token] of this.#access) if (token.expiresAt <= now) this.#access.delete(key);
    for (const [key, token] of this.#refresh) {
      if (token.endedAt !== undefined && token.endedAt + keepEndedMs <= now) this.#refresh.delete(key);
    }
    return { accessTokens: [...this.#access.values()], refreshTokens: [...this.#refresh.values()] };
  }

  /** A new access token that is valid for `lifeSeconds` and one second. */
  issueAccess(to: {
    client: Client;
    sub: string;
    scopes: string[];
    offline: boolean;
    lifeSeconds: number;
  }): AccessToken {
    const token: AccessToken = {
      token: `ya29.a0Sandbox${randomBytes(96).toString('base64url')}`,
      clientId: to.client.clientId,
      projectNumber: to.client.projectNumber,
      sub: to.sub,
      scopes: to.scopes,
      offline: to.offline,
      expiresAt: this.#clock.now() + (to.lifeSeconds + 1) * 1000,
    };
    this.#access.set(token.token, token);
    trim(this.#access, ({ expiresAt }) => expiresAt > this.#clock.now());
    return token;
  }

  /** A new refresh token; `lifeSeconds` for a fixed lifetime. May revoke the oldest token of the account and client. */
  issueRefresh(to: {
    client: Client;
    sub: string;
    scopes: string[];
    lifeSeconds?: number | undefined;
  }): RefreshToken {
    const now = this.#clock.now();
    const token: RefreshToken = {
      token: newRefreshToken(),
      clientId: to.client.clientId,
      projectNumber: to.client.projectNumber,
      sub: to.sub,
      scopes: to.scopes,
      consentedAt: now,
      issuedAt: now,
      usedAt: now,
    };
    if (to.lifeSeconds !== undefined) token.expiresAt = now + to.lifeSeconds * 1000;
    return this.#keep(token);
  }

  /** Rotation with overlap: returns the successor; the token stays valid until the successor is used. */
  succeed(token: RefreshToken): RefreshToken {
    const now = this.#clock.now();
    return this.#keep({
      ...token,
      token: newRefreshToken(),
      supersedes: token.token,
      issuedAt: now,
      usedAt: now,
    });
  }

  /** Rotation by single use: ends the token and returns its successor. */
  replace(token: RefreshToken): RefreshToken {
    this.endRefresh(token);
    const { endedAt: _, supersedes: __, ...lasting } = token;
    const now = this.#clock.now();
    return this.#keep({ ...lasting, token: newRefreshToken(), issuedAt: now, usedAt: now });
  }

  #keep(token: RefreshToken): RefreshToken {
    // Insertion order is the order of issue, also after a restart.
    const live = [...this.#refresh.values()].filter(
      (other) => other.clientId === token.clientId && other.sub === token.sub && this.isLive(other),
    );
    for (const oldest of live.slice(0, Math.max(0, live.length + 1 - refreshTokenLimit)))
      this.endRefresh(oldest);
    this.#refresh.set(token.token, token);
    trim(this.#refresh, (kept) => this.isLive(kept));
    return token;
  }

  /** A live access token. */
  findAccess(token: string): AccessToken | undefined {
    const found = this.#access.get(token);
    return found !== undefined && found.expiresAt > this.#clock.now() ? found : undefined;
  }

  /** A refresh token, which may have ended: see `isLive`. */
  findRefresh(token: string): RefreshToken | undefined {
    return this.#refresh.get(token);
  }

  isLive(token: RefreshToken): boolean {
    const now = this.#clock.now();
    if (token.endedAt !== undefined) return false;
    if (token.expiresAt !== undefined && token.expiresAt <= now) return false;
    return token.usedAt + unusedLimitMs > now;
  }

  /** Records a use, which extends the lifetime of the token and ends its predecessor. */
  use(token: RefreshToken): void {
    token.usedAt = this.#clock.now();
    const superseded = this.#refresh.get(token.supersedes ?? '');
    if (superseded !== undefined) this.endRefresh(superseded);
    delete token.supersedes;
  }

  /** The owner of a live or ended token, for the log of calls. Ended tokens are kept until a restart. */
  ownerOf(token: string): { sub: string; clientId: string } | undefined {
    const found = this.#access.get(token) ?? this.#ended.get(token);
    return found && { sub: found.sub, clientId: found.clientId };
  }

  endAccess(token: string): void {
    const found = this.#access.get(token);
    if (found === undefined) return;
    this.#access.delete(token);
    this.#ended.set(token, found);
    trim(this.#ended, () => true);
  }

  endRefresh(token: RefreshToken): void {
    token.endedAt ??= this.#clock.now();
  }

  /** Ends all tokens of the account for all clients of the project: revocation is by project. */
  endAll(pair: { projectNumber: string; sub: string }): void {
    for (const [key, token] of this.#access) if (isOf(token, pair)) this.endAccess(key);
    for (const token of this.#refresh.values()) if (isOf(token, pair)) this.endRefresh(token);
  }

  /** Ends all tokens of a deleted account. */
  endAllOf(sub: string): void {
    for (const [key, token] of this.#access) if (token.sub === sub) this.endAccess(key);
    for (const token of this.#refresh.values()) if (token.sub === sub) this.endRefresh(token);
  }

  /** Ends the account's tokens with a mail scope, as after a password change. Returns the number of refresh tokens. */
  endMail(sub: string): number {
    const holdsMail = (token: { sub: string; scopes: string[] }) =>
      token.sub === sub && token.scopes.some(isMailScope);
    for (const [key, token] of this.#access) if (holdsMail(token)) this.endAccess(key);
    const ended = this.listLiveRefresh().filter(holdsMail);
    for (const token of ended) this.endRefresh(token);
    return ended.length;
  }

  /** The live refresh tokens, oldest first. */
  listLiveRefresh(): RefreshToken[] {
    return [...this.#refresh.values()].filter((token) => this.isLive(token));
  }
}

/** The expiry of a live refresh token that is not used again, in milliseconds of the sandbox's clock. */
export function diesAt(token: RefreshToken): number {
  return Math.min(token.expiresAt ?? Number.POSITIVE_INFINITY, token.usedAt + unusedLimitMs);
}

function newRefreshToken(): string {
  return `1//0${randomBytes(72).toString('base64url')}`;
}

// Drops a tenth of the limit at a time, so that not every issue searches for ended tokens.
function trim<T>(tokens: Map<string, T>, isLive: (token: T) => boolean): void {
  if (tokens.size <= maxRemembered) return;
  for (const [key, token] of tokens) if (!isLive(token)) tokens.delete(key);
  for (const key of tokens.keys()) {
    if (tokens.size <= maxRemembered * 0.9) return;
    tokens.delete(key);
  }
}

function isOf(
  token: { projectNumber: string; sub: string },
  pair: { projectNumber: string; sub: string },
): boolean {
  return token.projectNumber === pair.projectNumber && token.sub === pair.sub;
}
