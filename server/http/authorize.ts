import type { FastifyInstance, FastifyRequest, onRequestHookHandler, RouteOptions } from 'fastify';
import type { Brand } from '../brand.ts';
import { AppError } from '../errors.ts';
import {
  type Access,
  type Caller,
  holdsScope,
  type KeyCaller,
  lacking,
  type ProxyCaller,
  requireScope,
  type Scope,
  type TicketCaller,
} from './caller.ts';
import { privateHeaders } from './page.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    access: Access;
  }
  interface FastifyRequest {
    /** Present on every route that is not open to anyone. */
    caller: Caller;
    /** Who is calling, asked anew: for an answer that had to wait. Rejects with the 401 or 403 that fits by now. */
    callerNow(): Promise<Caller>;
  }
}

/** How a credential becomes a caller; both throw the 401 that fits. A key that is known already takes no wait. */
export type Authenticate = {
  key(secret: string): Caller | Promise<Caller>;
  session(token: string): Promise<Caller>;
};

/** As `Authenticate`, for the proxy: a ticket whose key is known already takes no wait either. */
export type AuthenticateCall = {
  key(secret: string): KeyCaller | Promise<KeyCaller>;
  ticket(token: string): TicketCaller | Promise<TicketCaller>;
};

/** What a ticket begins with, and no key that we make. */
export const ticketPrefix = 'trt_';

/** Establishes `request.caller` before any body is read, by what the route declares. */
export function authorizeRoutes(
  app: FastifyInstance,
  by: { authenticate: Authenticate; brand: Brand },
): void {
  app.decorateRequest<Caller | null>('caller', null);
  app.decorateRequest<(() => Promise<Caller>) | null>('callerNow', null);
  const routes: RouteOptions[] = [];
  const establishers = new WeakSet<object>();
  app.addHook('onRoute', (route) => {
    routes.push(route);
    const access = route.config?.access;
    if (access === undefined || access.by === 'anyone') return;
    const hooks = [route.onRequest ?? []].flat();
    // Fastify derives the HEAD route from its GET, hooks included.
    if (hooks.some((hook) => establishers.has(hook))) return;
    const establish = establishing(access, by);
    establishers.add(establish);
    route.onRequest = [...hooks, establish];
  });
  app.addHook('onReady', async () => {
    const silent = routes.filter((route) => route.config?.access === undefined);
    if (silent.length === 0) return;
    throw new Error(
      `These do not say whom they serve: ${silent.map((route) => `${route.method} ${route.url}`).join(', ')}`,
    );
  });
}

/** A hook for one route: nothing of it runs for a caller who is not established. */
function establishing(
  access: Access,
  by: { authenticate: Authenticate; brand: Brand },
): onRequestHookHandler {
  return (request, reply, done) => {
    // The address itself holds a right: neither it nor the answer is anybody else's to keep, a refusal included.
    if (access.by === 'session in query') reply.headers(privateHeaders);
    request.callerNow = () => callerOf(request, { ...by, access });
    request.callerNow().then((caller) => {
      request.caller = caller;
      done();
    }, done);
  };
}

async function callerOf(
  request: FastifyRequest,
  { access, authenticate, brand }: { access: Access; authenticate: Authenticate; brand: Brand },
): Promise<Caller> {
  if (access.by === 'session in query') {
    const token = (request.query as { connect_session_token?: unknown }).connect_session_token;
    if (typeof token !== 'string' || !token.startsWith(brand.sessionTokenPrefix)) {
      throw new AppError('invalid_connect_session_token_format');
    }
    return authenticate.session(token);
  }
  const credential = bearerOf(request.headers.authorization);
  const isSession = credential.startsWith(brand.sessionTokenPrefix);
  if (access.by === 'session') {
    if (!isSession) throw new AppError('invalid_connect_session_token_format');
    return authenticate.session(credential);
  }
  if (access.by === 'key or session' && isSession) return authenticate.session(credential);
  if (isTicket(credential)) throw new AppError('forbidden', 'A ticket is good for the proxy alone.');
  const caller = await authenticate.key(credential);
  if (access.by !== 'anyone') requireScope(caller, access.scope);
  return caller;
}

/** Who is calling the proxy, by a key or a ticket. Throws, or rejects with, the 401 or 403 that fits. */
export function proxyCallerOf(
  authorization: string | undefined,
  { authenticate, scope }: { authenticate: AuthenticateCall; scope: Scope },
): ProxyCaller | Promise<ProxyCaller> {
  const credential = bearerOf(authorization);
  const found = isTicket(credential) ? authenticate.ticket(credential) : authenticate.key(credential);
  if (found instanceof Promise) return found.then((caller: ProxyCaller) => scoped(caller, scope));
  return scoped(found, scope);
}

function scoped(caller: ProxyCaller, scope: Scope): ProxyCaller {
  if (!holdsScope(caller.scopes, scope)) throw lacking(scope);
  return caller;
}

/** A key that an operator chose may begin in the same way, but never holds a dot. */
function isTicket(credential: string): boolean {
  return credential.startsWith(ticketPrefix) && credential.includes('.');
}

/** The credential of `Authorization: Bearer <credential>` (RFC 6750 §2.1). */
function bearerOf(header: string | undefined): string {
  if (header === undefined || header === '') throw new AppError('missing_auth_header');
  // As nearly everybody writes it; the pattern reads the rest.
  if (header.startsWith('Bearer ') && header.length > 7 && header.indexOf(' ', 7) === -1)
    return header.slice(7);
  const [, credential] = /^Bearer +([^\s]+) *$/i.exec(header) ?? [];
  if (credential === undefined) throw new AppError('malformed_auth_header');
  return credential;
}
