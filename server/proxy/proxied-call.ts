import type { IncomingMessage, ServerResponse } from 'node:http';
import { type Credentials, isRenewable } from '../auth-modes/mode.ts';
import { judgeAnswer } from '../connections/api-faults.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { Observer } from '../connections/observe.ts';
import type { TicketRights } from '../http/caller.ts';
import { firstValue } from '../http/raw-headers.ts';
import type { Outbound } from '../outbound.ts';
import type { Cause } from '../tracing/cause.ts';
import type { AnswerRules } from './answer-headers.ts';
import { type Attempt, attemptAfterRedirect, attemptWith, type ProxyRequest } from './attempt.ts';
import { AttemptSpans } from './attempt-spans.ts';
import type { Call, Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import type { Admission, Outcome, ProxyExchange } from './exchange.ts';
import type { Permit } from './quota/permit.ts';
import { type Quota, usualWaitMs } from './quota/quota.ts';
import type { Head } from './relay.ts';
import { type CallDeps, credentialsOf, reauthorize } from './resolve-call.ts';
import { ResponseSample, ResponseWatch } from './response-sample.ts';
import { isIdempotent, type RetryRules } from './retry.ts';
import { headersForPage, shieldedHeaders } from './ticket-limits.ts';
import type { Waits } from './waits.ts';

type Given = {
  readonly state: CallDeps & {
    readonly outbound: Outbound;
    readonly credentials: Pick<CredentialSource, 'renewed'>;
    readonly observer?: Pick<Observer, 'wants' | 'observe'>;
    readonly quota?: Pick<Quota, 'admit'>;
    readonly answers: AnswerRules;
    readonly ownHeaders: readonly string[];
    readonly pageHeaders: readonly string[];
  };
  readonly call: Call;
  readonly proxyRequest: ProxyRequest;
  readonly credentials: Credentials;
  readonly first: Attempt;
  /** What the caller called with, where it was no key. */
  readonly ticket: TicketRights | undefined;
  /** Whether a page of ours calls, with a cookie. */
  readonly isOfPage: boolean;
  readonly inFlight: {
    readonly request: IncomingMessage;
    readonly response: ServerResponse;
    readonly trace: CallTrace;
    readonly cause: Cause;
  };
  /** Called once, when nothing more happens. */
  ended(outcome: Outcome): void;
  failed(error: unknown): void;
};

/** A call of the proxy as `forward` wants it: a connection, its credentials, and what the caller asked for. */
export class ProxiedCall implements ProxyExchange {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly outbound: Outbound;
  readonly method: string;
  readonly isTest: boolean;
  readonly isRepeatable: boolean;
  readonly first: Attempt;
  readonly timeouts: Timeouts;
  readonly retry: RetryRules;
  readonly isDecoded: boolean;
  readonly maxBytes: number;
  readonly trace: CallTrace;
  readonly cause: Cause;
  readonly spans: AttemptSpans | undefined;
  readonly #given: Given;
  #request: ProxyRequest;
  #credentials: Credentials;
  #pass: Permit | undefined;
  #quotaWaitMs: number;

  constructor(given: Given) {
    const { state, call, proxyRequest, inFlight } = given;
    const { integration } = proxyRequest.connection;
    const { timeouts, retry_wait_ms } = integration.provider.api;
    this.#given = given;
    this.#request = proxyRequest;
    this.#credentials = given.credentials;
    this.#quotaWaitMs = call.quotaWaitMs ?? usualWaitMs;
    this.request = inFlight.request;
    this.response = inFlight.response;
    this.outbound = state.outbound;
    this.method = proxyRequest.method;
    this.isTest = integration.isTest;
    this.isRepeatable = isIdempotent(this.method) || hasIdempotencyKey(given.first);
    this.first = given.first;
    this.timeouts = {
      connectMs: call.timeouts.connectMs ?? timeouts.connect_ms,
      headersMs: call.timeouts.headersMs ?? timeouts.headers_ms,
      bodyIdleMs: call.timeouts.bodyIdleMs ?? timeouts.body_idle_ms,
      totalMs: call.timeouts.totalMs ?? timeouts.total_ms,
    };
    this.retry = { times: call.retries, statuses: call.retryOn, shortestMs: retry_wait_ms };
    this.isDecoded = call.isDecoded;
    this.maxBytes = given.ticket?.maxBytes ?? Number.POSITIVE_INFINITY;
    this.trace = inFlight.trace;
    this.cause = inFlight.cause;
    const { span } = inFlight.cause;
    const provider = integration.provider.name;
    this.spans = span && new AttemptSpans({ method: this.method, provider, parent: span });
  }

  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[] {
    const { state, ticket, isOfPage } = this.#given;
    const headers = state.answers.headers(rawHeaders, from);
    if (isOfPage) return headersForPage(headers, this.#request.brand);
    return ticket === undefined ? headers : shieldedHeaders(headers);
  }

  answerTrailers(rawTrailers: readonly string[]): [string, string][] {
    return this.#given.state.answers.trailers(rawTrailers);
  }

  get ownHeaders(): readonly string[] {
    const { state, isOfPage } = this.#given;
    return isOfPage ? state.pageHeaders : state.ownHeaders;
  }

  get waits(): Waits {
    return this.#given.state.waits;
  }

  get canRenew(): boolean {
    return isRenewable(this.#credentials);
  }

  async current(): Promise<Attempt> {
    const { state } = this.#given;
    const proxyRequest = await this.#reauthorize();
    const credentials = await credentialsOf(state, proxyRequest.connection);
    return this.#attemptAt(proxyRequest, credentials);
  }

  async renew(): Promise<Attempt | undefined> {
    const { state } = this.#given;
    const wanted = state.credentials.renewed(this.#request.connection, this.#credentials);
    const renewed = await state.waits.orStop(wanted);
    return renewed && this.#attemptAt(await this.#reauthorize(), renewed);
  }

  #reauthorize(): Promise<ProxyRequest> {
    const { state, call, inFlight } = this.#given;
    return reauthorize(state, { call, request: inFlight.request });
  }

  #attemptAt(proxyRequest: ProxyRequest, credentials: Credentials): Attempt {
    this.#request = proxyRequest;
    this.#credentials = credentials;
    return attemptWith(credentials, proxyRequest);
  }

  follow(location: string, before: Attempt): Attempt | undefined {
    const proxyRequest = this.#request;
    if (proxyRequest.connection.integration.provider.api.redirects !== 'same_origin') return undefined;
    return attemptAfterRedirect(location, { before, credentials: this.#credentials, proxyRequest });
  }

  admit({ origin, path }: Attempt): Admission | undefined {
    const { state } = this.#given;
    const { connection, override, brand } = this.#request;
    const { quota } = connection.integration.provider.api;
    if (quota === undefined || state.quota === undefined) return undefined;
    // At another address the calls are not counted as this API's.
    if (override && URL.parse(origin)?.host !== quota.service) return undefined;
    // What one attempt has waited is not there for the next.
    this.#quotaWaitMs = Math.max(0, this.#quotaWaitMs - (this.#pass?.waitedMs ?? 0));
    const isSync = this.request.headers[`${brand.word}-is-sync`] === 'true';
    const pass = state.quota.admit({
      connection,
      method: this.method,
      path,
      priority: isSync ? 'background' : 'interactive',
      waitMs: this.#quotaWaitMs,
    });
    this.#pass = pass;
    return pass;
  }

  judge(head: Head): ((parts: readonly Buffer[]) => number) | undefined {
    const { status } = head;
    const { provider } = this.#request.connection.integration;
    const pass = this.#pass;
    if (status !== 403 && status !== 429) return undefined;
    if (pass === undefined && provider.api.error_format === undefined) return undefined;
    return (parts) => {
      const sample = new ResponseSample(head);
      for (const part of parts) sample.add(part);
      const answer = sample.answer();
      pass?.refused(answer);
      const { kind } = judgeAnswer(provider, { ...answer, body: answer.body.toString() });
      return kind === 'rate_limited' ? 429 : status;
    };
  }

  watch(head: Head): ResponseWatch | undefined {
    const { observer } = this.#given.state;
    const { connection } = this.#request;
    const isObserved = observer?.wants(connection, head.status) === true;
    const pass = head.status === 429 || head.status === 403 ? this.#pass : undefined;
    if (!isObserved && pass === undefined) return undefined;
    const watch = new ResponseWatch(head, (answer) => {
      if (isObserved) observer?.observe(connection, { ...answer, url: this.first.origin + this.first.path });
      pass?.refused(answer);
    });
    this.response.once('close', () => watch.end());
    return watch;
  }

  ended(outcome: Outcome): void {
    this.#given.ended(outcome);
  }

  failed(error: Error): void {
    this.#given.failed(error);
  }
}

/** Whether the provider is given one: a header that ends here, or holds nothing, lets nobody recognise the call. */
function hasIdempotencyKey({ headers }: Attempt): boolean {
  return (firstValue(headers, 'idempotency-key') ?? '').trim() !== '';
}
