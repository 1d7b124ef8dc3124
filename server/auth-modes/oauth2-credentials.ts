import { z } from 'zod';
import type { AuthMode } from './mode.ts';
import { refreshToken } from './oauth2.ts';
import type { Tokens } from './token-request.ts';
import type { JsonObject } from './token-response.ts';
import { clientText, expiryText, tokenText, withoutClientSecret, withoutRefreshToken } from './token-text.ts';

/** As sealed, and as official clients read them. `expires_at` is ISO 8601 in UTC. */
export type OAuth2Credentials = {
  readonly type: 'OAUTH2';
  readonly access_token: string;
  readonly refresh_token?: string;
  readonly expires_at?: string;
  /** The connection's own client, to which the grant was given in place of the integration's. */
  readonly config_override?: { readonly client_id: string; readonly client_secret: string };
  /** The provider's last answer as it was; what `getRawTokenResponse` of the clients returns. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH2'),
    access_token: tokenText,
    refresh_token: tokenText.optional(),
    expires_at: expiryText.optional(),
    config_override: z.strictObject({ client_id: clientText, client_secret: clientText }).optional(),
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

/** Tokens that a person granted on the provider's pages; sent as bearer token (RFC 6750 §2.1). */
export const oauth2: AuthMode<OAuth2Credentials> = {
  name: 'OAUTH2',
  wayIn: 'provider_page',
  importSchema,
  templateValues: ({ access_token }) => ({ accessToken: access_token }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of ours
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  toWire: ({ type, access_token, expires_at, config_override: own, raw }) => ({
    type,
    access_token,
    ...(expires_at !== undefined && { expires_at }),
    ...(own && { config_override: { client_id: own.client_id } }),
    raw: withoutRefreshToken(raw),
  }),
  renewal: {
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
 * What to store after an exchange, or after a refresh of `previous`, which is of the same client: a refresh token stays
 * until it is replaced.
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
