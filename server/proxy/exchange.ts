/** What `forward` is given: one call, by what its parts need to know, and who is told of it. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Outbound } from '../outbound.ts';
import type { Cause } from '../tracing/cause.ts';
import type { Attempt } from './attempt.ts';
import type { AttemptSpans } from './attempt-spans.ts';
import type { Timeouts } from './call.ts';
import type { CallTrace } from './call-log.ts';
import type { Head } from './relay.ts';
import type { RetryRules } from './retry.ts';
import type { Waits } from './waits.ts';
import type { Watch } from './watch.ts';

/** One call, and the way out. */
export type Exchange = Terms &
  Attempts &
  Answers &
  Told & {
    readonly request: IncomingMessage;
    readonly response: ServerResponse;
    readonly outbound: Outbound;
    /** Is told how long the call waits before it is sent again. */
    readonly waits: Waits;
    /** What the call is as a cause: sockets are shared, and what they call back knows of no call. */
    readonly cause: Cause;
  };

/** What its caller wants, and its integration's definition says: settled when it comes in. */
export type Terms = {
  readonly method: string;
  readonly isTest: boolean;
  /** Whether a second request does no more than the first: the only ones that are tried again. */
  readonly isRepeatable: boolean;
  readonly timeouts: Timeouts;
  readonly retry: RetryRules;
  readonly isDecoded: boolean;
  /** Of the caller's body, and again of the answer's; `Infinity`: no limit. */
  readonly maxBytes: number;
};

/** The requests that it can take. */
export type Attempts = {
  readonly first: Attempt;
  /** Whether `renew` can ever give anything: such credentials can be renewed. */
  readonly canRenew: boolean;
  /**
   * The first request as it would be made now, with the caller, the rules and the credentials of now. Throws what a new
   * call would get: `unknown_account` (401), `unknown_connection` (400), `proxy_rule_denied` (403) and so on.
   */
  anew(): Promise<Attempt>;
  /** What to try once more after a 401 from the provider; undefined: the 401 is the answer. Throws as `anew` does. */
  renew(): Promise<Attempt | undefined>;
  /** Where a redirect leads; undefined: it is the caller's to follow. */
  follow(location: string, from: Attempt): Attempt | undefined;
  /** The provider's quota for one request there; undefined: nothing limits it. */
  admit(attempt: Attempt): Admission | undefined;
};

/** What becomes of the provider's answers. */
type Answers = {
  /** Ours, for every answer that is written now. */
  readonly ownHeaders: readonly string[];
  /** The provider's headers as the caller gets them. Throws where the answer cannot be relayed. */
  answerHeaders(rawHeaders: readonly string[], from: Attempt): string[];
  answerTrailers(rawTrailers: readonly string[]): [string, string][];
  /**
   * Asked before an answer is tried again: where its body says more than its head, judges it by the body's beginning.
   * The status it amounts to.
   */
  judge(head: Head): ((parts: readonly Buffer[]) => number) | undefined;
  /** Who wants to see an answer's body, as the provider sent it. Never slows it. */
  watch(head: Head): Watch | undefined;
};

/** Who is told of it. */
type Told = {
  /** Undefined while nothing is traced. */
  readonly spans: AttemptSpans | undefined;
  readonly trace: Pick<
    CallTrace,
    'ageMs' | 'phaseMs' | 'queued' | 'sent' | 'connected' | 'retried' | 'answered' | 'ended'
  >;
  /** The answer has been written, or can no longer be. */
  ended(outcome: Outcome): void;
  /**
   * Nothing has been written, and nothing will be: `upstream_unreachable`, `upstream_unknown_outcome`,
   * `upstream_timeout`, `upstream_unreadable`, `address_not_allowed`, `ticket_bytes_exceeded`, `request_timeout`,
   * `invalid_body`, `unsupported_transfer_coding`, or what `anew`, `renew` and `admit` failed with.
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
