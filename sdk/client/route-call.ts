import type { Routes } from './routes.ts';

/** The routes of the interface that `request` takes; a provider is called by `connection(...).fetch`. */
export type Route = Exclude<keyof Routes, `${string} /proxy/${string}`>;
/** The JSON that a route answers. */
export type Answer<R extends keyof Routes> = Routes[R]['answer'];
/** The JSON that a route takes. */
export type Body<R extends keyof Routes> = Routes[R]['body'];
/** What a route takes behind the `?`. */
export type Query<R extends keyof Routes> = Routes[R]['query'];

/** What can be said of every call. */
export type CallOptions = {
  /** Ends the call; it rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
  /** How long the call may take, attempts and pauses included; in place of the client's own. */
  timeoutMs?: number | undefined;
  /** Further attempts, in place of the client's own. */
  retries?: number | undefined;
};

/** Parts that a route does not take may be left out; those with a required field may not. */
type Part<Name extends string, T> = [T] extends [Record<string, never> | undefined]
  ? unknown
  : [Record<string, never>] extends [T]
    ? { [N in Name]?: T }
    : { [N in Name]: T };

/** `path`, `query`, `headers` and `body` of a route, those that it has. */
export type Given<R extends Route> = Part<'path', Routes[R]['path']> &
  Part<'query', Routes[R]['query']> &
  Part<'headers', Routes[R]['headers']> &
  Part<'body', Routes[R]['body']>;

/** The last argument of `request`, which may be left out where nothing in it is required. */
export type Arguments<R extends Route> =
  Record<string, never> extends Given<R> ? [given?: Given<R> & CallOptions] : [given: Given<R> & CallOptions];
