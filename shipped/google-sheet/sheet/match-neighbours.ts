/** Rows that changed, known by those around them. Pure. */
import { isAlike, isFree, type MatchRow, namesOf, type Sides } from './alike-rows.ts';

/**
 * Rows below and above a row that is known, as long as they are alike. Where as many rows stand there as before, each is the one
 * in its place; else a row was put in or taken out, and a value that no other row has goes before the place.
 */
export function pairNeighbours(sides: Sides): void {
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

/** Marks the rows that stand between the same two as before, as many as before. */
function evenGaps({ before, now, from, taken }: Sides): Uint8Array {
  const even = new Uint8Array(now.length);
  for (const { at, end, start, stop } of gapsOf({ before, now, from })) {
    if (stop - start === end - at && isAllFree(taken, start, stop)) even.fill(1, at, end);
  }
  return even;
}

type Gap = { at: number; end: number; start: number; stop: number };

/** Rows of now that are not known, and where those stood that were between the same two. */
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

/** The one row of before and the one of now that have a value; -1 where none or several have it. */
type Owner = { of: number; at: number };

/** Of the values of rows that are left. */
function ownersOf({ before, now, from }: Sides): Map<string, Owner> {
  const owners = new Map<string, Owner>();
  for (const [at, row] of now.entries()) {
    if (from[at] === -1) for (const name of namesOf(row)) owners.set(name, { of: -2, at: -2 });
  }
  const note = (rows: readonly MatchRow[], side: keyof Owner) => {
    for (const [place, row] of rows.entries()) {
      for (const name of namesOf(row)) {
        const owner = owners.get(name);
        if (owner !== undefined) owner[side] = owner[side] === -2 ? place : -1;
      }
    }
  };
  note(before, 'of');
  note(now, 'at');
  return owners;
}

/** Whether one of the two has a value of its own in common with another row that is left, and none with the other. */
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

/**
 * As many rows as stood between the same two, however much of them changed: each is the one in its place. Single ones too,
 * so that the one cell of a row can change.
 */
export function pairInPlace({ before, now, from, taken, pair }: Sides): void {
  for (const { at, end, start, stop } of gapsOf({ before, now, from })) {
    if (stop - start !== end - at || !isAllFree(taken, start, stop)) continue;
    for (let offset = 0; offset < end - at; offset++) pair(at + offset, start + offset);
  }
}

function isAllFree(taken: Uint8Array, start: number, stop: number): boolean {
  for (let of = start; of < stop; of++) if (taken[of] === 1) return false;
  return true;
}
