import { useCallback, useEffect, useRef, useState } from 'react';
import { type Caller, type Progress, type ProxiedAnswer, sendCall } from './queries.ts';
import type { ProxiedRequest } from './request.ts';

export type CallState =
  | { is: 'idle' }
  | { is: 'running'; progress: Progress }
  | { is: 'cancelled' }
  | { is: 'failed'; error: unknown }
  | { is: 'answered'; answer: ProxiedAnswer };

/** What is to be sent, and, where something comes first that takes its time, after that. */
type Ready = { caller: Caller; request: ProxiedRequest };

/** One call at a time; leaving the page ends it. */
export function useProxiedCall() {
  const [state, setState] = useState<CallState>({ is: 'idle' });
  const running = useRef<AbortController>(undefined);
  useEffect(() => () => running.current?.abort(), []);

  const run = useCallback(async (prepare: (signal: AbortSignal) => Promise<Ready> | Ready) => {
    running.current?.abort();
    const own = new AbortController();
    running.current = own;
    // An answer to a call that is no longer this one changes nothing.
    const tell = (next: CallState) => {
      if (running.current === own) setState(next);
    };
    tell({ is: 'running', progress: { status: undefined, receivedBytes: 0 } });
    try {
      const { caller, request } = await prepare(own.signal);
      const onProgress = (progress: Progress) => tell({ is: 'running', progress });
      tell({ is: 'answered', answer: await sendCall(caller, request, { signal: own.signal, onProgress }) });
    } catch (error) {
      tell(own.signal.aborted ? { is: 'cancelled' } : { is: 'failed', error });
    }
  }, []);
  const cancel = useCallback(() => running.current?.abort(), []);
  const reset = useCallback(() => {
    running.current?.abort();
    running.current = undefined;
    setState({ is: 'idle' });
  }, []);
  return { state, run, cancel, reset };
}
