import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply } from 'fastify';
import type { Credentials } from '../auth-modes/mode.ts';
import type { CredentialSource } from '../connections/credentials.ts';
import type { Observer } from '../connections/observe.ts';
import type { Outbound } from '../outbound.ts';
import { type Ask, type Attempt, attemptAfterRedirect, attemptWith } from './attempt.ts';
import type { Call, Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import type { Admission, Exchange } from './forward.ts';
import type { AnswerRules } from './headers.ts';
import type { Pass } from './quota/pass.ts';
import { type Quota, usualWaitMs } from './quota/quota.ts';
import type { Head } from './relay.ts';
import { isIdempotent, type RetryRules } from './retry.ts';
import { Sample } from './watch.ts';

type Given = {
  readonly room: {
    readonly outbound: Outbound;
    readonly credentials: Pick<CredentialSource, 'renewed'>;
    readonly observer?: Pick<Observer, 'wants' | 'observe'>;
    readonly quota?: Pick<Quota, 'admit'>;
    readonly answers: AnswerRules;
    readonly ownHeaders: readonly string[];
  };
  readonly call: Call;
  readonly ask: Ask;
  readonly credentials: Credentials;
  readonly first: Attempt;
  readonly reply: FastifyReply;
  readonly trace: CallTrace;
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
  readonly ownHeaders: readonly string[];
  readonly trace: CallTrace;
  readonly #given: Given;
  #credentials: Credentials;
  #pass: Pass | undefined;

  constructor(given: Given) {
    const { room, call, ask, reply } = given;
    const { integration } = ask.connection;
    const { timeouts, retry_wait_ms } = integration.provider.api;
    this.#given = given;
    this.#credentials = given.credentials;
    this.request = reply.request.raw;
    this.response = reply.raw;
    this.outbound = room.outbound;
    this.method = reply.request.method;
    this.isTest = integration.isTest;
    this.isRepeatable = isIdempotent(this.method) || this.request.headers['idempotency-key'] !== undefined;
    this.first = given.first;
    this.timeouts = {
      connectMs: call.timeouts.connectMs ?? timeouts.connect_ms,
      headersMs: call.timeouts.headersMs ?? timeouts.headers_ms,
      bodyIdleMs: call.timeouts.bodyIdleMs ?? timeouts.body_idle_ms,
      totalMs: call.timeouts.totalMs ?? timeouts.total_ms,
    };
    this.retry = { times: call.retries, statuses: call.retryOn, shortestMs: retry_wait_ms };
    this.isDecoded = call.isDecoded;
    this.ownHeaders = room.ownHeaders;
    this.trace = given.trace;
  }

  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[] {
    return this.#given.room.answers.headers(rawHeaders, from);
  }

  async renew(): Promise<Attempt | undefined> {
    const { room, ask } = this.#given;
    const renewed = await room.credentials.renewed(ask.connection, this.#credentials);
    if (renewed === undefined) return undefined;
    this.#credentials = renewed;
    return attemptWith(renewed, ask);
  }

  follow(location: string, before: Attempt): Attempt | undefined {
    const { ask } = this.#given;
    if (ask.connection.integration.provider.api.redirects !== 'same_origin') return undefined;
    return attemptAfterRedirect(location, { before, credentials: this.#credentials, ask });
  }

  admit({ origin, path }: Attempt): Admission | undefined {
    const { room, ask, call } = this.#given;
    const { connection, override } = ask;
    const { quota } = connection.integration.provider.api;
    if (quota === undefined || room.quota === undefined) return undefined;
    // At another address the calls are not counted as this API's.
    if (override && URL.parse(origin)?.host !== quota.service) return undefined;
    const pass = room.quota.admit({
      connection,
      method: this.method,
      path,
      priority: 'interactive',
      waitMs: call.quotaWaitMs ?? usualWaitMs,
    });
    this.#pass = pass;
    return pass;
  }

  watch(head: Head): ((part: Buffer) => void) | undefined {
    const { room, ask } = this.#given;
    const { observer } = room;
    const isObserved = observer?.wants(ask.connection, head.status) === true;
    const pass = head.status === 429 || head.status === 403 ? this.#pass : undefined;
    if (!isObserved && pass === undefined) return undefined;
    const sample = new Sample(head, { url: this.first.origin + this.first.path });
    this.response.once('close', () => {
      const answer = sample.answer();
      if (isObserved) observer?.observe(ask.connection, answer);
      pass?.refused(answer);
    });
    return (part) => sample.add(part);
  }

  takeOver(): void {
    this.#given.reply.hijack();
  }
}
