import { useEffect, useRef, useState } from 'react';
import { expectNoReturn, expectReturn, type Launch, type Told } from './launch.ts';

/**
 * A trip to the provider, from the click to the notification that it is over.
 *
 * The notification comes from the opened window, over a channel if a provider's pages have cut the link to that window,
 * or from a request to the service, which works in every browser and at every node. Only the service's answer is
 * trusted: the other two trigger a request at once.
 */
export type Trip = {
  url: string;
  is: 'away' | 'closed' | 'blocked';
  /** Whether it is time to say what can go wrong. */
  isLong: boolean;
  /** One more for each window that is opened. */
  turn: number;
};

/** Asked so often while somebody is away; after a minute, when windows and channels have had their chance, less often. */
const askEveryMs = 2_000;
const askLaterEveryMs = 5_000;
const oftenForMs = 60_000;
const longAfterMs = 15_000;

export function useTrip(
  launch: Launch,
  on: {
    /** Something may have happened. Resolves to whether the trip is over. */
    ask: () => Promise<boolean>;
    /** What the window said went wrong, where the service knows of nothing. */
    fail: (told: Told) => void;
  },
) {
  const [trip, setTrip] = useState<Trip>();
  const opened = useRef<Window | null>(null);
  const calls = useRef(on);
  calls.current = on;
  const isAway = trip !== undefined && trip.is !== 'blocked';
  const turn = trip?.turn;

  // biome-ignore lint/correctness/useExhaustiveDependencies: each window is looked after from its own beginning
  useEffect(() => {
    if (!isAway) return;
    const { brand, baseUrl } = launch;
    const [success, failure, ack] = ['success', 'error', 'ack'].map(
      (end) => `${brand}_oauth_callback_${end}`,
    );
    const channel = `${brand}-oauth-callback`;
    const broadcast = new BroadcastChannel(channel);
    let isOver = false;
    const ask = async () => {
      if (isOver || !(await calls.current.ask().catch(() => false))) return isOver;
      isOver = true;
      setTrip(undefined);
      return true;
    };
    const listen = async ({ source, origin, data }: MessageEvent<Told | undefined>) => {
      if (source === null || source !== opened.current || data === undefined) return;
      if (origin !== new URL(baseUrl).origin && origin !== location.origin) return;
      if (data.type !== success && data.type !== failure) return;
      opened.current?.postMessage({ type: ack }, origin);
      if (!(await ask()) && data.type === failure) {
        isOver = true;
        setTrip(undefined);
        calls.current.fail(data);
      }
    };
    const hear = async ({ data }: MessageEvent<Told | undefined>) => {
      // A broadcast may be of another tab's trip.
      if (data?.type !== success || !(await ask())) return;
      // The one that listens is closed with the trip.
      const answer = new BroadcastChannel(channel);
      answer.postMessage({ type: ack });
      answer.close();
    };
    window.addEventListener('message', listen);
    broadcast.addEventListener('message', hear);
    const stopAsking = keepAsking(ask);
    const growing = setTimeout(() => setTrip((now) => now && { ...now, isLong: true }), longAfterMs);
    const looking = setInterval(async () => {
      if (opened.current?.closed !== true) return;
      clearInterval(looking);
      // A provider may have cut the tie, so that a window only seems to be closed: the asking goes on.
      if (!(await ask())) setTrip((now) => now && { ...now, is: 'closed', isLong: true });
    }, 500);
    return () => {
      window.removeEventListener('message', listen);
      broadcast.close();
      stopAsking();
      clearInterval(looking);
      clearTimeout(growing);
    };
  }, [isAway, turn, launch]);

  return {
    trip,
    /**
     * Must be called by a click, or the browser opens no window. Where `ready` is given the window waits for it, and is
     * closed where it rejects.
     */
    async begin(url: string, ready?: Promise<void>): Promise<void> {
      // A small screen has no space for a second window.
      if (!launch.isFramed && window.innerWidth < 640) {
        await ready;
        travelInThisTab(launch, url);
        return;
      }
      expectNoReturn(launch.brand);
      opened.current?.close();
      const popup = window.open(ready === undefined ? url : 'about:blank', '_blank', `popup,${place()}`);
      opened.current = popup;
      try {
        await ready;
      } catch (error) {
        popup?.close();
        throw error;
      }
      if (popup === null && !launch.isFramed) {
        travelInThisTab(launch, url);
        return;
      }
      if (ready !== undefined) popup?.location.replace(url);
      const is = popup === null ? 'blocked' : 'away';
      setTrip((now) => ({ url, is, isLong: false, turn: (now?.turn ?? 0) + 1 }));
    },
    /** Where a window was blocked: a link that the person clicks opens one all the same. */
    openedByLink(): void {
      opened.current = null;
      setTrip((now) => now && { ...now, is: 'away', isLong: false });
    },
    giveUp(): void {
      opened.current?.close();
      setTrip(undefined);
    },
  };
}

/** Asks again and again, one at a time, until what it returns is called. `ask` must not throw. */
export function keepAsking(ask: () => Promise<unknown>): () => void {
  const begunAt = Date.now();
  let isStopped = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = () => {
    const afterMs = Date.now() - begunAt < oftenForMs ? askEveryMs : askLaterEveryMs;
    timer = setTimeout(async () => {
      await ask();
      if (!isStopped) wait();
    }, afterMs);
  };
  wait();
  return () => {
    isStopped = true;
    clearTimeout(timer);
  };
}

/** Back by the callback page, which leads here again. */
function travelInThisTab(launch: Launch, url: string): void {
  expectReturn(launch.brand);
  location.assign(url);
}

function place(): string {
  const [width, height] = [Math.min(520, screen.availWidth), Math.min(700, screen.availHeight)];
  const left = Math.max(0, Math.round(window.screenX + (window.outerWidth - width) / 2));
  const top = Math.max(0, Math.round(window.screenY + (window.outerHeight - height) / 2));
  return `width=${width},height=${height},left=${left},top=${top}`;
}
