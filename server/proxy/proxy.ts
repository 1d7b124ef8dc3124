/**
 * The proxy: a request below `/proxy/` goes to the provider with the connection's credentials.
 *
 * It handles Node's request and response before any router: a router would change paths, methods and bodies
 * (docs/decisions/0007). `exchange.ts` is one call with its requests; `forward.ts` sends them.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { LiveConnection } from '../connections/store/reader.ts';
import { AppError } from '../errors.ts';
import type { ProxyCaller } from '../http/auth/caller.ts';
import { allowedMethods, anyOriginHeaders, isPreflight, preflightHeaders } from '../http/cors.ts';
import { errorBody } from '../http/error-writer.ts';
import { type RequestInterceptor, requestIds } from '../http/server.ts';
import { callsInFlight } from '../metrics/metrics.ts';
import { type Cause, errorCodeOf, isTracing, remoteSpanOf, startSpan, within } from '../tracing/tracing.ts';
import { CallTrace, type Ended, FailureLog, type Outcome } from './call-log.ts';
import { inProviderFormat, PhaseTimeout, upstreamError } from './errors.ts';
import {
  type ConnectionKey,
  callerOf,
  connectionKeyOf,
  credentialsOf,
  Exchange,
  type InFlightCall,
  type ProxyDeps,
  type ProxyState,
  type ReadyCall,
  readCall,
  Waits,
} from './exchange.ts';
import { forward } from './forward.ts';
import { ResponseHeaderRules } from './headers.ts';

const maxProviders = 1_000;

export function createProxy(deps: ProxyDeps): RequestInterceptor {
  const { brand, isRootAlias } = deps;
  const ownHeaders = Object.freeze(Object.entries(anyOriginHeaders(brand)).flat());
  const ownLastHeaders = Object.freeze([...ownHeaders, 'connection', 'close']);
  const state: ProxyState = {
    ...deps,
    responseRules: new ResponseHeaderRules(brand),
    ownHeaders,
    pageHeaders: [],
    nextId: requestIds(),
    failures: new FailureLog(deps.log),
    waits: new Waits(),
    providers: new Map(),
  };
  return {
    takes({ url = '', headers }) {
      if (url.startsWith('/proxy/')) return true;
      const isForConnection =
        'connection-id' in headers && ('integration-id' in headers || 'provider-config-key' in headers);
      return isForConnection && isRootAlias(url.split('?', 1)[0] ?? '');
    },
    handle: (request, response) => take(state, request, response),
    stopping() {
      state.ownHeaders = ownLastHeaders;
      state.pageHeaders = ['connection', 'close'];
    },
    closing: () => state.waits.stop(),
  };
}

function take(state: ProxyState, request: IncomingMessage, response: ServerResponse): void {
  const { headers } = request;
  const integrationId = headers['integration-id'];
  // The older spelling wins: until `Integration-Id` was one of our headers, a caller could send it and it had no effect.
  if (integrationId !== undefined) headers['provider-config-key'] ??= integrationId;
  const id = state.nextId();
  const inFlight: InFlightCall = {
    id,
    request,
    response,
    trace: new CallTrace(),
    cause: causeOf(state, id, request),
    caller: undefined,
    provider: undefined,
    origin: undefined,
  };
  // A write error is followed by `close`.
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
  // For a call inside this process: the callbacks of its streams would run in the async context of its caller.
  if (state.causeOf === undefined) begin(state, inFlight);
  else within(inFlight.cause, () => begin(state, inFlight));
}

function begin(state: ProxyState, inFlight: InFlightCall): void {
  const { request } = inFlight;
  try {
    if (request.method === 'TRACE') throw new AppError('method_not_allowed');
    const caller = callerOf(state, request);
    if (caller instanceof Promise || !sendIfCached(state, inFlight, caller)) {
      // Calls that await nothing skip the async context: it costs as much as all metrics combined.
      within(inFlight.cause, () => lookUpAndSend(state, inFlight, caller)).catch((error) =>
        fail(state, inFlight, error),
      );
    }
  } catch (error) {
    fail(state, inFlight, error);
  }
}

/** The async context of the call: part of a run, or of the caller's trace. */
function causeOf(state: ProxyState, id: string, request: IncomingMessage): Cause {
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

/** Sends the call if caller, connection and credentials are cached; false: nothing has happened. */
function sendIfCached(state: ProxyState, inFlight: InFlightCall, caller: ProxyCaller): boolean {
  inFlight.caller = caller;
  const call = readCall(inFlight.request.headers);
  const connection = state.connections.known(connectionKeyOf(caller, call));
  if (connection === undefined) return false;
  const credentials = state.credentials.current(connection);
  if (credentials === undefined) return false;
  inFlight.provider = connection.integration.provider;
  state.rates?.takeOf(caller);
  send(state, inFlight, { call, caller, connection, credentials });
  return true;
}

async function lookUpAndSend(
  state: ProxyState,
  inFlight: InFlightCall,
  pending: ProxyCaller | Promise<ProxyCaller>,
): Promise<void> {
  const caller = await pending;
  inFlight.caller = caller;
  const call = readCall(inFlight.request.headers);
  const key = connectionKeyOf(caller, call);
  const place = placeOf(key);
  inFlight.provider = state.connections.known(key)?.integration.provider ?? state.providers.get(place);
  state.rates?.takeOf(caller);
  const { totalMs } = call.timeouts;
  const connection = await inTime(inFlight, totalMs, connectionOf(state, inFlight, key));
  const { provider } = connection.integration;
  inFlight.provider = provider;
  if (state.providers.size >= maxProviders) state.providers.clear();
  state.providers.set(place, provider);
  const leftMs = totalMs ?? provider.api.timeouts.total_ms;
  const credentials = await inTime(inFlight, leftMs, credentialsOf(state, connection));
  send(state, inFlight, { call, caller, connection, credentials });
}

const placeOf = ({ environmentId, integrationKey }: ConnectionKey) => `${environmentId}/${integrationKey}`;

/** As `wanted`; rejects with `upstream_timeout` when the call is older than `totalMs`. */
async function inTime<T>(
  { trace }: InFlightCall,
  totalMs: number | undefined,
  wanted: Promise<T>,
): Promise<T> {
  if (totalMs === undefined) return wanted;
  const expired = Promise.withResolvers<never>();
  const expire = () => {
    const cause = new PhaseTimeout('the whole call took too long');
    expired.reject(upstreamError(cause, { isSent: false, isRepeatable: true }));
  };
  const timer = setTimeout(expire, Math.max(1, totalMs - trace.ageMs));
  return Promise.race([wanted, expired.promise]).finally(() => clearTimeout(timer));
}

function send(state: ProxyState, inFlight: InFlightCall, ready: ReadyCall): void {
  inFlight.provider = ready.connection.integration.provider;
  inFlight.trace.credentialed();
  const exchange = new Exchange(state, inFlight, ready);
  inFlight.origin = exchange.first.origin;
  forward(exchange, {
    onEnd: (outcome) => end(state, inFlight, outcome),
    onFailure: (error) => fail(state, inFlight, error),
  });
}

/** Throws `unknown_provider_config` (404) or `unknown_connection` (400). */
async function connectionOf(
  { connections, providers }: ProxyState,
  inFlight: InFlightCall,
  key: ConnectionKey,
): Promise<LiveConnection> {
  try {
    return await connections.get(key);
  } catch (error) {
    if (error instanceof AppError) {
      inFlight.provider = undefined;
      providers.delete(placeOf(key));
      inFlight.provider = (await connections.getIntegration(key)).provider;
    }
    throw error;
  }
}

/** The response has been sent, completely or not. */
function end(state: ProxyState, inFlight: InFlightCall, outcome: Outcome): void {
  const { id: reqId, response } = inFlight;
  settle(state, inFlight, { outcome });
  if (!state.log.isLevelEnabled('debug')) return;
  const line = { reqId, status: response.statusCode, outcome };
  within(inFlight.cause, () => state.log.debug(line, 'proxied request'));
}

/** Responds with an error of the service, or closes the connection if that is impossible. */
function fail(state: ProxyState, inFlight: InFlightCall, thrown: unknown): void {
  // The rest of the body is not needed.
  inFlight.request.pause();
  try {
    within(inFlight.cause, () => writeError(state, inFlight, thrown));
  } catch (err) {
    state.log.error({ reqId: inFlight.id, err }, 'the error response could not be written');
    inFlight.response.destroy();
  }
  settle(state, inFlight, { error: thrown });
}

/** Writes an error response with our marker, in the provider's format once the provider is found. */
function writeError(state: ProxyState, inFlight: InFlightCall, thrown: unknown): void {
  const { brand, log, failures, ownOnly = [] } = state;
  const { id: reqId, origin, provider, request, response } = inFlight;
  const isOfPage = state.authenticate.cookies?.isFor(request.headers) === true;
  const ownHeaders = isOfPage ? state.pageHeaders : state.ownHeaders;
  const error = thrown instanceof AppError ? thrown : new AppError('internal', undefined, { cause: thrown });
  if (error.code === 'internal') log.error({ reqId, err: thrown }, 'unexpected error');
  else if (error.status >= 500) failures.add({ reqId, origin, error });
  const formatted = provider && inProviderFormat(error, { provider, brand });
  const body = JSON.stringify(formatted ?? { error: errorBody(error, reqId) });
  const headers = [
    ...ownHeaders,
    ...ownOnly,
    'content-type',
    'application/json; charset=utf-8',
    'content-length',
    String(Buffer.byteLength(body)),
    'x-request-id',
    reqId,
    brand.header('Error'),
    error.code,
  ];
  if (error.retryAfterS !== undefined) headers.push('retry-after', String(Math.ceil(error.retryAfterS)));
  if (error.headers !== undefined) headers.push(...Object.entries(error.headers).flat());
  if (request.method === 'TRACE') headers.push('allow', allowedMethods);
  // Node would parse the rest of an incomplete body as the next request.
  if (error.code === 'request_timeout') headers.push('connection', 'close');
  // The explicit reason phrase replaces that of a provider's response whose head could not be written.
  if (!response.headersSent)
    response.writeHead(error.status, STATUS_CODES[error.status] ?? '', headers).end(body);
}

/** Counts, traces and logs the end of a call. A call without a caller is not logged. */
function settle({ activity }: ProxyState, inFlight: InFlightCall, how: Ended): void {
  const { id, caller, request, response, trace, provider, cause } = inFlight;
  callsInFlight.add(-1);
  trace.count(provider?.name, how);
  if (caller !== undefined && !isTooOften(how.error))
    activity?.log(trace.operation({ id, caller, request, run: cause.runId }, how));
  if (cause.span === undefined) return;
  cause.span.set({
    ...(response.headersSent && { 'http.response.status_code': response.statusCode }),
    ...(provider !== undefined && { 'trellis.provider': provider.name }),
  });
  const { outcome, error } = how;
  cause.span.end(error !== undefined ? errorCodeOf(error) : outcome === 'answered' ? undefined : outcome);
}

/** Refusals by the rate limit come by the thousand, and must not cost a row each. */
function isTooOften(error: unknown): boolean {
  return error instanceof AppError && error.code === 'too_many_requests';
}

function ignore(): void {}
