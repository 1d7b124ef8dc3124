/**
 * The columns of a sheet, and which of them are those of the last run. Pure.
 *
 * A column is known by its header. Where the header changed it is known by what it holds: a sketch of its values is kept
 * from one run to the next (the smallest of their hashes, so that two sketches tell how much two columns share).
 */
import { columnLetters } from './a1.ts';
import type { RawCell } from './cells.ts';
import { type Sketch, shared, sketchOf } from './sketch.ts';

export type Column = {
  /** The field's name: the header, made unique. */
  name: string;
  /** As it stands in the sheet; empty where there is none. */
  header: string;
  /** From 0. */
  index: number;
  sketch: Sketch;
};

export type ColumnChange = {
  change: 'added' | 'removed' | 'renamed' | 'moved';
  field: string;
  /** Of a field that was renamed: what it was called. */
  previous?: string;
};

/** Two columns are one where they share so much of their values. */
const enoughShared = 0.7;
/** Columns with fewer different values are alike by chance. */
const fewestValues = 3;

/** The columns that have a header or hold something, with the names they have by themselves. */
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

/** A header without what surrounds it, and with single spaces. */
export function headerOf(cell: RawCell): string {
  return cell === undefined || cell === null ? '' : String(cell).trim().replace(/\s+/g, ' ').normalize('NFC');
}

export type Matched = {
  /** With their names for this run. */
  columns: Column[];
  /** For each, the position in the columns of before; -1 where it is new. */
  from: number[];
  changes: ColumnChange[];
};

/**
 * Names the columns. One that was there before under the same header keeps its name; so does one without a header, or
 * with a header that stands twice, which is told by its values. A column whose header is new and whose values are those of
 * a column that is gone is that one, renamed.
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
  // Of those with one header, or none, the values tell; where they do not, the place does.
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
  // A header that was written over a column whose values say too little: it stands where the other stood, between the same two.
  for (const at of open()) {
    const same = inPlace(at);
    if (same === undefined || now.length !== before.length) continue;
    if (isLittle(before[same]!, now[at]!)) take(at, same);
  }
  return { columns: named(now, { before, from }), from, changes: changesOf(now, { before, from, left }) };
}

/** A value that more columns than this hold says too little of them. */
const maxRivals = 32;

/** The columns that are left, by the hashes of what they hold. */
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

/** Those that share a value with this one. */
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

function isLittle(a: Column, b: Column): boolean {
  const [fewest, max] = [
    Math.min(a.sketch.filled, b.sketch.filled),
    Math.max(a.sketch.filled, b.sketch.filled),
  ];
  if (a.sketch.min.length > fewestValues && b.sketch.min.length > fewestValues) return false;
  return fewest === max || shared(a.sketch, b.sketch) === 1;
}

function bestOf(column: Column, rivals: readonly number[], before: readonly Column[]): number | undefined {
  let best: { of: number; score: number } | undefined;
  for (const of of rivals) {
    const rival = before[of]!;
    if (Math.min(rival.sketch.min.length, column.sketch.min.length) < fewestValues) continue;
    const share = shared(rival.sketch, column.sketch);
    if (share < enoughShared) continue;
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
    // A name that was made up, or made unique, stays; a header that was changed is a new name.
    const isKept = old !== undefined && old.header === header && !taken.has(old.name);
    if (!isKept) return undefined;
    taken.set(old.name, 2);
    return old.name;
  });
  return now.map((column, at) => ({ ...column, name: names[at] ?? freeName(column, taken) }));
}

/** `taken` has for each name the number with which a free one is looked for. */
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

/** The fewest of these numbers without which the others ascend. */
function outOfOrder(order: readonly number[]): number[] {
  // Of the ascending rows of each length, where the one with the smallest last number ends.
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
