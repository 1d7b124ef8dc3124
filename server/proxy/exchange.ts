import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Outbound } from '../outbound.ts';
import type { Cause } from '../tracing/cause.ts';
import type { Attempt } from './attempt.ts';
import type { AttemptSpans } from './attempt-spans.ts';
import type { Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import type { Head } from './relay.ts';
import type { ResponseWatch } from './response-sample.ts';
import type { RetryRules } from './retry.ts';
import type { Waits } from './waits.ts';

/** Everything that `forward` needs to know of one call, and its callbacks. */
export type ProxyExchange = {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly outbound: Outbound;
  /** Receives how long the call waits before it is sent again. */
  readonly waits: Waits;
  /** The async context of the call: sockets are shared, so their callbacks do not run in it. */
  readonly cause: Cause;

  // Fixed when the call comes in, by its caller and its integration's definition.
  readonly method: string;
  readonly isTest: boolean;
  /** Whether a second request has the same effect as one: only such calls are retried. */
  readonly isRepeatable: boolean;
  readonly timeouts: Timeouts;
  readonly retry: RetryRules;
  readonly isDecoded: boolean;
  /** Of the caller's body, and separately of the response's; `Infinity`: no limit. */
  readonly maxBytes: number;

  // The requests that the call may send.
  readonly first: Attempt;
  /** Whether `renew` can return an attempt: the credentials can be renewed. */
  readonly canRenew: boolean;
  /**
   * The first request with the present caller, rules and credentials. Throws what a new call would get:
   * `unknown_account` (401), `unknown_connection` (400), `proxy_rule_denied` (403) and so on.
   */
  current(): Promise<Attempt>;
  /** The attempt after a 401 from the provider; undefined: the 401 is the answer. Throws as `current` does. */
  renew(): Promise<Attempt | undefined>;
  /** The target of a redirect; undefined: the caller follows it. */
  follow(location: string, from: Attempt): Attempt | undefined;
  /** The provider's quota for one request there; undefined: no limit. */
  admit(attempt: Attempt): Admission | undefined;

  // The provider's responses.
  /** Our own headers, for every response that is written now. */
  readonly ownHeaders: readonly string[];
  /** The provider's headers as the caller gets them. Throws if the response cannot be relayed. */
  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[];
  answerTrailers(rawTrailers: readonly string[]): [string, string][];
  /**
   * Called before a retry: if the body says more than the head, returns a function that derives the effective status from
   * the beginning of the body.
   */
  judge(head: Head): ((parts: readonly Buffer[]) => number) | undefined;
  /** A watcher of the response's body as the provider sent it. It never slows the response. */
  watch(head: Head): ResponseWatch | undefined;

  // Callbacks.
  /** Undefined while nothing is traced. */
  readonly spans: AttemptSpans | undefined;
  readonly trace: Pick<
    CallTrace,
    'ageMs' | 'phaseMs' | 'queued' | 'sent' | 'connected' | 'retried' | 'answered' | 'ended'
  >;
  /** The response has been written, or can no longer be. */
  ended(outcome: Outcome): void;
  /**
   * Nothing has been written, and nothing will be: `upstream_unreachable`, `upstream_unknown_outcome`,
   * `upstream_timeout`, `upstream_unreadable`, `address_not_allowed`, `ticket_bytes_exceeded`, `request_timeout`,
   * `invalid_body`, `unsupported_transfer_coding`, or what `current`, `renew` and `admit` threw.
   */
  failed(error: Error): void;
};

/** The right to send one request; see `quota/quota.ts`. */
export type Admission = {
  /** Undefined: at once. Rejects with what the caller is told. */
  readonly ready: Promise<void> | undefined;
  sent(): void;
  /** The request was answered, failed, or will not be made. May be called more than once. */
  end(): void;
  /** Seconds to say where a refusal names none. */
  retryAfterS(head: Head): number | undefined;
};

/** How an exchange ended after its first byte; `client_gone` also before it. `client_stalled`: it did not read on. */
export type Outcome = 'answered' | 'broken_off' | 'client_gone' | 'client_stalled';
