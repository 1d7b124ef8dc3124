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
import type { Carried, CookieAuthenticator, Person } from './cookie-authenticator.ts';
import { answerOwnOrigin } from './cors.ts';
import { privateHeaders } from './page.ts';
import type { RateFields, RateLimits } from './rate-limit.ts';

declare module 'fastify' {
  interface FastifyContextConfig {
    access: Access;
  }
  interface FastifyRequest {
    /** Present on every route that is not open to anyone. */
    caller: Caller;
    /** The caller, checked again: for an answer that had to wait. Rejects with the 401 or 403 that fits by now. */
    callerNow(): Promise<Caller>;
    /** Present on the routes of people. */
    person: Person;
    /** Whether a key, a ticket or a person's cookie was shown that counts. */
    isKnown: boolean;
  }
}

/**
 * How a credential becomes a caller; both throw the 401 that fits. A key that is known already takes no wait; before one is
 * looked up that was not good here lately `admit` is asked, which may throw.
 */
export type Authenticate = {
  key(secret: string, admit?: Admit): Caller | Promise<Caller>;
  session(token: string): Promise<Caller>;
  /** Absent: cookies count nowhere. */
  cookies?: CookieAuthenticator;
};

/** As `Authenticate`, for the proxy: a ticket whose key is known already takes no wait either. */
export type AuthenticateCall = {
  key(secret: string, admit?: Admit): KeyCaller | Promise<KeyCaller>;
  ticket(token: string, admit?: Admit): TicketCaller | Promise<TicketCaller>;
  /** Absent: cookies count nowhere. */
  cookies?: CookieAuthenticator;
};

/** Throws where no more may be looked up for the caller that cannot be told from a made-up one. */
type Admit = () => unknown;

/** What a ticket begins with, and no key that we make. */
export const ticketPrefix = 'trt_';

/** Establishes `request.caller` before any body is read, by what the route declares. */
export function authorizeRoutes(app: FastifyInstance, by: By): void {
  app.decorateRequest<Caller | null>('caller', null);
  app.decorateRequest<(() => Promise<Caller>) | null>('callerNow', null);
  app.decorateRequest<Person | null>('person', null);
  app.decorateRequest('isKnown', false);
  const routes: RouteOptions[] = [];
  const establishers = new WeakSet<object>();
  app.addHook('onRoute', (route) => {
    routes.push(route);
    const access = route.config?.access;
    if (access === undefined || (access.by === 'anyone' && access.isLimited === false)) return;
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

type By = { authenticate: Authenticate; brand: Brand; rates?: RateLimits | undefined };

/** A hook for one route: nothing of it runs for a caller who is not established, or who calls too often. */
function establishing(access: Access, by: By): onRequestHookHandler {
  return (request, reply, done) => {
    // The address itself holds a right: neither it nor the answer is anybody else's to keep, a refusal included.
    if (access.by === 'session in query') reply.headers(privateHeaders);
    if (access.by !== 'anyone' && by.authenticate.cookies?.isFor(request.headers)) answerOwnOrigin(reply);
    establish(request, { ...by, access }).then((fields) => {
      if (fields !== undefined) reply.headers(fields);
      done();
    }, done);
  };
}

/** Answers what tells the caller how often they may call yet. */
async function establish(
  request: FastifyRequest,
  { access, ...by }: By & { access: Access },
): Promise<RateFields | undefined> {
  const { rates } = by;
  // Before it is looked up who that is.
  if (access.by === 'anyone') return rates?.takeAt(request.raw);
  if (access.by === 'person') {
    request.person = await personBy(request, { ...by, access });
    request.isKnown = true;
    return rates?.takeOf({ kind: 'person', userId: request.person.userId });
  }
  const fields = access.by === 'key' ? undefined : takeOfSession(request, { ...by, access });
  request.callerNow = () => callerOf(request, { ...by, access });
  request.caller = await request.callerNow();
  request.isKnown = request.caller.kind !== 'session';
  return fields ?? rates?.takeOf(request.caller);
}

/** A caller with the token of a session counts by its address. */
function takeOfSession(
  { headers, raw }: FastifyRequest,
  { access, brand, rates }: By & { access: Access },
): RateFields | undefined {
  const isSession =
    access.by !== 'key or session' || headers.authorization?.includes(brand.sessionTokenPrefix);
  return isSession ? rates?.takeAt(raw) : undefined;
}

async function personBy(
  request: FastifyRequest,
  { access, authenticate }: { access: Access & { by: 'person' }; authenticate: Authenticate },
): Promise<Person> {
  const { cookies } = authenticate;
  // A key belongs to one environment, and to no person.
  if (cookies === undefined || request.headers.authorization !== undefined)
    throw new AppError(
      'not_signed_in',
      'This is for people who are signed in: a key or a token does not count.',
    );
  const person = await cookies.person(request);
  if (access.only === 'owner' && !person.isOwner) throw new AppError('forbidden', 'This is for owners.');
  return person;
}

async function userBy(
  request: FastifyRequest,
  { access, cookies }: { access: Access & { scope: unknown }; cookies: CookieAuthenticator },
): Promise<Caller> {
  const caller = await cookies.caller(request);
  requireScope(caller, access.scope as Scope);
  const isRead = request.method === 'GET' || request.method === 'HEAD';
  const viewers = ('viewers' in access ? access.viewers : undefined) ?? (isRead ? 'served' : 'refused');
  if (caller.role === 'viewer' && viewers === 'refused')
    throw new AppError('forbidden', 'A viewer can change nothing, and export nothing.');
  return caller;
}

async function callerOf(
  request: FastifyRequest,
  { access, authenticate, brand, rates }: By & { access: Access },
): Promise<Caller> {
  const { cookies } = authenticate;
  if ('scope' in access && cookies?.isFor(request.headers)) return userBy(request, { access, cookies });
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
  const caller = await authenticate.key(credential, () => rates?.takeAt(request.raw));
  if ('scope' in access) requireScope(caller, access.scope);
  return caller;
}

/** Who is calling the proxy, by a key, a ticket or a cookie. Throws, or rejects with, the 401 or 403 that fits. */
export function proxyCallerOf(
  request: Carried,
  { authenticate, scope, admit }: { authenticate: AuthenticateCall; scope: Scope; admit?: Admit },
): ProxyCaller | Promise<ProxyCaller> {
  const { cookies } = authenticate;
  const { authorization } = request.headers;
  // A key is the rule, and costs no further look.
  if (authorization === undefined && cookies?.isFor(request.headers))
    return cookies.caller(request).then((caller) => scoped(caller, scope));
  const credential = bearerOf(authorization);
  const found = isTicket(credential)
    ? authenticate.ticket(credential, admit)
    : authenticate.key(credential, admit);
  if (found instanceof Promise) return found.then((caller: ProxyCaller) => scoped(caller, scope));
  return scoped(found, scope);
}

function scoped(caller: ProxyCaller, scope: Scope): ProxyCaller {
  if (!holdsScope(caller.scopes, scope)) throw lacking(scope, caller);
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
