/**
 * The value of a cell as a field of a record. Pure.
 *
 * Values come unformatted, dates as serial numbers: days since 1899-12-30, the time of day as their fraction, in the
 * spreadsheet's time zone (developers.google.com/workspace/sheets/api/guides/formats).
 */

/** An empty cell is null. The error of a formula is an object: `{ "error": "#REF!" }`. */
export type CellValue = string | number | boolean | null | { error: string };
/** A cell in a response of the values API. */
export type RawCell = string | number | boolean | null | undefined;

/** How the numbers of a column are shown. */
export type ColumnKind = 'plain' | 'date' | 'time' | 'datetime';

const errors = /^#(?:ERROR!|NULL!|DIV\/0!|VALUE!|REF!|NAME\?|NUM!|N\/A)$/;

export type CellReader = (cell: RawCell, kind: ColumnKind) => CellValue;

/** A reader for one spreadsheet. Date-times get the UTC offset of the time zone at that time; none if the zone is unknown. */
export function cellReader(timeZone: string): CellReader {
  const offsetAt = offsetsOf(timeZone);
  return (cell, kind) => {
    if (cell === undefined || cell === null || cell === '') return null;
    if (typeof cell === 'string') return errors.test(cell) ? { error: cell } : cell;
    if (typeof cell !== 'number') return cell;
    // A double cannot represent these integers exactly.
    if (Number.isInteger(cell) && !Number.isSafeInteger(cell)) return String(cell);
    if (kind === 'plain') return cell;
    if (kind === 'time') return timeOf(cell);
    const at = momentOf(cell);
    // A number outside the range of dates stays a number.
    if (at === undefined) return cell;
    if (kind === 'date') return at.toISOString().slice(0, 10);
    return at.toISOString().replace(/(?:\.000)?Z$/, '') + offsetAt(at);
  };
}

const dayMs = 86_400_000;
const epochMs = Date.UTC(1899, 11, 30);
/** 9999-12-31. */
const lastSerial = 2_958_466;
const firstSerial = -693_593;

/** The local time as if it were UTC, rounded to the millisecond, the precision of a double for current dates. */
function momentOf(serial: number): Date | undefined {
  if (!(serial >= firstSerial && serial < lastSerial)) return undefined;
  return new Date(Math.round(serial * dayMs) + epochMs);
}

/** A time of day, or a duration, which may have more than 24 hours. */
function timeOf(serial: number): string {
  const ms = Math.round(Math.abs(serial) * dayMs);
  const part = (size: number, count: number) => String(Math.floor(ms / size) % count).padStart(2, '0');
  const hours = String(Math.floor(ms / 3_600_000)).padStart(2, '0');
  const rest = ms % 1000 === 0 ? '' : `.${String(ms % 1000).padStart(3, '0')}`;
  return `${serial < 0 ? '-' : ''}${hours}:${part(60_000, 60)}:${part(1000, 60)}${rest}`;
}

/** The UTC offset of a local time, such as `+01:00`. Cached by hour. */
function offsetsOf(timeZone: string): (local: Date) => string {
  const known = new Map<number, string>();
  return (local) => {
    const hour = Math.floor(local.getTime() / 3_600_000);
    let offset = known.get(hour);
    if (offset === undefined) {
      offset = offsetOf(local, timeZone);
      known.set(hour, offset);
    }
    return offset;
  };
}

function offsetOf(local: Date, timeZone: string): string {
  try {
    const wall = Temporal.PlainDateTime.from(local.toISOString().slice(0, 19));
    // A local time that is skipped or repeated by a clock change gets the offset from before the change.
    const { offset } = wall.toZonedDateTime(timeZone, { disambiguation: 'earlier' });
    // Offsets of old local mean times have seconds, which RFC 3339 does not allow.
    return offset.length === 6 ? offset : '';
  } catch {
    return '';
  }
}

/** The kind for a `numberFormat.type`. */
export function kindOf(formatType: string | undefined): ColumnKind {
  if (formatType === 'DATE') return 'date';
  if (formatType === 'TIME') return 'time';
  return formatType === 'DATE_TIME' ? 'datetime' : 'plain';
}

/** The most frequent kind; plain for an empty list. */
export function commonKind(kinds: readonly ColumnKind[]): ColumnKind {
  const counts = new Map<ColumnKind, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const [max] = [...counts].sort(([, a], [, b]) => b - a);
  return max?.[0] ?? 'plain';
}

/** The text of a key cell: '' for the error of a formula, which cannot identify a row. */
export function keyTextOf(cell: RawCell): string {
  return typeof cell === 'string' && errors.test(cell) ? '' : textOf(cell ?? null);
}

/** The text of a value for keys and comparisons: numbers in their shortest form, strings trimmed. */
export function textOf(value: CellValue): string {
  if (value === null) return '';
  if (typeof value === 'object') return value.error;
  return typeof value === 'string' ? value.trim().normalize('NFC') : String(value);
}
