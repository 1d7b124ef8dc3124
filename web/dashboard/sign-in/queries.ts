import { queryOptions, useSuspenseQuery } from '@tanstack/react-query';
import { Fault, send } from '../../api/client.ts';
import { useEnvironment } from '../shell/environment.ts';

type Role = 'owner' | 'developer' | 'viewer';
export type Me = {
  id: string;
  name: string;
  email: string;
  role: Role | null;
  two_factor: boolean;
  environments: { name: string; role: Role; scopes: string[] }[];
};
/** The ways to sign in. */
type SignInWays = {
  required: boolean;
  /** There is no owner yet. */
  needs_owner: boolean;
  oidc: { name: string } | null;
  mail: boolean;
};
/** The rights of an invitation link. The first link creates the owner. */
export type Invitation = {
  kind: 'setup' | 'invitation';
  email: string | null;
  role: Role;
  environments: string[];
  expires_at: string;
};

/** Routes about users belong to no environment, but the cookie is only accepted with the header. */
const environment = '*';

/** The signed-in user; 401 without one. */
export const meQuery = () =>
  queryOptions({
    queryKey: ['me'],
    queryFn: async ({ signal }) => {
      const { data: me } = (await send('GET /users/me', { environment, signal })) as { data: Me };
      if (me.id !== 'local') void prolongSession();
      return me;
    },
    staleTime: 60_000,
  });

/** The ID of the current user of the session; null: signed out, undefined: unknown. */
export async function whoIsSignedIn(): Promise<string | null | undefined> {
  return send('GET /users/me', { environment }).then(
    (answer) => (answer as { data: Me }).data.id,
    (error) => (error instanceof Fault && error.status === 401 ? null : undefined),
  );
}

/**
 * A session lasts seven days after a page was last open, because other calls do not renew the cookie. Errors are
 * ignored.
 */
async function prolongSession(): Promise<void> {
  await send('GET /api/auth/get-session').catch(() => {});
}

export const signInWaysQuery = () =>
  queryOptions({
    queryKey: ['sign-in ways'],
    queryFn: async ({ signal }) =>
      ((await send('GET /users/sign-in', { environment, signal })) as { data: SignInWays }).data,
    staleTime: 60_000,
  });

export const invitationQuery = (token: string) =>
  queryOptions({
    queryKey: ['invitation', token],
    queryFn: async () =>
      ((await send('POST /users/invitation', { environment, body: { token } })) as { data: Invitation }).data,
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });

/** Whether the user may change data in the current environment. The service enforces it; pages only hide controls. */
export function useMayWrite(): boolean {
  const name = useEnvironment();
  const { data } = useSuspenseQuery(meQuery());
  const role = data.environments.find((one) => one.name === name)?.role;
  return role !== undefined && role !== 'viewer';
}

/** The scopes of the user's role in the current environment. The service enforces them; pages only hide controls. */
export function useMay(): (scope: string) => boolean {
  const scopes = useScopes();
  return (scope) => scopes.includes(scope);
}

/** The scopes of the user in the current environment, which a key can have at most. */
export function useScopes(): string[] {
  const name = useEnvironment();
  const { data } = useSuspenseQuery(meQuery());
  return data.environments.find((one) => one.name === name)?.scopes ?? [];
}

export function useIsOwner(): boolean {
  return useSuspenseQuery(meQuery()).data.role === 'owner';
}

export async function signIn(given: { email: string; password: string }): Promise<{ needsCode: boolean }> {
  const answer = (await send('POST /api/auth/sign-in/email', { body: given })) as {
    twoFactorRedirect?: boolean;
  };
  return { needsCode: answer.twoFactorRedirect === true };
}

/** The second step, if the account has one: a code of an authenticator, or a backup code. */
export async function signInWithCode(code: string): Promise<void> {
  const isDigits = /^\d{6}$/.test(code);
  await send(
    isDigits ? 'POST /api/auth/two-factor/verify-totp' : 'POST /api/auth/two-factor/verify-backup-code',
    { body: { code } },
  );
}

/** Returns the address of the identity provider. */
export async function signInElsewhere(next: string): Promise<string> {
  const answer = (await send('POST /api/auth/sign-in/social', {
    body: { provider: 'oidc', callbackURL: next, errorCallbackURL: '/app/sign-in' },
  })) as { url: string };
  return answer.url;
}

export async function signOut(): Promise<void> {
  await send('POST /api/auth/sign-out', { body: {} });
}

/** Creates the account of an invitation link, and signs in. */
export async function accept(given: {
  token: string;
  name: string;
  email: string;
  password: string;
}): Promise<void> {
  await send('POST /users', { environment, body: given });
  await signIn({ email: given.email, password: given.password });
}

/** Sends a link by e-mail if an account has this address; the response does not reveal it. */
export async function requestReset(email: string): Promise<void> {
  await send('POST /api/auth/request-password-reset', { body: { email } });
}

export async function resetPassword(given: { token: string; newPassword: string }): Promise<void> {
  await send('POST /api/auth/reset-password', { body: given });
}
