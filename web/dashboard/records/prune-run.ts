import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { type DatasetAt, estimatePrune, prunePortion } from './queries.ts';

export type Extent = { count: number; bytes: number };
export type PruneReceipt = Extent & {
  tookMs: number;
  /** Whether it came to its end, and was not stopped before. */
  isWhole: boolean;
};

/**
 * A prune up to a cursor, portion after portion from this browser. `go` begins it, and goes on after a failure: the
 * same call again is harmless, and what an answer that was lost had removed is found by a new estimate. It ends after
 * the portion that runs when it is stopped, or when the dialog goes.
 */
export function usePruneRun(
  environment: string,
  { at, untilCursor }: { at: DatasetAt; untilCursor: string },
) {
  const queries = useQueryClient();
  const isStopped = useRef(false);
  const total = useRef<Extent>({ count: 0, bytes: 0 });
  const workedMs = useRef(0);
  const [done, setDone] = useState<number>();
  const [isStopping, setStopping] = useState(false);
  useEffect(
    () => () => {
      isStopped.current = true;
    },
    [],
  );

  async function run(estimate: Extent): Promise<PruneReceipt> {
    const startedAt = performance.now();
    isStopped.current = false;
    setStopping(false);
    try {
      const left = done === undefined ? estimate : await estimatePrune(environment, { at, untilCursor });
      if (done === undefined) total.current = estimate;
      let count = Math.max(0, total.current.count - left.count);
      setDone(count);
      let hasMore = left.count > 0;
      while (hasMore && !isStopped.current) {
        const portion = await prunePortion(environment, { at, untilCursor });
        count += portion.count;
        hasMore = portion.has_more;
        setDone(count);
      }
      const standing = hasMore ? await estimatePrune(environment, { at, untilCursor }) : { bytes: 0 };
      const tookMs = workedMs.current + performance.now() - startedAt;
      return { count, bytes: total.current.bytes - standing.bytes, tookMs, isWhole: !hasMore };
    } finally {
      workedMs.current += performance.now() - startedAt;
    }
  }

  const mutation = useMutation({
    mutationFn: run,
    onSettled: () => {
      const { integration, id } = at;
      void queries.invalidateQueries({ queryKey: [environment, 'records', integration, id] });
      void queries.invalidateQueries({ queryKey: [environment, 'connection', integration, id, 'datasets'] });
    },
  });
  return {
    go: mutation.mutate,
    stop: () => {
      isStopped.current = true;
      setStopping(true);
    },
    isStopping,
    isRunning: mutation.isPending,
    error: mutation.isPending ? null : mutation.error,
    receipt: mutation.data,
    /** Records pruned so far; undefined before it began. */
    done,
    total: total.current.count,
  };
}
