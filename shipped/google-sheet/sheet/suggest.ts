/** What a set-up suggests for a tab. Pure. */
import { type ColumnKind, type RawCell, textOf } from './cells.ts';
import type { Column } from './columns.ts';
import { isBlank } from './table.ts';

const farthestHeader = 20;

/** The row, from 0, that looks like a header: texts that differ, most of them, above what they are headers of. */
export function suggestHeader(values: readonly (readonly RawCell[])[]): number {
  let best = 0;
  let max = 0;
  for (const [index, row] of values.slice(0, farthestHeader).entries()) {
    const filled = row.filter((cell) => !isBlank(cell));
    const texts = filled.filter((cell) => typeof cell === 'string');
    const isHeader =
      texts.length === filled.length && new Set(texts.map((cell) => textOf(cell!))).size === texts.length;
    if (isHeader && filled.length > max) [best, max] = [index, filled.length];
  }
  return best;
}

export type ColumnType = 'text' | 'number' | 'boolean' | 'date' | 'time' | 'datetime' | 'mixed' | 'empty';

export type Described = { type: ColumnType; filled: number; distinct: number };

/** What the cells of a column are, by their values and their formats. */
export function describeColumn(cells: readonly RawCell[], kind: ColumnKind): Described {
  const filled = cells.filter((cell) => !isBlank(cell));
  const types = new Set(
    filled.map((cell) => (typeof cell === 'number' && kind !== 'plain' ? kind : typeOf(cell))),
  );
  const [type] = types;
  return {
    type: types.size > 1 ? 'mixed' : (type ?? 'empty'),
    filled: filled.length,
    distinct: new Set(filled.map((cell) => textOf(cell!))).size,
  };
}

function typeOf(cell: RawCell): ColumnType {
  if (typeof cell === 'number') return 'number';
  return typeof cell === 'boolean' ? 'boolean' : 'text';
}

const keyLike = /(^|[\s_-])(id|key|no\.?|nr\.?|number|code|sku|e-?mail|uuid)$|^(id|key|sku|e-?mail)\b/i;

/** The column whose cells look most like keys: each row has one, and no two the same. */
export function suggestKey(
  columns: readonly Column[],
  { described, rows }: { described: readonly Described[]; rows: number },
): string | undefined {
  const fit = columns.filter((_, at) => {
    const { type, filled, distinct } = described[at]!;
    return rows > 0 && filled === rows && distinct === rows && (type === 'text' || type === 'number');
  });
  const named = fit.find(({ header }) => keyLike.test(header));
  return named?.name;
}
