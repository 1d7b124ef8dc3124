/**
 * As an input of the type `datetime-local` writes it: in the zone of the browser, to the minute. Empty for no time, and
 * for what is none.
 */
export function localTime(at: Date | string | undefined): string {
  const time = new Date(at ?? Number.NaN);
  if (Number.isNaN(time.getTime())) return '';
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
