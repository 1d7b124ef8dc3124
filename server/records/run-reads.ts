import type { Dataset } from './dataset.ts';
import { PositionSet } from './positions.ts';

/**
 * What one run has saved of a dataset, whether or not delete tracking was open: a tracking that the run starts late or a second
 * time, or ends though another caller opened it meanwhile, counts it as seen.
 */
export class RunReads {
  /** The last position before the first save; undefined before it. */
  from: number | undefined;
  /** How many records were live before the first save. */
  records = Number.POSITIVE_INFINITY;
  /** The tracking that holds all that the run has saved; it may be closed. Null or undefined where none does. */
  tracking: string | null | undefined;
  readonly #unmoved = new PositionSet();

  /** A save that found the dataset so and left the records at these positions where they were. */
  note({ lastSeq, records, trackingId }: Dataset, seqs: readonly number[]): void {
    if (this.from === undefined) {
      this.from = lastSeq;
      this.records = records;
      this.tracking ??= trackingId;
    }
    for (const seq of seqs) this.#unmoved.add(seq);
  }

  /** Positions of records that were saved and still stand where they stood before the first save. */
  *unmoved(): Generator<number> {
    if (this.from !== undefined) yield* this.#unmoved.upTo(this.from);
  }
}
