const second = 1;
const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;

const units: Record<string, number> = {
  ...{ s: second, sec: second, secs: second, second, seconds: second },
  ...{ m: minute, min: minute, mins: minute, minute, minutes: minute },
  ...{ h: hour, hr: hour, hrs: hour, hour, hours: hour },
  ...{ d: day, day, days: day, w: 7 * day, week: 7 * day, weeks: 7 * day, month: 30 * day, months: 30 * day },
};
const named: Record<string, number> = {
  'quarter hour': hour / 4,
  'half hour': hour / 2,
  'half day': day / 2,
};

/** Seconds; a sync runs no more often. */
export const leastFrequencyS = 30;
/** Of the database's column; 68 years. */
const mostFrequencyS = 2_147_483_647;

/**
 * Seconds of `every 30s`, `every 5 minutes`, `1h`, `every half hour`, `every day`, `every week`, `every month` (30 days);
 * or why it is none, to be read behind the text. Cron expressions are none.
 */
export function readFrequency(text: string): { seconds: number } | { fault: string } {
  const words = text
    .trim()
    .toLowerCase()
    .replace(/^every\s+/, '')
    .replace(/^an?\s+/, '')
    .replace(/\s+/g, ' ');
  const [, count = '1', unit = ''] = /^(\d{1,10}(?:\.\d{1,3})?)?\s?([a-z]+)$/.exec(words) ?? [];
  const ofUnit = Object.hasOwn(units, unit) ? units[unit] : undefined;
  const seconds = Object.hasOwn(named, words)
    ? named[words]
    : ofUnit && Math.round(Number(count) * ofUnit);
  if (seconds === undefined) {
    return { fault: 'is no frequency such as "every 5 minutes", "every half hour" or "every day"' };
  }
  if (seconds < leastFrequencyS) return { fault: `is more often than every ${leastFrequencyS} seconds` };
  if (seconds > mostFrequencyS) return { fault: 'is longer than a sync can wait' };
  return { seconds };
}
