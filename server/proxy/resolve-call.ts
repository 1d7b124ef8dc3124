/**
 * Who calls, and for which connection: asked when a call comes in, and again before an attempt that had to wait: a key
 * may have been revoked meanwhile, or a connection deleted.
 */
import type { IncomingMessage } from 'node:http';
import type { Credentials } from '../auth-modes/mode.ts';
import type { Brand } from '../brand.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { AppError } from '../errors.ts';
import { type AuthenticateCall, proxyCallerOf } from '../http/authorize.ts';
import { type ProxyCaller, proxyScopeOf } from '../http/caller.ts';
import type { RateLimits } from '../http/rate-limit.ts';
import type { ProxyRequest } from './attempt.ts';
import type { Call } from './call.ts';
import { rulesOf } from './rules.ts';
import { requireSameConnection, requireTicketed } from './ticket-limits.ts';
import type { Waits } from './waits.ts';

/** Who knows. */
export type CallDeps = {
  readonly brand: Brand;
  readonly authenticate: AuthenticateCall;
  readonly connections: Pick<ConnectionReader, 'get'>;
  readonly credentials: Pick<CredentialSource, 'current' | 'fresh'>;
  readonly waits: Waits;
  readonly rates?: Pick<RateLimits, 'takeAt'> | undefined;
};

export type Place = Parameters<ConnectionReader['get']>[0];

/** Throws, or rejects with, the 401 or 403 that fits. */
export function callerOf(
  { authenticate, rates }: Pick<CallDeps, 'authenticate' | 'rates'>,
  request: IncomingMessage,
): ProxyCaller | Promise<ProxyCaller> {
  const admit = () => rates?.takeAt(request);
  return proxyCallerOf(request, { authenticate, scope: proxyScopeOf(request.method), admit });
}

/** Throws `proxy_rule_denied` (403) where the caller holds a ticket for another place. */
export function placeOf(caller: ProxyCaller, call: Call): Place {
  if (caller.kind === 'ticket') requireTicketed(caller.ticket, call);
  const { integrationKey, connectionId } = call;
  return { environmentId: caller.environmentId, integrationKey, connectionId };
}

/** Throws `proxy_rule_denied` (403) where the caller holds a ticket for another connection, `unknown_connection` where a run does. */
export function proxyRequestOf(
  { brand }: Pick<CallDeps, 'brand'>,
  given: { request: IncomingMessage; call: Call; caller: ProxyCaller; connection: LiveConnection },
): ProxyRequest {
  const { request, call, caller, connection } = given;
  if (caller.kind === 'ticket') requireSameConnection(caller.ticket, connection);
  if (caller.kind === 'key' && (caller.connectionRow ?? connection.id) !== connection.id)
    throw new AppError('unknown_connection');
  return {
    connection,
    brand,
    method: request.method ?? '',
    rules: rulesOf(caller, connection),
    rawUrl: request.url ?? '',
    rawHeaders: request.rawHeaders,
    override: call.override,
  };
}

/** Rejects with `unavailable` (503) where the service stops and new ones would have to be waited for. */
export async function credentialsOf(
  { credentials, waits }: Pick<CallDeps, 'credentials' | 'waits'>,
  connection: LiveConnection,
): Promise<Credentials> {
  return credentials.current(connection) ?? waits.orStop(credentials.fresh(connection));
}

/** What is asked for, as it stands now; rejects with what a new call would get. */
export async function reauthorize(
  deps: CallDeps,
  { request, call }: { request: IncomingMessage; call: Call },
): Promise<ProxyRequest> {
  const caller = await callerOf(deps, request);
  const connection = await deps.connections.get(placeOf(caller, call));
  return proxyRequestOf(deps, { request, call, caller, connection });
}
