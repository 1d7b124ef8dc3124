/**
 * Authorization modes: what a connection's credentials look like, how they are imported, shown and put on a request.
 *
 * Owns: the protocols. Does not own: tables, sealing and refresh leases (`connections/`), the way a person connects
 * (`connect/`), sending (`proxy/`). A new mode is one file and one line in `authModes`.
 */
import type { z } from 'zod';
import type { AuthModeName, ProviderDefinition } from '../providers/definition.ts';
import { type ApiKeyCredentials, apiKey } from './api-key.ts';
import { type BasicCredentials, basic } from './basic.ts';
import { type ClientCredentials, clientCredentials } from './client-credentials.ts';
import { type NoCredentials, none } from './none.ts';
import { type OAuth2Credentials, oauth2 } from './oauth2-credentials.ts';
import type { Network, OAuthContext } from './oauth2-request.ts';
import type { TokenOutcome, Tokens } from './token-request.ts';

/** Those that hold a token, which ends and is renewed. */
export type RenewableCredentials = OAuth2Credentials | ClientCredentials;
export type Credentials = RenewableCredentials | ApiKeyCredentials | BasicCredentials | NoCredentials;

export type AuthMode<C extends Credentials = Credentials> = {
  readonly name: AuthModeName;
  /** How a person connects: through the provider's pages, by filling in a form, or by a click alone. */
  readonly wayIn: 'provider_page' | 'form' | 'click';
  /** What `POST /connections` takes as `credentials`; its output is what is sealed and stored. */
  readonly importSchema: z.ZodType<C>;
  /** What a definition's `${credentials.x}` stand for. */
  templateValues(credentials: C): Record<string, string>;
  /** Where the credentials go unless the definition says otherwise. */
  readonly placement: ProviderDefinition['placement'];
  /** As `GET /connections/{id}` shows them, without what renews them. */
  toWire(credentials: C): Record<string, unknown>;
  /** Absent where the credentials do not end by themselves. */
  readonly renewal?: Renewal<C>;
};

/** How a token that ends is replaced by another. */
type Renewal<C> = {
  /** The token that goes to the API; undefined until one was fetched. */
  accessTokenOf(credentials: C): string | undefined;
  /**
   * What asks for another token, and is not sent again once it was refused: a refresh token, or the ID of a client that
   * needs none. Undefined where nothing does.
   */
  secretOf(credentials: C): string | undefined;
  /** The OAuth client that the connection brought along; undefined where it is the integration's. */
  ownClientOf(credentials: C): { clientId: string; clientSecret: string } | undefined;
  /** Asks for one. Throws TemplateError, and AppError when the address may not be reached. */
  request(context: OAuthContext & Network & { credentials: C; secret: string }): Promise<TokenOutcome>;
  /** What to store of the answer to a request with `secret`. */
  after(tokens: Tokens, from: { previous: C; secret: string }): C;
  /** As `toWire`, with what renews them: only for a caller who asked for it and may have it. */
  toWireWithSecret(credentials: C): Record<string, unknown>;
};

type Modes = { readonly [C in Credentials as C['type']]: AuthMode<C> };
export const authModes: Modes = {
  OAUTH2: oauth2,
  OAUTH2_CC: clientCredentials,
  API_KEY: apiKey,
  BASIC: basic,
  NONE: none,
};

/** The mode that these credentials belong to, ready to take them. */
export function modeOf(credentials: Credentials): AuthMode {
  return authModes[credentials.type] as AuthMode;
}

/** Whether they hold a token, which ends and is renewed. */
export function isRenewable(credentials: Credentials): credentials is RenewableCredentials {
  return authModes[credentials.type].renewal !== undefined;
}

/** How these credentials are renewed, ready to take them. */
export function renewalOf(credentials: RenewableCredentials): Renewal<RenewableCredentials> {
  return authModes[credentials.type].renewal as Renewal<RenewableCredentials>;
}

/** The OAuth client that a connection brought along; undefined where it has none of its own. */
export function ownClientOf(
  credentials: Credentials,
): { clientId: string; clientSecret: string } | undefined {
  return isRenewable(credentials) ? renewalOf(credentials).ownClientOf(credentials) : undefined;
}
