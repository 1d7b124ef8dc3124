import type { Routes } from './routes.ts';

/** The routes that `request` accepts. Providers are called with `connection(...).fetch`. */
export type Route = Exclude<keyof Routes, `${string} /proxy/${string}`>;
/** The JSON body of the response of a route. */
export type Answer<R extends keyof Routes> = Routes[R]['answer'];
/** The JSON body of the request of a route. */
export type Body<R extends keyof Routes> = Routes[R]['body'];
/** The query parameters of a route. */
export type Query<R extends keyof Routes> = Routes[R]['query'];

/** The options of every call. */
export type CallOptions = {
  /** Aborts the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** The time limit of the call, including retries and pauses. Defaults to the client's. */
  timeoutMs?: number | undefined;
  /** The number of retries. Defaults to the client's. */
  retries?: number | undefined;
};

/** The options of a call that accepts an Idempotency-Key. */
export type KeyedCallOptions = CallOptions & {
  /**
   * The Idempotency-Key of the call: a repeat with the same key returns the first response for 24
   * hours and changes nothing. Defaults to a random key, so that a retry after a lost connection is safe.
   */
  idempotencyKey?: string | undefined;
};

/** A part of a request: required if it has a required field. */
type Part<Name extends string, T> = [T] extends [Record<string, never> | undefined]
  ? unknown
  : [Record<string, never>] extends [T]
    ? { [N in Name]?: T }
    : { [N in Name]: T };

/** The `path`, `query`, `headers` and `body` of a route. */
export type Given<R extends Route> = Part<'path', Routes[R]['path']> &
  Part<'query', Routes[R]['query']> &
  Part<'headers', Routes[R]['headers']> &
  Part<'body', Routes[R]['body']>;

/** The last argument of `request`, which is optional if all its fields are. */
export type Arguments<R extends Route> =
  Record<string, never> extends Given<R>
    ? [parameters?: Given<R> & CallOptions]
    : [parameters: Given<R> & CallOptions];
