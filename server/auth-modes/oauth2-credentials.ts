import { z } from 'zod';
import { clientKeyFault, clientKeyRuleFaults } from './client-key.ts';
import type { RenewableMode } from './mode.ts';
import { authorizationRequest, exchangeCode, refreshToken } from './oauth2.ts';
import type { Tokens } from './oauth2-request.ts';
import type { JsonObject, JsonValue } from './token-response.ts';

/** RFC 6749 appendix A: tokens are printable ASCII. */
export const tokenText = z
  .string()
  .min(1)
  .max(65_536)
  .regex(/^[\x20-\x7e]+$/, 'must be printable ASCII');

/** RFC 6749 appendix A.1 and A.2: printable ASCII. */
export const clientText = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^[\x20-\x7e]+$/, 'must be printable ASCII');

/** A shared secret, or the private key of a client in PEM (`client-key.ts`), whose lines may end with a line break. */
export const clientSecretText = z
  .string()
  .min(1)
  .max(16_384)
  .regex(/^(?:[\x20-\x7e]{1,4096}|-----BEGIN [\x20-\x7e\r\n]+)$/, 'must be printable ASCII');

/** The expiry of a token, converted to UTC. */
export const expiryText = z.iso
  .datetime({ offset: true })
  .transform((given) => new Date(given).toISOString());

/** As sealed, and as official clients read them. `expires_at` is ISO 8601 in UTC. */
export type OAuth2Credentials = {
  readonly type: 'OAUTH2';
  readonly access_token: string;
  readonly refresh_token?: string;
  readonly expires_at?: string;
  /** The connection's own client, if the grant was not given to the integration's. */
  readonly config_override?: { readonly client_id: string; readonly client_secret: string };
  /** The provider's last response, unchanged, for `getRawTokenResponse` of the clients. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH2'),
    access_token: tokenText,
    refresh_token: tokenText.optional(),
    expires_at: expiryText.optional(),
    config_override: z.strictObject({ client_id: clientText, client_secret: clientSecretText }).optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .transform(({ type, access_token, refresh_token, expires_at, config_override, raw }): OAuth2Credentials => {
    const given = {
      access_token,
      ...(refresh_token !== undefined && { refresh_token }),
      ...(expires_at !== undefined && { expires_at }),
    };
    const own = config_override && { config_override };
    return { type, ...given, ...own, raw: (raw as JsonObject | undefined) ?? given };
  });

/** Tokens that an end user granted on the provider's pages, sent as bearer token (RFC 6750 §2.1). */
export const oauth2: RenewableMode<OAuth2Credentials> = {
  name: 'OAUTH2',
  client: 'required',
  ownCredentialsOnly: false,
  importSchema,
  placeholders: ['accessToken'],
  templateValues: ({ access_token }) => ({ accessToken: access_token }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of definitions
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  credentialFaults: ({ config_override: own }, definition) => {
    const message = own && clientKeyFault(own.client_secret, definition);
    return message === undefined ? [] : [{ path: ['config_override', 'client_secret'], message }];
  },
  clientSecretFault: clientKeyFault,
  authorization: {
    async begin(context) {
      const { url, state, codeVerifier } = await authorizationRequest(context);
      return { ok: true, url, state, kept: { codeVerifier } };
    },
    finish: ({ kept, ...context }) => exchangeCode({ ...context, codeVerifier: kept.codeVerifier }),
    credentials: (tokens, { refreshToken: token, ownClient: own }) =>
      credentialsFrom(tokens, {
        ...(token !== undefined && { refresh_token: token }),
        ...(own && { config_override: { client_id: own.clientId, client_secret: own.clientSecret } }),
      }),
  },
  definitionFaults: ({ authorization, token, sandbox }) => {
    const missing = [
      ...(authorization === undefined ? [['authorization']] : []),
      ...(token === undefined ? [['token']] : []),
      ...(sandbox !== undefined && sandbox.authorization === undefined ? [['sandbox', 'authorization']] : []),
    ];
    return [
      ...missing.map((path): [string[], string] => [path, 'an OAUTH2 provider needs it']),
      ...clientKeyRuleFaults({ token, sandbox }),
    ];
  },
  toWire: ({ type, access_token, expires_at, config_override: own, raw }) => ({
    type,
    access_token,
    ...(expires_at !== undefined && { expires_at }),
    ...(own && { config_override: { client_id: own.client_id } }),
    raw: withoutRefreshToken(raw),
  }),
  renewal: {
    grantType: 'refresh_token',
    accessTokenOf: ({ access_token }) => access_token,
    secretOf: ({ refresh_token }) => refresh_token,
    ownClientOf: ({ config_override: own }) =>
      own && { clientId: own.client_id, clientSecret: own.client_secret },
    request: ({ secret, ...context }) => refreshToken({ ...context, refreshToken: secret }),
    after: (tokens, { previous, secret }) => credentialsFrom(tokens, { ...previous, refresh_token: secret }),
    toWireWithSecret: (credentials) => ({ ...credentials, raw: withoutClientSecret(credentials.raw) }),
  },
};

/**
 * The credentials to store after an exchange, or after a refresh of `previous`, which is of the same client. The previous
 * refresh token stays until the provider replaces it.
 */
export function credentialsFrom(
  tokens: Tokens,
  previous: Pick<OAuth2Credentials, 'refresh_token' | 'config_override'> = {},
): OAuth2Credentials {
  const refreshToken = tokens.refreshToken ?? previous.refresh_token;
  const own = previous.config_override;
  return {
    type: 'OAUTH2',
    access_token: tokens.accessToken,
    ...(refreshToken !== undefined && { refresh_token: refreshToken }),
    ...(tokens.expiresAt !== undefined && { expires_at: tokens.expiresAt.toISOString() }),
    ...(own && { config_override: own }),
    raw: tokens.raw,
  };
}

/** A provider's response to show with an access token: without refresh tokens and client secrets at any depth. */
export function withoutRefreshToken(raw: JsonValue): JsonValue {
  return without(raw, /^(refresh_?token|client_?secret)$/i);
}

/** A provider's response to show with a refresh token: without client secrets. */
function withoutClientSecret(raw: JsonValue): JsonValue {
  return without(raw, /^client_?secret$/i);
}

/** At any depth: some providers nest their tokens. */
function without(value: JsonValue, names: RegExp): JsonValue {
  if (Array.isArray(value)) return value.map((inner) => without(inner, names));
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([name]) => !names.test(name));
  return Object.fromEntries(kept.map(([name, inner]) => [name, without(inner, names)]));
}
