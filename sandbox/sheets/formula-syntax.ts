/**
 * The syntax of formulas: tokens, expressions, and the references inside a formula text.
 *
 * It parses formulas, and rewrites their references when rows move or sheets are renamed.
 */
import { columnIndex, columnName, quoteTitle } from './a1.ts';

export type Expression =
  | { readonly kind: 'literal'; readonly value: string | number | boolean }
  | { readonly kind: 'error'; readonly text: string }
  | { readonly kind: 'range'; readonly text: string }
  | { readonly kind: 'name'; readonly name: string }
  | { readonly kind: 'call'; readonly name: string; readonly args: readonly (Expression | undefined)[] }
  | { readonly kind: 'unary'; readonly operator: string; readonly operand: Expression }
  | {
      readonly kind: 'binary';
      readonly operator: string;
      readonly left: Expression;
      readonly right: Expression;
    };

type Token = {
  readonly kind: 'string' | 'error' | 'range' | 'number' | 'name' | 'operator';
  readonly text: string;
};

const column = String.raw`\$?[A-Za-z]{1,3}`;
const row = String.raw`\$?[1-9]\d{0,7}`;
const sheetPrefix = String.raw`(?:(?:'(?:[^']|'')+'|[A-Za-z_][\w.]*)!)?`;
const cells = `(?:${column}${row}(?::${column}(?:${row})?)?|${column}:${column}(?:${row})?|${row}:${row})`;
const patterns = [
  ['space', /\s+/y],
  ['string', /"(?:[^"]|"")*"/y],
  ['error', /#(?:REF!|N\/A|DIV\/0!|VALUE!|NAME\?|NUM!|NULL!|ERROR!)/y],
  ['range', new RegExp(String.raw`${sheetPrefix}${cells}(?![\w(.!])`, 'y')],
  ['number', /(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?/y],
  ['name', /[A-Za-z_][\w.]*/y],
  ['operator', /<=|>=|<>|[-+*/^&=<>%(),;]/y],
] as const;

/** Splits a formula into tokens, including spaces; undefined if a character cannot be part of a formula. */
function tokenize(text: string): { kind: Token['kind'] | 'space'; text: string }[] | undefined {
  const tokens: { kind: Token['kind'] | 'space'; text: string }[] = [];
  let at = 0;
  scan: while (at < text.length) {
    for (const [kind, pattern] of patterns) {
      pattern.lastIndex = at;
      const found = pattern.exec(text)?.[0];
      if (found === undefined) continue;
      tokens.push({ kind, text: found });
      at += found.length;
      continue scan;
    }
    return undefined;
  }
  return tokens;
}

const binding: Readonly<Record<string, number>> = {
  '=': 1,
  '<>': 1,
  '<': 1,
  '>': 1,
  '<=': 1,
  '>=': 1,
  '&': 2,
  '+': 3,
  '-': 3,
  '*': 4,
  '/': 4,
  '^': 6,
};

/** Parses a formula (with its `=`). Undefined if it is invalid; Sheets shows `#ERROR!` for it. */
export function parseFormula(formula: string): Expression | undefined {
  const scanned = tokenize(formula.slice(1));
  if (scanned === undefined) return undefined;
  const tokens = scanned.filter((token) => token.kind !== 'space');
  let at = 0;
  const peek = () => tokens[at]?.text;

  function expression(minimum: number): Expression | undefined {
    let left = prefix();
    while (left !== undefined) {
      const operator = peek() ?? '';
      if (operator === '%' && tokens[at]?.kind === 'operator') {
        at += 1;
        left = { kind: 'unary', operator: '%', operand: left };
        continue;
      }
      const strength = tokens[at]?.kind === 'operator' ? binding[operator] : undefined;
      if (strength === undefined || strength < minimum) return left;
      at += 1;
      const right = expression(strength + 1);
      left = right && { kind: 'binary', operator, left, right };
    }
    return undefined;
  }

  function prefix(): Expression | undefined {
    const token = tokens[at];
    at += 1;
    if (token === undefined) return undefined;
    if (token.kind === 'string')
      return { kind: 'literal', value: token.text.slice(1, -1).replaceAll('""', '"') };
    if (token.kind === 'number') return { kind: 'literal', value: Number(token.text) };
    if (token.kind === 'error') return { kind: 'error', text: token.text };
    if (token.kind === 'range') return { kind: 'range', text: token.text };
    if (token.kind === 'name') return named(token.text);
    if (token.text === '-' || token.text === '+') {
      // A sign has a higher precedence than a power: `-2^2` is 4.
      const operand = expression(7);
      return operand && { kind: 'unary', operator: token.text, operand };
    }
    if (token.text !== '(') return undefined;
    const inner = expression(0);
    if (peek() !== ')') return undefined;
    at += 1;
    return inner;
  }

  function named(name: string): Expression | undefined {
    if (peek() !== '(') {
      const word = name.toUpperCase();
      return word === 'TRUE' || word === 'FALSE'
        ? { kind: 'literal', value: word === 'TRUE' }
        : { kind: 'name', name };
    }
    at += 1;
    const args: (Expression | undefined)[] = [];
    if (peek() === ')') {
      at += 1;
      return { kind: 'call', name: name.toUpperCase(), args };
    }
    for (;;) {
      const isEmpty = peek() === ',' || peek() === ';' || peek() === ')';
      const arg = isEmpty ? undefined : expression(0);
      if (!isEmpty && arg === undefined) return undefined;
      args.push(arg);
      const next = peek();
      at += 1;
      if (next === ')') return { kind: 'call', name: name.toUpperCase(), args };
      if (next !== ',' && next !== ';') return undefined;
    }
  }

  const parsed = expression(0);
  return at === tokens.length ? parsed : undefined;
}

/** A corner of a reference; an absent part is open, `$` signs are kept. */
export interface ReferenceCorner {
  readonly row?: { readonly index: number; readonly isFixed: boolean };
  readonly column?: { readonly index: number; readonly isFixed: boolean };
}

/** A reference in a formula. `to` is absent for a single cell; `sheet` for the formula's own sheet. */
export interface Reference {
  readonly sheet?: string;
  readonly from: ReferenceCorner;
  readonly to?: ReferenceCorner;
}

/** The formula with each reference replaced by the result of `change`; undefined becomes `#REF!`. */
export function mapReferences(
  formula: string,
  change: (reference: Reference) => Reference | undefined,
): string {
  const tokens = tokenize(formula.slice(1));
  if (tokens === undefined) return formula;
  const parts = tokens.map((token) => {
    if (token.kind !== 'range') return token.text;
    const reference = parseReference(token.text);
    const changed = change(reference);
    return changed === reference ? token.text : changed === undefined ? '#REF!' : formatReference(changed);
  });
  return `=${parts.join('')}`;
}

/** The sheet's title of a range text such as `'My sheet'!A1`, and its cells. */
function parseReference(text: string): Reference {
  const bang = text.lastIndexOf('!');
  const prefix = bang < 0 ? undefined : text.slice(0, bang);
  const sheet = prefix?.startsWith("'") ? prefix.slice(1, -1).replaceAll("''", "'") : prefix;
  const [from = '', to] = text.slice(bang + 1).split(':');
  return {
    ...(sheet !== undefined && { sheet }),
    from: parseCorner(from),
    ...(to !== undefined && { to: parseCorner(to) }),
  };
}

function parseCorner(text: string): ReferenceCorner {
  const [, columnMark, letters, rowMark, digits] = /^(\$?)([A-Za-z]*)(\$?)(\d*)$/.exec(text) ?? [];
  // In `$3` the expression above matches the `$` as that of the column.
  const isRowFixed = rowMark === '$' || (letters === '' && columnMark === '$');
  return {
    ...(digits && { row: { index: Number(digits) - 1, isFixed: isRowFixed } }),
    ...(letters && { column: { index: columnIndex(letters), isFixed: columnMark === '$' } }),
  };
}

function formatReference({ sheet, from, to }: Reference): string {
  const cellsText = to === undefined ? formatCorner(from) : `${formatCorner(from)}:${formatCorner(to)}`;
  return sheet === undefined ? cellsText : `${quoteTitle(sheet)}!${cellsText}`;
}

function formatCorner({ row: r, column: c }: ReferenceCorner): string {
  const columnText = c === undefined ? '' : `${c.isFixed ? '$' : ''}${columnName(c.index)}`;
  return columnText + (r === undefined ? '' : `${r.isFixed ? '$' : ''}${r.index + 1}`);
}
