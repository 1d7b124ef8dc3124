/**
 * Matches the rows of a sheet with the rows of the last run, without a key. Pure; the time is about proportional to the
 * number of cells.
 *
 * Rows with equal content are matched first, wherever they are. The remaining rows have changed: they are matched by their
 * neighbours, by shared cells, and by position. All other rows are new.
 */
import { emptySignature } from './hash.ts';

/** The hashes of a row. */
export type MatchRow = {
  /** Equal if all cells are equal. */
  digest: string;
  /** One entry a column, equal if the cell is equal, in the same order for both sides. */
  signatures: readonly string[];
};

type Pair = (at: number, of: number) => void;
type Sides = {
  before: readonly MatchRow[];
  now: readonly MatchRow[];
  from: Int32Array;
  taken: Uint8Array;
  pair: Pair;
};

/** For each row of `now` its index in `before`, or -1. Each index occurs once at most. */
export function matchRows(before: readonly MatchRow[], now: readonly MatchRow[]): Int32Array {
  const from = new Int32Array(now.length).fill(-1);
  const taken = new Uint8Array(before.length);
  const pair = (at: number, of: number) => {
    from[at] = of;
    taken[of] = 1;
  };
  const sides = { before, now, from, taken, pair };
  pairEqual(sides);
  if (isAnyLeft(from, taken)) pairNeighbours(sides);
  if (isAnyLeft(from, taken)) pairAlike(sides);
  if (isAnyLeft(from, taken)) pairInPlace(sides);
  return from;
}

function isAnyLeft(from: Int32Array, taken: Uint8Array): boolean {
  return from.includes(-1) && taken.includes(0);
}

function isFree(taken: Uint8Array, of: number): boolean {
  return of >= 0 && of < taken.length && taken[of] === 0;
}

/** The number of equal cells that are not empty. */
function alikeCells(a: MatchRow, b: MatchRow): number {
  let count = 0;
  for (let at = 0; at < a.signatures.length; at++) {
    if (a.signatures[at] === b.signatures[at] && a.signatures[at] !== emptySignature) count += 1;
  }
  return count;
}

/** At least half of the cells that are not empty in either row are equal. */
function isAlike(a: MatchRow, b: MatchRow): boolean {
  let count = 0;
  for (let at = 0; at < a.signatures.length; at++) {
    if (a.signatures[at] !== emptySignature || b.signatures[at] !== emptySignature) count += 1;
  }
  const alike = alikeCells(a, b);
  return alike > 0 && alike * 2 >= count;
}

/** The values of a row that are not empty, each with its column. */
function namesOf({ signatures }: MatchRow): string[] {
  return signatures.flatMap((signature, column) =>
    signature === emptySignature ? [] : [`${column}:${signature}`],
  );
}

/**
 * Pairs rows with equal content. Among several equal rows, a row next to a matched row comes first, so that the unmatched
 * rows are where the sheet changed; the others are paired in order.
 */
function pairEqual({ before, now, from, taken, pair }: Sides): void {
  const places = new Map<string, number[]>();
  for (let of = before.length - 1; of >= 0; of--) {
    const { digest } = before[of]!;
    const there = places.get(digest);
    if (there === undefined) places.set(digest, [of]);
    else there.push(of);
  }
  const counts = new Map<string, number>();
  for (const { digest } of now) counts.set(digest, (counts.get(digest) ?? 0) + 1);
  for (const [at, { digest }] of now.entries()) {
    const there = places.get(digest);
    if (there?.length === 1 && counts.get(digest) === 1) pair(at, there[0]!);
  }
  const isEqual = (at: number, of: number) => isFree(taken, of) && before[of]!.digest === now[at]!.digest;
  for (let at = 0; at < now.length; at++) {
    const of = at === 0 ? 0 : from[at - 1]! + 1;
    if (from[at] === -1 && (at === 0 || of > 0) && isEqual(at, of)) pair(at, of);
  }
  for (let at = now.length - 1; at >= 0; at--) {
    const of = at === now.length - 1 ? before.length - 1 : from[at + 1]! - 1;
    if (from[at] === -1 && isEqual(at, of)) pair(at, of);
  }
  for (const [at, { digest }] of now.entries()) {
    if (from[at] !== -1) continue;
    const there = places.get(digest) ?? [];
    let of = there.pop();
    while (of !== undefined && taken[of] === 1) of = there.pop();
    if (of !== undefined) pair(at, of);
  }
}

/**
 * Pairs rows below and above a matched row, as long as they are alike. In a gap with as many rows as before, rows are paired
 * by position. Otherwise a row was inserted or removed, and a unique value counts more than the position.
 */
function pairNeighbours(sides: Sides): void {
  const { before, now, from, taken, pair } = sides;
  const even = evenGaps(sides);
  let owners: Map<string, Owner> | undefined;
  const isNext = (at: number, of: number) => {
    if (!isFree(taken, of) || !isAlike(before[of]!, now[at]!)) return false;
    if (even[at] === 1) return true;
    owners ??= ownersOf(sides);
    return !isAnothers(sides, { at, of, owners });
  };
  for (let at = 0; at < now.length; at++) {
    if (from[at] !== -1) continue;
    const of = at === 0 ? 0 : from[at - 1]! + 1;
    if (at > 0 && from[at - 1] === -1) continue;
    if (isNext(at, of)) pair(at, of);
  }
  for (let at = now.length - 1; at >= 0; at--) {
    if (from[at] !== -1) continue;
    const of = at === now.length - 1 ? before.length - 1 : from[at + 1]! - 1;
    if (at < now.length - 1 && from[at + 1] === -1) continue;
    if (isNext(at, of)) pair(at, of);
  }
}

/** Marks the rows of gaps that have as many rows as before. */
function evenGaps({ before, now, from, taken }: Sides): Uint8Array {
  const even = new Uint8Array(now.length);
  for (const { at, end, start, stop } of gapsOf({ before, now, from })) {
    if (stop - start === end - at && isAllFree(taken, start, stop)) even.fill(1, at, end);
  }
  return even;
}

type Gap = { at: number; end: number; start: number; stop: number };

/** Runs of unmatched rows, with the previous rows between the same two neighbours (ends are exclusive). */
function* gapsOf({ before, now, from }: Pick<Sides, 'before' | 'now' | 'from'>): Generator<Gap> {
  for (let at = 0; at < now.length; ) {
    if (from[at] !== -1) {
      at += 1;
      continue;
    }
    let end = at;
    while (end < now.length && from[end] === -1) end += 1;
    const start = at === 0 ? 0 : from[at - 1]! + 1;
    yield { at, end, start, stop: end === now.length ? before.length : from[end]! };
    at = end;
  }
}

/** The only previous row (`of`) and the only current row (`at`) with a value; negative if none or several rows have it. */
type Owner = { of: number; at: number };

/** The owners of the values of unmatched rows. */
function ownersOf({ before, now, from }: Sides): Map<string, Owner> {
  const owners = new Map<string, Owner>();
  for (const [at, row] of now.entries()) {
    if (from[at] === -1) for (const name of namesOf(row)) owners.set(name, { of: -2, at: -2 });
  }
  const addOwners = (rows: readonly MatchRow[], side: keyof Owner) => {
    for (const [place, row] of rows.entries()) {
      for (const name of namesOf(row)) {
        const owner = owners.get(name);
        if (owner !== undefined) owner[side] = owner[side] === -2 ? place : -1;
      }
    }
  };
  addOwners(before, 'of');
  addOwners(now, 'at');
  return owners;
}

/** Whether one of the two rows shares a unique value with another unmatched row, and they share none with each other. */
function isAnothers(
  { before, now, from, taken }: Sides,
  { at, of, owners }: { at: number; of: number; owners: ReadonlyMap<string, Owner> },
): boolean {
  let is = false;
  for (const name of [...namesOf(now[at]!), ...namesOf(before[of]!)]) {
    const owner = owners.get(name);
    if (owner === undefined || owner.at < 0 || owner.of < 0) continue;
    if (owner.at === at && owner.of === of) return false;
    if (from[owner.at] === -1 && isFree(taken, owner.of)) is = true;
  }
  return is;
}

/** A value that more rows share does not identify a row. */
const maxWithOneValue = 20;

/**
 * Pairs rows that moved and changed: with the row that shares most cells, if there is only one such row, and if they share
 * half of their cells or a value that no other row has, before or now.
 */
function pairAlike(sides: Sides): void {
  const { before, now, from, taken, pair } = sides;
  const own = ownValues(sides);
  const places = new Map<string, number[]>();
  for (let of = 0; of < before.length; of++) {
    if (taken[of] === 1) continue;
    for (const name of namesOf(before[of]!)) {
      const there = places.get(name);
      if (there === undefined) places.set(name, [of]);
      else if (there.length <= maxWithOneValue) there.push(of);
    }
  }
  for (let at = 0; at < now.length; at++) {
    if (from[at] !== -1) continue;
    const candidates = new Set<number>();
    for (const name of namesOf(now[at]!)) {
      const there = places.get(name);
      if (there === undefined || there.length > maxWithOneValue) continue;
      for (const of of there) if (taken[of] === 0) candidates.add(of);
    }
    const best = bestOf(now[at]!, [...candidates], { before, own });
    if (best !== undefined) pair(at, best);
  }
}

/** Values of unmatched rows that exactly one previous row and one current row have. */
function ownValues({ before, now, from }: Sides): Set<string> {
  const counts = new Map<string, number>();
  for (const [at, row] of now.entries())
    if (from[at] === -1) for (const name of namesOf(row)) counts.set(name, 0);
  // One number counts both sides.
  const count = (rows: readonly MatchRow[], by: number) => {
    for (const { signatures } of rows) {
      for (let column = 0; column < signatures.length; column++) {
        const name = `${column}:${signatures[column]}`;
        const known = counts.get(name);
        if (known !== undefined) counts.set(name, known + by);
      }
    }
  };
  count(before, 1_000_000_000);
  count(now, 1);
  return new Set([...counts].flatMap(([name, sum]) => (sum === 1_000_000_001 ? [name] : [])));
}

function bestOf(
  row: MatchRow,
  candidates: readonly number[],
  { before, own }: { before: readonly MatchRow[]; own: ReadonlySet<string> },
): number | undefined {
  let best: number | undefined;
  let max = 0;
  let isAlone = false;
  for (const of of candidates) {
    const count = alikeCells(before[of]!, row);
    if (count > max) [best, max, isAlone] = [of, count, true];
    else if (count === max) isAlone = false;
  }
  if (best === undefined || !isAlone) return undefined;
  const theirs = before[best]!.signatures;
  const sharesOwn = row.signatures.some(
    (signature, column) => signature === theirs[column] && own.has(`${column}:${signature}`),
  );
  return sharesOwn || isAlike(before[best]!, row) ? best : undefined;
}

/**
 * Pairs the rows of gaps that have as many rows as before by position, whatever changed in them. A gap may have a single row,
 * so that a row with one cell stays the same when this cell changes.
 */
function pairInPlace({ before, now, from, taken, pair }: Sides): void {
  for (const { at, end, start, stop } of gapsOf({ before, now, from })) {
    if (stop - start !== end - at || !isAllFree(taken, start, stop)) continue;
    for (let offset = 0; offset < end - at; offset++) pair(at + offset, start + offset);
  }
}

function isAllFree(taken: Uint8Array, start: number, stop: number): boolean {
  for (let of = start; of < stop; of++) if (taken[of] === 1) return false;
  return true;
}
