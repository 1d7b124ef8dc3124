import { AppError } from '../errors.ts';
import type { ProxyRule } from './proxy-rule.ts';

/** Scopes of a key: what it may call. `*` stands for all of them. */
export const scopes = [
  'providers:read',
  'integrations:read',
  'integrations:write',
  'integrations:credentials',
  'connections:read',
  'connections:write',
  'connections:credentials',
  'connections:refresh_tokens',
  'connect:write',
  'records:read',
  'records:write',
  'records:prune',
  'proxy',
  'events:read',
  'activity:read',
  'environment:read',
  'environment:write',
  'audit:read',
  'metrics:read',
] as const;
export type Scope = (typeof scopes)[number];

/** Who is calling, as `http/` establishes it before a route runs. */
export type Caller =
  | {
      kind: 'key';
      environmentId: number;
      environment: string;
      keyId: number;
      scopes: ReadonlySet<string>;
      /** What it may call through the proxy; absent: everything. */
      proxyRules?: readonly ProxyRule[];
    }
  | {
      kind: 'session';
      environmentId: number;
      environment: string;
      sessionId: number;
      /** Undefined: every integration of the environment. */
      allowedIntegrations: readonly string[] | undefined;
    };

/** Whom a route serves. Every route declares it; a start without is refused. */
export type Access =
  | { by: 'anyone' }
  | { by: 'key'; scope: Scope }
  | { by: 'key or session'; scope: Scope }
  | { by: 'session' }
  /** The session token stands in the query, as `connect_session_token`. */
  | { by: 'session in query' };

/** Whether the caller's key has the scope; a session has none. */
export function hasScope(caller: Caller, scope: Scope): boolean {
  return caller.kind === 'key' && (caller.scopes.has('*') || caller.scopes.has(scope));
}

/** Throws `forbidden`, naming the scope, where the caller lacks it. */
export function requireScope(caller: Caller, scope: Scope): void {
  if (!hasScope(caller, scope))
    throw new AppError('forbidden', `This call needs a key with the scope ${scope}.`);
}
