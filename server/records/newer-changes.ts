/**
 * Changes that a writer leaves alone: those that others made to a dataset after a position. A writer that lists what it
 * read a while ago so takes nothing back that came meanwhile, such as by a webhook.
 */
export class NewerChanges {
  readonly #after: number;
  /** Ranges of positions that the writer took, ascending: [first, last]. */
  readonly #own: [number, number][] = [];

  /** Those after this position of the dataset. */
  constructor(after: number) {
    this.#after = after;
  }

  /** Whether what stands at `seq` was written by somebody else after the position. */
  isOthers(seq: number): boolean {
    return seq > this.#after && !this.#own.some(([first, last]) => first <= seq && seq <= last);
  }

  /** Positions that the writer took, once that is committed; in the order of its writes. */
  noteOwn(first: number, count: number): void {
    if (count === 0) return;
    const range = this.#own.at(-1);
    const last = first + count - 1;
    if (range !== undefined && range[1] === first - 1) range[1] = last;
    else this.#own.push([first, last]);
  }
}
