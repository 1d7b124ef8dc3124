import { PositionSet } from './positions.ts';

/**
 * What one run has saved of a dataset, whether or not delete tracking was open: a tracking that the run opens late, or opens
 * a second time, begins with it.
 */
export class RunReads {
  /** The last position before the first save; undefined before it. */
  from: number | undefined;
  readonly #unmoved = new PositionSet();

  /** A save that found the dataset at `lastSeq` and left the records at these positions where they were. */
  note(lastSeq: number, seqs: readonly number[]): void {
    this.from ??= lastSeq;
    for (const seq of seqs) this.#unmoved.add(seq);
  }

  /** Positions of records that were saved and still stand where they stood before the first save. */
  *unmoved(): Generator<number> {
    if (this.from !== undefined) yield* this.#unmoved.upTo(this.from);
  }
}
