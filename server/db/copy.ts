import type { Socket } from 'node:net';
import type pg from 'pg';

/** The connection of `pg`, as far as statements use it. */
type Wire = {
  stream: Socket;
  query(text: string): void;
  sendCopyFromChunk(bytes: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
};
/**
 * The handlers of the server's messages, under the names that `pg` calls (`pg/lib/client.js`, `_handleCopyData` and its
 * neighbours).
 */
type MessageHandlers = {
  handleRowDescription?(): void;
  handleDataRow?(message: { fields: (string | null)[] }): void;
  handleCopyData?(message: { chunk: Buffer }): void;
  handleCopyInResponse?(wire: Wire): void;
  handleCommandComplete?(): void;
};

/**
 * Runs a text of statements, and passes the server's messages to the handlers. Resolves when the server is ready for the next
 * text. If a handler throws, no handler is called again, and this rejects with its error.
 */
export function runText(client: pg.ClientBase, text: string, handlers: MessageHandlers): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let failure: unknown;
  const guarded = Object.entries(handlers).map(([name, handle]) => [
    name,
    (message: never) => {
      if (failure !== undefined) return;
      try {
        handle(message);
      } catch (error) {
        failure = error;
      }
    },
  ]);
  const statement = {
    submit: (wire: Wire) => wire.query(text),
    handleCommandComplete() {},
    ...Object.fromEntries(guarded),
    handleError: (error: unknown) => reject(failure ?? error),
    handleReadyForQuery: () => (failure === undefined ? resolve() : reject(failure)),
  };
  client.query(statement as unknown as pg.Submittable);
  return promise;
}

/** The head of the binary format (PostgreSQL manual, COPY, "Binary Format"), without flags or extensions. */
const signature = 'PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0';

/**
 * Runs a query and passes each row as the bytes of its fields, in PostgreSQL's binary form: `int8` big-endian, `bytea`
 * unchanged; null fields are undefined. An ordinary query converts a bytea to hex text and back.
 *
 * COPY has no parameters: only numbers may be written into `query`. The fields are parts of the driver's buffer, valid until
 * `onRow` returns. If `onRow` throws, it is not called again, and this rejects with its error.
 */
export function copyRows(
  client: pg.ClientBase,
  query: string,
  onRow: (fields: (Buffer | undefined)[]) => void,
): Promise<void> {
  const read = copyReader(onRow);
  return runText(client, copied(query), { handleCopyData: ({ chunk }) => read(chunk) });
}

/** A query whose rows arrive as bytes. */
export function copied(query: string): string {
  return `copy (${query}) to stdout (format binary)`;
}

/** A reader for the messages of one COPY, in their order. */
export function copyReader(onRow: (fields: (Buffer | undefined)[]) => void): (chunk: Buffer) => void {
  let isFirst = true;
  return (chunk) => {
    const rows = isFirst ? chunk.subarray(signature.length) : chunk;
    isFirst = false;
    readRows(rows, onRow);
  };
}

/** A message holds whole rows (PostgreSQL manual, "COPY Operations": always one); a count of -1 follows the last one. */
function readRows(bytes: Buffer, onRow: (fields: (Buffer | undefined)[]) => void): void {
  let at = 0;
  while (at < bytes.length) {
    const count = bytes.readInt16BE(at);
    at += 2;
    if (count < 0) return;
    const fields: (Buffer | undefined)[] = [];
    for (let field = 0; field < count; field += 1) {
      const length = bytes.readInt32BE(at);
      at += 4;
      fields.push(length < 0 ? undefined : bytes.subarray(at, at + length));
      at += Math.max(length, 0);
    }
    onRow(fields);
  }
}

/** Rows for `copyInto`, written field by field; each row begins with `row`. */
export class CopyRows {
  #bytes: Buffer;
  #length: number;

  /** `capacity` is the expected size in bytes; the buffer grows beyond it. */
  constructor(capacity = 65_536) {
    this.#bytes = Buffer.allocUnsafe(Math.max(capacity, 64));
    this.#length = this.#bytes.write(signature, 'latin1');
  }

  /** Removes the rows and keeps the memory. */
  clear(): void {
    this.#length = signature.length;
  }

  /** Begins a row with this number of fields. */
  row(fields: number): this {
    this.#reserve(2);
    this.#length = this.#bytes.writeInt16BE(fields, this.#length);
    return this;
  }

  int8(value: number): this {
    this.#reserve(12);
    this.#bytes.writeInt32BE(8, this.#length);
    this.#bytes.writeInt32BE(Math.floor(value / 0x1_0000_0000), this.#length + 4);
    this.#length = this.#bytes.writeUInt32BE(value >>> 0, this.#length + 8);
    return this;
  }

  int4(value: number): this {
    this.#reserve(8);
    this.#bytes.writeInt32BE(4, this.#length);
    this.#length = this.#bytes.writeInt32BE(value, this.#length + 4);
    return this;
  }

  float8(value: number): this {
    this.#reserve(12);
    this.#bytes.writeInt32BE(8, this.#length);
    this.#length = this.#bytes.writeDoubleBE(value, this.#length + 4);
    return this;
  }

  /** Microseconds since 2000 (PostgreSQL source, `timestamptz_send`). */
  timestamptz(epochMs: number): this {
    return this.int8((epochMs - Date.UTC(2000, 0, 1)) * 1000);
  }

  null(): this {
    this.#reserve(4);
    this.#length = this.#bytes.writeInt32BE(-1, this.#length);
    return this;
  }

  /** The text of a JSON value, after the version of the format (PostgreSQL source, `jsonb_recv`). */
  jsonb(json: string): this {
    return this.text(`\x01${json}`);
  }

  bytes(value: Buffer): this {
    this.#reserve(4 + value.length);
    this.#length = this.#bytes.writeInt32BE(value.length, this.#length);
    this.#length += value.copy(this.#bytes, this.#length);
    return this;
  }

  text(value: string): this {
    this.#reserve(4 + value.length * 3);
    const length = this.#writeAscii(value) ?? this.#bytes.write(value, this.#length + 4);
    this.#bytes.writeInt32BE(length, this.#length);
    this.#length += 4 + length;
    return this;
  }

  /** For a short text this costs less than a call out of JavaScript. Undefined if the text is not ASCII. */
  #writeAscii(value: string): number | undefined {
    if (value.length > 64) return undefined;
    for (let at = 0; at < value.length; at++) {
      const code = value.charCodeAt(at);
      if (code > 0x7f) return undefined;
      this.#bytes[this.#length + 4 + at] = code;
    }
    return value.length;
  }

  /** All rows, and the end mark. */
  end(): Buffer {
    this.#reserve(2);
    return this.#bytes.subarray(0, this.#bytes.writeInt16BE(-1, this.#length));
  }

  #reserve(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + bytes));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** Inserts rows by COPY, which writes the rows of a page together; `into` names the table and its columns. */
export function copyInto(client: pg.ClientBase, into: string, rows: CopyRows): Promise<void> {
  return runText(client, `copy ${into} from stdin (format binary)`, {
    handleCopyInResponse(wire) {
      try {
        wire.sendCopyFromChunk(rows.end());
        wire.endCopyFrom();
      } catch (error) {
        // Otherwise the server would wait for the rest of the rows, and this would never settle.
        wire.sendCopyFail('the rows could not be sent');
        throw error;
      }
    },
  });
}

/**
 * Copies the rows of the query `from` into `into` (`table (columns)`), in COPY's binary format, which every later version of
 * PostgreSQL reads. Holds no more than the buffers of the sockets: a slow target pauses the source. Rejects with the error
 * of either server; both connections are of no further use then.
 */
export function copyBetween(
  source: pg.Client,
  target: pg.Client,
  { from, into }: { from: string; into: string },
): Promise<void> {
  const { stream } = (source as unknown as { connection: Wire }).connection;
  const { promise: failed, reject } = Promise.withResolvers<never>();
  const written = runText(target, `copy ${into} from stdin (format binary)`, {
    handleCopyInResponse(wire) {
      const read = runText(source, copied(from), {
        handleCopyData({ chunk }) {
          wire.sendCopyFromChunk(chunk);
          // Rows that were read before a pause still arrive, and wait for the same drain.
          if (!wire.stream.writableNeedDrain || stream.isPaused()) return;
          stream.pause();
          wire.stream.once('drain', () => stream.resume());
        },
      });
      read.then(
        () => wire.endCopyFrom(),
        (error: unknown) => {
          wire.sendCopyFail('the source failed');
          reject(error);
        },
      );
    },
  });
  // A source that stays paused never responds, not even when its connection is to end.
  return Promise.race([written, failed]).finally(() => stream.resume());
}
