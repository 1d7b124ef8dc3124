/** The frequency of a sync, as its author writes it: `every hour`, `every 5m`, `every half hour`, `30s`. */

const minFrequencyS = 30;
const maxFrequencyS = 366 * 86_400;

const named: Record<string, string> = {
  'half day': '12h',
  'half hour': '30m',
  'quarter hour': '15m',
  month: '30d',
  week: '7d',
};
const unitsS: Record<string, number> = { s: 1, m: 60, h: 3_600, d: 86_400, w: 604_800 };
const units: Record<string, string> = {
  s: 's',
  sec: 's',
  secs: 's',
  second: 's',
  seconds: 's',
  m: 'm',
  min: 'm',
  mins: 'm',
  minute: 'm',
  minutes: 'm',
  h: 'h',
  hr: 'h',
  hrs: 'h',
  hour: 'h',
  hours: 'h',
  d: 'd',
  day: 'd',
  days: 'd',
  w: 'w',
  week: 'w',
  weeks: 'w',
};

type Frequency = {
  seconds: number;
  /** For answers of routes: without `every`, and with a number in place of a name. */
  text: string;
};

/** Parses a frequency. The fault continues a sentence that begins with the text. */
export function readFrequency(text: string): Frequency | { fault: string } {
  const words = text
    .trim()
    .toLowerCase()
    .replace(/\s+/g, ' ')
    .replace(/^every /, '');
  const spelled = named[words] ?? words;
  const [, number, unit] = /^(\d{1,9}(?:\.\d{1,3})?)? ?([a-z]+)$/.exec(spelled) ?? [];
  const secondsOfUnit = unitsS[units[unit ?? ''] ?? ''];
  if (secondsOfUnit === undefined) {
    return { fault: 'is not a frequency, such as "every 5 minutes", "every half hour" or "every day"' };
  }
  const seconds = Math.round(Number(number ?? 1) * secondsOfUnit);
  if (seconds < minFrequencyS)
    return { fault: `is too often: a sync runs every ${minFrequencyS} seconds at most` };
  if (seconds > maxFrequencyS) return { fault: 'is too seldom: a sync runs once a year at least' };
  return { seconds, text: spelled };
}

/** The shortest spelling of a number of seconds: `90s`, `15m`, `2h`, `30d`. */
export function formatFrequency(seconds: number): string {
  for (const unit of ['d', 'h', 'm'] as const) {
    const ofUnit = unitsS[unit] as number;
    if (seconds % ofUnit === 0) return `${seconds / ofUnit}${unit}`;
  }
  return `${seconds}s`;
}
