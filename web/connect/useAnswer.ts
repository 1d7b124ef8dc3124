import { useCallback, useEffect, useState } from 'react';

type Asked<T> = {
  /** The last answer; it stays in sight while the next one is asked for. */
  data: T | undefined;
  fault: unknown;
  isWaiting: boolean;
  again: () => void;
};

/** Sends a request when `ask` is a new function; the answer to an older request is discarded. */
export function useAnswer<T>(ask: (() => Promise<T>) | undefined): Asked<T> {
  const [data, setData] = useState<T>();
  const [fault, setFault] = useState<unknown>();
  const [isWaiting, setWaiting] = useState(ask !== undefined);
  const [turn, setTurn] = useState(0);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another turn asks the same again
  useEffect(() => {
    if (ask === undefined) return;
    let isCurrent = true;
    setWaiting(true);
    setFault(undefined);
    ask()
      .then(
        (answer) => isCurrent && setData(answer),
        (error: unknown) => isCurrent && setFault(error),
      )
      .finally(() => isCurrent && setWaiting(false));
    return () => {
      isCurrent = false;
    };
  }, [ask, turn]);
  const again = useCallback(() => setTurn((count) => count + 1), []);
  return { data, fault, isWaiting, again };
}
