import { reserve } from './large.ts';

/** Bytes that are sealed in one go: about 4 ms. One record may have more. */
const pieceBytes = 1024 * 1024;

/**
 * Some records of a call, in its order, as UTF-8: of each the payload, and behind it the form that is hashed. `marks`
 * holds three numbers a record: where its payload begins and ends, and where that form ends.
 */
export type Piece = { bytes: Uint8Array<ArrayBuffer>; ids: string[]; marks: Uint32Array<ArrayBuffer> };

/** The records of a call, ready to seal; of two with one id the last. */
export type CheckedRecords = {
  pieces: Piece[];
  /** Ids that came more than once. */
  duplicates: string[];
};

/** A record that can be stored. */
export type CheckedRecord = {
  id: string;
  /** The payload as JSON text, keys in the order they were sent, without `id` and the metadata key. */
  text: string;
  /** The same with sorted keys and without ignored fields: what tells whether it changed. */
  canonical: string;
};

/**
 * Packs records one by one; of two with one id the last stands.
 *
 * They are kept in a few large pieces, which can be handed to another thread: the strings of a thousand records would be
 * copied by the garbage collector for as long as the call takes.
 */
export class RecordPacker {
  readonly #expectedBytes: number;
  readonly #bytes: Buffer<ArrayBuffer>[] = [];
  readonly #placed = new Map<string, { piece: number; start: number; textEnd: number; end: number }>();
  readonly #duplicates = new Set<string>();
  #end = 0;

  /** Both forms of all records will probably have so many bytes. */
  constructor(expectedBytes: number) {
    this.#expectedBytes = expectedBytes;
  }

  add({ id, text, canonical }: CheckedRecord): void {
    const bytes = this.#reserve((text.length + canonical.length) * 3);
    const start = this.#end;
    const textEnd = start + bytes.write(text, start);
    this.#end = textEnd + bytes.write(canonical, textEnd);
    if (this.#placed.delete(id)) this.#duplicates.add(id);
    this.#placed.set(id, { piece: this.#bytes.length - 1, start, textEnd, end: this.#end });
  }

  /** What was added, which is taken away. */
  pack(): CheckedRecords {
    const ids: string[][] = this.#bytes.map(() => []);
    const marks: number[][] = this.#bytes.map(() => []);
    for (const [id, { piece, start, textEnd, end }] of this.#placed) {
      ids[piece]?.push(id);
      marks[piece]?.push(start, textEnd, end);
    }
    const pieces = this.#bytes.map(
      (bytes, at): Piece => ({ bytes, ids: ids[at] ?? [], marks: new Uint32Array(marks[at] ?? []) }),
    );
    return { pieces: pieces.filter((piece) => piece.ids.length > 0), duplicates: [...this.#duplicates] };
  }

  /** The piece with free capacity for `max` bytes. */
  #reserve(max: number): Buffer<ArrayBuffer> {
    const last = this.#bytes.at(-1);
    if (last !== undefined && this.#end + max <= last.length) return last;
    const started = reserve(Math.max(max, Math.min(this.#expectedBytes, pieceBytes)));
    this.#bytes.push(started);
    this.#end = 0;
    return started;
  }
}

export function countOf({ pieces }: CheckedRecords): number {
  return pieces.reduce((sum, { ids }) => sum + ids.length, 0);
}
