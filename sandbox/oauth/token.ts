/**
 * The token endpoint: one pipeline for all grants. A grant (redeem.ts) says whom it is about and what may be
 * issued; the endpoint authenticates the client, lets faults strike, issues, saves and answers.
 */
import type { Accounts } from '../accounts.ts';
import { type Client, type Clients, isSecretOf } from '../clients.ts';
import type { Clock } from '../clock.ts';
import { answerUnder, type Faults } from '../faults/faults.ts';
import { type About, type Incoming, json, type Reply } from '../http.ts';
import type { Refreshes } from '../refreshes.ts';
import { ACCESS_TOKEN_SECONDS, type Tokens } from '../tokens.ts';
import type { Codes } from './codes.ts';
import { NO_STORE, OAuthRefusal, readForm } from './form.ts';
import type { IdTokens } from './id-token.ts';
import { type Entitlement, findGrantType } from './redeem.ts';

/** What the token endpoint works with. */
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
      return { ...reply, headers: { ...NO_STORE, ...reply.headers } };
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

const TINY_SECONDS = 5;

async function issue(
  entitled: Entitlement,
  to: { client: Client; about: About; parts: TokenParts },
): Promise<Reply> {
  const { account, scopes, nonce, offline, shown, behind } = entitled;
  const { client, about, parts } = to;
  const lifeSeconds = parts.faults.strikes('token_expires_in_tiny', about)
    ? TINY_SECONDS
    : ACCESS_TOKEN_SECONDS;
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
