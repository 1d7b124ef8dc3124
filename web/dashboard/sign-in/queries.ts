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
type SignInWays = { required: boolean; oidc: { name: string } | null; mail: boolean };
/** The rights that a link gives to its holder. The first link makes the owner. */
export type Invitation = {
  kind: 'setup' | 'invitation';
  email: string | null;
  role: Role;
  environments: string[];
  expires_at: string;
};

/** Routes about users belong to no environment, but take a cookie only beside the header. */
const environment = '*';

/** Who is signed in; 401 where nobody is. */
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

/** Whose session the browser has at this moment, by ID; null: nobody's, undefined: the service does not say. */
export async function whoIsSignedIn(): Promise<string | null | undefined> {
  return send('GET /users/me', { environment }).then(
    (answer) => (answer as { data: Me }).data.id,
    (error) => (error instanceof Fault && error.status === 401 ? null : undefined),
  );
}

/** A session lasts seven days from when a page was last open: no other call brings a new cookie. It may fail unseen. */
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

/** Whether the user may change things in the environment that is open. The service decides; this only hides. */
export function useMayWrite(): boolean {
  const name = useEnvironment();
  const { data } = useSuspenseQuery(meQuery());
  const role = data.environments.find((one) => one.name === name)?.role;
  return role !== undefined && role !== 'viewer';
}

/** What the user's role lets do in the environment that is open, by scope. The service decides; this only hides. */
export function useMay(): (scope: string) => boolean {
  const scopes = useScopes();
  return (scope) => scopes.includes(scope);
}

/** The scopes that the user has in the environment that is open, and may give to a key. */
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

/** The second step, where the account has one: six digits of an authenticator, or a backup code. */
export async function signInWithCode(code: string): Promise<void> {
  const isDigits = /^\d{6}$/.test(code);
  await send(
    isDigits ? 'POST /api/auth/two-factor/verify-totp' : 'POST /api/auth/two-factor/verify-backup-code',
    { body: { code } },
  );
}

/** Answers where the identity provider wants the browser to go. */
export async function signInElsewhere(next: string): Promise<string> {
  const answer = (await send('POST /api/auth/sign-in/social', {
    body: { provider: 'oidc', callbackURL: next, errorCallbackURL: '/app/sign-in' },
  })) as { url: string };
  return answer.url;
}

export async function signOut(): Promise<void> {
  await send('POST /api/auth/sign-out', { body: {} });
}

/** Makes the account that a link invites to, and signs in as it. */
export async function accept(given: {
  token: string;
  name: string;
  email: string;
  password: string;
}): Promise<void> {
  await send('POST /users', { environment, body: given });
  await signIn({ email: given.email, password: given.password });
}

/** A link comes by mail, where somebody has this address; nobody is told whether. */
export async function requestReset(email: string): Promise<void> {
  await send('POST /api/auth/request-password-reset', { body: { email } });
}

export async function resetPassword(given: { token: string; newPassword: string }): Promise<void> {
  await send('POST /api/auth/reset-password', { body: given });
}
