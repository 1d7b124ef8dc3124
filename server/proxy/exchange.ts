/**
 * One call through the proxy: its caller, its connection with credentials, and the requests that it may send. All are
 * checked when the call comes in, and again before an attempt that had to wait: meanwhile a key may have been revoked, or
 * a connection deleted. `attempt.ts` builds the requests.
 */
import type { IncomingHttpHeaders, IncomingMessage, ServerResponse } from 'node:http';
import { z } from 'zod';
import type { Activity } from '../activity/writer.ts';
import { type Credentials, isRenewable } from '../auth-modes/modes.ts';
import type { Brand } from '../brand.ts';
import { classifyAnswer, provesCredentials } from '../connections/health/api-faults.ts';
import type { Observer } from '../connections/health/observe.ts';
import type { CredentialSource } from '../connections/refresh/credentials.ts';
import type { ConnectionReader, LiveConnection } from '../connections/store/reader.ts';
import { AppError } from '../errors.ts';
import { type AuthenticateCall, type ProxyCaller, proxyCallerOf, proxyScopeOf } from '../http/auth/caller.ts';
import { serviceStops } from '../http/drain.ts';
import type { RateLimits } from '../http/limits/rate-limit.ts';
import type { Logger } from '../log.ts';
import type { Outbound } from '../outbound/outbound.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import type { Cause } from '../tracing/tracing.ts';
import { type Attempt, attemptAfterRedirect, attemptWith, type ProxyRequest } from './attempt.ts';
import { AttemptSpans, type CallTrace, type FailureLog } from './call-log.ts';
import { type Head, headersForPage, type ResponseHeaderRules, shieldedHeaders } from './headers.ts';
import { defaultWaitMs, type Permit, type Quota } from './quota/quota.ts';
import { ResponseSample, ResponseWatch } from './response.ts';
import { requireSameConnection, requireTicketed, rulesOf } from './rules.ts';

export type ProxyDeps = {
  brand: Brand;
  log: Logger;
  authenticate: AuthenticateCall;
  /** Whether a path without our prefix is one of a provider, as its own clients send it. */
  isRootAlias: (path: string) => boolean;
  connections: Pick<ConnectionReader, 'get' | 'known' | 'getIntegration'>;
  credentials: Pick<CredentialSource, 'fresh' | 'current' | 'renewed' | 'proven' | 'refused'>;
  outbound: Outbound;
  /** Examines the provider's error responses, after the reply. */
  observer?: Pick<Observer, 'observe'>;
  /** Keeps calls within the providers' quotas. */
  quota?: Pick<Quota, 'admit'>;
  /** Counts the calls of keys and people, and of addresses that send invalid keys. */
  rates?: RateLimits | undefined;
  /** Records each call, after the reply. */
  activity?: Pick<Activity, 'log'>;
  /** The outer work that a call from inside the service is part of; absent: the call's `traceparent` names it. */
  causeOf?: (request: IncomingMessage) => Cause | undefined;
  /** Further headers of our own responses only; names and values in turn. */
  ownOnly?: readonly string[];
};

export type ProxyState = ProxyDeps & {
  readonly responseRules: ResponseHeaderRules;
  /** Our headers for every response from now on, names and values in turn. */
  ownHeaders: readonly string[];
  /** As `ownHeaders`, for calls with a cookie: no page of another origin may read the response. */
  pageHeaders: readonly string[];
  readonly nextId: () => string;
  readonly failures: FailureLog;
  readonly waits: Waits;
  /** By environment and integration, of the last calls: a call that the rate limit refuses reads nothing. */
  readonly providers: Map<string, ProviderDefinition>;
};

/** A call from its arrival on. */
export type InFlightCall = {
  readonly id: string;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly trace: CallTrace;
  readonly cause: Cause;
  caller: ProxyCaller | undefined;
  /** Set once the connection or at least its integration is found. */
  provider: ProviderDefinition | undefined;
  /** Set with the first request. */
  origin: string | undefined;
};

export type ConnectionKey = Parameters<ConnectionReader['get']>[0];

/** Throws, or rejects with, the 401 or 403 that fits. */
export function callerOf(
  { authenticate, rates }: ProxyState,
  request: IncomingMessage,
): ProxyCaller | Promise<ProxyCaller> {
  const admit = () => rates?.takeAt(request);
  return proxyCallerOf(request, { authenticate, scope: proxyScopeOf(request.method), admit });
}

/** Throws `proxy_rule_denied` (403) if the caller has a ticket for another connection. */
export function connectionKeyOf(caller: ProxyCaller, call: Call): ConnectionKey {
  if (caller.kind === 'ticket') requireTicketed(caller.ticket, call);
  const { integrationKey, connectionId } = call;
  return { environmentId: caller.environmentId, integrationKey, connectionId };
}

/** Rejects with `unavailable` (503) if the service stops before new credentials are there. */
export async function credentialsOf(
  { credentials, waits }: ProxyState,
  connection: LiveConnection,
): Promise<Credentials> {
  return credentials.current(connection) ?? waits.orStop(credentials.fresh(connection));
}

/** A call with everything that its first request needs. */
export type ReadyCall = {
  readonly call: Call;
  readonly caller: ProxyCaller;
  readonly connection: LiveConnection;
  readonly credentials: Credentials;
};

/** A call as `forward` and the retries use it. */
export class Exchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly trace: CallTrace;
  /** The async context of the call: sockets are shared, so their callbacks do not run in it. */
  readonly cause: Cause;
  /** Undefined unless the call is traced. */
  readonly spans: AttemptSpans | undefined;
  readonly outbound: Outbound;
  readonly waits: Waits;
  readonly call: Call;
  readonly method: string;
  readonly isTest: boolean;
  readonly timeouts: Timeouts;
  /** The maximum size of the caller's body, and separately of the response's; `Infinity`: no limit. */
  readonly maxBytes: number;
  readonly first: Attempt;
  readonly #state: ProxyState;
  readonly #isTicket: boolean;
  /** Whether a page of the dashboard calls, with a cookie. */
  readonly #isOfPage: boolean;
  #proxyRequest: ProxyRequest;
  #credentials: Credentials;
  #permit: Permit | undefined;
  #quotaWaitMs: number;

  /** Throws the errors of `attemptWith`, and those of a caller that may not use this connection. */
  constructor(
    state: ProxyState,
    inFlight: InFlightCall,
    { call, caller, connection, credentials }: ReadyCall,
  ) {
    const { isTest, provider } = connection.integration;
    const { timeouts } = provider.api;
    const { span } = inFlight.cause;
    this.request = inFlight.request;
    this.response = inFlight.response;
    this.trace = inFlight.trace;
    this.cause = inFlight.cause;
    this.outbound = state.outbound;
    this.waits = state.waits;
    this.call = call;
    this.method = this.request.method ?? '';
    this.isTest = isTest;
    this.timeouts = {
      connectMs: call.timeouts.connectMs ?? timeouts.connect_ms,
      headersMs: call.timeouts.headersMs ?? timeouts.headers_ms,
      bodyIdleMs: call.timeouts.bodyIdleMs ?? timeouts.body_idle_ms,
      totalMs: call.timeouts.totalMs ?? timeouts.total_ms,
    };
    this.maxBytes =
      (caller.kind === 'ticket' ? caller.ticket.maxBytes : undefined) ?? Number.POSITIVE_INFINITY;
    this.spans = span && new AttemptSpans({ method: this.method, provider: provider.name, parent: span });
    this.#state = state;
    this.#isTicket = caller.kind === 'ticket';
    this.#isOfPage = caller.kind === 'user';
    this.#quotaWaitMs = call.quotaWaitMs ?? defaultWaitMs;
    this.#credentials = credentials;
    this.#proxyRequest = this.#proxyRequestOf(caller, connection);
    this.first = attemptWith(credentials, this.#proxyRequest);
  }

  /** Throws `proxy_rule_denied` (403) for a ticket of another connection, `unknown_connection` for a run of another. */
  #proxyRequestOf(caller: ProxyCaller, connection: LiveConnection): ProxyRequest {
    if (caller.kind === 'ticket') requireSameConnection(caller.ticket, connection);
    if (caller.kind === 'key' && (caller.connectionRow ?? connection.id) !== connection.id)
      throw new AppError('unknown_connection');
    return {
      connection,
      brand: this.#state.brand,
      method: this.method,
      rules: rulesOf(caller, connection),
      rawUrl: this.request.url ?? '',
      rawHeaders: this.request.rawHeaders,
      override: this.call.override,
    };
  }

  /** The minimum waits before a retry, if the provider's definition has any. */
  get minRetryWaitMs(): ProviderDefinition['api']['retry_wait_ms'] {
    return this.#proxyRequest.connection.integration.provider.api.retry_wait_ms;
  }

  /** Whether `renew` can return an attempt. */
  get canRenew(): boolean {
    return isRenewable(this.#credentials);
  }

  /**
   * The first request with the present caller, rules and credentials. Rejects with the error of a new call:
   * `unknown_account` (401), `unknown_connection` (400), `proxy_rule_denied` (403) and so on.
   */
  async current(): Promise<Attempt> {
    const proxyRequest = await this.#reauthorize();
    const credentials = await credentialsOf(this.#state, proxyRequest.connection);
    return this.#attemptAt(proxyRequest, credentials);
  }

  /** The attempt after a 401 from the provider; undefined: the caller gets the 401. Rejects as `current` does. */
  async renew(): Promise<Attempt | undefined> {
    const { credentials, waits } = this.#state;
    const renewed = await waits.orStop(credentials.renewed(this.#proxyRequest.connection, this.#credentials));
    return renewed && this.#attemptAt(await this.#reauthorize(), renewed);
  }

  async #reauthorize(): Promise<ProxyRequest> {
    const caller = await callerOf(this.#state, this.request);
    const connection = await this.#state.connections.get(connectionKeyOf(caller, this.call));
    return this.#proxyRequestOf(caller, connection);
  }

  #attemptAt(proxyRequest: ProxyRequest, credentials: Credentials): Attempt {
    this.#proxyRequest = proxyRequest;
    this.#credentials = credentials;
    return attemptWith(credentials, proxyRequest);
  }

  /** The target of a redirect; undefined: the caller gets the redirect. */
  follow(location: string, before: Attempt): Attempt | undefined {
    const proxyRequest = this.#proxyRequest;
    if (proxyRequest.connection.integration.provider.api.redirects !== 'same_origin') return undefined;
    return attemptAfterRedirect(location, { before, credentials: this.#credentials, proxyRequest });
  }

  /** The permit of the provider's quota for one request; undefined: no limit. */
  admit({ origin, path }: Attempt): Permit | undefined {
    const { connection, override, brand } = this.#proxyRequest;
    const { quota } = connection.integration.provider.api;
    if (quota === undefined || this.#state.quota === undefined) return undefined;
    // Calls to another address do not count for the quota of this API.
    if (override && URL.parse(origin)?.host !== quota.service) return undefined;
    // The waits of all attempts together are limited.
    this.#quotaWaitMs = Math.max(0, this.#quotaWaitMs - (this.#permit?.waitedMs ?? 0));
    const isSync = this.request.headers[`${brand.word}-is-sync`] === 'true';
    this.#permit = this.#state.quota.admit({
      connection,
      method: this.method,
      path,
      priority: isSync ? 'background' : 'interactive',
      waitMs: this.#quotaWaitMs,
    });
    return this.#permit;
  }

  /** Our own headers for a response that is written now. */
  get ownHeaders(): readonly string[] {
    return this.#isOfPage ? this.#state.pageHeaders : this.#state.ownHeaders;
  }

  /** The provider's headers as the caller gets them. Throws if the response cannot be relayed. */
  responseHeaders(rawHeaders: readonly string[], from: Attempt): string[] {
    const headers = this.#state.responseRules.headers(rawHeaders, from);
    if (this.#isOfPage) return headersForPage(headers, this.#state.brand);
    return this.#isTicket ? shieldedHeaders(headers) : headers;
  }

  responseTrailers(rawTrailers: readonly string[]): [string, string][] {
    return this.#state.responseRules.trailers(rawTrailers);
  }

  /**
   * For the decision about a retry: a function that derives the effective status from the beginning of the body. Undefined
   * if the head alone decides.
   */
  judge(head: Head): ((parts: readonly Buffer[]) => number) | undefined {
    const { status } = head;
    const { provider } = this.#proxyRequest.connection.integration;
    const permit = this.#permit;
    if (status !== 403 && status !== 429) return undefined;
    if (permit === undefined && provider.api.error_format === undefined) return undefined;
    return (parts) => {
      const sample = new ResponseSample(head);
      for (const part of parts) sample.add(part);
      const sampled = sample.sampled();
      permit?.refused(sampled);
      const { kind } = classifyAnswer(provider, { ...sampled, body: sampled.body.toString() });
      return kind === 'rate_limited' ? 429 : status;
    };
  }

  /**
   * Reports that the provider has accepted the credentials of an unverified connection, or refused those of a verified one.
   * These prove nothing: a host that the operator allows besides the provider's, OPTIONS, which a server may answer without
   * checking credentials, and the first call after a refresh, which is the proof of the new credentials.
   */
  reportProof(status: number): void {
    const { connection } = this.#proxyRequest;
    const isNews = connection.isUnverified ? provesCredentials(status) : status === 401;
    if (!isNews || this.method === 'OPTIONS' || connection.credentials !== this.#credentials) return;
    if (this.first.isForeign) return;
    if (connection.isUnverified) this.#state.credentials.proven(connection);
    else this.#state.credentials.refused(connection);
  }

  /** A watch for the response's body as the provider sent it; it never slows the response. Undefined: not needed. */
  watch(head: Head): ResponseWatch | undefined {
    const { observer } = this.#state;
    const { connection } = this.#proxyRequest;
    const { status } = head;
    // A success has a consequence only for an API that was disabled.
    const isObserved =
      (status >= 400 && status < 500) || connection.integration.fault?.cause === 'api_disabled';
    const permit = status === 429 || status === 403 ? this.#permit : undefined;
    if (!(isObserved && observer) && permit === undefined) return undefined;
    const watch = new ResponseWatch(head, (sampled) => {
      const { origin, path, secretPath = '' } = this.first;
      if (isObserved)
        observer?.observe(connection, { ...sampled, url: origin + path.slice(secretPath.length) });
      permit?.refused(sampled);
    });
    this.response.once('close', () => watch.end());
    return watch;
  }
}

/** How long each phase of a call may take, in ms. */
type Timeouts = {
  /** Until a connection is open and free for this call. */
  readonly connectMs: number;
  /** From then, or from the end of the request's body, to the head of the response. */
  readonly headersMs: number;
  /** Between two parts of either body, and for the caller to read the parts that have arrived. */
  readonly bodyIdleMs: number;
  /** From the call's arrival to the last byte of the response, attempts and waits included; undefined: no limit. */
  readonly totalMs: number | undefined;
};

/** Our own headers of a call. */
type Call = {
  readonly integrationKey: string;
  readonly connectionId: string;
  readonly override: string | undefined;
  readonly isDecoded: boolean;
  /** The number of attempts after the first. */
  readonly retries: number;
  /** Statuses that are retried in addition to the usual ones. */
  readonly retryOn: ReadonlySet<number> | undefined;
  readonly timeouts: Partial<Timeouts>;
  /** How long the call may wait for the provider's quota; undefined: the default. */
  readonly quotaWaitMs: number | undefined;
};

const phases = { connect: 'connectMs', headers: 'headersMs', idle: 'bodyIdleMs', total: 'totalMs' } as const;
const maxPhaseMs = 3_600_000;

const callHeaders = z.object({
  'provider-config-key': z.string().min(1),
  'connection-id': z.string().min(1),
  retries: z
    .string()
    .regex(/^(\d|10)$/, 'must be a whole number from 0 to 10')
    .default('0'),
  'retry-on': z
    .string()
    .regex(/^[45]\d\d(, ?[45]\d\d)*$/, 'must be HTTP statuses from 400 on, separated by commas')
    .optional(),
  'base-url-override': z.string().optional(),
  decompress: z.enum(['true', 'false']).default('false'),
  'quota-wait': z
    .string()
    .regex(/^([0-5]?\d|60)$/, 'must be a whole number of seconds from 0 to 60')
    .optional(),
  timeouts: z
    .string()
    .regex(
      /^(connect|headers|idle|total)=\d{1,4}(\.\d{1,3})?(, ?(connect|headers|idle|total)=\d{1,4}(\.\d{1,3})?)*$/,
      'must name phases and seconds, such as `connect=5, headers=30, idle=60, total=120`',
    )
    .transform(readTimeouts)
    .refine(
      (timeouts) => Object.values(timeouts).every((ms = 0) => ms > 0 && ms <= maxPhaseMs),
      'must be times from 0.001 to 3600 seconds',
    )
    .optional(),
});

const plain = {
  isDecoded: false,
  retries: 0,
  retryOn: undefined,
  timeouts: {},
  quotaWaitMs: undefined,
} as const;

/** Throws `invalid_headers` (400), naming the header. */
export function readCall(headers: IncomingHttpHeaders): Call {
  const { 'provider-config-key': integrationKey, 'connection-id': connectionId } = headers;
  // Most calls have no other header of the service, and skip the schema.
  if (isText(integrationKey) && isText(connectionId) && !hasOptions(headers)) {
    return { ...plain, integrationKey, connectionId, override: textOf(headers['base-url-override']) };
  }
  const read = callHeaders.safeParse(headers);
  if (!read.success) {
    const errors = read.error.issues.map(({ code, message, path }) => ({
      code,
      message,
      // The present name of the header.
      path: path.map((name) => (name === 'provider-config-key' ? 'integration-id' : String(name))),
    }));
    throw new AppError('invalid_headers', undefined, { errors });
  }
  const { data } = read;
  return {
    integrationKey: data['provider-config-key'],
    connectionId: data['connection-id'],
    override: data['base-url-override'],
    isDecoded: data.decompress === 'true',
    retries: Number(data.retries),
    retryOn: data['retry-on'] === undefined ? undefined : new Set(data['retry-on'].split(',').map(Number)),
    timeouts: data.timeouts ?? {},
    quotaWaitMs: data['quota-wait'] === undefined ? undefined : Number(data['quota-wait']) * 1000,
  };
}

function hasOptions(headers: IncomingHttpHeaders): boolean {
  return (
    headers.retries !== undefined ||
    headers['retry-on'] !== undefined ||
    headers.decompress !== undefined ||
    headers['quota-wait'] !== undefined ||
    headers.timeouts !== undefined
  );
}

function readTimeouts(text: string): Partial<Timeouts> {
  const parts = text.split(',').map((part) => part.trim().split('=') as [keyof typeof phases, string]);
  return Object.fromEntries(parts.map(([name, seconds]) => [phases[name], Number(seconds) * 1000]));
}

function isText(value: string | string[] | undefined): value is string {
  return typeof value === 'string' && value !== '';
}

function textOf(value: string | string[] | undefined): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/**
 * The calls that wait before they are sent, for credentials or for a retry, so that a stop of the service can refuse them
 * immediately. `quota/` does the same for the calls that wait for a quota.
 */
export class Waits {
  readonly #waiting = new Set<(error: AppError) => void>();
  #isStopping = false;

  /** Whether no call may begin to wait. */
  get isStopping(): boolean {
    return this.#isStopping;
  }

  /** Calls `refuse` with `unavailable` (503) if the service stops before the returned function is called. */
  begin(refuse: (error: AppError) => void): () => void {
    this.#waiting.add(refuse);
    return () => this.#waiting.delete(refuse);
  }

  /** As `wanted`, but rejects with `unavailable` (503) when the service stops. */
  async orStop<T>(wanted: Promise<T>): Promise<T> {
    const stopped = Promise.withResolvers<never>();
    if (this.#isStopping) stopped.reject(serviceStops());
    const end = this.begin(stopped.reject);
    return Promise.race([wanted, stopped.promise]).finally(end);
  }

  stop(): void {
    this.#isStopping = true;
    for (const refuse of this.#waiting) refuse(serviceStops());
    this.#waiting.clear();
  }
}
