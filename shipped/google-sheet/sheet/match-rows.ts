/**
 * Which row of before a row of now is, where no key tells it. Pure, and in time about that of reading them.
 *
 * Rows that hold the same are the same, wherever they stand. What is left has changed: it is known by its neighbours, in
 * order, and by how much of it is as it was. What still is left is new.
 */

import { alikeCells, isAlike, isFree, type MatchRow, namesOf, type Sides } from './alike-rows.ts';
import { pairInPlace, pairNeighbours } from './match-neighbours.ts';

/** For each row of `now` its position in `before`, -1 where it was not there. No position is given twice. */
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

/**
 * Rows that hold the same. Of several that are equal among themselves each is the one behind or before a row that is known,
 * where there is such a one, so that what is left over is left where something changed; the others go by their order.
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

/** A value that more rows than this have in common says too little of them. */
const maxWithOneValue = 20;

/**
 * Rows that moved and changed: the one with which it shares most of its cells, if it is the only such and they are half of
 * them, or one of them is a value that no other row has, neither before nor now.
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

/** Values of rows that are left, which one row of before and one of now have, and no other. */
function ownValues({ before, now, from }: Sides): Set<string> {
  const counts = new Map<string, number>();
  for (const [at, row] of now.entries())
    if (from[at] === -1) for (const name of namesOf(row)) counts.set(name, 0);
  // One number tells of both sides.
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
