/**
 * Conversion between stored cells and the API's CellData.
 *
 * A part of CellData that the sandbox does not store is refused with 501 when written, never dropped.
 */
import type { sheets_v4 } from '@googleapis/sheets';
import { errorText, formatValue } from './cell-value.ts';
import { invalidArgument, notImplemented } from './errors.ts';
import { type Mask, mergeMasked } from './field-mask.ts';
import { type Evaluator, isError, type Value } from './formula.ts';
import { type Cell, compact, type RichCell, rich, type Sheet } from './spreadsheet.ts';

type CellFormat = sheets_v4.Schema$CellFormat;

const white = { red: 1, green: 1, blue: 1 };

/** The format of a cell in a new spreadsheet. */
export const defaultFormat: CellFormat = {
  backgroundColor: white,
  padding: { top: 2, right: 3, bottom: 2, left: 3 },
  verticalAlignment: 'BOTTOM',
  wrapStrategy: 'OVERFLOW_CELL',
  textFormat: {
    foregroundColor: {},
    fontFamily: 'arial,sans,sans-serif',
    fontSize: 10,
    bold: false,
    italic: false,
    strikethrough: false,
    underline: false,
    foregroundColorStyle: { rgbColor: {} },
  },
  backgroundColorStyle: { rgbColor: white },
};

const writable = ['userEnteredValue', 'userEnteredFormat', 'note', 'dataValidation', 'textFormatRuns'];
const readOnly = ['effectiveValue', 'effectiveFormat', 'formattedValue', 'hyperlink'];

/** The cell `before` with the masked fields of `data`. Throws 501 for parts that are not stored. */
export function applyCellData(before: Cell, data: sheets_v4.Schema$CellData, mask: Mask): Cell {
  for (const name of Object.keys(mask === true ? data : mask)) {
    if (!writable.includes(name) && !readOnly.includes(name))
      throw notImplemented(`the cell field '${name}'`);
  }
  const named = (name: string): Mask | undefined => (mask === true ? true : mask[name]);
  const cell: { -readonly [K in keyof RichCell]?: RichCell[K] | undefined } = { ...rich(before) };
  if (named('userEnteredValue') !== undefined) {
    cell.value = undefined;
    cell.formula = undefined;
    Object.assign(cell, enteredValue(data.userEnteredValue));
  }
  const formatMask = named('userEnteredFormat');
  if (formatMask !== undefined)
    cell.format = mergeMasked(cell.format, data.userEnteredFormat ?? undefined, formatMask);
  if (named('note') !== undefined) cell.note = data.note || undefined;
  if (named('dataValidation') !== undefined) cell.validation = data.dataValidation ?? undefined;
  if (named('textFormatRuns') !== undefined) cell.textFormatRuns = data.textFormatRuns ?? undefined;
  return compact(cell as RichCell);
}

function enteredValue(
  value: sheets_v4.Schema$ExtendedValue | undefined,
): Pick<RichCell, 'value' | 'formula'> {
  if (value === undefined) return {};
  if (value.formulaValue != null) {
    if (!value.formulaValue.startsWith('='))
      throw invalidArgument('A formulaValue must start with an equals sign.');
    return { formula: value.formulaValue };
  }
  if (value.errorValue) throw invalidArgument('Error values cannot be written.');
  const entered = value.stringValue ?? value.numberValue ?? value.boolValue;
  return entered == null || entered === '' ? {} : { value: entered };
}

/** The CellData of a cell for `includeGridData`; `{}` for an empty cell. */
export function toCellData(
  at: { sheet: Sheet; row: number; column: number; cell: Cell },
  evaluator: Evaluator,
): sheets_v4.Schema$CellData {
  const { cell, sheet } = at;
  if (cell === null) return {};
  const { value, formula, format, note, validation, textFormatRuns } = rich(cell);
  const shown = formula === undefined ? (value ?? null) : evaluator.value(sheet, at.row, at.column);
  const effective = extendedValue(shown);
  const entered = formula === undefined ? extendedValue(value ?? null) : { formulaValue: formula };
  return {
    ...(entered && { userEnteredValue: entered }),
    ...(effective && { effectiveValue: effective, formattedValue: formattedValue(shown, format) }),
    ...(format && { userEnteredFormat: format }),
    effectiveFormat: effectiveFormat(format),
    ...(note !== undefined && { note }),
    ...(validation && { dataValidation: validation }),
    ...(textFormatRuns && { textFormatRuns }),
  };
}

function formattedValue(value: Value, format: CellFormat | undefined): string {
  return isError(value) ? errorText(value) : formatValue(value, format?.numberFormat);
}

function extendedValue(value: Value): sheets_v4.Schema$ExtendedValue | undefined {
  if (value === null) return undefined;
  if (typeof value === 'number') return { numberValue: value };
  if (typeof value === 'boolean') return { boolValue: value };
  return typeof value === 'string' ? { stringValue: value } : { errorValue: { ...value } };
}

function effectiveFormat(format: CellFormat | undefined): CellFormat {
  if (format === undefined) return defaultFormat;
  return {
    ...defaultFormat,
    ...format,
    ...(format.textFormat && { textFormat: { ...defaultFormat.textFormat, ...format.textFormat } }),
    ...(format.padding && { padding: { ...defaultFormat.padding, ...format.padding } }),
  };
}
