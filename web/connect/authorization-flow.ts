import { useEffect, useRef, useState } from 'react';
import { popupFeatures } from '../../sdk/connect/popup.ts';
import { type CallbackMessage, type Draft, expectNoReturn, expectReturn, type Launch } from './launch.ts';

/**
 * A flow at the provider, from the click to its end. Its end is reported by the opened window, by a broadcast channel
 * if the provider's pages cut the link to that window, or by polling, which works in every browser and with every node.
 * Only the response of the service is trusted: the other two trigger a request.
 */
export type AuthorizationFlow = {
  url: string;
  is: 'away' | 'closed' | 'blocked';
  /** Whether to show the possible reasons for a failure. */
  isLong: boolean;
  /** Incremented for each opened window. */
  turn: number;
};

/**
 * The polling interval while the user is at the provider: longer after a minute, when windows and channels have had
 * time to report.
 */
const pollMs = 2_000;
const pollLaterMs = 5_000;
const oftenForMs = 60_000;
const longAfterMs = 15_000;

export function useAuthorizationFlow(
  launch: Launch,
  on: {
    /** Fetches the progress; resolves to whether the flow is over. */
    poll: () => Promise<boolean>;
    /** What to keep if the authorization takes place in this tab. */
    draft: () => Draft;
    /** The window reported a failure that the service does not have. */
    fail: (message: CallbackMessage) => void;
  },
) {
  const [flow, setFlow] = useState<AuthorizationFlow>();
  const opened = useRef<Window | null>(null);
  const calls = useRef(on);
  calls.current = on;
  const isAway = flow !== undefined && flow.is !== 'blocked';
  const turn = flow?.turn;

  // biome-ignore lint/correctness/useExhaustiveDependencies: each window has its own effect from its start
  useEffect(() => {
    if (!isAway) return;
    const { brand, baseUrl } = launch;
    const [success, failure, ack] = ['success', 'error', 'ack'].map(
      (end) => `${brand}_oauth_callback_${end}`,
    );
    const channel = `${brand}-oauth-callback`;
    const broadcast = new BroadcastChannel(channel);
    let isOver = false;
    const poll = async () => {
      if (isOver || !(await calls.current.poll().catch(() => false))) return isOver;
      isOver = true;
      setFlow(undefined);
      return true;
    };
    const onMessage = async ({ source, origin, data }: MessageEvent<CallbackMessage | undefined>) => {
      if (source === null || source !== opened.current || data === undefined) return;
      if (origin !== new URL(baseUrl).origin && origin !== location.origin) return;
      if (data.type !== success && data.type !== failure) return;
      opened.current?.postMessage({ type: ack }, origin);
      if (!(await poll()) && data.type === failure) {
        isOver = true;
        setFlow(undefined);
        calls.current.fail(data);
      }
    };
    const onBroadcast = async ({ data }: MessageEvent<CallbackMessage | undefined>) => {
      // A broadcast may belong to the flow of another tab.
      if (data?.type !== success || !(await poll())) return;
      // The listening channel is closed with the flow.
      const answer = new BroadcastChannel(channel);
      answer.postMessage({ type: ack });
      answer.close();
    };
    window.addEventListener('message', onMessage);
    broadcast.addEventListener('message', onBroadcast);
    const stopPolling = pollRepeatedly(poll);
    const growing = setTimeout(() => setFlow((now) => now && { ...now, isLong: true }), longAfterMs);
    const looking = setInterval(async () => {
      if (opened.current?.closed !== true) return;
      clearInterval(looking);
      // A provider may have cut the link, so that an open window only seems to be closed. Polling continues.
      if (!(await poll())) setFlow((now) => now && { ...now, is: 'closed', isLong: true });
    }, 500);
    return () => {
      window.removeEventListener('message', onMessage);
      broadcast.close();
      stopPolling();
      clearInterval(looking);
      clearTimeout(growing);
    };
  }, [isAway, turn, launch]);

  return {
    flow,
    /**
     * Must be called by a click, otherwise the browser opens no window. The window waits for `ready`, and is closed if
     * it rejects.
     */
    async begin(url: string, ready?: Promise<void>): Promise<void> {
      // A small screen has no space for a second window.
      if (!launch.isFramed && window.innerWidth < 640) {
        await ready;
        authorizeInThisTab(launch, { url, draft: on.draft() });
        return;
      }
      expectNoReturn(launch.brand);
      opened.current?.close();
      const popup = window.open(ready === undefined ? url : 'about:blank', '_blank', popupFeatures());
      opened.current = popup;
      try {
        await ready;
      } catch (error) {
        popup?.close();
        throw error;
      }
      if (popup === null && !launch.isFramed) {
        authorizeInThisTab(launch, { url, draft: on.draft() });
        return;
      }
      if (ready !== undefined) popup?.location.replace(url);
      const is = popup === null ? 'blocked' : 'away';
      setFlow((now) => ({ url, is, isLong: false, turn: (now?.turn ?? 0) + 1 }));
    },
    /** If the browser blocked the window, a link that the user clicks opens it. */
    openedByLink(): void {
      opened.current = null;
      setFlow((now) => now && { ...now, is: 'away', isLong: false });
    },
    giveUp(): void {
      opened.current?.close();
      setFlow(undefined);
    },
  };
}

/** Calls `poll` repeatedly, one call at a time, until the returned function is called. `poll` must not throw. */
export function pollRepeatedly(poll: () => Promise<unknown>): () => void {
  const begunAt = Date.now();
  let isStopped = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = () => {
    const afterMs = Date.now() - begunAt < oftenForMs ? pollMs : pollLaterMs;
    timer = setTimeout(async () => {
      await poll();
      if (!isStopped) wait();
    }, afterMs);
  };
  wait();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}

/** The callback page returns to this page. */
function authorizeInThisTab(launch: Launch, { url, draft }: { url: string; draft: Draft }): void {
  expectReturn(launch.brand, draft);
  location.assign(url);
}
