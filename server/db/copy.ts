import type pg from 'pg';

/** What `pg` hands a statement that is read by itself (`pg/lib/client.js`, `_handleCopyData` and its neighbours). */
type CopyReader = {
  submit(connection: { query(text: string): void }): void;
  handleCopyData(message: { chunk: Buffer }): void;
  handleCommandComplete(): void;
  handleError(error: Error): void;
  handleReadyForQuery(): void;
};

type CopyWriter = Omit<CopyReader, 'handleCopyData'> & {
  handleCopyInResponse(connection: { sendCopyFromChunk(bytes: Buffer): void; endCopyFrom(): void }): void;
};

/** The head of the binary format (PostgreSQL manual, COPY, "Binary Format"), without flags or extensions. */
const signature = 'PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0';

/**
 * Runs a query and hands over each row as the bytes of its fields, as PostgreSQL keeps them: `int8` big-endian, `bytea`
 * as it is; null fields are undefined. The driver's ordinary way turns a bytea to hex text and back.
 *
 * COPY takes no parameters: only numbers may be written into `query`. The fields are parts of the driver's buffer, good
 * until `onRow` returns. Where `onRow` throws, no more rows are handed over, and this rejects with what it threw.
 */
export function copyRows(
  client: pg.ClientBase,
  query: string,
  onRow: (fields: (Buffer | undefined)[]) => void,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const read = copyReader(onRow);
  let failure: unknown;
  const reader: CopyReader = {
    submit: (connection) => connection.query(`copy (${query}) to stdout (format binary)`),
    handleCopyData({ chunk }) {
      if (failure !== undefined) return;
      try {
        read(chunk);
      } catch (error) {
        failure = error;
      }
    },
    handleCommandComplete() {},
    handleError: reject,
    handleReadyForQuery: () => (failure === undefined ? resolve() : reject(failure)),
  };
  client.query(reader as unknown as pg.Submittable);
  return promise;
}

/** What reads the messages of one COPY, in their order. */
export function copyReader(onRow: (fields: (Buffer | undefined)[]) => void): (chunk: Buffer) => void {
  let isFirst = true;
  return (chunk) => {
    const rows = isFirst ? chunk.subarray(signature.length) : chunk;
    isFirst = false;
    readRows(rows, onRow);
  };
}

/** A message holds whole rows (PostgreSQL manual, "COPY Operations": always one); after the last comes a count of -1. */
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

  /** `capacity` is the bytes it is expected to take; it grows beyond. */
  constructor(capacity = 65_536) {
    this.#bytes = Buffer.allocUnsafe(Math.max(capacity, 64));
    this.#length = this.#bytes.write(signature, 'latin1');
  }

  /** Takes the rows away; the memory stays. */
  clear(): void {
    this.#length = signature.length;
  }

  /** Begins a row of so many fields. */
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

  /** The text of a JSON value, behind the version of the format (PostgreSQL source, `jsonb_recv`). */
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

  /** A short text costs less so than by a call out of JavaScript. Undefined where it is none of ASCII. */
  #writeAscii(value: string): number | undefined {
    if (value.length > 64) return undefined;
    for (let at = 0; at < value.length; at++) {
      const code = value.charCodeAt(at);
      if (code > 0x7f) return undefined;
      this.#bytes[this.#length + 4 + at] = code;
    }
    return value.length;
  }

  /** Everything written so far, and the end mark. */
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

/** Inserts rows as COPY does, several a page at once; `into` names the table and its columns. */
export function copyInto(client: pg.ClientBase, into: string, rows: CopyRows): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const writer: CopyWriter = {
    submit: (connection) => connection.query(`copy ${into} from stdin (format binary)`),
    handleCopyInResponse(connection) {
      connection.sendCopyFromChunk(rows.end());
      connection.endCopyFrom();
    },
    handleCommandComplete() {},
    handleError: reject,
    handleReadyForQuery: () => resolve(),
  };
  client.query(writer as unknown as pg.Submittable);
  return promise;
}
