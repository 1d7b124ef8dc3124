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
import { askNow, credentialsOf, type Knowing } from './asked.ts';
import { type Ask, type Attempt, attemptAfterRedirect, attemptWith } from './attempt.ts';
import { AttemptSpans } from './attempt-spans.ts';
import type { Call, Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import type { Admission, Exchange, Outcome } from './exchange.ts';
import type { Pass } from './quota/pass.ts';
import { type Quota, usualWaitMs } from './quota/quota.ts';
import type { Head } from './relay.ts';
import { isIdempotent, type RetryRules } from './retry.ts';
import { Sample } from './sample.ts';
import { headersForPage, shieldedHeaders } from './ticket-limits.ts';
import type { Waits } from './waits.ts';
import { Watch } from './watch.ts';

type Given = {
  readonly room: Knowing & {
    readonly outbound: Outbound;
    readonly credentials: Pick<CredentialSource, 'renewed'>;
    readonly observer?: Pick<Observer, 'wants' | 'observe'>;
    readonly quota?: Pick<Quota, 'admit'>;
    readonly answers: AnswerRules;
    readonly ownHeaders: readonly string[];
    readonly pageHeaders: readonly string[];
  };
  readonly call: Call;
  readonly ask: Ask;
  readonly credentials: Credentials;
  readonly first: Attempt;
  /** What the caller called with, where it was no key. */
  readonly ticket: TicketRights | undefined;
  /** Whether a page of ours calls, with a cookie. */
  readonly isOfPage: boolean;
  readonly arrival: {
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
export class ProxiedCall implements Exchange {
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
  #ask: Ask;
  #credentials: Credentials;
  #pass: Pass | undefined;
  #quotaWaitMs: number;

  constructor(given: Given) {
    const { room, call, ask, arrival } = given;
    const { integration } = ask.connection;
    const { timeouts, retry_wait_ms } = integration.provider.api;
    this.#given = given;
    this.#ask = ask;
    this.#credentials = given.credentials;
    this.#quotaWaitMs = call.quotaWaitMs ?? usualWaitMs;
    this.request = arrival.request;
    this.response = arrival.response;
    this.outbound = room.outbound;
    this.method = ask.method;
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
    this.trace = arrival.trace;
    this.cause = arrival.cause;
    const { span } = arrival.cause;
    const provider = integration.provider.name;
    this.spans = span && new AttemptSpans({ method: this.method, provider, parent: span });
  }

  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[] {
    const { room, ticket, isOfPage } = this.#given;
    const headers = room.answers.headers(rawHeaders, from);
    if (isOfPage) return headersForPage(headers, this.#ask.brand);
    return ticket === undefined ? headers : shieldedHeaders(headers);
  }

  answerTrailers(rawTrailers: readonly string[]): [string, string][] {
    return this.#given.room.answers.trailers(rawTrailers);
  }

  get ownHeaders(): readonly string[] {
    const { room, isOfPage } = this.#given;
    return isOfPage ? room.pageHeaders : room.ownHeaders;
  }

  get waits(): Waits {
    return this.#given.room.waits;
  }

  get canRenew(): boolean {
    return isRenewable(this.#credentials);
  }

  async anew(): Promise<Attempt> {
    const { room } = this.#given;
    const ask = await this.#askNow();
    const credentials = await credentialsOf(room, ask.connection);
    return this.#attemptAt(ask, credentials);
  }

  async renew(): Promise<Attempt | undefined> {
    const { room } = this.#given;
    const wanted = room.credentials.renewed(this.#ask.connection, this.#credentials);
    const renewed = await room.waits.orStop(wanted);
    return renewed && this.#attemptAt(await this.#askNow(), renewed);
  }

  #askNow(): Promise<Ask> {
    const { room, call, arrival } = this.#given;
    return askNow(room, { call, request: arrival.request });
  }

  #attemptAt(ask: Ask, credentials: Credentials): Attempt {
    this.#ask = ask;
    this.#credentials = credentials;
    return attemptWith(credentials, ask);
  }

  follow(location: string, before: Attempt): Attempt | undefined {
    const ask = this.#ask;
    if (ask.connection.integration.provider.api.redirects !== 'same_origin') return undefined;
    return attemptAfterRedirect(location, { before, credentials: this.#credentials, ask });
  }

  admit({ origin, path }: Attempt): Admission | undefined {
    const { room } = this.#given;
    const { connection, override, brand } = this.#ask;
    const { quota } = connection.integration.provider.api;
    if (quota === undefined || room.quota === undefined) return undefined;
    // At another address the calls are not counted as this API's.
    if (override && URL.parse(origin)?.host !== quota.service) return undefined;
    // What one attempt has waited is not there for the next.
    this.#quotaWaitMs = Math.max(0, this.#quotaWaitMs - (this.#pass?.waitedMs ?? 0));
    const isSync = this.request.headers[`${brand.word}-is-sync`] === 'true';
    const pass = room.quota.admit({
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
    const { provider } = this.#ask.connection.integration;
    const pass = this.#pass;
    if (status !== 403 && status !== 429) return undefined;
    if (pass === undefined && provider.api.error_format === undefined) return undefined;
    return (parts) => {
      const sample = new Sample(head);
      for (const part of parts) sample.add(part);
      const answer = sample.answer();
      pass?.refused(answer);
      const { kind } = judgeAnswer(provider, { ...answer, body: answer.body.toString() });
      return kind === 'rate_limited' ? 429 : status;
    };
  }

  watch(head: Head): Watch | undefined {
    const { observer } = this.#given.room;
    const { connection } = this.#ask;
    const isObserved = observer?.wants(connection, head.status) === true;
    const pass = head.status === 429 || head.status === 403 ? this.#pass : undefined;
    if (!isObserved && pass === undefined) return undefined;
    const watch = new Watch(head, (answer) => {
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
