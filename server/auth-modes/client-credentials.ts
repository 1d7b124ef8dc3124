/**
 * Client credentials (RFC 6749 §4.4): a client gets tokens by its ID and secret alone. The client is the connection's
 * own, or else the integration's.
 *
 * There is no grant beside the client, so whose client it is decides whose fault a refusal is. And there is no refresh:
 * a token is renewed by asking for another.
 */
import * as oauth from 'oauth4webapi';
import { z } from 'zod';
import { placeholdersOf } from '../providers/template-grammar.ts';
import type { AuthMode } from './mode.ts';
import {
  address,
  clientAuth,
  clientOf,
  type Network,
  type OAuthContext,
  serverOf,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import type { TokenFault } from './token-fault.ts';
import { type TokenOutcome, type Tokens, tokenOutcome } from './token-request.ts';
import type { JsonObject } from './token-response.ts';
import { clientText, expiryText, tokenText, withoutRefreshToken } from './token-text.ts';

/** As sealed. `expires_at` is ISO 8601 in UTC. */
export type ClientCredentials = {
  readonly type: 'OAUTH2_CC';
  /** Absent until one was fetched. */
  readonly token?: string;
  readonly expires_at?: string;
  /** The connection's own client, both or none. */
  readonly client_id?: string;
  readonly client_secret?: string;
  /** The provider's last answer as it was. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH2_CC'),
    client_id: clientText.optional(),
    client_secret: clientText.optional(),
    token: tokenText.optional(),
    expires_at: expiryText.optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .superRefine((given, context) => {
    const [id, secret] = [given.client_id, given.client_secret];
    if ((id === undefined) === (secret === undefined)) return;
    const path = [id === undefined ? 'client_id' : 'client_secret'];
    context.addIssue({ code: 'custom', path, message: 'belongs to the other one: give both or none' });
  })
  .transform(({ type, client_id, client_secret, token, expires_at, raw }): ClientCredentials => {
    const given = { ...(token !== undefined && { token }), ...(expires_at !== undefined && { expires_at }) };
    return {
      type,
      ...given,
      ...(client_id !== undefined && client_secret !== undefined && { client_id, client_secret }),
      raw: (raw as JsonObject | undefined) ?? given,
    };
  });

const toWire = ({ type, token, expires_at, client_id, raw }: ClientCredentials) => ({
  type,
  ...(token !== undefined && { token }),
  ...(expires_at !== undefined && { expires_at }),
  ...(client_id !== undefined && { client_id }),
  raw: withoutRefreshToken(raw),
});

/** A machine's own access, sent as bearer token (RFC 6750 §2.1). */
export const clientCredentials: AuthMode<ClientCredentials> = {
  name: 'OAUTH2_CC',
  wayIn: 'form',
  importSchema,
  templateValues: ({ token = '', client_id = '' }) => ({ accessToken: token, clientId: client_id }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of ours
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  toWire,
  renewal: {
    accessTokenOf: ({ token }) => token,
    secretOf: ({ client_id }) => client_id ?? '',
    ownClientOf: ({ client_id, client_secret }) =>
      client_id === undefined || client_secret === undefined
        ? undefined
        : { clientId: client_id, clientSecret: client_secret },
    request: ({ credentials, ...context }) =>
      requestToken({ ...context, isOwnClient: credentials.client_id !== undefined }),
    after: (tokens, { previous }) => credentialsAfter(tokens, previous),
    // The secret is to this mode what a refresh token is to others.
    toWireWithSecret: (credentials) => ({
      ...toWire(credentials),
      ...(credentials.client_secret !== undefined && { client_secret: credentials.client_secret }),
    }),
  },
};

/**
 * Asks for a token by the client alone. Throws TemplateError, and AppError when the address may not be reached.
 * What the provider says against the client is `dead_grant` where it is the connection's own, else
 * `client_misconfigured`: see `judged`.
 */
async function requestToken({
  isOwnClient,
  ...context
}: OAuthContext & Network & { isOwnClient: boolean }): Promise<TokenOutcome> {
  const token = tokenSection(context.definition);
  const server = serverOf(context, address(context, token.url));
  const client = clientOf(context);
  const { scopes } = context.client;
  const scopeText = scopes.join(context.definition.scopes.separator);
  const outcome = await tokenOutcome(context, {
    endpoint: server.token_endpoint,
    request: (options) =>
      oauth.clientCredentialsGrantRequest(
        server,
        client,
        clientAuth(context),
        { ...tokenParams(context, token.params), ...(scopeText !== '' && { scope: scopeText }) },
        options,
      ),
    judge: (response) => oauth.processClientCredentialsResponse(server, client, response),
    keepIdToken: false,
    isRenewable: true,
    // RFC 6749 §3.3: where it says nothing, what was asked for.
    silentScopes: scopes.length > 0 ? scopes : undefined,
  });
  if (!outcome.ok) {
    const isAlike = ![token.url, ...Object.values(token.params)].some(isOfConnection);
    return { ok: false, fault: judged(outcome.fault, { isOwnClient, isAlike }) };
  }
  // RFC 6749 §4.4.3: it should not come, and the client gets on without.
  const { refreshToken: _unasked, refreshExpiresAt: _its, ...tokens } = outcome.tokens;
  return { ok: true, tokens };
}

/** A scope and an address are for the integration to choose: another client would be told the same. */
const ofSettings: ReadonlySet<string | undefined> = new Set(['invalid_scope', 'unsupported_grant_type']);
/** Ours, for what nobody could read: a gateway may have sent it. */
const unread: ReadonlySet<string | undefined> = new Set(['not_json', 'too_large']);

/**
 * Whose fault it is: the connection's where the client is its own. Else the integration's, for all connections where
 * the code says that the client is refused as such, or where all of them ask alike; for this one where its own settings
 * stand in the request.
 */
function judged(
  fault: TokenFault,
  { isOwnClient, isAlike }: { isOwnClient: boolean; isAlike: boolean },
): TokenFault {
  const { kind, error, httpStatus } = fault;
  const ofOne: Partial<TokenFault> = isOwnClient || !isAlike ? { isOfOneGrant: true } : {};
  if (unread.has(error)) return fault;
  if (kind === 'client_misconfigured') {
    if (ofSettings.has(error)) return { ...fault, ...ofOne };
    return isOwnClient ? { ...fault, kind: 'dead_grant' } : fault;
  }
  const isRefusal =
    kind === 'dead_grant' ||
    // RFC 9110 §15.5.2: whatever the code, there is nothing but the client to be refused.
    (kind === 'protocol' && (error === 'access_denied' || httpStatus === 401));
  if (!isRefusal) return fault;
  return isOwnClient
    ? { ...fault, kind: 'dead_grant' }
    : { ...fault, kind: 'client_misconfigured', ...ofOne };
}

/** Whether a template holds a setting that each connection has for itself. */
function isOfConnection(template: string): boolean {
  return placeholdersOf(template).some(({ source }) => source === 'connectionConfig');
}

function credentialsAfter(tokens: Tokens, previous: ClientCredentials): ClientCredentials {
  const { token: _token, expires_at: _end, ...client } = previous;
  return {
    ...client,
    token: tokens.accessToken,
    ...(tokens.expiresAt !== undefined && { expires_at: tokens.expiresAt.toISOString() }),
    raw: tokens.raw,
  };
}
