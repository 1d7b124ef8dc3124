/**
 * The proxy: any request below `/proxy/` goes to the provider with the connection's credentials.
 *
 * Owns: which requests are the proxy's, who may call, in which words our errors are told. Does not own: what our own
 * headers mean (`call.ts`), where a request goes and what goes along (`attempt.ts`), how the bytes move (`forward.ts`).
 *
 * It stands in front of the routes, on Node's request and response: paths, methods and bodies of a provider's are none
 * that a router would let through unchanged (docs/decisions/0007).
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Activity } from '../activity/writer.ts';
import type { Credentials } from '../auth-modes/mode.ts';
import type { Brand } from '../brand.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { Observer } from '../connections/observe.ts';
import type { ConnectionReader, LiveConnection } from '../connections/reader.ts';
import { AppError } from '../errors.ts';
import type { AuthenticateCall } from '../http/authorize.ts';
import type { ProxyCaller } from '../http/caller.ts';
import { anyOriginHeaders, isPreflight, preflightHeaders } from '../http/cors.ts';
import { errorBody } from '../http/error-writer.ts';
import { allowedMethods } from '../http/methods.ts';
import type { RateLimits } from '../http/rate-limit.ts';
import { requestIds } from '../http/request-id.ts';
import type { RequestInterceptor } from '../http/server.ts';
import type { Logger } from '../log.ts';
import { callsInFlight } from '../metrics/metrics.ts';
import type { Outbound } from '../outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { type Cause, within } from '../tracing/cause.ts';
import { remoteSpanOf } from '../tracing/span.ts';
import { errorCodeOf, isTracing, startSpan } from '../tracing/tracing.ts';
import { AnswerRules } from './answer-headers.ts';
import { attemptWith } from './attempt.ts';
import { type Call, readCall } from './call.ts';
import { CallTrace, type Ended } from './call-log.ts';
import { inDialect } from './error-dialect.ts';
import type { Outcome } from './exchange.ts';
import { failureOf, PhaseTimeout } from './failure.ts';
import { FailureLog } from './failure-log.ts';
import { forward } from './forward.ts';
import { ProxiedCall } from './proxied-call.ts';
import type { Quota } from './quota/quota.ts';
import { callerOf, credentialsOf, type Place, placeOf, proxyRequestOf } from './resolve-call.ts';
import { Waits } from './waits.ts';

export type ProxyDeps = {
  brand: Brand;
  log: Logger;
  authenticate: AuthenticateCall;
  /** Whether a path without our prefix is one of a provider's own: that of a client which knows no prefix. */
  isRootAlias: (path: string) => boolean;
  connections: Pick<ConnectionReader, 'get' | 'known' | 'getIntegration'>;
  credentials: Pick<CredentialSource, 'fresh' | 'current' | 'renewed'>;
  outbound: Outbound;
  /** Is shown the provider's error answers, after the reply. */
  observer?: Pick<Observer, 'wants' | 'observe'>;
  /** Keeps calls within the providers' quotas. */
  quota?: Pick<Quota, 'admit'>;
  /** Counts the calls of keys and people, and of addresses that show made-up keys. */
  rates?: RateLimits | undefined;
  /** Is told of each call, after the reply. */
  activity?: Pick<Activity, 'log'>;
  /** What a call is part of that no caller from outside makes; absent: what its `traceparent` says. */
  causeOf?: (request: IncomingMessage) => Cause | undefined;
  /** Of our own answers, beside what they have in common with those of providers; names and values in turn. */
  ownOnly?: readonly string[];
};

export function createProxy(deps: ProxyDeps): RequestInterceptor {
  const { brand, isRootAlias } = deps;
  const ownHeaders = Object.freeze(Object.entries(anyOriginHeaders(brand)).flat());
  const ownLastHeaders = Object.freeze([...ownHeaders, 'connection', 'close']);
  const state: ProxyState = {
    ...deps,
    answers: new AnswerRules(brand),
    ownHeaders,
    pageHeaders: [],
    nextId: requestIds(),
    failures: new FailureLog(deps.log),
    waits: new Waits(),
  };
  return {
    takes({ url = '', headers }) {
      if (url.startsWith('/proxy/')) return true;
      const isForConnection = 'connection-id' in headers && 'provider-config-key' in headers;
      return isForConnection && isRootAlias(url.split('?', 1)[0] ?? '');
    },
    handle: (request, response) => take(state, { request, response }),
    stopping() {
      state.ownHeaders = ownLastHeaders;
      state.pageHeaders = ['connection', 'close'];
    },
    closing: () => state.waits.stop(),
  };
}

type ProxyState = ProxyDeps & {
  readonly answers: AnswerRules;
  /** Ours for every answer from now on, names and values in turn. */
  ownHeaders: readonly string[];
  /** As `ownHeaders`, where a cookie called: no page of another origin may read the answer. */
  pageHeaders: readonly string[];
  readonly nextId: () => string;
  readonly failures: FailureLog;
  readonly waits: Waits;
};

/** A request, and what has become known of it. */
type InFlightCall = {
  readonly id: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly trace: CallTrace;
  readonly cause: Cause;
  caller: ProxyCaller | undefined;
  /** Known as soon as its connection is, or its integration. */
  provider: ProviderDefinition | undefined;
  /** Known as soon as its first request is. */
  origin: string | undefined;
};

function take(state: ProxyState, { request, response }: Pick<InFlightCall, 'request' | 'response'>): void {
  const id = state.nextId();
  const inFlight: InFlightCall = {
    ...{ id, request, response, trace: new CallTrace(), cause: causeOf(state, { id, request }) },
    caller: undefined,
    provider: undefined,
    origin: undefined,
  };
  // What cannot be written any more is told by `close`.
  response.on('error', ignore);
  if (isPreflight(request)) {
    const { ownHeaders, ownOnly = [] } = state;
    response
      .writeHead(204, [...ownHeaders, ...ownOnly, ...Object.entries(preflightHeaders(request)).flat()])
      .end();
    inFlight.cause.span?.end();
    return;
  }
  callsInFlight.add();
  // Callbacks of streams in memory carry the cause of the code that opened them.
  if (state.causeOf === undefined) begin(state, inFlight);
  else within(inFlight.cause, () => begin(state, inFlight));
}

function begin(state: ProxyState, inFlight: InFlightCall): void {
  const { request } = inFlight;
  try {
    if (request.method === 'TRACE') throw new AppError('method_not_allowed');
    const caller = callerOf(state, request);
    if (caller instanceof Promise || !carryAtOnce(state, inFlight, caller)) {
      // Where nothing is waited for nothing is set off either, and to be a cause costs as much as all figures together.
      within(inFlight.cause, () => carry(state, inFlight, caller)).catch((error) =>
        fail(state, inFlight, error),
      );
    }
  } catch (error) {
    fail(state, inFlight, error);
  }
}

/** The call as a cause of what it sets off: part of a run, or of what its caller does. */
function causeOf(state: ProxyState, { id, request }: Pick<InFlightCall, 'id' | 'request'>): Cause {
  const outer = state.causeOf?.(request);
  if (!isTracing()) return outer?.runId === undefined ? { reqId: id } : { reqId: id, runId: outer.runId };
  const { method = '', headers } = request;
  const span = startSpan(`${method} /proxy/*`, {
    kind: outer === undefined ? 'server' : 'internal',
    parent: outer?.span ?? remoteSpanOf(headers),
    attributes: { 'http.request.method': method, 'http.route': '/proxy/*', 'trellis.request_id': id },
  });
  return outer?.runId === undefined ? { reqId: id, span } : { reqId: id, runId: outer.runId, span };
}

/** Sends the call if all that it needs is cached; else false, and nothing has happened. */
function carryAtOnce(state: ProxyState, inFlight: InFlightCall, caller: ProxyCaller): boolean {
  inFlight.caller = caller;
  const call = readCall(inFlight.request.headers);
  const connection = state.connections.known(placeOf(caller, call));
  if (connection === undefined) return false;
  const credentials = state.credentials.current(connection);
  if (credentials === undefined) return false;
  inFlight.provider = connection.integration.provider;
  state.rates?.takeOf(caller);
  send(state, inFlight, { call, caller, connection, credentials });
  return true;
}

async function carry(
  state: ProxyState,
  inFlight: InFlightCall,
  found: ProxyCaller | Promise<ProxyCaller>,
): Promise<void> {
  const caller = await found;
  inFlight.caller = caller;
  const call = readCall(inFlight.request.headers);
  const at = placeOf(caller, call);
  inFlight.provider = state.connections.known(at)?.integration.provider;
  state.rates?.takeOf(caller);
  const { totalMs } = call.timeouts;
  const connection = await inTime(inFlight, totalMs, connectionOf(state, inFlight, at));
  const { provider } = connection.integration;
  inFlight.provider = provider;
  const leftMs = totalMs ?? provider.api.timeouts.total_ms;
  const credentials = await inTime(inFlight, leftMs, credentialsOf(state, connection));
  send(state, inFlight, { call, caller, connection, credentials });
}

/** What is waited for; throws `upstream_timeout` once the call is older than `totalMs`. */
async function inTime<T>(
  { trace }: InFlightCall,
  totalMs: number | undefined,
  wanted: Promise<T>,
): Promise<T> {
  if (totalMs === undefined) return wanted;
  const over = Promise.withResolvers<never>();
  const expire = () => {
    const cause = new PhaseTimeout('the whole call took too long');
    over.reject(failureOf(cause, { isSent: false, isRepeatable: true }));
  };
  const timer = setTimeout(expire, Math.max(1, totalMs - trace.ageMs));
  return Promise.race([wanted, over.promise]).finally(() => clearTimeout(timer));
}

type Known = { call: Call; caller: ProxyCaller; connection: LiveConnection; credentials: Credentials };

function send(
  state: ProxyState,
  inFlight: InFlightCall,
  { call, caller, connection, credentials }: Known,
): void {
  inFlight.provider = connection.integration.provider;
  inFlight.trace.credentialed();
  const ticket = caller.kind === 'ticket' ? caller.ticket : undefined;
  const proxyRequest = proxyRequestOf(state, { request: inFlight.request, call, caller, connection });
  const first = attemptWith(credentials, proxyRequest);
  inFlight.origin = first.origin;
  forward(
    new ProxiedCall({
      state,
      call,
      proxyRequest,
      credentials,
      first,
      inFlight,
      ticket,
      isOfPage: caller.kind === 'user',
      ended: (outcome) => end(state, inFlight, outcome),
      failed: (error) => fail(state, inFlight, error),
    }),
  );
}

/** Throws `unknown_provider_config` (404) or `unknown_connection` (400). */
async function connectionOf(
  { connections }: ProxyState,
  inFlight: InFlightCall,
  at: Place,
): Promise<LiveConnection> {
  try {
    return await connections.get(at);
  } catch (error) {
    if (error instanceof AppError) inFlight.provider = (await connections.getIntegration(at)).provider;
    throw error;
  }
}

/** The answer has left, whole or not. */
function end(state: ProxyState, inFlight: InFlightCall, outcome: Outcome): void {
  const { id: reqId, response } = inFlight;
  settle(state, inFlight, { outcome });
  if (!state.log.isLevelEnabled('debug')) return;
  const line = { reqId, status: response.statusCode, outcome };
  within(inFlight.cause, () => state.log.debug(line, 'proxied request'));
}

/** Answers with an error of ours, or breaks off where that cannot be: nobody is left to wait. */
function fail(state: ProxyState, inFlight: InFlightCall, thrown: unknown): void {
  // What is left of its body nobody wants any more.
  inFlight.request.pause();
  try {
    within(inFlight.cause, () => tell(state, inFlight, thrown));
  } catch (err) {
    state.log.error({ reqId: inFlight.id, err }, 'an error could not be told');
    inFlight.response.destroy();
  }
  settle(state, inFlight, { error: thrown });
}

/** Marked, and in the provider's words once the provider is known. */
function tell(state: ProxyState, inFlight: InFlightCall, thrown: unknown): void {
  const { brand, log, failures, ownOnly = [] } = state;
  const { id: reqId, origin, provider, request, response } = inFlight;
  const isOfPage = state.authenticate.cookies?.isFor(request.headers) === true;
  const ownHeaders = isOfPage ? state.pageHeaders : state.ownHeaders;
  const error = thrown instanceof AppError ? thrown : new AppError('internal', undefined, { cause: thrown });
  if (error.code === 'internal') log.error({ reqId, err: thrown }, 'unexpected error');
  else if (error.status >= 500) failures.note({ reqId, origin, error });
  const dialect = provider && inDialect(error, { definition: provider, brand });
  const body = JSON.stringify(dialect ?? { error: errorBody(error, reqId) });
  const headers = [
    ...ownHeaders,
    ...ownOnly,
    ...['content-type', 'application/json; charset=utf-8', 'content-length', String(Buffer.byteLength(body))],
    ...['x-request-id', reqId, brand.header('Error'), error.code],
  ];
  if (error.retryAfterS !== undefined) headers.push('retry-after', String(Math.ceil(error.retryAfterS)));
  if (error.headers !== undefined) headers.push(...Object.entries(error.headers).flat());
  if (request.method === 'TRACE') headers.push('allow', allowedMethods);
  // The rest of a body that stopped coming would be read as the next request.
  if (error.code === 'request_timeout') headers.push('connection', 'close');
  // The reason is named: an answer of the provider's that could not be written has left its own behind.
  if (!response.headersSent)
    response.writeHead(error.status, STATUS_CODES[error.status] ?? '', headers).end(body);
}

/** It is over: counted, told to traces, and logged where somebody has come with it. */
function settle({ activity }: ProxyState, inFlight: InFlightCall, how: Ended): void {
  const { id, caller, request, response, trace, provider, cause } = inFlight;
  callsInFlight.add(-1);
  trace.count(provider?.name, how);
  if (caller !== undefined && !isTooOften(how.error))
    activity?.log(trace.operation({ id, caller, request }, how));
  if (cause.span === undefined) return;
  cause.span.set({
    ...(response.headersSent && { 'http.response.status_code': response.statusCode }),
    ...(provider !== undefined && { 'trellis.provider': provider.name }),
  });
  const { outcome, error } = how;
  cause.span.end(error !== undefined ? errorCodeOf(error) : outcome === 'answered' ? undefined : outcome);
}

/** What is refused by the thousand must not cost a row each. */
function isTooOften(error: unknown): boolean {
  return error instanceof AppError && error.code === 'too_many_requests';
}

function ignore(): void {}
