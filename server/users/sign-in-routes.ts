import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../config/config.ts';
import { AppError } from '../errors.ts';
import { isForwardedInVain } from '../http/address.ts';
import { answerOwnOrigin } from '../http/cors.ts';
import type { App } from '../http/server.ts';
import type { Passwords } from './passwords.ts';
import type { RefusedSignIns } from './refused-sign-ins.ts';
import type { SignIn } from './sign-in.ts';
import { addressHeader, openPaths, openPathsWithMail, ownFields, reading } from './sign-in-rules.ts';

const prefix = '/api/auth';

/**
 * better-auth's routes, as many as are open. Their answers and errors are its own, so that its client understands them.
 * It judges Origin by itself where there is a cookie or something is written.
 */
export function signInRoutes(
  app: App,
  {
    signIn,
    passwords,
    config,
    refused,
  }: {
    signIn: SignIn;
    passwords: Passwords;
    config: Pick<Config, 'baseUrl' | 'signIn' | 'smtp'>;
    refused: RefusedSignIns;
  },
): void {
  const { origin, pathname } = new URL(config.baseUrl);
  const base = pathname.replace(/\/$/, '');
  const open = new Map([...openPaths, ...(config.smtp === undefined ? [] : openPathsWithMail)]);
  let isProxyTold = false;

  /** Behind a proxy that is not trusted everybody comes from one address, and shares its tries. */
  function tellOfProxy(request: FastifyRequest): void {
    if (isProxyTold || !isForwardedInVain(request)) return;
    isProxyTold = true;
    request.log.warn(
      { address: request.ip },
      'a sign-in came with X-Forwarded-For, which is not trusted: if the address is that of your proxy, put it into TRELLIS_TRUSTED_PROXIES, or all people share its tries',
    );
  }

  async function serve(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    answerOwnOrigin(reply);
    if (config.signIn.isOff) throw new AppError('not_found', 'The sign-in is off.');
    // A page of another origin sends no JSON without a preflight, which is never answered with credentials.
    requireOwnPage(request, origin);
    tellOfProxy(request);
    // As it is declared, not as it was spelled: tries are counted by it.
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
    // By the time it comes the browser may have the cookie of the session after the one that has ended.
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

/** What better-auth may know of the request; the address of the sender is what the trusted proxies say. */
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
