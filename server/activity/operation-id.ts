import { randomFillSync } from 'node:crypto';

/**
 * Ids of operations: UUIDs of version 7 (RFC 9562 §5.7) with a counter behind the time (§6.2, method 1), so that those of
 * one node ascend in the order in which they were given out. The rest is random, and the same for all of a node.
 */
export class OperationIds {
  readonly #id = randomFillSync(Buffer.alloc(16));
  #epochMs = 0;
  #counter = 0;

  constructor() {
    this.#id[8] = 0x80 | (this.#id[8]! & 0x3f);
  }

  /** The time in the id that was given out last, in ms. */
  get epochMs(): number {
    return this.#epochMs;
  }

  /** 16 bytes, good until the next call. The time in them is this one, or that of the id before where that is later. */
  next(epochMs: number): Buffer {
    this.#counter += 1;
    if (epochMs > this.#epochMs) this.#begin(epochMs);
    else if (this.#counter > 0xfff) this.#begin(this.#epochMs + 1);
    this.#id[6] = 0x70 | (this.#counter >> 8);
    this.#id[7] = this.#counter & 0xff;
    return this.#id;
  }

  #begin(epochMs: number): void {
    this.#epochMs = epochMs;
    this.#counter = 0;
    this.#id.writeUIntBE(epochMs, 0, 6);
  }
}

/** When an operation was logged, out of its id. */
export function timeOfId(id: string): Date {
  return new Date(Number.parseInt(id.replaceAll('-', '').slice(0, 12), 16));
}

/** 48 bits of milliseconds: the year 10889. */
const latestMs = 2 ** 48 - 1;

/**
 * The lowest id of a time: what was logged before it is lower, what was logged from then on is not. Nothing was logged
 * before 1970.
 */
export function firstIdOf(epochMs: number): string {
  const hex = Math.min(Math.max(epochMs, 0), latestMs).toString(16).padStart(12, '0');
  return `${hex.slice(0, 8)}-${hex.slice(8)}-0000-0000-000000000000`;
}
