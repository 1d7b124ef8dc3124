/** How long the service handles data of customer code in one turn of the event loop; one item more may follow. */
const sliceMs = 5;

/**
 * The time that all channels together may take in one turn of the event loop. Requests are answered in between, whatever
 * amount the processes of customer code send.
 */
export class TimeSlice {
  readonly #nowMs: () => number;
  #endsAt: number | undefined;
  #waiting: (() => void)[] = [];
  #isScheduled = false;

  /** Times in milliseconds of any clock that does not go back. */
  constructor(nowMs = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  isSpent(): boolean {
    if (this.#endsAt === undefined) {
      this.#endsAt = this.#nowMs() + sliceMs;
      this.#schedule();
      return false;
    }
    return this.#nowMs() > this.#endsAt;
  }

  /** Calls `work` in a later turn, in the order of the calls. */
  next(work: () => void): void {
    this.#waiting.push(work);
    this.#schedule();
  }

  /** Resolves in a turn that has time left. */
  async turn(): Promise<void> {
    while (this.isSpent()) await new Promise<void>((resolve) => this.next(resolve));
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#endsAt = undefined;
      for (const work of this.#waiting.splice(0)) work();
    });
  }
}

/** The slice that all processes of customer code share. */
export const slice = new TimeSlice();
