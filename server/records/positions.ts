/** Positions in one bit of a block of 2^16. */
const blockBits = 16;
const inBlock = 2 ** blockBits - 1;

/** A set of positions, listed in order, 8 KB for each 65,536 of them that it touches. */
export class PositionSet {
  readonly #blocks = new Map<number, Uint8Array>();

  add(seq: number): void {
    const block = this.#blocks.getOrInsertComputed(blockOf(seq), () => new Uint8Array(2 ** blockBits / 8));
    const bit = bitOf(seq);
    block[bit >> 3] = (block[bit >> 3] as number) | (1 << (bit & 7));
  }

  /** Those at or below `last`, ascending. */
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
