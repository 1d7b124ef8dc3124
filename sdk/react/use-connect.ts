import { useCallback, useEffect, useRef, useState } from 'react';
import { type ConnectOptions, connect as connectAccount } from '../connect/connect.ts';
import type { Connected } from '../connect/progress.ts';
import { findReturnedFlow, flowIdOf, isFinal } from '../connect/redirect.ts';

export type UseConnectOptions = Omit<ConnectOptions, 'token' | 'signal'> & {
  /** Returns the token of a new connect session, which your server creates. */
  getToken: () => string | PromiseLike<string>;
};

export type UseConnect = {
  /**
   * Starts connecting; call it in the click handler. Resolves with the connection, or with undefined if there is none:
   * `error` has the reason. While an attempt is in progress, a further call does nothing.
   */
  connect: () => Promise<Connected | undefined>;
  status: 'idle' | 'connecting' | 'connected' | 'failed';
  /** The account that was connected last. */
  connection: Connected | undefined;
  /** A `ConnectError`, or the error that `getToken` threw. */
  error: unknown;
  /** Closes the window or the frame, and sets `status` to `idle`. */
  cancel: () => void;
};

/** The attempt in progress: `abort` ends it, `remove` deletes the stored flow of a redirect. */
type Attempt = { abort?: () => void; remove?: () => void };
type State = Pick<UseConnect, 'status' | 'connection' | 'error'>;
const idle: State = { status: 'idle', connection: undefined, error: undefined };
const connecting: State = { ...idle, status: 'connecting' };

/**
 * Connects an account from a component:
 *
 * ```tsx
 * const { connect, status, error } = useConnect({ url, getToken: () => fetch('/session').then((response) => response.text()) });
 * return <button onClick={connect} disabled={status === 'connecting'}>Connect</button>;
 * ```
 *
 * With `mode: 'redirect'`, `status` is `connecting` after the user returns, until the result is known. If a page has several
 * components, each receives the result of the flow with its `id`, or else with its `integration`. Unmounting a component
 * closes its window. The result of a redirect is kept until a component has rendered it.
 */
export function useConnect(options: UseConnectOptions): UseConnect {
  const [state, setState] = useState<State>(idle);
  const latest = useRef(options);
  const current = useRef<Attempt>(undefined);
  /** Deletes a stored flow after its result was rendered: the component may be unmounted before. */
  const removeRendered = useRef<(() => void) | undefined>(undefined);
  useEffect(() => {
    latest.current = options;
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: it runs after each state was rendered.
  useEffect(() => {
    removeRendered.current?.();
    removeRendered.current = undefined;
  }, [state]);

  const follow = useCallback(
    async (result: Promise<Connected>, attempt: Attempt): Promise<Connected | undefined> => {
      setState(connecting);
      const settle = (next: State) => {
        if (current.current !== attempt) return;
        current.current = undefined;
        if (next.status === 'connected' || isFinal(next.error)) removeRendered.current = attempt.remove;
        setState(next);
      };
      try {
        const connection = await result;
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
    if (current.current !== undefined) return undefined;
    const controller = new AbortController();
    const attempt = { abort: () => controller.abort() };
    current.current = attempt;
    const { getToken: token, ...others } = latest.current;
    return follow(connectAccount({ ...others, token, signal: controller.signal }), attempt);
  }, [follow]);

  const reset = useCallback(() => {
    current.current?.abort?.();
    current.current = undefined;
    setState(idle);
  }, []);
  const cancel = useCallback(() => {
    current.current?.remove?.();
    reset();
  }, [reset]);

  const isRedirect = options.mode === 'redirect';
  const flowId = flowIdOf(options);
  useEffect(() => {
    // Without a returned flow the state does not change: a remounted component keeps its result.
    const flow = isRedirect && current.current === undefined ? findReturnedFlow(flowId) : undefined;
    if (flow === undefined) return;
    const attempt = { remove: flow.remove };
    current.current = attempt;
    void follow(flow.result(), attempt);
    return () => {
      if (current.current === attempt) reset();
    };
  }, [isRedirect, flowId, follow, reset]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a change of `mode` also ends the attempt.
  useEffect(() => {
    // Also runs when React unmounts a component that it may mount again.
    return () => {
      if (current.current !== undefined) reset();
    };
  }, [isRedirect, reset]);

  return { ...state, connect, cancel };
}
