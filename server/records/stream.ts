import { Readable } from 'node:stream';

/**
 * Chunks as the body of an answer. Resolves with the first one there, and throws what that throws: what is wrong with
 * a request shows before anything is answered. A later fault breaks the answer off.
 *
 * No chunk waits for the socket but the one that is being written: the next is asked for when that has gone.
 */
export async function streamOf(chunks: AsyncGenerator<Buffer, void, undefined>): Promise<Readable> {
  const opening = await chunks.next();
  return Readable.from(withFirst(opening, chunks), { objectMode: true, highWaterMark: 0 });
}

async function* withFirst(
  opening: IteratorResult<Buffer, void>,
  rest: AsyncGenerator<Buffer, void, undefined>,
): AsyncGenerator<Buffer, void, undefined> {
  if (!opening.done) yield opening.value;
  yield* rest;
}
