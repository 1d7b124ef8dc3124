import { useCallback, useEffect, useRef, useState } from 'react';
import { type ConnectOptions, connect as connectAccount } from '../connect/connect.ts';
import type { Connected } from '../connect/progress.ts';
import { findReturn, isFinal, whoOf } from '../connect/redirect.ts';

export type UseConnectOptions = Omit<ConnectOptions, 'token' | 'signal'> & {
  /** Asks your server for the token of a new connect session. */
  getToken: () => string | PromiseLike<string>;
};

export type UseConnect = {
  /**
   * Begins; call it in the click itself. Resolves with the connection, or undefined where there is none: `error` says why.
   * While one is under way a further call begins nothing.
   */
  connect: () => Promise<Connected | undefined>;
  status: 'idle' | 'connecting' | 'connected' | 'failed';
  /** What was connected last. */
  connection: Connected | undefined;
  /** A `ConnectError`, or what `getToken` has thrown. */
  error: unknown;
  /** Closes the window or the frame, and goes back to `idle`. */
  cancel: () => void;
};

/** What is under way: how it is ended, and how it is forgotten what came of a redirect. */
type Running = { end?: () => void; forget?: () => void };
type State = Pick<UseConnect, 'status' | 'connection' | 'error'>;
const idle: State = { status: 'idle', connection: undefined, error: undefined };
const connecting: State = { ...idle, status: 'connecting' };

/**
 * Connecting an account from a component:
 *
 * ```tsx
 * const { connect, status, error } = useConnect({ url, getToken: () => fetch('/session').then((answer) => answer.text()) });
 * return <button onClick={connect} disabled={status === 'connecting'}>Connect</button>;
 * ```
 *
 * With `mode: 'redirect'` the component that comes back is `connecting` until it knows what came of it. Where a page has several,
 * each hears of what went with its own `id`, or else with its `integration`. A component that is taken away closes its window;
 * what came of a redirect waits until one has shown it.
 */
export function useConnect(options: UseConnectOptions): UseConnect {
  const [state, setState] = useState<State>(idle);
  const latest = useRef(options);
  const running = useRef<Running>(undefined);
  /** To be forgotten once it is shown: a component may be taken away in between. */
  const told = useRef<(() => void) | undefined>(undefined);
  useEffect(() => {
    latest.current = options;
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: it runs when a state is shown.
  useEffect(() => {
    told.current?.();
    told.current = undefined;
  }, [state]);

  const follow = useCallback(
    async (outcome: Promise<Connected>, own: Running): Promise<Connected | undefined> => {
      setState(connecting);
      const settle = (next: State) => {
        if (running.current !== own) return;
        running.current = undefined;
        if (next.status === 'connected' || isFinal(next.error)) told.current = own.forget;
        setState(next);
      };
      try {
        const connection = await outcome;
        settle({ status: 'connected', connection, error: undefined });
        return connection;
      } catch (error) {
        settle({ status: 'failed', connection: undefined, error });
        return undefined;
      }
    },
    [],
  );

  const connect = useCallback(async () => {
    if (running.current !== undefined) return undefined;
    const stop = new AbortController();
    const own = { end: () => stop.abort() };
    running.current = own;
    const { getToken: token, ...given } = latest.current;
    return follow(connectAccount({ ...given, token, signal: stop.signal }), own);
  }, [follow]);

  const leave = useCallback(() => {
    running.current?.end?.();
    running.current = undefined;
    setState(idle);
  }, []);
  const cancel = useCallback(() => {
    running.current?.forget?.();
    leave();
  }, [leave]);

  const isRedirect = options.mode === 'redirect';
  const who = whoOf(options);
  useEffect(() => {
    // Where there is nothing to tell it stays as it was: a component that is shown again keeps what it told.
    const found = isRedirect && running.current === undefined ? findReturn(who) : undefined;
    if (found === undefined) return;
    const own = { forget: found.forget };
    running.current = own;
    void follow(found.outcome(), own);
    return () => {
      if (running.current === own) leave();
    };
  }, [isRedirect, who, follow, leave]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: also where `mode` changes.
  useEffect(() => {
    // Also where React takes a component away that it may show again.
    return () => {
      if (running.current !== undefined) leave();
    };
  }, [isRedirect, leave]);

  return { ...state, connect, cancel };
}
