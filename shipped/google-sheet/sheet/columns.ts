/**
 * The columns of a sheet, matched with the columns of the last run. Pure.
 *
 * A column is identified by its header. If the header changed, it is identified by its values: a sketch of them is stored
 * between runs (the smallest hashes, MinHash), and two sketches give the share of common values.
 */
import { columnLetters } from './a1.ts';
import type { RawCell } from './cells.ts';
import { hashOf } from './hash.ts';

type Sketch = {
  /** The number of cells that are not empty. */
  filled: number;
  /** The smallest hashes of the distinct values, ascending. */
  min: number[];
};

export type Column = {
  /** The field's name: the header, made unique. */
  name: string;
  /** The header in the sheet; may be empty. */
  header: string;
  /** From 0. */
  index: number;
  sketch: Sketch;
};

export type ColumnChange = {
  change: 'added' | 'removed' | 'renamed' | 'moved';
  field: string;
  /** The old name of a renamed field. */
  previous?: string;
};

/** The share of common values from which two columns are the same column. */
const minShared = 0.7;
/** Columns with fewer distinct values are similar by chance. */
const minValues = 3;

/** The columns that have a header or values, not named yet. */
export function readColumns(
  headerCells: readonly RawCell[],
  rows: readonly (readonly RawCell[])[],
): Column[] {
  const width = rows.reduce((widest, row) => Math.max(widest, row.length), headerCells.length);
  const columns: Column[] = [];
  for (let index = 0; index < width; index++) {
    const header = headerOf(headerCells[index]);
    const sketch = sketchOf(rows, index);
    if (header !== '' || sketch.filled > 0) columns.push({ name: '', header, index, sketch });
  }
  return columns;
}

/** The text of a header cell, trimmed, with single spaces. */
export function headerOf(cell: RawCell): string {
  return cell === undefined || cell === null ? '' : String(cell).trim().replace(/\s+/g, ' ').normalize('NFC');
}

export type Matched = {
  /** The columns with their names for this run. */
  columns: Column[];
  /** For each column its index among the previous columns; -1 for a new column. */
  from: number[];
  changes: ColumnChange[];
};

/**
 * Names the columns. A column with the same header as before keeps its name. A column without a header, or with a header that
 * occurs twice, is identified by its values. A column with a new header and the values of a removed column is a renamed
 * column.
 */
export function matchColumns(before: readonly Column[], now: readonly Column[]): Matched {
  const from = now.map(() => -1);
  const left = new Set(before.keys());
  const take = (at: number, of: number) => {
    from[at] = of;
    left.delete(of);
  };
  const open = () => [...now.keys()].filter((at) => from[at] === -1);
  const headersNow = Map.groupBy(now.keys(), (at) => now[at]!.header);
  const headersBefore = Map.groupBy(before.keys(), (of) => before[of]!.header);
  for (const at of open()) {
    const { header } = now[at]!;
    const [of, another] = headersBefore.get(header) ?? [];
    if (header === '' || of === undefined || another !== undefined) continue;
    if (headersNow.get(header)!.length === 1) take(at, of);
  }
  // Columns that share a header, or have none, are matched by their values, then by their position.
  for (const at of open()) {
    const { header } = now[at]!;
    const rivals = (headersBefore.get(header) ?? []).filter((of) => left.has(of)).slice(0, maxRivals);
    const best = bestOf(now[at]!, rivals, before);
    if (best !== undefined) take(at, best);
  }
  const places = new Map(before.map(({ index }, of) => [index, of]));
  const inPlace = (at: number) => {
    const of = places.get(now[at]!.index);
    return of !== undefined && left.has(of) ? of : undefined;
  };
  for (const at of open()) {
    const same = inPlace(at);
    if (same !== undefined && before[same]!.header === now[at]!.header) take(at, same);
  }
  const holders = holdersOf(before, left);
  for (const at of open()) {
    const same = inPlace(at);
    const best =
      (same === undefined ? undefined : bestOf(now[at]!, [same], before)) ??
      bestOf(now[at]!, rivalsOf(now[at]!, { holders, left }), before);
    if (best !== undefined) take(at, best);
  }
  // A new header over a column with too few values to compare: the position decides if the number of columns is the same.
  for (const at of open()) {
    const same = inPlace(at);
    if (same === undefined || now.length !== before.length) continue;
    if (isComparedByPlace(before[same]!, now[at]!)) take(at, same);
  }
  return { columns: named(now, { before, from }), from, changes: changesOf(now, { before, from, left }) };
}

/** A value that more columns share does not identify a column. */
const maxRivals = 32;

/** The unmatched previous columns by the hashes of their values. */
function holdersOf(before: readonly Column[], left: ReadonlySet<number>): Map<number, number[]> {
  const holders = new Map<number, number[]>();
  for (const of of left) {
    for (const hash of before[of]!.sketch.min) {
      const there = holders.get(hash);
      if (there === undefined) holders.set(hash, [of]);
      else if (there.length <= maxRivals) there.push(of);
    }
  }
  return holders;
}

/** The unmatched previous columns that share a value with this column. */
function rivalsOf(
  { sketch }: Column,
  { holders, left }: { holders: ReadonlyMap<number, number[]>; left: ReadonlySet<number> },
): number[] {
  const rivals = new Set<number>();
  for (const hash of sketch.min) {
    const there = holders.get(hash) ?? [];
    if (there.length <= maxRivals) for (const of of there) if (left.has(of)) rivals.add(of);
  }
  return [...rivals];
}

/** Whether the columns have too few values to compare, and nothing shows that they are different. */
function isComparedByPlace(a: Column, b: Column): boolean {
  if (a.sketch.min.length > minValues && b.sketch.min.length > minValues) return false;
  return a.sketch.filled === b.sketch.filled || shared(a.sketch, b.sketch) === 1;
}

function bestOf(column: Column, rivals: readonly number[], before: readonly Column[]): number | undefined {
  let best: { of: number; score: number } | undefined;
  for (const of of rivals) {
    const rival = before[of]!;
    if (Math.min(rival.sketch.min.length, column.sketch.min.length) < minValues) continue;
    const share = shared(rival.sketch, column.sketch);
    if (share < minShared) continue;
    const score = share + (rival.index === column.index ? 0.5 : 0);
    if (best === undefined || score > best.score) best = { of, score };
  }
  return best?.of;
}

function named(
  now: readonly Column[],
  { before, from }: { before: readonly Column[]; from: readonly number[] },
): Column[] {
  const taken = new Map<string, number>();
  const names = now.map(({ header }, at) => {
    const old = before[from[at]!];
    // A generated or suffixed name stays while the header is the same. A changed header gives a new name.
    const isKept = old !== undefined && old.header === header && !taken.has(old.name);
    if (!isKept) return undefined;
    taken.set(old.name, 2);
    return old.name;
  });
  return now.map((column, at) => ({ ...column, name: names[at] ?? freeName(column, taken) }));
}

/** An unused name. `taken` holds the next suffix to try for each name. */
function freeName({ header, index }: Column, taken: Map<string, number>): string {
  const wanted = header === '' ? `Column ${columnLetters(index)}` : header;
  let name = wanted;
  let count = taken.get(wanted) ?? 2;
  for (; taken.has(name); count++) name = `${wanted} (${count})`;
  taken.set(wanted, count);
  taken.set(name, taken.get(name) ?? 2);
  return name;
}

function changesOf(
  now: readonly Column[],
  of: { before: readonly Column[]; from: readonly number[]; left: ReadonlySet<number> },
): ColumnChange[] {
  const { before, from, left } = of;
  const columns = named(now, of);
  const changes: ColumnChange[] = [];
  for (const [at, { name }] of columns.entries()) {
    const old = before[from[at]!];
    if (old === undefined) changes.push({ change: 'added', field: name });
    else if (old.name !== name) changes.push({ change: 'renamed', field: name, previous: old.name });
  }
  for (const at of left) changes.push({ change: 'removed', field: before[at]!.name });
  const order = from.filter((at) => at >= 0);
  const nameOf = new Map(from.map((of, at) => [of, columns[at]!.name]));
  for (const of of outOfOrder(order)) changes.push({ change: 'moved', field: nameOf.get(of)! });
  return changes;
}

/** The smallest set of numbers whose removal leaves an ascending list (longest increasing subsequence). */
function outOfOrder(order: readonly number[]): number[] {
  // For each length, the index where the ascending list with the smallest last number ends.
  const ends: number[] = [];
  const links: number[] = [];
  for (const [at, value] of order.entries()) {
    let [low, high] = [0, ends.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (order[ends[middle]!]! < value) low = middle + 1;
      else high = middle;
    }
    links[at] = low === 0 ? -1 : ends[low - 1]!;
    ends[low] = at;
  }
  const kept = new Set<number>();
  for (let at = ends.at(-1) ?? -1; at !== -1; at = links[at]!) kept.add(order[at]!);
  return order.filter((value) => !kept.has(value));
}

const maxHashes = 64;

function sketchOf(rows: readonly (readonly RawCell[])[], index: number): Sketch {
  const hashes = new Set<number>();
  let filled = 0;
  // A hash above the smallest `maxHashes` so far is not needed.
  let bound = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const cell = row[index];
    if (cell === undefined || cell === null || cell === '') continue;
    filled += 1;
    const hash = hashOf(cell);
    if (hash >= bound) continue;
    hashes.add(hash);
    if (hashes.size >= 4 * maxHashes) bound = keepLeast(hashes);
  }
  keepLeast(hashes);
  return { filled, min: [...hashes].sort((a, b) => a - b) };
}

function keepLeast(hashes: Set<number>): number {
  const kept = [...hashes].sort((a, b) => a - b).slice(0, maxHashes);
  hashes.clear();
  for (const hash of kept) hashes.add(hash);
  return kept.length < maxHashes ? Number.POSITIVE_INFINITY : kept.at(-1)!;
}

/** An estimate of the share of distinct values that two columns have in common. */
function shared(a: Sketch, b: Sketch): number {
  const union = [...new Set([...a.min, ...b.min])].sort((x, y) => x - y).slice(0, maxHashes);
  if (union.length === 0) return 0;
  const [ofA, ofB] = [new Set(a.min), new Set(b.min)];
  return union.filter((hash) => ofA.has(hash) && ofB.has(hash)).length / union.length;
}
