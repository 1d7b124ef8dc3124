/** Decodes an answer's body for a caller who asks for it with `Decompress: true`. */
import type { Transform } from 'node:stream';
import { firstValue, without } from '../http/raw-headers.ts';
import { codingOf } from './codings.ts';
import { ofTheBytes } from './header-names.ts';
import type { Head } from './relay.ts';

/**
 * Makes the stream that decodes this answer's body, to be called at its first byte: what is empty is no encoded text.
 * Undefined where there is nothing to decode: no body, one that is not encoded, in several or unknown ways, or a part
 * of one (206), which cannot be decoded alone.
 */
export function decoderOf(head: Head, method: string): (() => Transform) | undefined {
  const { status, rawHeaders } = head;
  if (method === 'HEAD' || status === 204 || status === 206 || status === 304) return undefined;
  if (Number(firstValue(rawHeaders, 'content-length') ?? Number.NaN) === 0) return undefined;
  return codingOf(rawHeaders)?.stream;
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

const gone = new Set([...ofTheBytes, 'content-encoding', 'accept-ranges']);
