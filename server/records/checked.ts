/** Bytes that are sealed in one go: about 15 ms. One record may have more. */
const pieceBytes = 4 * 1024 * 1024;

/** Where a record stands in the bytes of its piece: its payload first, then the form that is hashed. */
export type Span = { id: string; start: number; textEnd: number; end: number };
/** Some records of a call, in its order. */
export type Piece = { bytes: Uint8Array<ArrayBuffer>; spans: Span[] };

/** A record that can be stored. */
export type CheckedRecord = {
  id: string;
  /** The payload as JSON text, keys in the order they were sent, without `id` and the metadata key. */
  text: string;
  /** The same with sorted keys and without ignored fields: what tells whether it changed. */
  canonical: string;
};

/**
 * The records of a call, ready to seal; of two with one id the last stands.
 *
 * Kept as UTF-8 in a few large pieces, which can be handed to another thread: the strings of a thousand records would
 * be copied by the garbage collector for as long as the call takes.
 */
export class CheckedRecords {
  readonly #expected: number;
  readonly #pieces: Buffer<ArrayBuffer>[] = [];
  readonly #placed = new Map<string, { piece: number; span: Span }>();
  readonly #duplicates = new Set<string>();
  #end = 0;

  /** `expected` is how many there may be. */
  constructor(expected: number) {
    this.#expected = expected;
  }

  get size(): number {
    return this.#placed.size;
  }

  /** Ids that came more than once. */
  get duplicates(): string[] {
    return [...this.#duplicates];
  }

  add({ id, text, canonical }: CheckedRecord): void {
    const bytes = this.#reserve((text.length + canonical.length) * 3);
    const start = this.#end;
    const textEnd = start + bytes.write(text, start);
    this.#end = textEnd + bytes.write(canonical, textEnd);
    if (this.#placed.delete(id)) this.#duplicates.add(id);
    const span = { id, start, textEnd, end: this.#end };
    this.#placed.set(id, { piece: this.#pieces.length - 1, span });
  }

  pieces(): Piece[] {
    const pieces: Piece[] = this.#pieces.map((bytes) => ({ bytes, spans: [] }));
    for (const { piece, span } of this.#placed.values()) pieces[piece]?.spans.push(span);
    return pieces.filter(({ spans }) => spans.length > 0);
  }

  /** The piece that has room for so many bytes. */
  #reserve(most: number): Buffer<ArrayBuffer> {
    const last = this.#pieces.at(-1);
    if (last !== undefined && this.#end + most <= last.length) return last;
    const started = Buffer.allocUnsafeSlow(Math.max(most, Math.min(most * this.#expected, pieceBytes)));
    this.#pieces.push(started);
    this.#end = 0;
    return started;
  }
}
