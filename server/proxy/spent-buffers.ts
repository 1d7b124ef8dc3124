/**
 * Buffers of bodies that have gone by.
 *
 * Each part of a body is a buffer of up to 64 KB that is garbage a moment later. V8 sees its small handle fill the young
 * generation slowly, and lets 64 MB of what the handles stand for wait for a collection of the old one: 45 MB of memory,
 * and twice the processor time, since each part then needs pages that are new to the cache. A young collection takes
 * one or two milliseconds and frees them all. See docs/decisions/0014.
 */
let waitingBytes = 0;

/** A young collection comes after so much, whichever calls it belonged to. */
const portionBytes = 16 * 1024 * 1024;

/** Notes a part of a body that is on its way out. Frees nothing where Node was started without `--expose-gc`. */
export function noteSpent(sizeBytes: number): void {
  waitingBytes += sizeBytes;
  if (waitingBytes < portionBytes) return;
  waitingBytes = 0;
  globalThis.gc?.({ type: 'minor', execution: 'sync' });
}
