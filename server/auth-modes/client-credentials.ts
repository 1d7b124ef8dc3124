/**
 * Client credentials (RFC 6749 §4.4): a client gets tokens by its ID and secret alone. The client is the connection's
 * own, or else the integration's.
 *
 * With `client_certificate` among the `credentials` of the definition, each connection also has a certificate, which is
 * presented in every TLS connection to the provider.
 *
 * There is no grant apart from the client, so the owner of the client determines the owner of a fault. There is no
 * refresh either: a token is renewed by a request for another token.
 */
import * as oauth from 'oauth4webapi';
import { z } from 'zod';
import type { ProviderDefinition } from '../providers/definition.ts';
import { certificateFault, clientKeyFault, clientKeyRuleFaults, hasClientKey } from './client-key.ts';
import type { RenewableMode } from './mode.ts';
import {
  clientSecretText,
  clientText,
  expiryText,
  tokenText,
  withoutRefreshToken,
} from './oauth2-credentials.ts';
import {
  address,
  clientAuth,
  clientOf,
  isOfConnection,
  type Network,
  type OAuthContext,
  serverOf,
  type TokenOutcome,
  type Tokens,
  tokenOutcome,
  tokenParams,
  tokenSection,
} from './oauth2-request.ts';
import type { TokenFault } from './token-fault.ts';
import type { JsonObject } from './token-response.ts';

/** As sealed. `expires_at` is ISO 8601 in UTC. */
export type ClientCredentials = {
  readonly type: 'OAUTH2_CC';
  /** Absent before the first token is fetched. */
  readonly token?: string;
  readonly expires_at?: string;
  /** The connection's own client: both fields or none. */
  readonly client_id?: string;
  readonly client_secret?: string;
  /** The private key and the certificate, in PEM, of the connection's own client. */
  readonly client_certificate?: string;
  /** The provider's last response, unchanged. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH2_CC'),
    client_id: clientText.optional(),
    client_secret: clientSecretText.optional(),
    client_certificate: z.string().max(16_384).optional(),
    token: tokenText.optional(),
    expires_at: expiryText.optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .superRefine((given, context) => {
    const [id, secret] = [given.client_id, given.client_secret];
    if (given.client_certificate && id === undefined)
      context.addIssue({ code: 'custom', path: ['client_id'], message: 'is required with a certificate' });
    if ((id === undefined) === (secret === undefined)) return;
    const path = [id === undefined ? 'client_id' : 'client_secret'];
    context.addIssue({ code: 'custom', path, message: 'requires the other field: send both or neither' });
  })
  .transform(({ type, client_certificate, ...others }): ClientCredentials => {
    const { client_id, client_secret, token, expires_at, raw } = others;
    const given = { ...(token !== undefined && { token }), ...(expires_at !== undefined && { expires_at }) };
    return {
      type,
      ...given,
      ...(client_id !== undefined && client_secret !== undefined && { client_id, client_secret }),
      // An optional field of a form may be empty.
      ...(client_certificate && { client_certificate }),
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

/** Access of a machine, sent as bearer token (RFC 6750 §2.1). */
export const clientCredentials: RenewableMode<ClientCredentials> = {
  name: 'OAUTH2_CC',
  client: 'optional',
  ownCredentialsOnly: false,
  clientOpensAccounts: true,
  form: {
    path: '/oauth2/auth',
    operationId: 'connectByClient',
    summary: 'Connect with a client ID and secret',
    example: { client_id: 'client-of-the-account', client_secret: 'secret-of-the-account' },
    fields: {
      client_id: { secret: false, required: true },
      client_secret: { secret: true, required: true },
      client_certificate: { secret: true, ifDeclared: true },
    },
  },
  importSchema,
  placeholders: ['accessToken', 'clientId'],
  templateValues: ({ token = '', client_id = '' }) => ({ accessToken: token, clientId: client_id }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of the service
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  certificateOf: ({ client_certificate }) => client_certificate,
  credentialFaults: ({ client_secret, client_certificate }, definition) => {
    const ofSecret = client_secret === undefined ? undefined : clientKeyFault(client_secret, definition);
    const ofCertificate = enteredCertificateFault(client_certificate, definition);
    return [
      ...(ofSecret === undefined ? [] : [{ path: ['client_secret'], message: ofSecret }]),
      ...(ofCertificate === undefined ? [] : [{ path: ['client_certificate'], message: ofCertificate }]),
    ];
  },
  clientSecretFault: (secret, definition) =>
    definition.credentials.client_certificate === undefined
      ? clientKeyFault(secret, definition)
      : 'is entered with each connection, since it belongs to the certificate of the connection',
  definitionFaults: ({ token, authorization, sandbox, credentials }) => {
    const faults: [string[], string][] = clientKeyRuleFaults({ token, sandbox });
    if (credentials.client_certificate !== undefined)
      faults.push(...certificateRuleFaults({ token, sandbox, credentials }));
    if (token === undefined) faults.push([['token'], 'an OAUTH2_CC provider needs it']);
    if (authorization !== undefined)
      faults.push([['authorization'], 'an OAUTH2_CC provider sends nobody there']);
    if (token?.auth_method === 'none')
      faults.push([['token', 'auth_method'], 'an OAUTH2_CC client proves itself by its secret']);
    return faults;
  },
  toWire,
  renewal: {
    grantType: 'client_credentials',
    accessTokenOf: ({ token }) => token,
    secretOf: ({ client_id }) => client_id ?? '',
    ownClientOf: ({ client_id, client_secret, client_certificate }) =>
      client_id === undefined || client_secret === undefined
        ? undefined
        : {
            clientId: client_id,
            clientSecret: client_secret,
            ...(client_certificate !== undefined && { certificate: client_certificate }),
          },
    request: ({ credentials, ...context }) =>
      requestToken({ ...context, isOwnClient: credentials.client_id !== undefined }),
    after: (tokens, { previous }) => credentialsAfter(tokens, previous),
    // The secret renews a token, like a refresh token in other modes.
    toWireWithSecret: (credentials) => ({
      ...toWire(credentials),
      ...(credentials.client_secret !== undefined && { client_secret: credentials.client_secret }),
    }),
  },
};

function enteredCertificateFault(
  text: string | undefined,
  { credentials: { client_certificate: field } }: ProviderDefinition,
): string | undefined {
  if (text !== undefined)
    return field === undefined ? 'is not a field of this provider' : certificateFault(text);
  return field?.required ? 'is required' : undefined;
}

/** What a definition lacks for the certificates of its connections: the path, and a message. */
function certificateRuleFaults({
  token,
  sandbox,
  credentials,
}: Pick<ProviderDefinition, 'token' | 'sandbox' | 'credentials'>): [path: string[], message: string][] {
  const faults: [string[], string][] = [];
  const { client_id: id, client_secret: secret, client_certificate: certificate } = credentials;
  if (!certificate?.secret || !certificate.multiline)
    faults.push([['credentials', 'client_certificate'], 'must be `secret` and `multiline`']);
  if (id === undefined || secret === undefined)
    faults.push([['credentials'], 'must also have `client_id` and `client_secret`']);
  if (hasClientKey(token))
    faults.push([['token', 'auth_method'], 'must use a shared secret beside the certificate']);
  if (sandbox !== undefined)
    faults.push([['sandbox'], 'requests no certificate, so test credentials are impossible']);
  return faults;
}

/**
 * Requests a token by the client alone. Throws TemplateError, and AppError when the address may not be reached. A
 * refusal of the client is `dead_grant` if it is the connection's own, else `client_misconfigured`: see `judged`.
 */
async function requestToken(given: OAuthContext & Network & { isOwnClient: boolean }): Promise<TokenOutcome> {
  const { isOwnClient, ...context } = given;
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
    // RFC 6749 §3.3: a response without scopes grants the requested ones.
    defaultScopes: scopes.length > 0 ? scopes : undefined,
  });
  if (!outcome.ok) {
    const isAlike = ![token.url, ...Object.values(token.params)].some(isOfConnection);
    return { ok: false, fault: judged(outcome.fault, { isOwnClient, isAlike }) };
  }
  // RFC 6749 §4.4.3: the response should have none, and the client does not need one.
  const { refreshToken: _unasked, refreshExpiresAt: _its, ...tokens } = outcome.tokens;
  return { ok: true, tokens };
}

/** Codes for a scope or an address, which the integration chooses: the provider would refuse any other client, too. */
const ofSettings: ReadonlySet<string | undefined> = new Set(['invalid_scope', 'unsupported_grant_type']);
/** Our codes for an unreadable response, which may come from a gateway. */
const unread: ReadonlySet<string | undefined> = new Set(['not_json', 'too_large']);

/**
 * Assigns a refusal to its owner. That is the connection if it has a client of its own. Else it is the integration:
 * for all its connections if the code refuses the client as such, or if all of them send the same request; for this
 * connection if the request contains its own settings.
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
    // RFC 9110 §15.5.2: whatever the code, the request has no other credentials than the client's.
    (kind === 'protocol' && (error === 'access_denied' || httpStatus === 401));
  if (!isRefusal) return fault;
  return isOwnClient
    ? { ...fault, kind: 'dead_grant' }
    : { ...fault, kind: 'client_misconfigured', ...ofOne };
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
