/**
 * Signing in: passwords, second factors, sessions, the OpenID provider, by better-auth.
 *
 * Owns: how better-auth is set up, and which of its routes are open. Does not own: who may become a user
 * (`invitations.ts`), what users may do (`members.ts`), whose a cookie is on hot paths (`person-reader.ts`).
 */
import { betterAuth } from 'better-auth';
import { APIError } from 'better-auth/api';
import { twoFactor } from 'better-auth/plugins';
import {
  CamelCasePlugin,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Config } from '../config/config.ts';
import type { Db, Queryable } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import { useCode } from './codes.ts';
import { acceptByEmail, hasInvitation } from './invitations.ts';
import { type Mailer, resetMail } from './mail.ts';
import { createOidcProvider, type Fetch } from './oidc.ts';
import type { Passwords } from './passwords.ts';
import { mayMailReset } from './resets.ts';
import { resetLink, resetMs } from './set-up.ts';
import { addressHeader, cookiePrefix, isHttps, longestPassword, shortestPassword } from './sign-in-rules.ts';

const sessionS = 7 * 86_400;

/** What a session is asked for with: the path below /api/auth, and the body. */
type Asked = { path?: string; body?: unknown } | null;

/** Made by the first one who signs in. */
export type SignIn = () => Promise<ReturnType<typeof createSignIn>>;
export type SignInParts = Parameters<typeof createSignIn>[0];

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
  passwords,
  afterChange,
}: {
  config: Pick<Config, 'baseUrl' | 'brand' | 'signIn'>;
  db: Db;
  log: Logger;
  secret: string;
  fetch: Fetch;
  now: () => Date;
  mailer: Mailer | undefined;
  passwords: Passwords;
  afterChange: () => void;
}) {
  const { baseUrl, brand } = config;
  const { oidc } = config.signIn;
  async function mailReset({ id, email }: { id: string; email: string }, token: string): Promise<void> {
    if (!(await mayMailReset(db, { userId: id, token, at: now() }))) return;
    await mailer?.send(resetMail({ to: email, link: resetLink(baseUrl, token), brand: brand.word }));
  }
  /** Throws where a session must not be: a code is good once. */
  async function beforeSession(userId: string, asked: Asked): Promise<void> {
    if (asked?.path === '/two-factor/verify-totp') {
      const code = String((asked.body as { code?: unknown }).code);
      if (!(await useCode(db, { userId, code, at: now() })))
        throw new APIError('UNAUTHORIZED', { code: 'INVALID_CODE', message: 'This code was used already' });
    }
    await acceptByEmail(db, { userId, at: now() });
  }

  /**
   * Ends the session that was just made by a password that is no longer the one: hashing it took a while. A password that
   * is set after this look ends sessions after it, and so this one.
   */
  async function afterSession(
    { userId, token }: { userId: string; token: string },
    asked: Asked,
  ): Promise<void> {
    const hash = passwords.verified();
    if (asked?.path !== '/sign-in/email' || hash === undefined) return;
    const found = await db.query('select from sign_in_account where user_id = $1 and password = $2', [
      userId,
      hash,
    ]);
    if (found.length > 0) return;
    await db.query('delete from sign_in_session where token = $1', [token]);
    throw new APIError('UNAUTHORIZED', {
      code: 'INVALID_EMAIL_OR_PASSWORD',
      message: 'Invalid email or password',
    });
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
      password: { hash: passwords.hash, verify: passwords.verify },
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
      // Its own option for secure cookies begins them with `__Secure-`, which a host beside ours may set for us too.
      useSecureCookies: false,
      cookiePrefix: cookiePrefix({ brand, baseUrl }),
      defaultCookieAttributes: { secure: isHttps(baseUrl) },
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
      session: {
        create: {
          before: async ({ userId }, context) => beforeSession(userId, context),
          after: afterSession,
        },
        delete: { after: async () => afterChange() },
      },
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

/**
 * Our database as better-auth wants it: names in camel case, statements through the service's own pool and as it sends
 * them, unnamed. There are no transactions; better-auth asks for none where it is told so.
 */
export function signInDatabase(db: Queryable): Kysely<unknown> {
  const connection = {
    async executeQuery<R>({ sql, parameters }: { sql: string; parameters: readonly unknown[] }) {
      return { rows: (await db.query(sql, parameters)) as R[] };
    },
    // biome-ignore lint/correctness/useYield: nothing here streams
    async *streamQuery(): AsyncGenerator<never> {
      throw new Error('sign-in streams nothing');
    },
  };
  const noTransaction = async (): Promise<void> => {
    throw new Error('sign-in has no transactions');
  };
  return new Kysely({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => ({
        init: async () => {},
        acquireConnection: async () => connection,
        beginTransaction: noTransaction,
        commitTransaction: noTransaction,
        rollbackTransaction: noTransaction,
        releaseConnection: async () => {},
        destroy: async () => {},
      }),
      createIntrospector: (kysely) => new PostgresIntrospector(kysely),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
    plugins: [new CamelCasePlugin()],
  });
}
