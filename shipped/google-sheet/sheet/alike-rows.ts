/** Rows before and now, which of them are known, and how two are compared. Pure. */
import { emptySignature } from './hash.ts';

/** A row as it is compared. */
export type MatchRow = {
  /** Equal where all cells are. */
  digest: string;
  /** One entry a column, equal where the cell is, in the same order for both sides. */
  signatures: readonly string[];
};

type Pair = (at: number, of: number) => void;
export type Sides = {
  before: readonly MatchRow[];
  now: readonly MatchRow[];
  from: Int32Array;
  taken: Uint8Array;
  pair: Pair;
};

export function isFree(taken: Uint8Array, of: number): boolean {
  return of >= 0 && of < taken.length && taken[of] === 0;
}

/** How many cells that hold something are as they were. */
export function alikeCells(a: MatchRow, b: MatchRow): number {
  let count = 0;
  for (let at = 0; at < a.signatures.length; at++) {
    if (a.signatures[at] === b.signatures[at] && a.signatures[at] !== emptySignature) count += 1;
  }
  return count;
}

/** Half of the cells that hold something in either are as they were. */
export function isAlike(a: MatchRow, b: MatchRow): boolean {
  let count = 0;
  for (let at = 0; at < a.signatures.length; at++) {
    if (a.signatures[at] !== emptySignature || b.signatures[at] !== emptySignature) count += 1;
  }
  const alike = alikeCells(a, b);
  return alike > 0 && alike * 2 >= count;
}

/** The values of a row that holds something, each with its column. */
export function namesOf({ signatures }: MatchRow): string[] {
  return signatures.flatMap((signature, column) =>
    signature === emptySignature ? [] : [`${column}:${signature}`],
  );
}
