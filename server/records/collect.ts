import type { Readable } from 'node:stream';
import { AppError } from '../errors.ts';
import { reserve } from './large.ts';

/** Share of a body with a Content-Length that must arrive before memory for the whole body is allocated. */
const begunShare = 1 / 4;

/**
 * The bytes of a request's body, in a buffer of their own; `told` is its Content-Length. A body with a Content-Length is
 * copied to its final buffer once a good part of it has arrived: a client that only announces a body takes no memory. Throws
 * `body_too_large` beyond `max` bytes, before any byte is read if the Content-Length is larger.
 */
export async function collect(
  body: Readable,
  { told, max }: { told: number | undefined; max: number },
): Promise<Buffer<ArrayBuffer>> {
  if (told !== undefined && told > max) throw new AppError('body_too_large');
  const begunBytes = told === undefined ? Number.POSITIVE_INFINITY : told * begunShare;
  let whole: Buffer<ArrayBuffer> | undefined;
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of arriving(body)) {
    if (length + chunk.length > max) throw new AppError('body_too_large');
    // HTTP lets no body be longer than it tells; one that is shorter is a fault of the message.
    if (whole === undefined) chunks.push(chunk);
    else whole.set(chunk, length);
    length += chunk.length;
    if (whole === undefined && told !== undefined && length >= begunBytes) whole = laid(chunks, told);
  }
  return whole ?? laid(chunks, length);
}

/** A buffer of so many bytes with the chunks at its beginning. Removes the chunks from the array as it copies them. */
function laid(chunks: Buffer[], bytes: number): Buffer<ArrayBuffer> {
  const whole = reserve(bytes);
  for (let at = 0; chunks.length > 0; ) at += chunks.shift()?.copy(whole, at) ?? 0;
  return whole;
}

/** The body stays open where its reader ends early, so that its request can be answered. */
async function* arriving(body: Readable): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* body.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (error) {
    if (error instanceof AppError) throw error;
    throw new AppError('invalid_json', 'The body has not arrived whole.', { cause: error });
  }
}
