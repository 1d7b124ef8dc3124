import { queryOptions } from '@tanstack/react-query';
import { call, send } from '../../../api/client.ts';

/** A valid session, as better-auth lists it. `token` only identifies it for `endSession`. */
type Session = {
  token: string;
  createdAt: string;
  updatedAt: string;
  expiresAt: string;
  ipAddress?: string | null;
  userAgent?: string | null;
};
export type TwoFactorSetUp = { totpURI: string; backupCodes: string[] };

export const sessionsQuery = () =>
  queryOptions({
    queryKey: ['sessions'],
    queryFn: async ({ signal }) => {
      const [sessions, own] = await Promise.all([
        send('GET /api/auth/list-sessions', { signal }) as Promise<Session[]>,
        send('GET /api/auth/get-session', { signal }) as Promise<{ session: Session } | null>,
      ]);
      const ownToken = own?.session.token;
      return sessions
        .map((session) => ({ ...session, isOwn: session.token === ownToken }))
        .sort(
          (one, other) =>
            Number(other.isOwn) - Number(one.isOwn) || (one.createdAt < other.createdAt ? 1 : -1),
        );
    },
  });

export async function endSession(token: string): Promise<void> {
  await send('POST /api/auth/revoke-session', { body: { token } });
}

export async function endOtherSessions(): Promise<void> {
  await send('POST /api/auth/revoke-other-sessions', { body: {} });
}

export async function rename(name: string): Promise<void> {
  await call('PATCH /users/me', { environment: '*', body: { name } });
}

/** Ends all other sessions. */
export async function changePassword(given: { currentPassword: string; newPassword: string }): Promise<void> {
  await send('POST /api/auth/change-password', { body: given });
}

/** Begins the set-up; sign-in requires no code before `confirmTwoFactor`. */
export async function beginTwoFactor(password: string): Promise<TwoFactorSetUp> {
  return (await send('POST /api/auth/two-factor/enable', { body: { password } })) as TwoFactorSetUp;
}

export async function confirmTwoFactor(code: string): Promise<void> {
  await send('POST /api/auth/two-factor/verify-totp', { body: { code } });
}

export async function endTwoFactor(password: string): Promise<void> {
  await send('POST /api/auth/two-factor/disable', { body: { password } });
}

/** The previous codes are no longer valid. */
export async function newBackupCodes(password: string): Promise<string[]> {
  const answer = await send('POST /api/auth/two-factor/generate-backup-codes', { body: { password } });
  return (answer as { backupCodes: string[] }).backupCodes;
}
