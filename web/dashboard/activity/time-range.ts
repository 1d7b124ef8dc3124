const minuteMs = 60_000;
const dayMs = 86_400_000;
/** The widths of steps that the API accepts, in seconds. */
const stepsS = [60, 300, 900, 3600, 21_600, 86_400];
const maxSteps = 100;
/** The maximum range of a series: in days, and with shorter steps. */
const maxDays = 399;
const maxDaysByHours = 31;

/** Ranges that end now. */
export const ranges = {
  '1h': { label: 'Last hour', ms: 3_600_000 },
  '24h': { label: 'Last 24 hours', ms: dayMs },
  '7d': { label: 'Last 7 days', ms: 7 * dayMs },
} as const;
export type RangeName = keyof typeof ranges;
/** A range as in the address: relative to now, or between two times in UTC, or empty. */
type TimeFilter = { range?: RangeName | undefined; from?: string | undefined; to?: string | undefined };

/** The time filter of the list. It advances in whole minutes, so that the list is not fetched again constantly. */
export function timesOf({ range, from, to }: TimeFilter, nowMs: number): { from?: string; to?: string } {
  if (range !== undefined) return { from: isoOf(floored(nowMs - ranges[range].ms)) };
  return { ...(from !== undefined && { from }), ...(to !== undefined && { to }) };
}

/** The range of the charts: the filter, or the last day; at most 399 days. */
export function chartTimesOf(
  search: TimeFilter,
  nowMs: number,
): { from: string; to?: string; step_s: number; label: string } {
  const { from, to } = timesOf(search, nowMs);
  const endMs = to === undefined ? nowMs : Date.parse(to);
  const wantedMs = from === undefined ? endMs - dayMs : Date.parse(from);
  // The service uses its own clock.
  const beginMs = Math.max(floored(wantedMs), floored(endMs - maxDays * dayMs) + 2 * minuteMs);
  // One more step than fits: steps start at multiples of their width, not at the start of the range.
  const lengthMs = endMs - beginMs;
  const step =
    lengthMs > maxDaysByHours * dayMs
      ? 86_400
      : (stepsS.find((one) => lengthMs / (one * 1000) <= maxSteps - 2) ?? 86_400);
  const label =
    search.range !== undefined
      ? ranges[search.range].label
      : from === undefined && to === undefined
        ? ranges['24h'].label
        : 'Chosen time';
  return { from: isoOf(beginMs), ...(to !== undefined && { to }), step_s: step, label };
}

function floored(ms: number): number {
  return Math.floor(ms / minuteMs) * minuteMs;
}

function isoOf(ms: number): string {
  return new Date(ms).toISOString();
}

/** The UTC time of a `datetime-local` value; undefined if it is empty. */
export function isoOfLocal(local: string): string | undefined {
  const ms = Date.parse(local);
  return Number.isNaN(ms) ? undefined : isoOf(ms);
}
