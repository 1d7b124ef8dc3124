import { z } from 'zod';
import type { AuthMode } from './mode.ts';
import { refreshToken } from './oauth2.ts';
import type { Tokens } from './token-request.ts';
import type { JsonObject } from './token-response.ts';
import { expiryText, tokenText, withoutClientSecret, withoutRefreshToken } from './token-text.ts';

/** As sealed, and as official clients read them. `expires_at` is ISO 8601 in UTC. */
export type OAuth2Credentials = {
  readonly type: 'OAUTH2';
  readonly access_token: string;
  readonly refresh_token?: string;
  readonly expires_at?: string;
  /** The provider's last answer as it was; what `getRawTokenResponse` of the clients returns. */
  readonly raw: JsonObject;
};

const importSchema = z
  .strictObject({
    type: z.literal('OAUTH2'),
    access_token: tokenText,
    refresh_token: tokenText.optional(),
    expires_at: expiryText.optional(),
    raw: z.record(z.string(), z.json()).optional(),
  })
  .transform(({ type, access_token, refresh_token, expires_at, raw }): OAuth2Credentials => {
    const given = {
      access_token,
      ...(refresh_token !== undefined && { refresh_token }),
      ...(expires_at !== undefined && { expires_at }),
    };
    return { type, ...given, raw: (raw as JsonObject | undefined) ?? given };
  });

/** Tokens that a person granted on the provider's pages; sent as bearer token (RFC 6750 §2.1). */
export const oauth2: AuthMode<OAuth2Credentials> = {
  name: 'OAUTH2',
  wayIn: 'provider_page',
  importSchema,
  templateValues: ({ access_token }) => ({ accessToken: access_token }),
  // biome-ignore lint/suspicious/noTemplateCurlyInString: a template of ours
  placement: [{ in: 'header', name: 'Authorization', value: 'Bearer ${credentials.accessToken}' }],
  toWire: ({ type, access_token, expires_at, raw }) => ({
    type,
    access_token,
    ...(expires_at !== undefined && { expires_at }),
    raw: withoutRefreshToken(raw),
  }),
  renewal: {
    accessTokenOf: ({ access_token }) => access_token,
    secretOf: ({ refresh_token }) => refresh_token,
    ownClientOf: () => undefined,
    request: ({ secret, ...context }) => refreshToken({ ...context, refreshToken: secret }),
    after: (tokens, { previous, secret }) => credentialsFrom(tokens, { ...previous, refresh_token: secret }),
    toWireWithSecret: (credentials) => ({ ...credentials, raw: withoutClientSecret(credentials.raw) }),
  },
};

/** What to store after an exchange, or after a refresh of `previous`: a refresh token stays until it is replaced. */
export function credentialsFrom(tokens: Tokens, previous?: OAuth2Credentials): OAuth2Credentials {
  const refreshToken = tokens.refreshToken ?? previous?.refresh_token;
  return {
    type: 'OAUTH2',
    access_token: tokens.accessToken,
    ...(refreshToken !== undefined && { refresh_token: refreshToken }),
    ...(tokens.expiresAt !== undefined && { expires_at: tokens.expiresAt.toISOString() }),
    raw: tokens.raw,
  };
}
