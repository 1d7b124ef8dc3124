/** A `datetime-local` value: in the browser's time zone, to the minute. Empty for no time or an invalid one. */
export function localTime(at: Date | string | undefined): string {
  const time = new Date(at ?? Number.NaN);
  if (Number.isNaN(time.getTime())) return '';
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
