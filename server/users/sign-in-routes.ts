import type { FastifyReply, FastifyRequest } from 'fastify';
import { writeAudit } from '../activity/audit.ts';
import type { Config } from '../config/config.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { isForwardedInVain } from '../http/address.ts';
import { answerOwnOrigin } from '../http/cors.ts';
import type { App } from '../http/server.ts';
import type { Logger } from '../log.ts';
import { metrics } from '../metrics/metrics.ts';
import type { Passwords } from './passwords.ts';
import type { SignIn } from './sign-in.ts';
import { addressHeader, openPaths, openPathsWithMail, ownFields, reading } from './sign-in-rules.ts';

const prefix = '/api/auth';

/**
 * The open routes of better-auth. Their responses and errors are its own, as its client expects. It checks Origin itself if
 * there is a cookie or something is written.
 */
export function signInRoutes(
  app: App,
  given: {
    signIn: SignIn;
    passwords: Passwords;
    config: Pick<Config, 'baseUrl' | 'signIn' | 'smtp'>;
    refused: RefusedSignIns;
  },
): void {
  const { signIn, passwords, config, refused } = given;
  const { origin, pathname } = new URL(config.baseUrl);
  const base = pathname.replace(/\/$/, '');
  const open = new Map([...openPaths, ...(config.smtp === undefined ? [] : openPathsWithMail)]);
  let isProxyTold = false;

  /** Behind a proxy that is not trusted, all users have one address, and share its attempts. */
  function tellOfProxy(request: FastifyRequest): void {
    if (isProxyTold || !isForwardedInVain(request)) return;
    isProxyTold = true;
    request.log.warn(
      { address: request.ip },
      'a sign-in request has the header X-Forwarded-For from an untrusted address: if this is the address of your proxy, add it to TRELLIS_TRUSTED_PROXIES; otherwise all users share one limit of sign-in attempts',
    );
  }

  async function serve(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    answerOwnOrigin(reply);
    if (config.signIn.isOff) throw new AppError('not_found', 'The sign-in is off.');
    // A page of another origin sends no JSON without a preflight, which is never answered with credentials.
    requireOwnPage(request, origin);
    tellOfProxy(request);
    // The declared path, not the given one: attempts are counted by it.
    const { url: route = '' } = request.routeOptions;
    const { search } = new URL(request.url, origin);
    const name = `${request.method} ${route.slice(prefix.length)}`;
    const asked = new Request(`${origin}${base}${route}${search}`, {
      method: request.method,
      headers: headersOf(request),
      ...(request.method === 'POST' && {
        body: JSON.stringify({ ...pick(request.body, open.get(name) ?? []), ...ownFields.get(name) }),
      }),
    });
    const { handler } = await signIn();
    const answer = await passwords.request(() => handler(asked));
    reply.code(answer.status);
    for (const [name, value] of answer.headers) if (name !== 'set-cookie') reply.header(name, value);
    const set = answer.headers.getSetCookie();
    // When the response arrives, the browser may have the cookie of a later session.
    const cookies = reading.has(name) ? set.filter((line) => !/; Max-Age=0(;|$)/i.test(line)) : set;
    if (cookies.length > 0) reply.header('set-cookie', cookies);
    const after = answer.headers.get('x-retry-after');
    if (after !== null) reply.header('retry-after', after);
    reply.header('cache-control', 'no-store');
    if (answer.status === 401 && name === 'POST /sign-in/email') {
      const { email } = request.body as { email?: unknown };
      if (typeof email === 'string') refused.note({ email, address: request.ip });
    }
    return reply.send(Buffer.from(await answer.arrayBuffer()));
  }

  app.addHook('onClose', () => refused.settled());
  for (const [method = '', path = ''] of [...open.keys()].map((route) => route.split(' '))) {
    const options = {
      config: { access: { by: 'anyone', isLimited: false } },
      schema: { hide: true },
    } as const;
    app.route({ method, url: prefix + path, exposeHeadRoute: false, ...options, handler: serve });
  }
}

function pick(body: unknown, fields: readonly string[]): object {
  const given = new Map(Object.entries(body ?? {}));
  return Object.fromEntries(
    fields.filter((field) => given.has(field)).map((field) => [field, given.get(field)]),
  );
}

function requireOwnPage({ method, headers }: FastifyRequest, ours: string): void {
  if (method === 'GET') return;
  const site = headers['sec-fetch-site'];
  if (headers.origin !== ours || (site !== undefined && site !== 'same-origin')) {
    throw new AppError('cross_site_request', `The header Origin must be ${ours}, the address of BASE_URL.`);
  }
}

/** The headers for better-auth; the address of the sender comes from the trusted proxies. */
function headersOf({ headers, ip }: FastifyRequest): Headers {
  const passed = new Headers({ [addressHeader]: ip });
  for (const name of [
    'cookie',
    'origin',
    'referer',
    'user-agent',
    'sec-fetch-site',
    'sec-fetch-mode',
  ] as const) {
    const value = headers[name];
    if (typeof value === 'string') passed.set(name, value);
  }
  if (headers['content-type'] !== undefined) passed.set('content-type', 'application/json');
  return passed;
}

/** The number of audit entries must not grow with the number of attempts. */
const auditedEveryMs = 60_000;

type RefusedSignIns = {
  /** Returns immediately and never throws, so that its time does not reveal whether there is such a user. */
  note(given: { email: string; address: string }): void;
  /** Resolves when no entry is being written. */
  settled(): Promise<void>;
};

/**
 * Sign-ins with a wrong password: `user.sign_in_failed` in the audit log, once a minute for each existing user, over all
 * nodes; and a line in the log of this node, once a minute, with their number, including unknown addresses.
 */
export function createRefusedSignIns(given: {
  db: Db;
  log: Pick<Logger, 'warn'>;
  now: () => Date;
}): RefusedSignIns {
  const { db, log, now } = given;
  const noting = new Set<Promise<unknown>>();
  let refused = 0;
  let toldAt = Number.NEGATIVE_INFINITY;
  return {
    note({ email, address }) {
      const at = now();
      refused += 1;
      metrics.signInsRefused.add([]);
      if (at.getTime() - toldAt >= auditedEveryMs) {
        log.warn(
          { refused, address },
          'sign-ins with wrong passwords since the last line of this kind; the address is of the latest attempt',
        );
        refused = 0;
        toldAt = at.getTime();
      }
      const noted: Promise<unknown> = audit(db, { email, address, at })
        .catch((err: unknown) => log.warn({ err }, 'a failed sign-in could not be recorded'))
        .finally(() => noting.delete(noted));
      noting.add(noted);
    },
    async settled() {
      await Promise.all(noting);
    },
  };
}

/** Only the first of simultaneous calls writes. */
async function audit(
  db: Db,
  { email, address, at }: { email: string; address: string; at: Date },
): Promise<void> {
  await db.transaction(async (tx) => {
    const [audited] = await tx.query<{ userId: string }>(
      `insert into sign_in_failure (user_id, told_at)
       select id, $2
       from sign_in_user
       where email = $1
       on conflict (user_id) do update
       set told_at = excluded.told_at
       where sign_in_failure.told_at <= $3
       returning user_id as "userId"`,
      [email.toLowerCase(), at, new Date(at.getTime() - auditedEveryMs)],
    );
    if (audited === undefined) return;
    await writeAudit(tx, {
      environmentId: undefined,
      // The caller is not proven to be the user.
      actor: 'nobody',
      action: 'user.sign_in_failed',
      target: audited.userId,
      details: { address },
    });
  });
}
