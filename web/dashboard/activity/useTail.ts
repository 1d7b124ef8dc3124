import { useEffect, useRef, useState } from 'react';
import { Fault } from '../../api/client.ts';
import { type Following, followOperations, type Operation } from './queries.ts';

/** `waiting`: the stream has ended and is reopened later. */
export type TailState = 'off' | 'connecting' | 'live' | 'waiting';

/** More than one page. */
const maxKept = 200;
/** Operations of this interval are rendered together: a busy service logs hundreds per second. */
const gatherMs = 250;
const maxWaitMs = 30_000;

/**
 * Operations that were logged since the list was read, newest first, while `isOn`. The stream begins after the newest known
 * operation, at first that of the list, so that none is missed. A closed stream is reopened with backoff.
 */
export function useTail({
  environment,
  filters,
  newestId,
  isOn,
}: {
  environment: string;
  filters: Following['filters'];
  /** The newest ID of the list that was read last; undefined if it is empty. */
  newestId: string | undefined;
  isOn: boolean;
}): { state: TailState; operations: Operation[] } {
  const [state, setState] = useState<TailState>('connecting');
  const [operations, setOperations] = useState<Operation[]>([]);
  const lastId = useRef<string>(undefined);
  const given = JSON.stringify(filters);

  // Before the stream opens, in the effect below.
  useEffect(() => {
    if (newestId !== undefined && (lastId.current === undefined || newestId > lastId.current))
      lastId.current = newestId;
  }, [newestId]);

  useEffect(() => {
    if (!isOn) return;
    const own = new AbortController();
    const { signal } = own;
    let gathered: Operation[] = [];
    let timer: ReturnType<typeof setTimeout> | undefined;
    const show = () => {
      const fresh = gathered;
      gathered = [];
      timer = undefined;
      setOperations((known) => newestFirst([...fresh, ...known]).slice(0, maxKept));
    };

    async function follow(): Promise<void> {
      for (let failures = 0; !signal.aborted; failures += 1) {
        try {
          setState('connecting');
          const stream = followOperations(environment, {
            filters: JSON.parse(given) as Following['filters'],
            lastId: lastId.current,
            signal,
            onOpen: () => {
              failures = 0;
              if (!signal.aborted) setState('live');
            },
          });
          for await (const operation of stream) {
            if (lastId.current === undefined || operation.id > lastId.current) lastId.current = operation.id;
            gathered.push(operation);
            timer ??= setTimeout(show, gatherMs);
          }
        } catch (error) {
          // The list shows that the user has no access or is signed out.
          if (signal.aborted || (error instanceof Fault && (error.status === 401 || error.status === 403)))
            return;
        }
        if (signal.aborted) return;
        setState('waiting');
        await pause(Math.min(1_000 * 2 ** failures, maxWaitMs), signal);
      }
    }
    void follow();
    return () => {
      own.abort();
      clearTimeout(timer);
      if (gathered.length > 0) show();
    };
  }, [environment, given, isOn]);

  return { state: isOn ? state : 'off', operations };
}

/** Each operation once: IDs ascend with time. */
export function newestFirst(operations: Operation[]): Operation[] {
  const byId = new Map(operations.map((one) => [one.id, one]));
  return [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : -1));
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
