/** The head of an answer as the caller gets it, and what it says of the body. Pure. */
import { STATUS_CODES } from 'node:http';
import { firstValue, without } from '../http/raw-headers.ts';
import { withoutEncoding } from './decompress.ts';
import type { Head } from './relay.ts';

/** Where an answer has no body, whatever it says (RFC 9110 §8.6). */
export const lengthAlone = new Set(['content-length']);

/** The headers that describe an answer as it goes on. */
export function headersOf({ status, rawHeaders }: Head, isDecoded: boolean): string[] {
  if (isDecoded) return withoutEncoding(rawHeaders);
  // A caller that trusted a length would wait for the body.
  return status === 204 ? without(rawHeaders, lengthAlone) : rawHeaders;
}

/** The reason phrase; empty where it holds what Node does not send, since undici has read it as UTF-8. */
export function reasonOf({ status, statusText }: Head): string {
  return statusText === STATUS_CODES[status] || /^[\t\x20-\x7e]*$/.test(statusText) ? statusText : '';
}

/** How long an answer says its body is; what answers HEAD, and a 304, says it of another (RFC 9110 §8.6). */
export function announcedBytes({ status, rawHeaders }: Head, method: string): number {
  return method === 'HEAD' || status === 304 ? 0 : Number(firstValue(rawHeaders, 'content-length') ?? 0);
}
