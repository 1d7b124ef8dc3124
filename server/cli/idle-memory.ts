/**
 * Gives memory back while nobody calls.
 *
 * What a start leaves behind, and what a busy hour did, stays with the process: pages that hold a few live objects each,
 * a young generation as large as it ever grew. A whole collection that also moves what lives together gives 30 to 40 MB of
 * it back, and takes 60 to 150 ms, in which nothing else is done. So it waits for a time in which next to nothing was, and
 * comes again only where there is something to give back. See docs/decisions/0022.
 */
import { performance } from 'node:perf_hooks';

/** Once, however busy: what a start leaves is most of it, and few call a node that has just come. */
const afterStartMs = 2_000;
const everyMs = 30_000;
/** Of the time between two looks. What a node does by itself takes 1 to 2 %. */
const maxBusyShare = 0.05;
/** Less than that is not worth a pause. */
const leastGrowthBytes = 4 * 1024 * 1024;

/** Looks for as long as the process lives, and does not keep it alive. Nothing where Node was started without `--expose-gc`. */
export function collectWhileIdle(): void {
  const { gc } = globalThis;
  if (gc === undefined) return;
  let before = performance.eventLoopUtilization();
  let atBestBytes = 0;
  const collect = () => {
    gc({ type: 'major', execution: 'sync', flavor: 'last-resort' });
    atBestBytes = process.memoryUsage.rss();
    before = performance.eventLoopUtilization();
  };
  const look = () => {
    const { utilization } = performance.eventLoopUtilization(before);
    before = performance.eventLoopUtilization();
    const isGrown = process.memoryUsage.rss() - atBestBytes > leastGrowthBytes;
    if (isGrown && utilization < maxBusyShare) collect();
  };
  setTimeout(() => {
    collect();
    setInterval(look, everyMs).unref();
  }, afterStartMs).unref();
}
