import type { Head } from './relay.ts';
import { Sample, type Sampled } from './sample.ts';

/**
 * Shows an answer to `tell`, once: as soon as there is enough of it, it has ended, or its call is over. So nobody who
 * must know of a refusal waits for a caller who reads slowly.
 */
export class Watch {
  readonly #sample: Sample;
  #tell: ((answer: Sampled) => void) | undefined;

  constructor(head: Head, tell: (answer: Sampled) => void) {
    this.#sample = new Sample(head);
    this.#tell = tell;
  }

  add(part: Buffer): void {
    this.#sample.add(part);
    if (this.#sample.isFull) this.end();
  }

  /** Nothing more will come. Harmless when it has been told. */
  end(): void {
    const tell = this.#tell;
    this.#tell = undefined;
    tell?.(this.#sample.answer());
  }
}
