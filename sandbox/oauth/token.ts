/**
 * The token endpoint: one pipeline for both grants. A grant says whom it is about and what may be issued; the
 * endpoint authenticates the client, lets faults strike, issues, saves and answers.
 *
 * Error texts are Google's (RFC 6749 §5.2 gives the codes only): clients in the wild match on them.
 */
import { createHash } from 'node:crypto';
import type { Account, Accounts } from '../accounts.ts';
import { type Client, type Clients, isSecretOf } from '../clients.ts';
import type { Clock } from '../clock.ts';
import { answerUnder, type Faults } from '../faults.ts';
import { type Incoming, json, type Reply } from '../http.ts';
import { ACCESS_TOKEN_SECONDS, type RefreshToken, TESTING_SECONDS, type Tokens } from '../tokens.ts';
import type { Codes } from './codes.ts';
import { NO_STORE, OAuthRefusal, readForm } from './form.ts';
import type { IdTokens } from './id-token.ts';
import { fullScope, inAnswerOrder, isSignInScope } from './scopes.ts';

/** What the token endpoint works with. */
export interface TokenParts {
  accounts: Accounts;
  clients: Clients;
  codes: Codes;
  tokens: Tokens;
  faults: Faults;
  idTokens: IdTokens;
  clock: Clock;
  save: () => Promise<void>;
}

/** What a grant, once it holds, entitles to. */
interface Entitlement {
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
  point: 'exchange' | 'refresh';
  peek(form: URLSearchParams, parts: TokenParts): string | undefined;
  redeem(form: URLSearchParams, client: Client, parts: TokenParts): Entitlement;
}

/** Answers `POST /token`. */
export async function answerToken(request: Incoming, parts: TokenParts): Promise<Reply> {
  try {
    const form = readForm(request);
    const client = authenticate(request, { form, clients: parts.clients });
    const name = form.get('grant_type') ?? '';
    const grant = Object.hasOwn(GRANT_TYPES, name)
      ? GRANT_TYPES[name as keyof typeof GRANT_TYPES]
      : undefined;
    if (grant === undefined)
      throw new OAuthRefusal(400, 'unsupported_grant_type', `Invalid grant_type: ${name}`);

    const subject = { sub: grant.peek(form, parts), clientId: client.clientId };
    const fault = parts.faults.takeAt([grant.point, 'token'], subject);
    const reply = await answerUnder(fault, {
      signal: request.signal,
      projectNumber: client.projectNumber,
      work: () => issue(grant.redeem(form, client, parts), { client, parts }),
    });
    return { ...reply, headers: { ...NO_STORE, ...reply.headers } };
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

const GRANT_TYPES = {
  authorization_code: {
    point: 'exchange',
    peek: (form, { codes }) => {
      const code = codes.find(form.get('code') ?? '');
      return typeof code === 'object' ? code.sub : undefined;
    },
    redeem: redeemCode,
  },
  refresh_token: {
    point: 'refresh',
    peek: (form, { tokens }) => tokens.findRefresh(form.get('refresh_token') ?? '')?.sub,
    redeem: redeemRefresh,
  },
} satisfies Record<string, GrantType>;

function redeemCode(form: URLSearchParams, client: Client, parts: TokenParts): Entitlement {
  const text = required(form, 'code');
  const code = parts.codes.find(text);
  if (code === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'Malformed auth code.');
  if (code === 'spent') throw new OAuthRefusal(400, 'invalid_grant', 'Bad Request');
  if (code.client.clientId !== client.clientId)
    throw new OAuthRefusal(401, 'unauthorized_client', 'Unauthorized');
  const redirectUri = required(form, 'redirect_uri');
  if (redirectUri !== code.redirectUri) throw new OAuthRefusal(400, 'redirect_uri_mismatch', 'Bad Request');
  if (code.challenge !== undefined) verify(form.get('code_verifier'), code.challenge);
  const account = accountOf(code.sub, parts);
  parts.codes.spend(text);

  const { scopes, nonce } = code;
  const subject = { sub: account.sub, clientId: client.clientId };
  const isRefreshable =
    code.offline && code.consentShown && !parts.faults.strikes('no_refresh_token', subject);
  if (!isRefreshable) return { account, scopes, nonce, offline: false };
  const isTesting =
    parts.faults.strikes('testing_mode', subject) || parts.clients.projectOf(client).publishing === 'testing';
  const lifeSeconds = isTesting && !scopes.every(isSignInScope) ? TESTING_SECONDS : undefined;
  const token = parts.tokens.issueRefresh({ client, sub: account.sub, scopes, lifeSeconds });
  return { account, scopes, nonce, offline: true, shown: token, behind: token };
}

function redeemRefresh(form: URLSearchParams, client: Client, parts: TokenParts): Entitlement {
  const token = parts.tokens.findRefresh(required(form, 'refresh_token'));
  if (token === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'Bad Request');
  if (token.clientId !== client.clientId) throw new OAuthRefusal(401, 'unauthorized_client', 'Unauthorized');
  if (!parts.tokens.isLive(token)) {
    throw new OAuthRefusal(400, 'invalid_grant', 'Token has been expired or revoked.');
  }
  const account = accountOf(token.sub, parts);
  const asked = (form.get('scope') ?? '')
    .split(' ')
    .filter((scope) => scope !== '')
    .map(fullScope);
  const excess = asked.filter((scope) => !token.scopes.includes(scope));
  if (excess.length > 0) {
    throw new OAuthRefusal(
      400,
      'invalid_scope',
      `Some requested scopes were invalid. {invalid=[${excess.join(', ')}]}`,
    );
  }
  parts.tokens.touch(token);

  const subject = { sub: account.sub, clientId: client.clientId };
  let scopes = asked.length > 0 ? inAnswerOrder(asked) : token.scopes;
  if (parts.faults.strikes('refresh_fewer_scopes', subject)) scopes = scopes.filter(isSignInScope);
  if (!parts.faults.strikes('refresh_rotates', subject))
    return { account, scopes, offline: true, behind: token };
  parts.tokens.endRefresh(token);
  const successor = parts.tokens.issueRefresh({ client, sub: account.sub, scopes: token.scopes });
  if (token.expiresAt !== undefined) successor.expiresAt = token.expiresAt;
  return { account, scopes, offline: true, shown: successor, behind: successor };
}

async function issue(entitled: Entitlement, to: { client: Client; parts: TokenParts }): Promise<Reply> {
  const { account, scopes, nonce, offline, shown, behind } = entitled;
  const { client, parts } = to;
  const access = parts.tokens.issueAccess({ client, sub: account.sub, scopes, offline });
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
    expires_in: ACCESS_TOKEN_SECONDS,
    ...(shown === undefined ? {} : { refresh_token: shown.token }),
    ...(behind?.expiresAt === undefined
      ? {}
      : { refresh_token_expires_in: Math.ceil((behind.expiresAt - parts.clock.now()) / 1000) }),
    scope: scopes.join(' '),
    token_type: 'Bearer',
    ...(idToken === undefined ? {} : { id_token: idToken }),
  });
}

// RFC 7636 §4.6. Google enforces it for every client once a challenge was sent.
function verify(verifier: string | null, challenge: { value: string; method: 'S256' | 'plain' }): void {
  if (!verifier) throw new OAuthRefusal(400, 'invalid_grant', 'Missing code verifier.');
  const transformed =
    challenge.method === 'S256' ? createHash('sha256').update(verifier).digest('base64url') : verifier;
  if (transformed !== challenge.value) throw new OAuthRefusal(400, 'invalid_grant', 'Invalid code verifier.');
}

function accountOf(sub: string, { accounts }: TokenParts): Account {
  const account = accounts.find(sub);
  if (account === undefined) throw new OAuthRefusal(400, 'invalid_grant', 'The account has been deleted');
  return account;
}

function required(form: URLSearchParams, name: string): string {
  const value = form.get(name);
  if (!value) throw new OAuthRefusal(400, 'invalid_request', `Missing required parameter: ${name}`);
  return value;
}
