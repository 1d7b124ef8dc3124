/** The list of auth modes, and the mode of a provider or of stored credentials. */
import type { z } from 'zod';
import { apiKey } from './api-key.ts';
import { awsRole } from './aws-role.ts';
import { awsSigV4 } from './aws-sigv4.ts';
import { basic } from './basic.ts';
import { clientCredentials } from './client-credentials.ts';
import { jwt } from './jwt.ts';
import type { AuthMode, RenewableMode, Renewal } from './mode.ts';
import { none } from './none.ts';
import { oauth1 } from './oauth1.ts';
import { oauth2 } from './oauth2-credentials.ts';
import type { OAuthClient } from './oauth2-request.ts';
import { twoStep } from './two-step.ts';

const shipped = [
  oauth2,
  oauth1,
  clientCredentials,
  apiKey,
  basic,
  jwt,
  twoStep,
  awsSigV4,
  awsRole,
  none,
] as const;

type Shipped = (typeof shipped)[number];
type CredentialsOf<Mode> = Mode extends { readonly importSchema: z.ZodType<infer C> } ? C : never;
export type Credentials = CredentialsOf<Shipped>;
/** Credentials that hold a token, which expires and is renewed. */
export type RenewableCredentials = CredentialsOf<Extract<Shipped, { readonly renewal: object }>>;

/** All modes by name. The routes read it when they are registered. */
export const authModes = new Map<string, AuthMode<Credentials>>(
  // Each mode takes the credentials of its own name alone.
  shipped.map((mode) => [mode.name, mode as unknown as AuthMode<Credentials>]),
);

/** The mode of this name, which a definition of the catalogue or stored credentials have. */
export function modeNamed(name: string): AuthMode<Credentials> {
  const mode = authModes.get(name);
  if (mode === undefined) throw new TypeError(`no auth mode is called "${name}"`);
  return mode;
}

/** Whether the credentials hold a token, which expires and is renewed. */
export function isRenewable(credentials: Credentials): credentials is RenewableCredentials {
  return modeNamed(credentials.type).renewal !== undefined;
}

/** How these credentials are renewed. */
export function renewalOf(credentials: RenewableCredentials): Renewal<RenewableCredentials> {
  return (modeNamed(credentials.type) as unknown as RenewableMode<RenewableCredentials>).renewal;
}

/** The OAuth grant that replaces the token; undefined if there is no token that expires. */
export function grantTypeOf({ type }: Credentials): Renewal<Credentials>['grantType'] | undefined {
  return modeNamed(type).renewal?.grantType;
}

/** The refresh token; undefined if there is none. */
export function refreshTokenOf(credentials: Credentials): string | undefined {
  if (!isRenewable(credentials) || grantTypeOf(credentials) !== 'refresh_token') return undefined;
  return renewalOf(credentials).secretOf(credentials);
}

/** The connection's own OAuth client; undefined if it has none. */
export function ownClientOf(credentials: Credentials): Omit<OAuthClient, 'scopes'> | undefined {
  return isRenewable(credentials) ? renewalOf(credentials).ownClientOf(credentials) : undefined;
}
