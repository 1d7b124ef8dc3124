/**
 * The callers of the API: their kinds and scopes, how a request's caller is authenticated, and what a route declares about
 * its callers.
 */

import type { IncomingHttpHeaders } from 'node:http';
import type { FastifyInstance, FastifyRequest, onRequestHookHandler, RouteOptions } from 'fastify';
import type { Brand } from '../../brand.ts';
import { AppError } from '../../errors.ts';
import { answerOwnOrigin } from '../cors.ts';
import type { RateFields, RateLimits } from '../limits/rate-limit.ts';
import { privateHeaders } from '../pages/page.ts';
import type { ProxyRule } from './proxy-rule.ts';

/**
 * The scopes of keys. None implies another; `*` stands for all, those of later releases included. A test compares them with
 * docs/reference/scopes.md.
 */
export const scopes = [
  'integrations:read',
  'integrations:write',
  'integrations:secrets',
  'connections:read',
  'connections:write',
  'connections:credentials',
  'connections:refresh_tokens',
  'records:read',
  'records:write',
  'proxy:read',
  'proxy:write',
  'functions:read',
  'functions:write',
  'functions:deploy',
  'events:read',
  'events:write',
  'environment:read',
  'environment:write',
  'environment:secrets',
  'activity:read',
  'activity:write',
  'metrics:read',
  'keys',
] as const;
export type Scope = (typeof scopes)[number];

/** The role of a person: `owner` in all environments, the others in single environments. */
export const roles = ['owner', 'developer', 'viewer'] as const;
export type Role = (typeof roles)[number];

/**
 * Scopes that no role has, so that no key that a person makes has them: a compromised page must not be able to read the
 * credentials of connections and the values of variables.
 */
const keysOnly: readonly Scope[] = [
  'connections:credentials',
  'connections:refresh_tokens',
  'environment:secrets',
  // Deployed code can read all connections of the environment.
  'functions:deploy',
];
const developerScopes = new Set<string>(scopes.filter((scope) => !keysOnly.includes(scope)));
const viewerScopes = new Set<string>(
  scopes.filter((scope) => scope.endsWith(':read') && scope !== 'proxy:read'),
);

/** The scopes of a role in an environment. A test compares them with docs/guides/users.md. */
export function scopesOfRole(role: Role): ReadonlySet<string> {
  return role === 'viewer' ? viewerScopes : developerScopes;
}

/** The caller, as `http/` establishes it before a route runs. */
export type Caller = KeyCaller | SessionCaller | UserCaller;

export type KeyCaller = {
  kind: 'key';
  environmentId: number;
  environment: string;
  keyId: number;
  scopes: ReadonlySet<string>;
  /** The rules for its calls through the proxy; absent: all calls are permitted. */
  proxyRules?: readonly ProxyRule[];
  /** Absent: it does not expire. */
  expiresAt?: Date | undefined;
  /** Calls a minute; absent: the default. */
  rateLimit?: number | undefined;
  /**
   * When it may make all of these calls at once again, according to all nodes when the key was read; in ms of the monotonic
   * clock. Absent: now.
   */
  fullAtMs?: number | undefined;
  /** For a run: the row of its connection, the only one that it may use. Absent: any. */
  connectionRow?: number;
};

/** Scopes and rules are the present ones of the key that made the ticket. No route serves such a caller. */
export type TicketCaller = Omit<KeyCaller, 'kind'> & { kind: 'ticket'; ticket: TicketRights };

export type TicketRights = {
  /** For the activity log. */
  id: string;
  integrationKey: string;
  connectionId: string;
  /**
   * The row of the connection and its creation time, in ms since 1970. Another connection may get the same ID, and after a
   * restored backup also the same row.
   */
  connectionRow: number;
  connectionMadeAt: number;
  rules: readonly ProxyRule[];
  /** The limit for a call's body, and separately for its response's; undefined: none. */
  maxBytes: number | undefined;
  /** The actions that it may call as tools, `*` for all; absent: none. */
  actions?: readonly string[] | undefined;
};

/** The name of a caller in the activity log and the audit log. */
export function actorOf(caller: Caller | TicketCaller): string {
  if (caller.kind === 'session') return `session:${caller.sessionId}`;
  if (caller.kind === 'user') return `user:${caller.userId}`;
  return caller.kind === 'key' ? `key:${caller.keyId}` : `key:${caller.keyId} ticket:${caller.ticket.id}`;
}

/**
 * A signed-in person in one environment, on a page of the dashboard (`createCookieAuthenticator`). Keys that the person makes
 * are limited to these scopes, and outlive the session.
 */
export type UserCaller = {
  kind: 'user';
  environmentId: number;
  environment: string;
  userId: string;
  role: Role;
  /** The scopes of the role. */
  scopes: ReadonlySet<string>;
  proxyRules?: undefined;
  expiresAt?: undefined;
  rateLimit?: undefined;
};

/** The callers of the proxy. */
export type ProxyCaller = KeyCaller | TicketCaller | UserCaller;

type SessionCaller = {
  kind: 'session';
  environmentId: number;
  environment: string;
  sessionId: number;
  /** Undefined: every integration of the environment. */
  allowedIntegrations: readonly string[] | undefined;
};

/** The callers that a route serves. Every route must declare it. Of several scopes a caller needs one. */
export type Access =
  /** Counts for the limit of the client's address, unless the module has its own limits or the route costs nothing. */
  | { by: 'anyone'; isLimited?: false }
  /** Viewers are served if the route reads (GET, HEAD), unless it declares otherwise. Exports: `list-exports.ts`. */
  | { by: 'key'; scope: Scope | readonly Scope[]; viewers?: 'served' | 'without exports' | 'refused' }
  | { by: 'key or session'; scope: Scope }
  | { by: 'session' }
  /** A signed-in person, by a cookie; with `only`, owners. `request.person` is set, not `request.caller`. */
  | { by: 'person'; only?: 'owner' }
  /** The session token is in the query, as `connect_session_token`. */
  | { by: 'session in query' };

/** Whether these scopes include one. */
export function holdsScope(held: ReadonlySet<string>, scope: Scope): boolean {
  return held.has('*') || held.has(scope);
}

/** Whether the caller's key has the scope; a session has none. */
export function hasScope(caller: Caller | TicketCaller, scope: Scope): boolean {
  return caller.kind !== 'session' && holdsScope(caller.scopes, scope);
}

/** Throws `forbidden`, naming the scope, if the caller lacks it; of several it needs one. */
export function requireScope(caller: Caller, scope: Scope | readonly Scope[]): void {
  const wanted = [scope].flat() as Scope[];
  if (!wanted.some((one) => hasScope(caller, one))) throw lacking(wanted.join(' or '), caller);
}

export function lacking(scope: string, caller?: Caller | ProxyCaller): AppError {
  if (caller?.kind === 'user')
    return new AppError('forbidden', `Your role here (${caller.role}) lacks the scope ${scope}.`);
  return new AppError('forbidden', `This call needs a key with the scope ${scope}.`);
}

/** The scope that a method needs through the proxy. */
export function proxyScopeOf(method: string | undefined): 'proxy:read' | 'proxy:write' {
  return method === 'GET' || method === 'HEAD' ? 'proxy:read' : 'proxy:write';
}

declare module 'fastify' {
  interface FastifyContextConfig {
    access: Access;
  }
  interface FastifyRequest {
    /** Set on every route that is not open to anyone. */
    caller: Caller;
    /** Checks the caller again, for a response that had to wait. Rejects with the 401 or 403 that fits now. */
    callerNow(): Promise<Caller>;
    /** Set on the routes for people. */
    person: Person;
    /** Whether the request has a valid key, ticket or cookie of a person. */
    isKnown: boolean;
  }
}

/**
 * Resolves a credential to a caller; both throw the 401 that fits. A cached key needs no wait. `admit` is called before the
 * lookup of a key that was not valid on this node lately, and may throw.
 */
export type Authenticate = {
  key(secret: string, admit?: Admit): Caller | Promise<Caller>;
  session(token: string): Promise<Caller>;
  /** Absent: cookies count nowhere. */
  cookies?: CookieAuthenticator;
};

/** As `Authenticate`, for the proxy: a ticket whose key is cached needs no wait either. */
export type AuthenticateCall = {
  key(secret: string, admit?: Admit): KeyCaller | Promise<KeyCaller>;
  ticket(token: string, admit?: Admit): TicketCaller | Promise<TicketCaller>;
  /** Absent: cookies count nowhere. */
  cookies?: CookieAuthenticator;
};

/** Throws if the caller, whose key may be invented, has used up its lookups. */
type Admit = () => unknown;

/** The prefix of tickets. Our own keys never have it. */
export const ticketPrefix = 'trt_';

/** Sets `request.caller`, as the route declares its access, before any body is read. */
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
    // Fastify derives the HEAD route from the GET route, including its hooks.
    if (hooks.some((hook) => establishers.has(hook))) return;
    const establish = establishing(access, by);
    establishers.add(establish);
    route.onRequest = [...hooks, establish];
  });
  app.addHook('onReady', async () => {
    const silent = routes.filter((route) => route.config?.access === undefined);
    if (silent.length === 0) return;
    throw new Error(
      `Routes without \`config.access\`: ${silent.map((route) => `${route.method} ${route.url}`).join(', ')}`,
    );
  });
}

type By = { authenticate: Authenticate; brand: Brand; rates?: RateLimits | undefined };

/** The hook of one route: it ends the request of an unknown caller, or of one that calls too often. */
function establishing(access: Access, by: By): onRequestHookHandler {
  return (request, reply, done) => {
    // The URL holds a credential: neither it nor the response, a refusal included, may be stored or passed on.
    if (access.by === 'session in query') reply.headers(privateHeaders);
    if (access.by !== 'anyone' && by.authenticate.cookies?.isFor(request.headers)) answerOwnOrigin(reply);
    establish(request, { ...by, access }).then((fields) => {
      if (fields !== undefined) reply.headers(fields);
      done();
    }, done);
  };
}

/** Returns the header fields with the caller's rate limit. */
async function establish(
  request: FastifyRequest,
  { access, ...by }: By & { access: Access },
): Promise<RateFields | undefined> {
  const { rates } = by;
  // Before the caller is looked up.
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

/** A caller with a session token counts by its address. */
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
  // A key belongs to an environment, not to a person.
  if (cookies === undefined || request.headers.authorization !== undefined)
    throw new AppError(
      'not_signed_in',
      'This route is for signed-in users: keys and tokens are not accepted.',
    );
  const person = await cookies.person(request);
  if (access.only === 'owner' && !person.isOwner)
    throw new AppError('forbidden', 'This route is for owners.');
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
    throw new AppError('forbidden', 'A viewer cannot change or export data.');
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
  if (isTicket(credential)) throw new AppError('forbidden', 'A ticket is valid only for the proxy.');
  const caller = await authenticate.key(credential, () => rates?.takeAt(request.raw));
  if ('scope' in access) requireScope(caller, access.scope);
  return caller;
}

/** The caller of the proxy, by its key, ticket or cookie. Throws, or rejects with, the 401 or 403 that fits. */
export function proxyCallerOf(
  request: Carried,
  { authenticate, scope, admit }: { authenticate: AuthenticateCall; scope: Scope; admit?: Admit },
): ProxyCaller | Promise<ProxyCaller> {
  const { cookies } = authenticate;
  const { authorization } = request.headers;
  // Most callers have a key, and skip the check for a cookie.
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

/** A key that an operator chose may have the same prefix, but never a dot. */
function isTicket(credential: string): boolean {
  return credential.startsWith(ticketPrefix) && credential.includes('.');
}

/** The credential of `Authorization: Bearer <credential>` (RFC 6750 §2.1). */
function bearerOf(header: string | undefined): string {
  if (header === undefined || header === '') throw new AppError('missing_auth_header');
  // The usual form; the pattern parses the others.
  if (header.startsWith('Bearer ') && header.length > 7 && header.indexOf(' ', 7) === -1)
    return header.slice(7);
  const [, credential] = /^Bearer +([^\s]+) *$/i.exec(header) ?? [];
  if (credential === undefined) throw new AppError('malformed_auth_header');
  return credential;
}

/** A signed-in person. */
export type Person = {
  userId: string;
  name: string;
  email: string;
  hasTwoFactor: boolean;
  isOwner: boolean;
  /** The roles by the name of the environment; an owner has all environments. */
  places: ReadonlyMap<string, { environmentId: number; role: Role }>;
};

/** The person of a cookie; undefined: none. */
export type PersonOf = (headers: IncomingHttpHeaders) => Promise<Person | undefined>;

/** The parts of a request that authentication needs. */
type Carried = { method?: string | undefined; headers: IncomingHttpHeaders };

/**
 * Authenticates the pages of the dashboard by their cookie, and decides when a cookie counts. `users/person-reader.ts` finds
 * the person of a cookie.
 */
type CookieAuthenticator = {
  /** Whether a request is to be authenticated by its cookie: it has no key, but names an environment. */
  isFor(headers: IncomingHttpHeaders): boolean;
  /** Rejects with `not_signed_in` (401) or `cross_site_request` (403). */
  person(request: Carried): Promise<Person>;
  /** As `person`, and rejects with `forbidden` (403) if the person has no role in the environment of the request. */
  caller(request: Carried): Promise<UserCaller>;
};

/**
 * A cookie counts only with the header `X-<Brand>-Environment`, which forms, links and images cannot send, and pages of other
 * origins only after a preflight, which never allows credentials. In addition, Origin must be ours if it is sent, and for
 * every method that writes, and Sec-Fetch-Site must be `same-origin` if it is sent.
 */
export function createCookieAuthenticator({
  brand,
  baseUrl,
  personOf,
}: {
  brand: Brand;
  baseUrl: string;
  personOf: PersonOf;
}): CookieAuthenticator {
  const header = brand.header('Environment');
  const named = header.toLowerCase();
  const { origin } = new URL(baseUrl);

  async function person({ method, headers }: Carried): Promise<Person> {
    if (headers[named] === undefined) {
      throw new AppError('not_signed_in', `Sign in, and send the header ${header}.`);
    }
    requireSameOrigin({ method, headers }, origin);
    const found = await personOf(headers);
    if (found === undefined) throw new AppError('not_signed_in');
    return found;
  }

  return {
    isFor: (headers) => headers.authorization === undefined && headers[named] !== undefined,
    person,
    async caller(request) {
      const { userId, places } = await person(request);
      const environment = String(request.headers[named]);
      const place = places.get(environment);
      if (place === undefined) {
        throw new AppError('forbidden', `You have no role in an environment of the name in ${header}.`);
      }
      const { environmentId, role } = place;
      return { kind: 'user', environmentId, environment, userId, role, scopes: scopesOfRole(role) };
    },
  };
}

/** Browsers send no Origin with a GET to the same origin (Fetch standard, "append a request `Origin` header"). */
function requireSameOrigin({ method, headers }: Carried, ours: string): void {
  const isRead = method === 'GET' || method === 'HEAD';
  const { origin } = headers;
  if (origin === undefined ? !isRead : origin !== ours) {
    throw new AppError('cross_site_request', `The header Origin must be ${ours}, the address of BASE_URL.`);
  }
  const site = headers['sec-fetch-site'];
  if (site !== undefined && site !== 'same-origin') throw new AppError('cross_site_request');
}
