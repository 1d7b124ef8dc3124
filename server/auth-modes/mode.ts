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
import { type NoCredentials, none } from './none.ts';
import { type OAuth2Credentials, oauth2 } from './oauth2-credentials.ts';

export type Credentials = OAuth2Credentials | ApiKeyCredentials | BasicCredentials | NoCredentials;

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
};

type Modes = { readonly [C in Credentials as C['type']]: AuthMode<C> };
export const authModes: Modes = { OAUTH2: oauth2, API_KEY: apiKey, BASIC: basic, NONE: none };

/** The mode that these credentials belong to, ready to take them. */
export function modeOf(credentials: Credentials): AuthMode {
  return authModes[credentials.type] as AuthMode;
}
