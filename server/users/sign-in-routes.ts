import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Config } from '../config.ts';
import { AppError } from '../errors.ts';
import { answerOwnOrigin } from '../http/cors.ts';
import type { App } from '../http/server.ts';
import type { RefusedSignIns } from './refused-sign-ins.ts';
import { addressHeader, openPaths, openPathsWithMail, type SignIn } from './sign-in.ts';

const prefix = '/api/auth';

/**
 * better-auth's routes, as many as are open. Their answers and errors are its own, so that its client understands them.
 * It judges Origin by itself where there is a cookie or something is written.
 */
export function signInRoutes(
  app: App,
  {
    signIn,
    config,
    refused,
  }: { signIn: SignIn; config: Pick<Config, 'baseUrl' | 'signIn' | 'smtp'>; refused: RefusedSignIns },
): void {
  const { origin, pathname } = new URL(config.baseUrl);
  const base = pathname.replace(/\/$/, '');

  async function serve(request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> {
    answerOwnOrigin(reply);
    if (config.signIn.isOff) throw new AppError('not_found', 'The sign-in is off.');
    // A page of another origin sends no JSON without a preflight, which is never answered with credentials.
    requireOwnPage(request, origin);
    const answer = await signIn.handler(
      new Request(`${origin}${base}${request.url}`, {
        method: request.method,
        headers: headersOf(request),
        ...(request.method === 'POST' && { body: JSON.stringify(request.body ?? {}) }),
      }),
    );
    reply.code(answer.status);
    for (const [name, value] of answer.headers) if (name !== 'set-cookie') reply.header(name, value);
    const cookies = answer.headers.getSetCookie();
    if (cookies.length > 0) reply.header('set-cookie', cookies);
    const after = answer.headers.get('x-retry-after');
    if (after !== null) reply.header('retry-after', after);
    reply.header('cache-control', 'no-store');
    if (answer.status === 401 && request.url.split('?', 1)[0] === `${prefix}/sign-in/email`) {
      const { email } = request.body as { email?: unknown };
      if (typeof email === 'string') refused.note({ email, address: request.ip });
    }
    return reply.send(Buffer.from(await answer.arrayBuffer()));
  }

  app.addHook('onClose', () => refused.settled());
  const open = [...openPaths, ...(config.smtp === undefined ? [] : openPathsWithMail)];
  for (const [method = '', path = ''] of open.map((route) => route.split(' '))) {
    const options = { config: { access: { by: 'anyone' } }, schema: { hide: true } } as const;
    app.route({ method, url: prefix + path, exposeHeadRoute: false, ...options, handler: serve });
  }
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
