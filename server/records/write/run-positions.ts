import type { Dataset } from '../dataset.ts';

/** Positions of a dataset that a run of a sync has read or must not overwrite. */

/** Positions in one bit of a block of 2^16. */
const blockBits = 16;
const inBlock = 2 ** blockBits - 1;

/** A set of positions in ascending order. It takes 8 KB for each 65,536 positions that have a member. */
export class PositionSet {
  readonly #blocks = new Map<number, Uint8Array>();

  add(seq: number): void {
    const block = this.#blocks.getOrInsertComputed(blockOf(seq), () => new Uint8Array(2 ** blockBits / 8));
    const bit = bitOf(seq);
    block[bit >> 3] = (block[bit >> 3] as number) | (1 << (bit & 7));
  }

  /** The members up to `last`. */
  *upTo(last: number): Generator<number> {
    for (const at of [...this.#blocks.keys()].sort((a, b) => a - b)) {
      const block = this.#blocks.get(at) as Uint8Array;
      for (let bit = 0; bit <= inBlock; bit += 1) {
        const seq = at * 2 ** blockBits + bit;
        if (seq > last) return;
        if (((block[bit >> 3] as number) & (1 << (bit & 7))) !== 0) yield seq;
      }
    }
  }

  has(seq: number): boolean {
    const bit = bitOf(seq);
    const byte = this.#blocks.get(blockOf(seq))?.[bit >> 3] ?? 0;
    return (byte & (1 << (bit & 7))) !== 0;
  }
}

function blockOf(seq: number): number {
  return Math.floor(seq / 2 ** blockBits);
}

/** The low bits: `&` takes a number beyond 2^32 modulo that. */
function bitOf(seq: number): number {
  return seq & inBlock;
}

/**
 * What one run has saved of a dataset, whether or not delete tracking was open. A tracking that the run starts late or
 * a second time counts these records as read, and so does one that another caller opened meanwhile and the run ends.
 */
export class RunReads {
  /** The last position before the first save; undefined before it. */
  from: number | undefined;
  /** The number of live records before the first save. */
  records = Number.POSITIVE_INFINITY;
  /** The tracking that has all that the run has saved. It may be closed. Null or undefined if there is none. */
  tracking: string | null | undefined;
  readonly #unmoved = new PositionSet();

  /** Adds a save that found the dataset in this state and did not move the records at these positions. */
  add({ lastSeq, records, trackingId }: Dataset, seqs: readonly number[]): void {
    if (this.from === undefined) {
      this.from = lastSeq;
      this.records = records;
      this.tracking ??= trackingId;
    }
    for (const seq of seqs) this.#unmoved.add(seq);
  }

  /** The positions of saved records that have not moved since the first save. */
  *unmoved(): Generator<number> {
    if (this.from !== undefined) yield* this.#unmoved.upTo(this.from);
  }
}

/**
 * The changes that other writers made to a dataset after a position. A writer that read its list earlier skips them, so
 * that it does not undo a change that came meanwhile, for example by a webhook.
 */
export class NewerChanges {
  readonly #after: number;
  /** Ranges of positions that the writer took, ascending: [first, last]. */
  readonly #own: [number, number][] = [];

  constructor(after: number) {
    this.#after = after;
  }

  /** Whether another writer wrote what is at `seq` after the position. */
  isOthers(seq: number): boolean {
    return seq > this.#after && !this.#own.some(([first, last]) => first <= seq && seq <= last);
  }

  /** Adds positions that the writer took, after the commit and in the order of its writes. */
  addOwn({ first, count }: { first: number; count: number }): void {
    if (count === 0) return;
    const range = this.#own.at(-1);
    const last = first + count - 1;
    if (range !== undefined && range[1] === first - 1) range[1] = last;
    else this.#own.push([first, last]);
  }
}
