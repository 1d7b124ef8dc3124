import { useCallback, useEffect, useRef, useState } from 'react';
import { type ConnectOptions, connect as connectAccount } from '../connect/connect.ts';
import type { Connected } from '../connect/progress.ts';
import { canFinish, finishConnect } from '../connect/redirect.ts';

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
 * With `mode: 'redirect'` the component that comes back is `connecting` until it knows what came of it. A component that is
 * taken away closes its window.
 */
export function useConnect(options: UseConnectOptions): UseConnect {
  const [state, setState] = useState<State>(idle);
  const latest = useRef(options);
  const running = useRef<AbortController>(undefined);
  useEffect(() => {
    latest.current = options;
  });

  const follow = useCallback(
    async (outcome: Promise<Connected | undefined>, own: AbortController): Promise<Connected | undefined> => {
      setState(connecting);
      const settle = (next: State) => {
        if (running.current !== own) return;
        running.current = undefined;
        setState(next);
      };
      try {
        const connection = await outcome;
        settle(connection === undefined ? idle : { status: 'connected', connection, error: undefined });
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
    const own = new AbortController();
    running.current = own;
    const { getToken: token, ...given } = latest.current;
    return follow(connectAccount({ ...given, token, signal: own.signal }), own);
  }, [follow]);

  const cancel = useCallback(() => {
    running.current?.abort();
    running.current = undefined;
    setState(idle);
  }, []);

  const isRedirect = options.mode === 'redirect';
  useEffect(() => {
    // Where there is nothing to tell it stays as it was: a component that is shown again keeps what it told.
    if (isRedirect && running.current === undefined && canFinish()) {
      const own = new AbortController();
      running.current = own;
      void follow(finishConnect(), own);
    }
    // Also where `mode` changes, and where React takes a component away that it may show again.
    return () => {
      if (running.current !== undefined) cancel();
    };
  }, [isRedirect, follow, cancel]);

  return { ...state, connect, cancel };
}
