/**
 * The columns of a sheet, and which of them are those of the last run. Pure.
 *
 * A column is known by its header. Where the header changed it is known by what it holds: a sketch of its values is kept
 * from one run to the next (the smallest of their hashes, so that two sketches tell how much two columns share).
 */
import { columnLetters } from './a1.ts';
import type { RawCell } from './cells.ts';
import { hashOf } from './hash.ts';

export type Sketch = {
  /** How many cells hold something. */
  filled: number;
  /** The smallest hashes of the distinct values, in order. */
  least: number[];
};

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

const mostHashes = 64;
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

function headerOf(cell: RawCell): string {
  return cell === undefined || cell === null ? '' : String(cell).trim().replace(/\s+/g, ' ').normalize('NFC');
}

function sketchOf(rows: readonly (readonly RawCell[])[], index: number): Sketch {
  const hashes = new Set<number>();
  let filled = 0;
  // Once there are many, what is larger than the smallest so far need not be kept.
  let bound = Number.POSITIVE_INFINITY;
  for (const row of rows) {
    const cell = row[index];
    if (cell === undefined || cell === null || cell === '') continue;
    filled += 1;
    const hash = hashOf(cell);
    if (hash >= bound) continue;
    hashes.add(hash);
    if (hashes.size >= 4 * mostHashes) bound = keepLeast(hashes);
  }
  keepLeast(hashes);
  return { filled, least: [...hashes].sort((a, b) => a - b) };
}

function keepLeast(hashes: Set<number>): number {
  const kept = [...hashes].sort((a, b) => a - b).slice(0, mostHashes);
  hashes.clear();
  for (const hash of kept) hashes.add(hash);
  return kept.length < mostHashes ? Number.POSITIVE_INFINITY : kept.at(-1)!;
}

/** About which share of their different values two columns have in common. */
export function shared(a: Sketch, b: Sketch): number {
  const union = [...new Set([...a.least, ...b.least])].sort((x, y) => x - y).slice(0, mostHashes);
  if (union.length === 0) return 0;
  const [ofA, ofB] = [new Set(a.least), new Set(b.least)];
  return union.filter((hash) => ofA.has(hash) && ofB.has(hash)).length / union.length;
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
  const isAlone = (columns: readonly Column[], header: string) =>
    columns.filter((column) => column.header === header).length === 1;
  for (const at of open()) {
    const { header } = now[at]!;
    if (header === '' || !isAlone(now, header) || !isAlone(before, header)) continue;
    take(
      at,
      before.findIndex((column) => column.header === header),
    );
  }
  // Of those with one header, or none, the values tell; where they do not, the place does.
  for (const at of open()) {
    const { header } = now[at]!;
    const rivals = [...left].filter((of) => before[of]!.header === header);
    const best = bestOf(now[at]!, rivals, before);
    if (best !== undefined) take(at, best);
  }
  for (const at of open()) {
    const { header, index } = now[at]!;
    const same = [...left].find((of) => before[of]!.header === header && before[of]!.index === index);
    if (same !== undefined) take(at, same);
  }
  for (const at of open()) {
    const best = bestOf(now[at]!, [...left], before);
    if (best !== undefined) take(at, best);
  }
  // A header that was written over a column whose values say too little: it stands where the other stood, between the same two.
  for (const at of open()) {
    const same = [...left].find(
      (of) => before[of]!.index === now[at]!.index && isLittle(before[of]!, now[at]!),
    );
    if (same !== undefined && now.length === before.length) take(at, same);
  }
  return { columns: named(now, { before, from }), from, changes: changesOf(now, { before, from, left }) };
}

function isLittle(a: Column, b: Column): boolean {
  const [fewest, most] = [
    Math.min(a.sketch.filled, b.sketch.filled),
    Math.max(a.sketch.filled, b.sketch.filled),
  ];
  if (a.sketch.least.length > fewestValues && b.sketch.least.length > fewestValues) return false;
  return fewest === most || shared(a.sketch, b.sketch) === 1;
}

function bestOf(column: Column, rivals: readonly number[], before: readonly Column[]): number | undefined {
  let best: { of: number; score: number } | undefined;
  for (const of of rivals) {
    const rival = before[of]!;
    if (Math.min(rival.sketch.least.length, column.sketch.least.length) < fewestValues) continue;
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
  const taken = new Set<string>();
  const names = now.map(({ header }, at) => {
    const old = before[from[at]!];
    // A name that was made up, or made unique, stays; a header that was changed is a new name.
    const isKept = old !== undefined && old.header === header && !taken.has(old.name);
    if (!isKept) return undefined;
    taken.add(old.name);
    return old.name;
  });
  return now.map((column, at) => ({ ...column, name: names[at] ?? freeName(column, taken) }));
}

function freeName({ header, index }: Column, taken: Set<string>): string {
  const wanted = header === '' ? `Column ${columnLetters(index)}` : header;
  let name = wanted;
  for (let count = 2; taken.has(name); count++) name = `${wanted} (${count})`;
  taken.add(name);
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
  for (const at of outOfOrder(order)) {
    changes.push({ change: 'moved', field: columns[from.indexOf(at)]!.name });
  }
  return changes;
}

/** The fewest of these numbers without which the others ascend. */
function outOfOrder(order: readonly number[]): number[] {
  const lengths: number[] = [];
  const links: number[] = [];
  let last = -1;
  for (const [at, value] of order.entries()) {
    lengths[at] = 1;
    links[at] = -1;
    for (let of = 0; of < at; of++) {
      if (order[of]! < value && lengths[of]! + 1 > lengths[at]!) {
        lengths[at] = lengths[of]! + 1;
        links[at] = of;
      }
    }
    if (last === -1 || lengths[at]! > lengths[last]!) last = at;
  }
  const kept = new Set<number>();
  for (let at = last; at !== -1; at = links[at]!) kept.add(order[at]!);
  return order.filter((value) => !kept.has(value));
}
