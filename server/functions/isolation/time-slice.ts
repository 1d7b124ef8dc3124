/** How long the service works for customer code in one turn of the event loop, beyond one piece of work. */
const sliceMs = 5;

/**
 * The time that all channels together may take of one turn of the event loop, so that requests are answered in between
 * however much the processes of customer code send.
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

/** That of all processes of customer code. */
export const slice = new TimeSlice();
