/**
 * Signing in: passwords, second factors, sessions, the OpenID provider, by better-auth.
 *
 * Owns: the set-up of better-auth. Does not own: how users are made (`invitations.ts`), their rights (`members.ts`),
 * authentication by cookies (`person-reader.ts`).
 */
import { betterAuth } from 'better-auth';
import { APIError } from 'better-auth/api';
import { twoFactor } from 'better-auth/plugins';
import {
  CamelCasePlugin,
  DummyDriver,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Config } from '../config/config.ts';
import type { Db, Queryable } from '../db/pool.ts';
import type { Logger } from '../log.ts';
import type { Fetch } from '../outbound/outbound.ts';
import { acceptByEmail, hasInvitation } from './invitations.ts';
import { mayMailReset, resetLink, resetMs } from './links.ts';
import { type Mailer, resetMail } from './mail.ts';
import { createOidcProvider } from './oidc.ts';
import type { Passwords } from './passwords.ts';
import { addressHeader, cookiePrefix, isHttps, longestPassword, shortestPassword } from './sign-in-rules.ts';
import { useCode } from './users.ts';

const sessionS = 7 * 86_400;

/** The request of a session: the path below /api/auth, and the body. */
type SessionRequest = { path?: string; body?: unknown } | null;

/** Made at the first sign-in. */
export type SignIn = () => Promise<ReturnType<typeof createSignIn>>;
export type SignInParts = Parameters<typeof createSignIn>[0];

/**
 * better-auth on our tables. `secret` signs and seals; `fetch` calls the OpenID provider; `afterChange` is called when a
 * session has ended or a user has changed, so that caches drop it.
 */
export function createSignIn(given: {
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
  const { config, db, log, secret, fetch, now, mailer, passwords, afterChange } = given;
  const { baseUrl, brand } = config;
  const { oidc } = config.signIn;
  async function mailReset({ id, email }: { id: string; email: string }, token: string): Promise<void> {
    if (!(await mayMailReset(db, { userId: id, token, at: now() }))) return;
    await mailer?.send(resetMail({ to: email, link: resetLink(baseUrl, token), brand: brand.word }));
  }
  /** Throws if the session must not be made: a code is valid once. */
  async function beforeSession(userId: string, request: SessionRequest): Promise<void> {
    if (request?.path === '/two-factor/verify-totp') {
      const code = String((request.body as { code?: unknown }).code);
      if (!(await useCode(db, { userId, code, at: now() })))
        throw new APIError('UNAUTHORIZED', { code: 'INVALID_CODE', message: 'This code was used already' });
    }
    await acceptByEmail(db, { userId, at: now() });
  }

  /**
   * Ends a new session if its password was changed during the hashing. A password that is set after this check ends all
   * sessions, including this one.
   */
  async function afterSession(
    { userId, token }: { userId: string; token: string },
    request: SessionRequest,
  ): Promise<void> {
    const hash = passwords.verified();
    if (request?.path !== '/sign-in/email' || hash === undefined) return;
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
    // With a version, so that no environment variable replaces it.
    secrets: [{ version: 1, value: secret }],
    secret,
    trustedOrigins: [new URL(baseUrl).origin],
    database: { db: signInDatabase(db), type: 'postgres', transaction: false },
    telemetry: { enabled: false },
    logger: {
      level: 'warn',
      // Its second argument may hold user input.
      log: (level, message) => log[level === 'error' ? 'warn' : 'debug']({ of: 'sign-in' }, message),
    },
    user: { modelName: 'sign_in_user' },
    session: { modelName: 'sign_in_session', expiresIn: sessionS, updateAge: 86_400 },
    account: {
      modelName: 'sign_in_account',
      // Sealed in a cookie of the browser: state, nonce and code verifier are in no table.
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
        // Not awaited, so that its time does not reveal whether there is such a user.
        sendResetPassword: async ({ user, token }) => {
          void mailReset(user, token).catch((err: unknown) =>
            log.warn({ err }, 'a password reset could not be mailed'),
          );
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
      // Its option for secure cookies uses the prefix `__Secure-`, which a sibling host may set for this host too.
      useSecureCookies: false,
      cookiePrefix: cookiePrefix({ brand, baseUrl }),
      defaultCookieAttributes: { secure: isHttps(baseUrl) },
      disableCSRFCheck: false,
      disableOriginCheck: false,
      ipAddress: { ipAddressHeaders: [addressHeader] },
      // A test compares the migrations with its schema.
      database: { validateSchema: false },
    },
    databaseHooks: {
      user: {
        create: {
          // Users come by invitation, also those of the OpenID provider.
          before: async ({ email }) => hasInvitation(db, { email, at: now() }),
        },
        update: { after: async () => afterChange() },
      },
      account: {
        create: {
          before: async (account) => ({
            // They are not needed after the sign-in.
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
 * The database for better-auth: names in camel case, unnamed statements through the service's own pool. It has no
 * transactions, and better-auth is configured to use none.
 */
function signInDatabase(db: Queryable): Kysely<unknown> {
  const connection = {
    async executeQuery<R>({ sql, parameters }: { sql: string; parameters: readonly unknown[] }) {
      return { rows: (await db.query(sql, parameters)) as R[] };
    },
    // biome-ignore lint/correctness/useYield: nothing here streams
    async *streamQuery(): AsyncGenerator<never> {
      throw new Error('sign-in streams nothing');
    },
  };
  return new Kysely({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () =>
        Object.assign(new DummyDriver(), {
          acquireConnection: async () => connection,
          async beginTransaction(): Promise<void> {
            throw new Error('sign-in has no transactions');
          },
        }),
      createIntrospector: (kysely) => new PostgresIntrospector(kysely),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
    plugins: [new CamelCasePlugin()],
  });
}
