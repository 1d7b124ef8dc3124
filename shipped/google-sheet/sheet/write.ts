/** Conversion of values that are written to a sheet. Pure. */
import type { ColumnKind } from './cells.ts';
import type { Column } from './columns.ts';
import { fault } from './faults.ts';

/** Null empties a cell. */
export type Writable = string | number | boolean | null;
export type Entering = 'RAW' | 'USER_ENTERED';

const dayMs = 86_400_000;
const epochMs = Date.UTC(1899, 11, 30);

/**
 * The serial number of a date or time in a column of this kind, so that values can be written as they were read; any other
 * value unchanged. A time without an offset is in the spreadsheet's time zone.
 */
export function enteredValue(
  value: Writable,
  { kind, timeZone }: { kind: ColumnKind; timeZone: string },
): Writable {
  if (typeof value !== 'string' || kind === 'plain') return value;
  if (kind === 'time') {
    const [, sign, hours, minutes, seconds = '0'] =
      /^(-?)(\d+):(\d\d)(?::(\d\d(?:\.\d+)?))?$/.exec(value) ?? [];
    if (hours === undefined) return value;
    const size = (Number(hours) * 3600 + Number(minutes) * 60 + Number(seconds)) / 86_400;
    return sign === '-' ? -size : size;
  }
  const local = localTime(value, timeZone);
  return local === undefined ? value : (local - epochMs) / dayMs;
}

/** The local time of the spreadsheet as if it were UTC, in milliseconds. */
function localTime(text: string, timeZone: string): number | undefined {
  const [, day, time = 'T00:00:00', offset] =
    /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?(Z|[+-]\d\d:?\d\d)?$/.exec(text) ?? [];
  if (day === undefined) return undefined;
  try {
    if (offset === undefined) {
      // An invalid date stays a text.
      const wall = Temporal.PlainDateTime.from(`${day}${time}`, { overflow: 'reject' });
      return Date.parse(`${wall.toString({ smallestUnit: 'millisecond' })}Z`);
    }
    const wall = Temporal.Instant.from(text).toZonedDateTimeISO(timeZone).toPlainDateTime();
    return Date.parse(`${wall.toString({ smallestUnit: 'millisecond' })}Z`);
  } catch {
    return undefined;
  }
}

/** The cells of a row from the first column; `undefined` for columns without a value. Throws `unknown_field`. */
export function lineOf(
  values: Readonly<Record<string, Writable>>,
  of: { columns: readonly Column[]; kinds: readonly ColumnKind[]; timeZone: string; entering: Entering },
): (Writable | undefined)[] {
  const { columns, kinds, timeZone, entering } = of;
  const line: (Writable | undefined)[] = [];
  for (const [field, value] of Object.entries(values)) {
    const column = columns.find(({ name }) => name === field);
    if (column === undefined) {
      const fields = columns.map(({ name }) => name);
      throw fault('unknown_field', `The sheet has no column "${field}".`, { fields });
    }
    const kind = entering === 'RAW' ? (kinds[column.index] ?? 'plain') : 'plain';
    line[column.index] = enteredValue(value, { kind, timeZone });
  }
  return Array.from(line);
}

/** A row in the form of the values API: null leaves a cell unchanged, and an empty string clears it. */
export function valuesLine(line: readonly (Writable | undefined)[]): (string | number | boolean | null)[] {
  return line.map((value) => (value === undefined ? null : (value ?? '')));
}

/** A row in the form of `appendCells`: numbers, strings and booleans, never formulas. */
export function cellLine(line: readonly (Writable | undefined)[]): { values: object[] } {
  return {
    values: line.map((value) => {
      if (value === undefined || value === null || value === '') return {};
      if (typeof value === 'number') return { userEnteredValue: { numberValue: value } };
      if (typeof value === 'boolean') return { userEnteredValue: { boolValue: value } };
      return { userEnteredValue: { stringValue: value } };
    }),
  };
}

/** Whether the provider may have carried out the request that failed with this error. */
export function isOutcomeUnknown(error: unknown): boolean {
  const { code, status } = (error ?? {}) as { code?: unknown; status?: unknown };
  if (typeof status === 'number' && code !== undefined && String(code).startsWith('ERR_BAD'))
    return status >= 500;
  return unknownOutcomes.has(String(code));
}

const unknownOutcomes: ReadonlySet<string> = new Set([
  'upstream_unknown_outcome',
  'upstream_timeout',
  'upstream_unreadable',
  'ERR_NETWORK',
  'internal',
]);
