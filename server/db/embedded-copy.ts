// Rows from one server to another through this process, as bytes.

import type pg from 'pg';

type Socket = {
  readonly writableNeedDrain: boolean;
  isPaused(): boolean;
  pause(): void;
  resume(): void;
  once(event: 'drain', listener: () => void): void;
};
/** Of `pg`'s Connection, what a COPY is made of. */
type Wire = {
  stream: Socket;
  query(text: string): void;
  sendCopyFromChunk(bytes: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(message: string): void;
};

/**
 * Copies what `from` selects into `into` (`table (columns)`), in COPY's binary format, which PostgreSQL reads back in
 * every later version. Holds no more than the sockets' buffers: where the target is slower, the source waits. Rejects
 * with what either of them says, and then both connections are of no further use.
 */
export function copyBetween(
  source: pg.Client,
  target: pg.Client,
  { from, into }: { from: string; into: string },
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  let sourceWire: Wire | undefined;
  const fail = (error: Error) => {
    // Else it would stand still for ever, also when its connection is to end.
    sourceWire?.stream.resume();
    reject(error);
  };
  const writer = {
    submit: (wire: Wire) => wire.query(`copy ${into} from stdin (format binary)`),
    handleCopyInResponse(targetWire: Wire) {
      const reader = {
        submit(wire: Wire) {
          sourceWire = wire;
          wire.query(`copy (${from}) to stdout (format binary)`);
        },
        handleCopyData({ chunk }: { chunk: Buffer }, wire: Wire) {
          targetWire.sendCopyFromChunk(chunk);
          // Rows that were read already still come after a pause, and wait for the same drain.
          if (!targetWire.stream.writableNeedDrain || wire.stream.isPaused()) return;
          wire.stream.pause();
          targetWire.stream.once('drain', () => wire.stream.resume());
        },
        handleCommandComplete() {},
        handleError(error: Error) {
          targetWire.sendCopyFail('the source failed');
          fail(error);
        },
        handleReadyForQuery: () => targetWire.endCopyFrom(),
      };
      source.query(reader as unknown as pg.Submittable);
    },
    handleCommandComplete() {},
    handleError: fail,
    handleReadyForQuery: () => resolve(),
  };
  target.query(writer as unknown as pg.Submittable);
  return promise;
}
