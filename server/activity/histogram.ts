/**
 * Histograms of durations with fixed buckets: bucket 0 holds what took less than 1 ms, bucket n what took from
 * `growth ** (n - 1)` to `growth ** n` ms, the last one everything from there on (about 11 minutes).
 */
const growth = 1.25;
export const bucketCount = 62;
const lastBucket = bucketCount - 1;
const scale = 1 / Math.log(growth);

export function bucketOf(durationMs: number): number {
  if (!(durationMs >= 1)) return 0;
  return Math.min(Math.floor(Math.log(durationMs) * scale) + 1, lastBucket);
}

/** The duration within which this part of them (0 to 1) was done, by nearest rank, in ms; null where there is none. */
export function quantileOf(histogram: readonly number[], part: number): number | null {
  const total = histogram.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  const rank = Math.max(1, Math.ceil(part * total));
  let passed = 0;
  const bucket = histogram.findIndex((count) => {
    passed += count;
    return passed >= rank;
  });
  if (bucket === 0) return 0.5;
  // The geometric middle of a bucket is as far from both its ends, in proportion.
  const middle = bucket === lastBucket ? growth ** (bucket - 1) : growth ** (bucket - 0.5);
  return Math.round(middle * 100) / 100;
}
