/**
 * The content codings that we decode, by their names in Content-Encoding (RFC 9110 §8.4.1, RFC 7932, RFC 9659). None
 * takes more than some MB of memory, whatever an answer says.
 */
import type { Transform } from 'node:stream';
import {
  brotliDecompressSync,
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  createZstdDecompress,
  gunzipSync,
  inflateSync,
  zstdDecompressSync,
} from 'node:zlib';

type Coding = {
  stream(): Transform;
  /** Decodes what may be cut off. Throws where it is not what it says, or has more than `maxOutputLength` bytes. */
  decode(bytes: Buffer, options: { maxOutputLength: number }): Buffer;
};

// A frame may ask for a window of 128 MB. Over HTTP none may be larger than 8 MB (RFC 9659 §3).
const zstd = { params: { [constants.ZSTD_d_windowLogMax]: 23 } };

const gzip: Coding = {
  stream: () => createGunzip(),
  decode: (bytes, options) => gunzipSync(bytes, { ...options, finishFlush: constants.Z_SYNC_FLUSH }),
};
const codings: Readonly<Record<string, Coding>> = {
  gzip,
  'x-gzip': gzip,
  deflate: {
    stream: () => createInflate(),
    decode: (bytes, options) => inflateSync(bytes, { ...options, finishFlush: constants.Z_SYNC_FLUSH }),
  },
  br: {
    stream: () => createBrotliDecompress(),
    decode: (bytes, options) =>
      brotliDecompressSync(bytes, { ...options, finishFlush: constants.BROTLI_OPERATION_FLUSH }),
  },
  zstd: {
    stream: () => createZstdDecompress(zstd),
    decode: (bytes, options) =>
      zstdDecompressSync(bytes, { ...options, ...zstd, finishFlush: constants.ZSTD_e_flush }),
  },
};

/** How a body is encoded; undefined: not at all, in several ways, or in one that we do not know. */
export function codingOf(rawHeaders: readonly string[]): Coding | undefined {
  let named: string | undefined;
  for (let at = 0; at + 1 < rawHeaders.length; at += 2) {
    if (rawHeaders[at]?.toLowerCase() !== 'content-encoding') continue;
    if (named !== undefined) return undefined;
    named = rawHeaders[at + 1]?.trim().toLowerCase();
  }
  return named !== undefined && Object.hasOwn(codings, named) ? codings[named] : undefined;
}
