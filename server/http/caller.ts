import { AppError } from '../errors.ts';
import type { ProxyRule } from './proxy-rule.ts';
import type { Role } from './roles.ts';

/**
 * Scopes of a key: what it may call. None implies another; `*` stands for all of them, those of later releases too.
 * docs/keys.md says what each lets do, and a test compares.
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

/** Who is calling, as `http/` establishes it before a route runs. */
export type Caller = KeyCaller | SessionCaller | UserCaller;

export type KeyCaller = {
  kind: 'key';
  environmentId: number;
  environment: string;
  keyId: number;
  scopes: ReadonlySet<string>;
  /** What it may call through the proxy; absent: everything. */
  proxyRules?: readonly ProxyRule[];
  /** Absent: it does not end by itself. */
  expiresAt?: Date | undefined;
  /** Calls a minute; absent: as many as any key without a limit of its own. */
  rateLimit?: number | undefined;
  /**
   * When it may make all of them at once again, by all that nodes had told when the key was read; in ms of the steady
   * clock. Absent: it may.
   */
  fullAtMs?: number | undefined;
  /** Of a run: the row of its connection, the only one that it may call for. Absent: any. */
  connectionRow?: number;
};

/** Scopes and rules are those of the key that made the ticket, as they are now. No route serves such a caller. */
export type TicketCaller = Omit<KeyCaller, 'kind'> & { kind: 'ticket'; ticket: TicketRights };

export type TicketRights = {
  /** For the activity log. */
  id: string;
  integrationKey: string;
  connectionId: string;
  /**
   * The row of the connection, and when it was made, in ms since 1970: another one that gets the same ID is not meant,
   * nor one that gets the same row, as after a restored backup.
   */
  connectionRow: number;
  connectionMadeAt: number;
  rules: readonly ProxyRule[];
  /** Of a call's body, and again of its answer's; undefined: no limit. */
  maxBytes: number | undefined;
  /** Which actions it calls as tools, `*` for all; absent: none. */
  actions?: readonly string[] | undefined;
};

/**
 * A person who is signed in, in one environment: what a page of the dashboard calls with (`cookie-authenticator.ts`). Keys that
 * it makes are bound by its scopes, and outlive its session.
 */
export type UserCaller = {
  kind: 'user';
  environmentId: number;
  environment: string;
  userId: string;
  role: Role;
  /** Those of the role. */
  scopes: ReadonlySet<string>;
  proxyRules?: undefined;
  expiresAt?: undefined;
  rateLimit?: undefined;
};

/** Who may call through the proxy. */
export type ProxyCaller = KeyCaller | TicketCaller | UserCaller;

type SessionCaller = {
  kind: 'session';
  environmentId: number;
  environment: string;
  sessionId: number;
  /** Undefined: every integration of the environment. */
  allowedIntegrations: readonly string[] | undefined;
};

/** Whom a route serves. Every route declares it; a start without is refused. Of several scopes any one will do. */
export type Access =
  /** Counts for the limit of the client's address, unless its module has limits of its own or the route costs nothing. */
  | { by: 'anyone'; isLimited?: false }
  /** Viewers are served what reads (GET, HEAD) unless the route says otherwise. */
  | { by: 'key'; scope: Scope | readonly Scope[]; viewers?: 'served' | 'refused' }
  | { by: 'key or session'; scope: Scope }
  | { by: 'session' }
  /** A person who is signed in, with a cookie alone: of `owner` only owners. There is `request.person`, and no caller. */
  | { by: 'person'; only?: 'owner' }
  /** The session token stands in the query, as `connect_session_token`. */
  | { by: 'session in query' };

/** Whether these scopes of a key hold one. */
export function holdsScope(held: ReadonlySet<string>, scope: Scope): boolean {
  return held.has('*') || held.has(scope);
}

/** Whether the caller's key has the scope; a session has none. */
export function hasScope(caller: Caller, scope: Scope): boolean {
  return caller.kind !== 'session' && holdsScope(caller.scopes, scope);
}

/** Throws `forbidden`, naming the scope, where the caller lacks it; of several it needs one. */
export function requireScope(caller: Caller, scope: Scope | readonly Scope[]): void {
  const wanted = [scope].flat() as Scope[];
  if (!wanted.some((one) => hasScope(caller, one))) throw lacking(wanted.join(' or '), caller);
}

export function lacking(scope: string, caller?: Caller | ProxyCaller): AppError {
  if (caller?.kind === 'user')
    return new AppError('forbidden', `Your role here (${caller.role}) lacks the scope ${scope}.`);
  return new AppError('forbidden', `This call needs a key with the scope ${scope}.`);
}

/** Which scope a method needs through the proxy. */
export function proxyScopeOf(method: string | undefined): 'proxy:read' | 'proxy:write' {
  return method === 'GET' || method === 'HEAD' ? 'proxy:read' : 'proxy:write';
}
