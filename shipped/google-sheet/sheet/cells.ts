/**
 * What a cell holds, as a record tells it. Pure.
 *
 * Values come unformatted, dates as serial numbers: days since 1899-12-30, the time of day as their fraction, in the
 * spreadsheet's time zone (developers.google.com/workspace/sheets/api/guides/formats).
 */

/** An empty cell is null. What a formula could not work out is marked: `{ "error": "#REF!" }`. */
export type CellValue = string | number | boolean | null | { error: string };
/** As the values API answers a cell. */
export type RawCell = string | number | boolean | null | undefined;

/** How the numbers of a column are shown. */
export type ColumnKind = 'plain' | 'date' | 'time' | 'datetime';

const errors = /^#(?:ERROR!|NULL!|DIV\/0!|VALUE!|REF!|NAME\?|NUM!|N\/A)$/;

export type CellReader = (cell: RawCell, kind: ColumnKind) => CellValue;

/** A reader for one spreadsheet. Times of day get the offset that the zone has then; none where the zone is unknown. */
export function cellReader(timeZone: string): CellReader {
  const offsetAt = offsetsOf(timeZone);
  return (cell, kind) => {
    if (cell === undefined || cell === null || cell === '') return null;
    if (typeof cell === 'string') return errors.test(cell) ? { error: cell } : cell;
    if (typeof cell !== 'number') return cell;
    // Records hold no integers that a double cannot tell from their neighbours.
    if (Number.isInteger(cell) && !Number.isSafeInteger(cell)) return String(cell);
    if (kind === 'plain') return cell;
    if (kind === 'time') return timeOf(cell);
    const at = momentOf(cell);
    // Beyond the years that a date can have it stays the number that it is.
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

/** The moment as if it were UTC, to the millisecond: a double holds no more of a day in our time. */
function momentOf(serial: number): Date | undefined {
  if (!(serial >= firstSerial && serial < lastSerial)) return undefined;
  return new Date(Math.round(serial * dayMs) + epochMs);
}

/** Of a day or of a duration, which may have more than 24 hours. */
function timeOf(serial: number): string {
  const ms = Math.round(Math.abs(serial) * dayMs);
  const part = (size: number, count: number) => String(Math.floor(ms / size) % count).padStart(2, '0');
  const hours = String(Math.floor(ms / 3_600_000)).padStart(2, '0');
  const rest = ms % 1000 === 0 ? '' : `.${String(ms % 1000).padStart(3, '0')}`;
  return `${serial < 0 ? '-' : ''}${hours}:${part(60_000, 60)}:${part(1000, 60)}${rest}`;
}

/** The offset of a local time, such as `+01:00`; looked up once an hour of the sheet. */
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
    // Of a local time that the clocks leave out or show twice: the offset from before they change.
    const { offset } = wall.toZonedDateTime(timeZone, { disambiguation: 'earlier' });
    // Old local mean times have seconds, which RFC 3339 has no place for.
    return offset.length === 6 ? offset : '';
  } catch {
    return '';
  }
}

/** The kind that `numberFormat.type` stands for. */
export function kindOf(formatType: string | undefined): ColumnKind {
  if (formatType === 'DATE') return 'date';
  if (formatType === 'TIME') return 'time';
  return formatType === 'DATE_TIME' ? 'datetime' : 'plain';
}

/** What most of the numbers of a column are; plain where there are none. */
export function commonKind(kinds: readonly ColumnKind[]): ColumnKind {
  const counts = new Map<ColumnKind, number>();
  for (const kind of kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
  const [max] = [...counts].sort(([, a], [, b]) => b - a);
  return max?.[0] ?? 'plain';
}

/** The text that a key has: '' for what a formula could not work out, which tells no row from another. */
export function keyTextOf(cell: RawCell): string {
  return typeof cell === 'string' && errors.test(cell) ? '' : textOf(cell ?? null);
}

/** The text that a key or a comparison sees: numbers in their shortest form, texts without what surrounds them. */
export function textOf(value: CellValue): string {
  if (value === null) return '';
  if (typeof value === 'object') return value.error;
  return typeof value === 'string' ? value.trim().normalize('NFC') : String(value);
}
