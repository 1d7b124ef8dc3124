/**
 * The grants of the token endpoint: whom a grant is about, and what it entitles to once it holds.
 *
 * Error texts are Google's (RFC 6749 §5.2 gives the codes only): clients in the wild match on them.
 */
import { createHash } from 'node:crypto';
import { type Account, ownAccountOf } from '../accounts.ts';
import type { Client, Project } from '../clients.ts';
import type { About } from '../http.ts';
import { type RefreshToken, TESTING_SECONDS } from '../tokens.ts';
import { OAuthRefusal } from './form.ts';
import { ADMIN_POLICY, ORG_INTERNAL } from './page-errors.ts';
import { fullScope, inAnswerOrder, isCloudScope, isKnownScope, isSignInScope } from './scopes.ts';
import type { TokenParts } from './token.ts';

/** What a grant, once it holds, entitles to. */
export interface Entitlement {
  account: Account;
  scopes: string[];
  offline: boolean;
  nonce?: string | undefined;
  /** The refresh token to name in the answer, if any. */
  shown?: RefreshToken | undefined;
  /** The refresh token behind it, named or not. */
  behind?: RefreshToken | undefined;
}

/** One kind of grant: `peek` looks whom it is about without using anything up, `redeem` holds it or throws. */
interface GrantType {
  point: 'exchange' | 'refresh' | 'client';
  peek(form: URLSearchParams, by: { client: Client; parts: TokenParts }): string | undefined;
  redeem(form: URLSearchParams, by: { client: Client; about: About; parts: TokenParts }): Entitlement;
}

const GRANT_TYPES: Record<string, GrantType> = {
  authorization_code: {
    point: 'exchange',
    peek: (form, { parts: { codes } }) => {
      const code = codes.find(form.get('code') ?? '');
      return typeof code === 'object' ? code.sub : undefined;
    },
    redeem: redeemCode,
  },
  refresh_token: {
    point: 'refresh',
    peek: (form, { parts: { tokens } }) => tokens.findRefresh(form.get('refresh_token') ?? '')?.sub,
    redeem: redeemRefresh,
  },
  client_credentials: {
    point: 'client',
    peek: (_form, { client }) => client.clientId,
    redeem: grantClient,
  },
};

/** The grant of a `grant_type`; undefined for one that the sandbox does not have. */
export function findGrantType(name: string): GrantType | undefined {
  return Object.hasOwn(GRANT_TYPES, name) ? GRANT_TYPES[name] : undefined;
}

function redeemCode(
  form: URLSearchParams,
  { client, about, parts }: { client: Client; about: About; parts: TokenParts },
): Entitlement {
  const text = required(form, 'code');
  const code = parts.codes.find(text);
  if (code === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'Malformed auth code.');
  if (code === 'spent') throw new OAuthRefusal(400, 'invalid_grant', 'Bad Request');
  if (code.client.clientId !== client.clientId)
    throw new OAuthRefusal(401, 'unauthorized_client', 'Unauthorized');
  const redirectUri = required(form, 'redirect_uri');
  if (redirectUri !== code.redirectUri) throw new OAuthRefusal(400, 'redirect_uri_mismatch', 'Bad Request');
  if (code.challenge !== undefined) verify(form.get('code_verifier'), code.challenge);
  const project = parts.clients.projectOf(client);
  const account = accountOf(code.sub, { project, parts });
  parts.codes.spend(text);

  const { scopes, nonce, forSeconds } = code;
  const isRefreshable = code.offline && code.consentShown && !parts.faults.strikes('no_refresh_token', about);
  if (!isRefreshable) return { account, scopes, nonce, offline: false };
  const isTesting =
    parts.faults.strikes('testing_mode', about) ||
    (project.audience === 'external' && project.publishing === 'testing');
  const lives = [forSeconds, isTesting && !scopes.every(isSignInScope) ? TESTING_SECONDS : undefined];
  const lifeSeconds = Math.min(...lives.map((seconds) => seconds ?? Number.POSITIVE_INFINITY));
  const token = parts.tokens.issueRefresh({
    client,
    sub: account.sub,
    scopes,
    ...(Number.isFinite(lifeSeconds) ? { lifeSeconds } : {}),
  });
  return { account, scopes, nonce, offline: true, shown: token, behind: token };
}

function redeemRefresh(
  form: URLSearchParams,
  { client, about, parts }: { client: Client; about: About; parts: TokenParts },
): Entitlement {
  const token = parts.tokens.findRefresh(required(form, 'refresh_token'));
  if (token === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'Bad Request');
  if (token.clientId !== client.clientId) throw new OAuthRefusal(401, 'unauthorized_client', 'Unauthorized');
  const account = accountOf(token.sub, { project: parts.clients.projectOf(client), parts });
  if (!parts.tokens.isLive(token)) {
    throw new OAuthRefusal(400, 'invalid_grant', 'Token has been expired or revoked.');
  }
  refuseEndedSession(token, { account, now: parts.clock.now() });
  const asked = scopesOf(form);
  const excess = asked.filter((scope) => !token.scopes.includes(scope));
  if (excess.length > 0) {
    throw new OAuthRefusal(
      400,
      'invalid_scope',
      `Some requested scopes were invalid. {invalid=[${excess.join(', ')}]}`,
    );
  }
  parts.tokens.use(token);

  let scopes = asked.length > 0 ? inAnswerOrder(asked) : token.scopes;
  if (parts.faults.strikes('refresh_fewer_scopes', about)) scopes = scopes.filter(isSignInScope);
  const successor = parts.faults.strikes('refresh_rotates', about)
    ? parts.tokens.replace(token)
    : parts.faults.strikes('refresh_rotates_until_used', about)
      ? parts.tokens.succeed(token)
      : undefined;
  return { account, scopes, offline: true, shown: successor, behind: successor ?? token };
}

/** RFC 6749 §4.4: the client stands for itself, and signs in as nobody. Google has no such grant. */
function grantClient(form: URLSearchParams, { client }: { client: Client }): Entitlement {
  const asked = scopesOf(form);
  const unknown = asked.filter((scope) => !isKnownScope(scope) || isSignInScope(scope));
  if (unknown.length > 0) {
    const text = `Some requested scopes were invalid. {invalid=[${unknown.join(', ')}]}`;
    throw new OAuthRefusal(400, 'invalid_scope', text);
  }
  return { account: ownAccountOf(client.clientId), scopes: inAnswerOrder(asked), offline: false };
}

function scopesOf(form: URLSearchParams): string[] {
  const asked = (form.get('scope') ?? '').split(' ').filter((scope) => scope !== '');
  return asked.map(fullScope);
}

// RFC 7636 §4.6. Google enforces it for every client once a challenge was sent.
function verify(verifier: string | null, challenge: { value: string; method: 'S256' | 'plain' }): void {
  if (!verifier) throw new OAuthRefusal(400, 'invalid_grant', 'Missing code verifier.');
  const transformed =
    challenge.method === 'S256' ? createHash('sha256').update(verifier).digest('base64url') : verifier;
  if (transformed !== challenge.value) throw new OAuthRefusal(400, 'invalid_grant', 'Invalid code verifier.');
}

function accountOf(sub: string, by: { project: Project; parts: TokenParts }): Account {
  const account = by.parts.accounts.find(sub);
  if (account === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'The account has been deleted');
  if (account.standing === 'admin_policy')
    throw new OAuthRefusal(400, ADMIN_POLICY.code, ADMIN_POLICY.message);
  if (account.standing !== 'active') throw new OAuthRefusal(400, 'access_denied', 'Account restricted');
  const { audience, domain } = by.project;
  if (audience === 'internal' && account.hostedDomain !== domain)
    throw new OAuthRefusal(403, ORG_INTERNAL.code, ORG_INTERNAL.message);
  return account;
}

// Session control concerns Cloud scopes only: https://support.google.com/a/answer/9368756.
function refuseEndedSession(token: RefreshToken, at: { account: Account; now: number }): void {
  const { sessionSeconds } = at.account;
  if (sessionSeconds === undefined || !token.scopes.some(isCloudScope)) return;
  if (token.consentedAt + sessionSeconds * 1000 > at.now) return;
  throw new OAuthRefusal(400, 'invalid_grant', 'reauth related error (invalid_rapt)', {
    error_uri: 'https://support.google.com/a/answer/9368756',
    error_subtype: 'invalid_rapt',
  });
}

function required(form: URLSearchParams, name: string): string {
  const value = form.get(name);
  if (!value) throw new OAuthRefusal(400, 'invalid_request', `Missing required parameter: ${name}`);
  return value;
}
