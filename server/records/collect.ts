import type { IncomingMessage } from 'node:http';
import { AppError } from '../errors.ts';
import { reserve } from './large.ts';

/**
 * The bytes of a request's body, all of a buffer of their own. A body that tells its length is laid where it stays as it
 * arrives. Throws `body_too_large` beyond `most` bytes, before any is read where the length tells.
 */
export async function collect(message: IncomingMessage, most: number): Promise<Buffer<ArrayBuffer>> {
  const told = message.headers['content-length'];
  if (told !== undefined && Number(told) > most) throw new AppError('body_too_large');
  const whole = told === undefined ? undefined : reserve(Number(told));
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of arriving(message)) {
    if (length + chunk.length > most) throw new AppError('body_too_large');
    // HTTP lets no body be longer than it tells; one that is shorter is a fault of the message.
    if (whole === undefined) chunks.push(chunk);
    else whole.set(chunk, length);
    length += chunk.length;
  }
  if (whole !== undefined) return whole;
  const joined = reserve(length);
  for (let at = 0; chunks.length > 0; ) at += chunks.shift()?.copy(joined, at) ?? 0;
  return joined;
}

/** The message stays open where its reader ends early, so that it can be answered. */
async function* arriving(message: IncomingMessage): AsyncGenerator<Buffer, void, undefined> {
  try {
    yield* message.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>;
  } catch (error) {
    throw new AppError('invalid_json', 'The body has not arrived whole.', { cause: error });
  }
}
