/**
 * Rendering of cell values, and conversion of entered values.
 *
 * It implements RAW and USER_ENTERED input, number formats and the three renderings. numfmt follows Excel; this file corrects
 * the differences to Sheets (the automatic format, days before March 1900). The locale is always en_US.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { format, parseValue } from 'numfmt';
import type { CellError, Value } from './formula.ts';
import { type Cell, compact, rich, type Scalar } from './spreadsheet.ts';

export type ValueRenderOption = 'FORMATTED_VALUE' | 'UNFORMATTED_VALUE' | 'FORMULA';
export type DateTimeRenderOption = 'SERIAL_NUMBER' | 'FORMATTED_STRING';
type NumberFormat = sheets_v4.Schema$NumberFormat;

const defaultPatterns: Readonly<Record<string, string>> = {
  TEXT: '@',
  NUMBER: '#,##0.00',
  PERCENT: '0.00%',
  CURRENCY: '"$"#,##0.00',
  DATE: 'm/d/yyyy',
  TIME: 'h:mm:ss am/pm',
  DATE_TIME: 'm/d/yyyy h:mm:ss',
  SCIENTIFIC: '0.00E+00',
};

/** The cell `before` with `input` entered as RAW: stored unchanged, never parsed. */
export function enterRaw(before: Cell, input: Scalar): Cell {
  const { value: _, formula: __, ...rest } = rich(before);
  return compact(input === '' ? rest : { ...rest, value: input });
}

/** The cell `before` with `input` entered as typed by a user: numbers, dates and formulas are parsed. */
export function enterAsUser(before: Cell, input: Scalar): Cell {
  if (typeof input !== 'string' || input === '') return enterRaw(before, input);
  const { value: _, formula: __, ...rest } = rich(before);
  const existing = rest.format?.numberFormat;
  if (existing?.type === 'TEXT') return compact({ ...rest, value: input });
  if (input.startsWith('=') && input.length > 1) return compact({ ...rest, formula: input });
  if (input.startsWith("'")) return compact({ ...rest, value: input.slice(1) });
  const parsed = parseTyped(input);
  if (parsed === undefined) return compact({ ...rest, value: input });
  if (parsed.numberFormat === undefined || existing != null) return compact({ ...rest, value: parsed.value });
  return compact({
    ...rest,
    value: parsed.value,
    format: { ...rest.format, numberFormat: parsed.numberFormat },
  });
}

// The built-in format ids of Excel that parseValue of numfmt returns.
const formatTypes: Readonly<Record<number, (text: string) => NumberFormat>> = {
  3: () => ({ type: 'NUMBER', pattern: '#,##0' }),
  4: () => ({ type: 'NUMBER', pattern: '#,##0.00' }),
  6: (text) => ({ type: 'CURRENCY', pattern: `${currency(text)}#,##0` }),
  8: (text) => ({ type: 'CURRENCY', pattern: `${currency(text)}#,##0.00` }),
  9: () => ({ type: 'PERCENT', pattern: '0%' }),
  10: () => ({ type: 'PERCENT', pattern: '0.00%' }),
  11: () => ({ type: 'SCIENTIFIC', pattern: '0.00E+00' }),
  12: () => ({ type: 'NUMBER', pattern: '# ?/?' }),
  13: () => ({ type: 'NUMBER', pattern: '# ??/??' }),
  14: (text) => ({ type: 'DATE', pattern: datePattern(text) }),
  15: (text) => ({ type: 'DATE', pattern: /^[a-z]/i.test(text.trim()) ? 'mmmm d, yyyy' : 'd-mmm-yyyy' }),
  16: (text) => ({ type: 'DATE', pattern: /[a-z]/i.test(text) ? 'd-mmm' : 'm/d' }),
  17: () => ({ type: 'DATE', pattern: 'mmm-yyyy' }),
  18: () => ({ type: 'TIME', pattern: 'h:mm am/pm' }),
  19: () => ({ type: 'TIME', pattern: 'h:mm:ss am/pm' }),
  20: () => ({ type: 'TIME', pattern: 'h:mm' }),
  21: () => ({ type: 'TIME', pattern: 'h:mm:ss' }),
  22: (text) => ({ type: 'DATE_TIME', pattern: dateTimePattern(text) }),
  46: () => ({ type: 'TIME', pattern: '[h]:mm:ss' }),
  47: () => ({ type: 'TIME', pattern: 'mm:ss.0' }),
};

function currency(text: string): string {
  const symbol = /[^\d\s.,()+-]/.exec(text)?.[0] ?? '$';
  return symbol === '$' ? '"$"' : `[$${symbol}]`;
}

function datePattern(text: string): string {
  const day = text.trim().split(/\s/)[0] ?? '';
  if (/^\d{4}-/.test(day)) return 'yyyy-mm-dd';
  const separator = day.includes('-') ? '-' : '/';
  return /\d{4}$/.test(day) ? ['m', 'd', 'yyyy'].join(separator) : ['m', 'd', 'yy'].join(separator);
}

function dateTimePattern(text: string): string {
  const time = /:\d\d:\d\d/.test(text) ? 'h:mm:ss' : 'h:mm';
  return `${datePattern(text)} ${time}${/[ap]\.?m/i.test(text) ? ' am/pm' : ''}`;
}

function parseTyped(text: string): { value: Scalar; numberFormat?: NumberFormat } | undefined {
  const parsed = parseValue(text);
  if (parsed === undefined || typeof parsed.value === 'bigint') return undefined;
  const { value } = parsed;
  if (typeof value === 'boolean') return { value };
  const id = 'formatId' in parsed && typeof parsed.formatId === 'number' ? parsed.formatId : undefined;
  const symbol = /[€£¥₹]/.test(text);
  const numberFormat =
    id === undefined ? (symbol ? formatTypes[8]?.(text) : undefined) : formatTypes[id]?.(text);
  const isDay = numberFormat?.type === 'DATE' || numberFormat?.type === 'DATE_TIME';
  // Excel has a 29 February 1900, which did not exist, and starts a day later.
  const serial = isDay && value >= 1 && value < 60 ? value + 1 : value;
  return { value: serial, ...(numberFormat !== undefined && { numberFormat }) };
}

/** Whether `dateTimeRenderOption` applies to values of this format (dates and times). */
function isDateTime(numberFormat: NumberFormat | null | undefined): boolean {
  return ['DATE', 'TIME', 'DATE_TIME'].includes(numberFormat?.type ?? '');
}

/** The value as it is shown in the sheet. */
export function formatValue(value: Value, numberFormat: NumberFormat | null | undefined): string {
  if (value === null) return '';
  if (typeof value === 'string') return value;
  if (typeof value === 'boolean') return value ? 'TRUE' : 'FALSE';
  if (typeof value === 'object') return errorText(value);
  const pattern = numberFormat?.pattern || defaultPatterns[numberFormat?.type ?? ''];
  if (pattern === undefined || pattern === 'General') return formatAutomatic(value);
  try {
    return format(pattern, value, { leap1900: false, overflow: '###' });
  } catch {
    return formatAutomatic(value);
  }
}

function formatAutomatic(value: number): string {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-9)) return format('0.#####E+00', value);
  if (Number.isInteger(value)) return String(value);
  // Ten significant digits, but at least one decimal place.
  const wholeDigits = Math.ceil(Math.log10(size));
  const decimals = Math.min(20, Math.max(10 - wholeDigits, 1));
  return value.toFixed(decimals).replace(/\.?0+$/, '');
}

/** The value in a response of `values.get`. `null` is a cell without content. */
export function renderValue(
  cell: Cell,
  value: Value,
  options: { valueRender: ValueRenderOption; dateTimeRender: DateTimeRenderOption },
): Scalar {
  const { format: cellFormat, formula } = rich(cell);
  const numberFormat = cellFormat?.numberFormat;
  if (options.valueRender === 'FORMATTED_VALUE') return formatValue(value, numberFormat);
  if (options.valueRender === 'FORMULA' && formula !== undefined) return formula;
  if (value === null) return '';
  if (typeof value === 'object') return errorText(value);
  const asText =
    options.dateTimeRender === 'FORMATTED_STRING' && typeof value === 'number' && isDateTime(numberFormat);
  return asText ? formatValue(value, numberFormat) : value;
}

const errorTexts: Readonly<Record<CellError['type'], string>> = {
  ERROR: '#ERROR!',
  NULL_VALUE: '#NULL!',
  DIVIDE_BY_ZERO: '#DIV/0!',
  VALUE: '#VALUE!',
  REF: '#REF!',
  NAME: '#NAME?',
  NUM: '#NUM!',
  N_A: '#N/A',
};

/** The text of an error, such as `#DIV/0!`. */
export function errorText(error: CellError): string {
  return errorTexts[error.type];
}
