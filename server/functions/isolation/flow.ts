/**
 * Streams of bytes within a channel, with credit: at most one window of unread bytes is under way, so the memory of neither
 * side depends on the size of a body.
 */

const windowBytes = 256 * 1024;
const pieceBytes = 64 * 1024;
/** Shorter pieces are joined: a separate object takes many times their bytes. */
const shortBytes = 4 * 1024;

/** The receiving end. Read once, by `for await`; leaving the loop early tells the sender to stop. */
export class Inflow implements AsyncIterable<Uint8Array> {
  readonly #grant: (bytes: number) => void;
  readonly #drop: () => void;
  #held: Uint8Array[] = [];
  /** The memory of the last held piece; the piece is its beginning. */
  #lastBuffer: Uint8Array | undefined;
  #openBytes = windowBytes;
  #isDropped = false;
  #end: { error?: Error } | undefined;
  #wake: (() => void) | undefined;

  constructor({ grant, drop }: { grant: (bytes: number) => void; drop: () => void }) {
    this.#grant = grant;
    this.#drop = drop;
  }

  /** False if the sender violated the protocol: it had no credit for the bytes, or has ended. */
  take(bytes: Uint8Array): boolean {
    // The bytes were under way when the reader left.
    if (this.#isDropped) return true;
    if (this.#end !== undefined || bytes.byteLength > this.#openBytes) return false;
    this.#openBytes -= bytes.byteLength;
    if (bytes.byteLength < shortBytes) this.#append(bytes);
    else this.#held.push(bytes);
    this.#wake?.();
    return true;
  }

  #append(bytes: Uint8Array): void {
    const last = this.#held.at(-1);
    const end = last?.byteLength ?? 0;
    const isLast = this.#lastBuffer !== undefined && last?.buffer === this.#lastBuffer.buffer;
    if (isLast && end + bytes.byteLength <= this.#lastBuffer!.byteLength) {
      this.#lastBuffer!.set(bytes, end);
      this.#held[this.#held.length - 1] = this.#lastBuffer!.subarray(0, end + bytes.byteLength);
      return;
    }
    this.#lastBuffer = new Uint8Array(4 * shortBytes);
    this.#lastBuffer.set(bytes);
    this.#held.push(this.#lastBuffer.subarray(0, bytes.byteLength));
  }

  /** With an error: the stream is incomplete, and the reader gets the error. */
  end(error?: Error): void {
    this.#end ??= error === undefined ? {} : { error };
    this.#wake?.();
  }

  /** The next bytes; undefined at the end. Throws if the stream is incomplete. */
  async read(): Promise<Uint8Array | undefined> {
    while (this.#held.length === 0) {
      if (this.#end?.error) throw this.#end.error;
      if (this.#end) return undefined;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const bytes = this.#held.shift()!;
    this.#openBytes += bytes.byteLength;
    if (!this.#end) this.#grant(bytes.byteLength);
    return bytes;
  }

  /** Discards the unread bytes. */
  drop(): void {
    if (this.#end) return;
    this.#isDropped = true;
    this.end();
    this.#held = [];
    this.#drop();
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Uint8Array> {
    try {
      for (let bytes = await this.read(); bytes !== undefined; bytes = await this.read()) yield bytes;
    } finally {
      this.drop();
    }
  }
}

/** The sending end. */
export class Outflow {
  readonly #send: (bytes: Uint8Array) => void;
  #credit = windowBytes;
  #isDropped = false;
  #wake: (() => void) | undefined;

  constructor(send: (bytes: Uint8Array) => void) {
    this.#send = send;
  }

  /** False if the reader violated the protocol: it granted more than was sent. */
  grant(bytes: number): boolean {
    if (this.#credit + bytes > windowBytes) return false;
    this.#credit += bytes;
    this.#wake?.();
    return true;
  }

  drop(): void {
    this.#isDropped = true;
    this.#wake?.();
  }

  /** Resolves when all bytes are sent; false if the reader dropped the stream. */
  async write(bytes: Uint8Array): Promise<boolean> {
    for (let at = 0; at < bytes.byteLength; at += pieceBytes) {
      const piece = bytes.subarray(at, at + pieceBytes);
      while (!this.#isDropped && this.#credit < piece.byteLength) {
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
      }
      if (this.#isDropped) return false;
      this.#credit -= piece.byteLength;
      this.#send(piece);
    }
    return !this.#isDropped;
  }
}
