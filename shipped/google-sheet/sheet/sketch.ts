/** What a column holds, in a few numbers. Pure. */
import type { RawCell } from './cells.ts';
import { hashOf } from './hash.ts';

export type Sketch = {
  /** How many cells hold something. */
  filled: number;
  /** The smallest hashes of the distinct values, in order. */
  min: number[];
};

const maxHashes = 64;

export function sketchOf(rows: readonly (readonly RawCell[])[], index: number): Sketch {
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

/** About which share of their different values two columns have in common. */
export function shared(a: Sketch, b: Sketch): number {
  const union = [...new Set([...a.min, ...b.min])].sort((x, y) => x - y).slice(0, maxHashes);
  if (union.length === 0) return 0;
  const [ofA, ofB] = [new Set(a.min), new Set(b.min)];
  return union.filter((hash) => ofA.has(hash) && ofB.has(hash)).length / union.length;
}
