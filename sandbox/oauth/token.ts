/**
 * The token endpoint and the revocation endpoint. The token endpoint authenticates the client, applies faults, redeems the
 * grant, issues tokens, saves and responds; a grant type implements only the look-up of the account and the redemption.
 *
 * Error texts are Google's (RFC 6749 §5.2 defines the codes only), since clients match on them.
 */

import { createHash } from 'node:crypto';
import { type Account, type Accounts, ownAccountOf } from '../accounts.ts';
import type { Refreshes } from '../calls.ts';
import { type Client, type Clients, isSecretOf, type Project } from '../clients.ts';
import type { Clock } from '../clock.ts';
import { answerUnder, type Faults } from '../faults/faults.ts';
import type { Grants } from '../grants.ts';
import { type About, type Incoming, json, type Reply } from '../http.ts';
import { accessTokenSeconds, type RefreshToken, type Tokens, testingSeconds } from '../tokens.ts';
import type { Codes } from './codes.ts';
import type { IdTokens } from './id-token.ts';
import { adminPolicy, orgInternal } from './page-errors.ts';
import { fullScope, inAnswerOrder, isCloudScope, isKnownScope, isSignInScope } from './scopes.ts';

/** The parts of the sandbox that the token endpoint uses. */
export interface TokenParts {
  accounts: Accounts;
  clients: Clients;
  codes: Codes;
  tokens: Tokens;
  faults: Faults;
  refreshes: Refreshes;
  idTokens: IdTokens;
  clock: Clock;
  save: () => Promise<void>;
}

/** Answers `POST /token`. */
export async function answerToken(request: Incoming, parts: TokenParts): Promise<Reply> {
  try {
    const form = readForm(request);
    const client = authenticate(request, { form, clients: parts.clients });
    const name = form.get('grant_type') ?? '';
    const grant = findGrantType(name);
    if (grant === undefined)
      throw new OAuthRefusal(400, 'unsupported_grant_type', `Invalid grant_type: ${name}`);

    const { about } = request;
    Object.assign(about, { sub: grant.peek(form, { client, parts }), clientId: client.clientId });
    const counted = grant.point !== 'exchange' ? parts.refreshes.begin(about) : undefined;
    try {
      const fault = parts.faults.takeAt([grant.point, 'token'], about);
      const reply = await answerUnder(fault, {
        signal: request.signal,
        projectNumber: client.projectNumber,
        work: async () => {
          const entitled = grant.redeem(form, { client, about, parts });
          counted?.accept();
          return issue(entitled, { client, about, parts });
        },
      });
      return { ...reply, headers: { ...noStore, ...reply.headers } };
    } finally {
      counted?.end();
    }
  } catch (error) {
    if (error instanceof OAuthRefusal) return error.toReply();
    throw error;
  }
}

// RFC 6749 §2.3.1: HTTP Basic with both parts form-encoded, or both in the body.
function authenticate(request: Incoming, by: { form: URLSearchParams; clients: Clients }): Client {
  const basic = /^Basic +([A-Za-z0-9+/=]+)$/i.exec(request.headers.authorization ?? '')?.[1];
  let clientId = by.form.get('client_id');
  let clientSecret = by.form.get('client_secret');
  if (basic !== undefined) {
    const [user = '', ...rest] = Buffer.from(basic, 'base64').toString().split(':');
    const pair = new URLSearchParams(`id=${user}&secret=${rest.join(':')}`);
    clientId = pair.get('id');
    clientSecret = pair.get('secret');
  }
  if (!clientId)
    throw new OAuthRefusal(400, 'invalid_request', 'Could not determine client ID from request.');
  const client = by.clients.find(clientId);
  if (client === undefined) throw new OAuthRefusal(401, 'invalid_client', 'The OAuth client was not found.');
  if (!clientSecret) throw new OAuthRefusal(400, 'invalid_request', 'client_secret is missing.');
  if (!isSecretOf(client, clientSecret)) throw new OAuthRefusal(401, 'invalid_client', 'Unauthorized');
  return client;
}

const tinySeconds = 5;

async function issue(
  entitled: Entitlement,
  to: { client: Client; about: About; parts: TokenParts },
): Promise<Reply> {
  const { account, scopes, nonce, offline, shown, behind } = entitled;
  const { client, about, parts } = to;
  const lifeSeconds = parts.faults.applies('token_expires_in_tiny', about) ? tinySeconds : accessTokenSeconds;
  const access = parts.tokens.issueAccess({ client, sub: account.sub, scopes, offline, lifeSeconds });
  const idToken = scopes.includes('openid')
    ? await parts.idTokens.sign({
        account,
        clientId: client.clientId,
        scopes,
        accessToken: access.token,
        nonce,
      })
    : undefined;
  await parts.save();
  return json(200, {
    access_token: access.token,
    expires_in: lifeSeconds,
    ...(shown === undefined ? {} : { refresh_token: shown.token }),
    ...(behind?.expiresAt === undefined
      ? {}
      : { refresh_token_expires_in: Math.ceil((behind.expiresAt - parts.clock.now()) / 1000) }),
    scope: scopes.join(' '),
    token_type: 'Bearer',
    ...(idToken === undefined ? {} : { id_token: idToken }),
  });
}

/** The result of a redeemed grant. */
interface Entitlement {
  account: Account;
  scopes: string[];
  offline: boolean;
  nonce?: string | undefined;
  /** The refresh token in the response, if any. */
  shown?: RefreshToken | undefined;
  /** The refresh token of the grant, whether or not the response has it. */
  behind?: RefreshToken | undefined;
}

/** A grant type: `peek` returns the account's `sub` without using the grant, `redeem` uses it or throws. */
interface GrantType {
  point: 'exchange' | 'refresh' | 'client';
  peek(form: URLSearchParams, by: { client: Client; parts: TokenParts }): string | undefined;
  redeem(form: URLSearchParams, by: { client: Client; about: About; parts: TokenParts }): Entitlement;
}

const grantTypes: Record<string, GrantType> = {
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

function findGrantType(name: string): GrantType | undefined {
  return Object.hasOwn(grantTypes, name) ? grantTypes[name] : undefined;
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
  const isRefreshable = code.offline && code.consentShown && !parts.faults.applies('no_refresh_token', about);
  if (!isRefreshable) return { account, scopes, nonce, offline: false };
  const isTesting =
    parts.faults.applies('testing_mode', about) ||
    (project.audience === 'external' && project.publishing === 'testing');
  const lives = [forSeconds, isTesting && !scopes.every(isSignInScope) ? testingSeconds : undefined];
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
  if (parts.faults.applies('refresh_fewer_scopes', about)) scopes = scopes.filter(isSignInScope);
  const successor = parts.faults.applies('refresh_rotates', about)
    ? parts.tokens.replace(token)
    : parts.faults.applies('refresh_rotates_until_used', about)
      ? parts.tokens.succeed(token)
      : undefined;
  return { account, scopes, offline: true, shown: successor, behind: successor ?? token };
}

/** RFC 6749 §4.4: tokens for the client itself, without a sign-in. Google does not have this grant. */
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

// RFC 7636 §4.6. Google enforces it for every client that sent a challenge.
function verify(verifier: string | null, challenge: { value: string; method: 'S256' | 'plain' }): void {
  if (!verifier) throw new OAuthRefusal(400, 'invalid_grant', 'Missing code verifier.');
  const transformed =
    challenge.method === 'S256' ? createHash('sha256').update(verifier).digest('base64url') : verifier;
  if (transformed !== challenge.value) throw new OAuthRefusal(400, 'invalid_grant', 'Invalid code verifier.');
}

function accountOf(sub: string, by: { project: Project; parts: TokenParts }): Account {
  const account = by.parts.accounts.find(sub);
  if (account === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'The account has been deleted');
  if (account.standing === 'admin_policy') throw new OAuthRefusal(400, adminPolicy.code, adminPolicy.message);
  if (account.standing !== 'active') throw new OAuthRefusal(400, 'access_denied', 'Account restricted');
  const { audience, domain } = by.project;
  if (audience === 'internal' && account.hostedDomain !== domain)
    throw new OAuthRefusal(403, orgInternal.code, orgInternal.message);
  return account;
}

// Session control applies to Cloud scopes only: https://support.google.com/a/answer/9368756.
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

/**
 * Answers `POST /revoke` for any live token in the query or the form, without client authentication.
 *
 * Like Google and unlike RFC 7009, it revokes the grant of the account for the *project* and ends the tokens of all clients of
 * the project. A token that has ended is a 400.
 */
export async function answerRevoke(
  request: Incoming,
  parts: { tokens: Tokens; grants: Grants; faults: Faults; save: () => Promise<void> },
): Promise<Reply> {
  try {
    const text = request.query.get('token') ?? readForm(request).get('token');
    if (!text) throw new OAuthRefusal(400, 'invalid_request', 'Missing required parameter: token');
    const refresh = parts.tokens.findRefresh(text);
    const token =
      parts.tokens.findAccess(text) ?? (refresh && parts.tokens.isLive(refresh) ? refresh : undefined);
    const { about } = request;
    Object.assign(about, { sub: token?.sub, clientId: token?.clientId });
    const fault = parts.faults.takeAt(['revoke'], about);
    const reply = await answerUnder(fault, {
      signal: request.signal,
      projectNumber: token?.projectNumber ?? '',
      work: async () => {
        if (token === undefined) throw new OAuthRefusal(400, 'invalid_token', 'Token expired or revoked');
        parts.tokens.endAll(token);
        parts.grants.remove(token);
        await parts.save();
        return json(200, {});
      },
    });
    return { ...reply, headers: { ...noStore, ...reply.headers } };
  } catch (error) {
    if (error instanceof OAuthRefusal) return error.toReply();
    throw error;
  }
}

/** The headers of all responses of the token and revocation endpoints, as recorded from Google. */
const noStore = {
  'cache-control': 'no-cache, no-store, max-age=0, must-revalidate',
  pragma: 'no-cache',
  expires: 'Mon, 01 Jan 1990 00:00:00 GMT',
  vary: 'X-Origin, Referer, Origin,Accept-Encoding',
  server: 'scaffolding on HTTPServer2',
  'x-content-type-options': 'nosniff',
};

/** An error response of the token or revocation endpoint (RFC 6749 §5.2). */
class OAuthRefusal extends Error {
  readonly status: number;
  readonly code: string;
  readonly #more: Record<string, string>;

  /** `more` are further fields of the response, such as `error_subtype`. */
  constructor(status: number, code: string, description: string, more: Record<string, string> = {}) {
    super(description);
    this.status = status;
    this.code = code;
    this.#more = more;
  }

  toReply(): Reply {
    const body = { error: this.code, error_description: this.message, ...this.#more };
    return json(this.status, body, noStore);
  }
}

/**
 * The parameters of a posted form, or of a JSON object of strings, which Google also accepts. Throws `invalid_request` for
 * invalid JSON.
 */
function readForm(request: Incoming): URLSearchParams {
  const text = request.body.toString();
  const type = (request.headers['content-type'] ?? '').split(';', 1)[0]!.trim().toLowerCase();
  if (type !== 'application/json') return new URLSearchParams(text);
  try {
    const fields = Object.entries(JSON.parse(text) as Record<string, unknown>);
    return new URLSearchParams(fields.map(([name, value]) => [name, String(value)]));
  } catch {
    throw new OAuthRefusal(400, 'invalid_request', 'Could not parse the request body.');
  }
}
