/**
 * Evaluation of formulas, with a small part of Sheets' functions.
 *
 * It supports arithmetic, comparison, text joining, references, and the functions in `functions`. Any other function returns
 * `#NAME?` with a message that names the sandbox. Values are computed when they are read, and cached by their evaluator only.
 */
import { type Expression, parseFormula } from './formula-syntax.ts';
import { clip, type Rectangle, resolveA1 } from './ranges.ts';
import { getCell, type Scalar, type Sheet, type Spreadsheet } from './spreadsheet.ts';

/** An error as a cell's value. */
export interface CellError {
  readonly type: 'ERROR' | 'NULL_VALUE' | 'DIVIDE_BY_ZERO' | 'VALUE' | 'REF' | 'NAME' | 'NUM' | 'N_A';
  readonly message: string;
}

/** The value of a cell; `null` is an empty cell. */
export type Value = Scalar | CellError | null;

interface Range {
  readonly sheet: Sheet;
  readonly rectangle: Rectangle;
}
type Operand = Value | Range;

class FormulaFault extends Error {
  readonly error: CellError;
  constructor(type: CellError['type'], message: string) {
    super(message);
    this.error = { type, message };
  }
}

const errorTypes: Readonly<Record<string, CellError['type']>> = {
  '#REF!': 'REF',
  '#N/A': 'N_A',
  '#DIV/0!': 'DIVIDE_BY_ZERO',
  '#VALUE!': 'VALUE',
  '#NAME?': 'NAME',
  '#NUM!': 'NUM',
  '#NULL!': 'NULL_VALUE',
  '#ERROR!': 'ERROR',
};

/** Evaluates cells of one state of a spreadsheet. */
export interface Evaluator {
  value(sheet: Sheet, row: number, column: number): Value;
}

/** An evaluator for the current state of `spreadsheet`; create a new one after an edit. */
export function createEvaluator(spreadsheet: Spreadsheet): Evaluator {
  const known = new Map<string, Value>();
  const open = new Set<string>();
  const parsed = new Map<string, Expression | undefined>();

  function cellValue(sheet: Sheet, row: number, column: number): Value {
    const cell = getCell(sheet, row, column);
    if (cell === null || typeof cell !== 'object') return cell;
    if (cell.formula === undefined) return cell.value ?? null;
    const key = `${sheet.properties.sheetId}!${row},${column}`;
    const before = known.get(key);
    if (before !== undefined) return before;
    if (open.has(key)) {
      return {
        type: 'REF',
        message: 'Circular dependency detected. To resolve with iterative calculation, see File > Settings.',
      };
    }
    open.add(key);
    const value = evaluate(cell.formula, sheet);
    open.delete(key);
    known.set(key, value);
    return value;
  }

  function evaluate(formula: string, home: Sheet): Value {
    if (!parsed.has(formula)) parsed.set(formula, parseFormula(formula));
    const expression = parsed.get(formula);
    if (expression === undefined) return { type: 'ERROR', message: 'Formula parse error.' };
    try {
      // A reference to an empty cell has the value 0.
      return scalar(operand(expression, home)) ?? 0;
    } catch (fault) {
      if (fault instanceof FormulaFault) return fault.error;
      if (fault instanceof RangeError)
        return { type: 'REF', message: 'The formulas depend on each other too deeply.' };
      throw fault;
    }
  }

  function operand(expression: Expression, home: Sheet): Operand {
    switch (expression.kind) {
      case 'literal':
        return expression.value;
      case 'error':
        return { type: errorTypes[expression.text] ?? 'ERROR', message: 'Reference does not exist' };
      case 'range':
      case 'name':
        return range(expression, home);
      case 'unary': {
        const value = number(scalar(operand(expression.operand, home)));
        return expression.operator === '%' ? value / 100 : expression.operator === '-' ? -value : value;
      }
      case 'binary':
        return binary(
          expression.operator,
          scalar(operand(expression.left, home)),
          scalar(operand(expression.right, home)),
        );
      case 'call':
        return call(expression.name, expression.args, home);
    }
  }

  function range(
    expression: { kind: 'range'; text: string } | { kind: 'name'; name: string },
    home: Sheet,
  ): Range {
    const isName = expression.kind === 'name';
    const text = isName ? expression.name : expression.text.replaceAll('$', '');
    try {
      const asked = resolveA1(spreadsheet, text);
      // A reference without a sheet name is to the formula's own sheet, not to the first sheet.
      const sheet = isName || text.includes('!') ? asked.sheet : home;
      return { sheet, rectangle: clip({ sheet, area: asked.area }) };
    } catch {
      if (isName) throw new FormulaFault('NAME', `Unknown range name: '${text}'.`);
      throw new FormulaFault('REF', 'Reference does not exist');
    }
  }

  function scalar(value: Operand): Value {
    if (!isRange(value)) return value;
    const { sheet, rectangle: r } = value;
    if (r.endRow - r.startRow !== 1 || r.endColumn - r.startColumn !== 1) {
      throw new FormulaFault('VALUE', 'An array value could not be found.');
    }
    return cellValue(sheet, r.startRow, r.startColumn);
  }

  /** All values of the arguments. Values of ranges are marked, since most functions skip those of other types. */
  function* values(
    args: readonly (Expression | undefined)[],
    home: Sheet,
  ): Generator<{ value: Value; isOfRange: boolean }> {
    for (const arg of args) {
      const given = arg === undefined ? null : operand(arg, home);
      if (!isRange(given)) {
        yield { value: given, isOfRange: false };
        continue;
      }
      const { startRow, endRow, startColumn, endColumn } = given.rectangle;
      const last = Math.min(endRow, given.sheet.rows.length);
      for (let row = startRow; row < last; row += 1) {
        for (let column = startColumn; column < endColumn; column += 1) {
          yield { value: cellValue(given.sheet, row, column), isOfRange: true };
        }
      }
    }
  }

  function call(name: string, args: readonly (Expression | undefined)[], home: Sheet): Operand {
    const arg = (index: number): Value => {
      const expression = args[index];
      return expression === undefined ? null : scalar(operand(expression, home));
    };
    if (name === 'IF') return truth(arg(0)) ? arg(1) : args.length > 2 ? arg(2) : false;
    if (name === 'IFERROR') {
      try {
        const value = arg(0);
        return isError(value) ? (arg(1) ?? '') : value;
      } catch (fault) {
        if (fault instanceof FormulaFault) return arg(1) ?? '';
        throw fault;
      }
    }
    const body = Object.hasOwn(functions, name) ? functions[name] : undefined;
    if (body === undefined) {
      throw new FormulaFault('NAME', `The sandbox does not evaluate the function '${name}'.`);
    }
    return body([...values(args, home)]);
  }

  return { value: cellValue };
}

type Argument = { readonly value: Value; readonly isOfRange: boolean };

function numbers(args: readonly Argument[]): number[] {
  const found: number[] = [];
  for (const { value, isOfRange } of args) {
    if (isError(value)) throw new FormulaFault(value.type, value.message);
    if (!isOfRange && value !== null) found.push(number(value));
    else if (typeof value === 'number') found.push(value);
  }
  return found;
}

const none: number | undefined = undefined as number | undefined;
const sum = (list: readonly number[]): number => list.reduce((total, one) => total + one, 0);
const first = (args: readonly Argument[]): Value => args[0]?.value ?? null;

/** The functions of the sandbox, except IF and IFERROR, which do not evaluate all of their arguments. */
const functions: Readonly<Record<string, (args: readonly Argument[]) => Value>> = {
  SUM: (args) => sum(numbers(args)),
  AVERAGE: (args) => {
    const list = numbers(args);
    if (list.length === 0)
      throw new FormulaFault(
        'DIVIDE_BY_ZERO',
        'Evaluation of function AVERAGE caused a divide by zero error.',
      );
    return sum(list) / list.length;
  },
  MIN: (args) => numbers(args).reduce((a, b) => (a === undefined || b < a ? b : a), none) ?? 0,
  MAX: (args) => numbers(args).reduce((a, b) => (a === undefined || b > a ? b : a), none) ?? 0,
  COUNT: (args) => args.filter(({ value }) => typeof value === 'number').length,
  COUNTA: (args) => args.filter(({ value }) => value !== null).length,
  PRODUCT: (args) => numbers(args).reduce((a, b) => a * b, 1),
  CONCATENATE: (args) => args.map(({ value }) => text(value)).join(''),
  CONCAT: (args) => args.map(({ value }) => text(value)).join(''),
  AND: (args) => args.every(({ value }) => truth(value)),
  OR: (args) => args.some(({ value }) => truth(value)),
  NOT: (args) => !truth(first(args)),
  ABS: (args) => Math.abs(number(first(args))),
  ROUND: (args) => {
    const factor = 10 ** number(args[1]?.value ?? 0);
    const value = number(first(args)) * factor;
    return (Math.sign(value) * Math.round(Math.abs(value))) / factor;
  },
  LEN: (args) => text(first(args)).length,
  UPPER: (args) => text(first(args)).toUpperCase(),
  LOWER: (args) => text(first(args)).toLowerCase(),
  TRIM: (args) => text(first(args)).trim().replace(/ {2,}/g, ' '),
};

function binary(operator: string, left: Value, right: Value): Value {
  if (isError(left)) return left;
  if (isError(right)) return right;
  if (operator === '&') return text(left) + text(right);
  if ('=<>'.includes(operator[0] ?? '')) return compare(operator, left, right);
  const [a, b] = [number(left), number(right)];
  if (operator === '+') return a + b;
  if (operator === '-') return a - b;
  if (operator === '*') return a * b;
  if (operator === '^') return finite(a ** b);
  if (b === 0) throw new FormulaFault('DIVIDE_BY_ZERO', 'Function DIVIDE parameter 2 cannot be zero.');
  return a / b;
}

function compare(operator: string, left: Scalar | null, right: Scalar | null): boolean {
  const order = orderOf(left ?? blankLike(right), right ?? blankLike(left));
  if (operator === '=') return order === 0;
  if (operator === '<>') return order !== 0;
  if (operator === '<') return order < 0;
  if (operator === '>') return order > 0;
  return operator === '<=' ? order <= 0 : order >= 0;
}

function blankLike(other: Scalar | null): Scalar {
  return typeof other === 'string' ? '' : typeof other === 'boolean' ? false : 0;
}

const typeOrder = ['number', 'string', 'boolean'];

/** Numbers before text before booleans, text without regard to case: the order of Sheets' comparisons and sorts. */
export function orderOf(a: Scalar, b: Scalar): number {
  const types = typeOrder.indexOf(typeof a) - typeOrder.indexOf(typeof b);
  if (types !== 0) return types;
  if (typeof a === 'string') return a.localeCompare(String(b), 'en', { sensitivity: 'accent' });
  return Number(a) - Number(b);
}

function finite(value: number): number {
  if (!Number.isFinite(value)) throw new FormulaFault('NUM', 'The result is not a number.');
  return value;
}

function number(value: Value): number {
  if (isError(value)) throw new FormulaFault(value.type, value.message);
  if (typeof value !== 'string') return Number(value ?? 0);
  const read = value.trim() === '' ? Number.NaN : Number(value.replaceAll(',', ''));
  if (Number.isNaN(read)) {
    throw new FormulaFault(
      'VALUE',
      `Function expects number values. But '${value}' is a text and cannot be coerced to a number.`,
    );
  }
  return read;
}

function text(value: Value): string {
  if (isError(value)) throw new FormulaFault(value.type, value.message);
  if (typeof value === 'boolean') return value ? 'TRUE' : 'FALSE';
  return String(value ?? '');
}

function truth(value: Value): boolean {
  if (typeof value === 'string' && /^(true|false)$/i.test(value)) return value.toUpperCase() === 'TRUE';
  return number(value) !== 0;
}

/** Whether a value is an error. */
export function isError(value: Operand): value is CellError {
  return typeof value === 'object' && value !== null && 'type' in value;
}

function isRange(value: Operand): value is Range {
  return typeof value === 'object' && value !== null && 'rectangle' in value;
}
