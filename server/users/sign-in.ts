/**
 * Signing in: passwords, second factors, sessions, the OpenID provider, by better-auth.
 *
 * Owns: how better-auth is set up, and which of its routes are open. Does not own: who may become a user
 * (`invitations.ts`), what users may do (`members.ts`), whose a cookie is on hot paths (`person-reader.ts`).
 */
import { betterAuth } from 'better-auth';
import { twoFactor } from 'better-auth/plugins';
import type { Config } from '../config.ts';
import type { Db } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import { acceptByEmail, hasInvitation } from './invitations.ts';
import { type Mailer, resetMail } from './mail.ts';
import { createOidcProvider, type Fetch } from './oidc.ts';
import { mayMailReset } from './resets.ts';
import { resetLink, resetMs } from './set-up.ts';
import { signInDatabase } from './sign-in-database.ts';

/** Where the address of whoever signs in is told to better-auth: nobody else may set it (`sign-in-routes.ts`). */
export const addressHeader = 'x-sign-in-address';

/** Shorter passwords are refused (NIST SP 800-63B §3.1.1 asks for 15 where there is no second factor, 8 at least). */
export const shortestPassword = 12;
export const longestPassword = 128;

const sessionS = 7 * 86_400;

/** What of better-auth is open; the rest of its routes is 404. */
export const openPaths: ReadonlySet<string> = new Set([
  'GET /get-session',
  'POST /sign-in/email',
  'POST /sign-in/social',
  'GET /callback/oidc',
  'POST /sign-out',
  'GET /list-sessions',
  'POST /revoke-session',
  'POST /revoke-sessions',
  'POST /revoke-other-sessions',
  'POST /change-password',
  'POST /reset-password',
  'POST /update-user',
  'POST /two-factor/enable',
  'POST /two-factor/disable',
  'POST /two-factor/get-totp-uri',
  'POST /two-factor/verify-totp',
  'POST /two-factor/verify-backup-code',
  'POST /two-factor/generate-backup-codes',
]);

/** What is open besides where mails are sent. */
export const openPathsWithMail: ReadonlySet<string> = new Set(['POST /request-password-reset']);

export type SignIn = ReturnType<typeof createSignIn>;

/**
 * better-auth on our tables. `secret` signs and seals; `fetch` calls the OpenID provider; `afterChange` is told when a
 * session ended or a user changed, so that nothing remembered of it is used.
 */
export function createSignIn({
  config,
  db,
  log,
  secret,
  fetch,
  now,
  mailer,
  afterChange,
}: {
  config: Pick<Config, 'baseUrl' | 'brand' | 'signIn'>;
  db: Db;
  log: Logger;
  secret: string;
  fetch: Fetch;
  now: () => Date;
  mailer: Mailer | undefined;
  afterChange: () => void;
}) {
  const { baseUrl, brand } = config;
  const { oidc } = config.signIn;
  async function mailReset({ id, email }: { id: string; email: string }, token: string): Promise<void> {
    if (!(await mayMailReset(db, { userId: id, at: now() }))) return;
    await mailer?.send(resetMail({ to: email, link: resetLink(baseUrl, token), brand: brand.word }));
  }
  return betterAuth({
    appName: brand.word,
    baseURL: `${baseUrl}/api/auth`,
    basePath: '/api/auth',
    // With a version, so that no variable of the environment takes its place.
    secrets: [{ version: 1, value: secret }],
    secret,
    trustedOrigins: [new URL(baseUrl).origin],
    database: { db: signInDatabase(db), type: 'postgres', transaction: false },
    telemetry: { enabled: false },
    logger: {
      level: 'warn',
      // Its second argument may hold what a person typed.
      log: (level, message) => log[level === 'error' ? 'warn' : 'debug']({ of: 'sign-in' }, message),
    },
    user: { modelName: 'sign_in_user' },
    session: { modelName: 'sign_in_session', expiresIn: sessionS, updateAge: 86_400 },
    account: {
      modelName: 'sign_in_account',
      // Sealed, in the browser that goes to the provider: state, nonce and code verifier stand in no table.
      storeStateStrategy: 'cookie',
      updateAccountOnSignIn: false,
      accountLinking: { enabled: true },
    },
    verification: { modelName: 'sign_in_verification', storeIdentifier: 'hashed' },
    emailAndPassword: {
      enabled: true,
      disableSignUp: true,
      minPasswordLength: shortestPassword,
      maxPasswordLength: longestPassword,
      revokeSessionsOnPasswordReset: true,
      onPasswordReset: async () => afterChange(),
      resetPasswordTokenExpiresIn: resetMs / 1000,
      ...(mailer && {
        // Not awaited: nobody learns from how long it takes whether there is such a user.
        sendResetPassword: async ({ user, token }) => {
          void mailReset(user, token).catch((err: unknown) => log.warn({ err }, 'a reset was not mailed'));
        },
      }),
    },
    rateLimit: {
      enabled: true,
      storage: 'database',
      modelName: 'sign_in_rate',
      window: 10,
      max: 100,
      customRules: {
        '/get-session': false,
        '/sign-in/email': { window: 60, max: 5 },
        '/two-factor/*': { window: 60, max: 5 },
        '/reset-password': { window: 60, max: 5 },
        // Each may send a mail.
        '/request-password-reset': { window: 3600, max: 5 },
        '/change-password': { window: 60, max: 5 },
      },
    },
    advanced: {
      cookiePrefix: brand.word,
      useSecureCookies: baseUrl.startsWith('https:'),
      disableCSRFCheck: false,
      disableOriginCheck: false,
      ipAddress: { ipAddressHeaders: [addressHeader] },
      // The migrations are compared with it by a test.
      database: { validateSchema: false },
    },
    databaseHooks: {
      user: {
        create: {
          // Users come by invitation: also those whom the OpenID provider knows.
          before: async ({ email }) => hasInvitation(db, { email, at: now() }),
          after: async ({ id, email }) => {
            await db.transaction((tx) => acceptByEmail(tx, { userId: id, email, at: now() }));
          },
        },
        update: { after: async () => afterChange() },
      },
      account: {
        create: {
          before: async (account) => ({
            // Nobody needs them once it is known who signs in.
            data: { ...account, accessToken: null, refreshToken: null, idToken: null },
          }),
        },
      },
      // Sessions, passwords and second factors are in the audit log by triggers (migrations/0023_users.sql).
      session: { delete: { after: async () => afterChange() } },
    },
    plugins: [
      twoFactor({
        issuer: brand.word,
        schema: { twoFactor: { modelName: 'sign_in_two_factor' } },
      }),
      ...(oidc === undefined
        ? []
        : [
            {
              id: 'oidc',
              init: () => ({ context: { socialProviders: [createOidcProvider({ oidc, fetch, log })] } }),
            },
          ]),
    ],
    onAPIError: { throw: true, errorURL: `${baseUrl}/app/sign-in` },
  });
}
