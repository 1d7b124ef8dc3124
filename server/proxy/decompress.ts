/** Decodes an answer's body for a caller who asks for it with `Decompress: true`. */
import type { Transform } from 'node:stream';
import { createBrotliDecompress, createGunzip, createInflate, createZstdDecompress } from 'node:zlib';
import { firstValue, without } from './headers.ts';
import type { Head } from './relay.ts';

/** Content codings (RFC 9110 §8.4.1, RFC 7932, RFC 9659), by the names they have in Content-Encoding. */
const decoders: Readonly<Record<string, () => Transform>> = {
  gzip: createGunzip,
  'x-gzip': createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
  zstd: createZstdDecompress,
};

/**
 * A stream that decodes this answer's body; undefined where there is nothing to decode: no body, one that is not
 * encoded, in several or unknown ways, or a part of one (206), which cannot be decoded alone.
 */
export function decoderOf(head: Head, method: string): Transform | undefined {
  if (method === 'HEAD' || head.status === 204 || head.status === 206 || head.status === 304)
    return undefined;
  const names = head.rawHeaders.filter((_, at) => at % 2 === 0 && isCoding(head.rawHeaders[at]));
  const coding = firstValue(head.rawHeaders, 'content-encoding')?.trim().toLowerCase() ?? '';
  return names.length === 1 && Object.hasOwn(decoders, coding) ? decoders[coding]?.() : undefined;
}

/**
 * The headers of a body that is decoded on its way: its length, coding and checksums are no longer the sender's, and a
 * strong ETag, which names its bytes, becomes a weak one (RFC 9110 §8.8.1).
 */
export function withoutEncoding(rawHeaders: readonly string[]): string[] {
  const kept = without(rawHeaders, gone);
  for (let at = 0; at + 1 < kept.length; at += 2) {
    const value = kept[at + 1] as string;
    if (kept[at]?.toLowerCase() === 'etag' && value.startsWith('"')) kept[at + 1] = `W/${value}`;
  }
  return kept;
}

const gone = new Set([
  'content-encoding',
  'content-length',
  'content-md5',
  'content-digest',
  'accept-ranges',
]);

function isCoding(name: string | undefined): boolean {
  return name?.toLowerCase() === 'content-encoding';
}
