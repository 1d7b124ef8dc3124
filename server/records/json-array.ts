import { randomUUID } from 'node:crypto';
import { deepest, tooDeep } from '../http/json-body.ts';
import { readerOf, readJson } from './json.ts';

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const byteOrderMark = Buffer.from('\ufeff');
const [openArray, closeArray, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * An object in JSON with one long array in it, item by item: what one item leaves behind is collected while it is young,
 * where a whole body is copied by the collector again and again. What is accepted and what comes of it is what
 * `readJson` accepts and gives.
 *
 * Calls `onItem` with each item and answers the rest, in which `[]` stands for the array; undefined, without a call,
 * where the bytes are no object with an array of that name, name it more than once, or have more than `max` items.
 * Throws SyntaxError as `readJson` does, possibly after calls, and RangeError where it is nested too deeply.
 */
export function readItems(
  bytes: Buffer,
  { name, max, onItem }: { name: string; max: number; onItem: (item: unknown, index: number) => void },
): Record<string, unknown> | undefined {
  const array = findArray(bytes, name);
  if (array === undefined || array.ends.length > max) return undefined;
  // The items are cut at commas outside of strings and brackets. The whole is JSON just when each item is, and the rest
  // is with any value in place of the items: brackets that do not match, or a missing item, fail in one of them.
  const stamp = randomUUID();
  const rest = readJson(
    Buffer.concat([bytes.subarray(0, array.start), Buffer.from(`"${stamp}"`), bytes.subarray(array.end)]),
  ) as Record<string, unknown>;
  const kept = rest[name];
  // Of two arrays with one name the last one counts.
  if (!Array.isArray(kept) || kept[0] !== stamp) return undefined;
  const read = readerOf(bytes);
  const { ends } = array;
  let start = array.start;
  for (const [index, end] of ends.entries()) {
    const text = bytes.toString('utf8', start, end);
    start = end + 1;
    if (ends.length === 1 && /^[\t\n\r ]*$/.test(text)) break;
    onItem(read(text), index);
  }
  return { ...rest, [name]: [] };
}

/** Where the items of an array begin, where each ends, and where the bracket behind the last one stands. */
type FoundArray = { start: number; ends: number[]; end: number };

/** The array that is the value of `name` in the outermost object; undefined where none is found up to its end. */
function findArray(bytes: Buffer, name: string): FoundArray | undefined {
  let at = skipSpace(bytes, bytes.subarray(0, 3).equals(byteOrderMark) ? 3 : 0);
  if (bytes[at] !== openObject) return undefined;
  const key = Buffer.from(`"${name}"`);
  for (let depth = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === openObject || byte === openArray) {
      depth += 1;
      if (depth > deepest) throw tooDeep();
    } else if (byte === closeObject || byte === closeArray) depth -= 1;
    else if (byte === quote) {
      const begin = at;
      at = endOfString(bytes, begin);
      if (depth !== 1 || !bytes.subarray(begin, at + 1).equals(key)) continue;
      const behind = skipSpace(bytes, at + 1);
      const open = skipSpace(bytes, behind + 1);
      if (bytes[behind] === colon && bytes[open] === openArray) return cutItems(bytes, open + 1);
    }
  }
  return undefined;
}

function cutItems(bytes: Buffer, start: number): FoundArray | undefined {
  const ends: number[] = [];
  for (let at = start, depth = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === quote) at = endOfString(bytes, at);
    else if (byte === openObject || byte === openArray) {
      depth += 1;
      // The object and the array around it are two.
      if (depth > deepest - 2) throw tooDeep();
    } else if (byte === comma && depth === 0) ends.push(at);
    else if (byte === closeObject || byte === closeArray) {
      depth -= 1;
      if (depth < 0) {
        ends.push(at);
        return { start, ends, end: at };
      }
    }
  }
  return undefined;
}

/** Bytes of a string that are looked at here before a search is worth its call. */
const shortString = 24;

/** The place of the quote that ends the string which begins at `start`; the end of the bytes where there is none. */
function endOfString(bytes: Buffer, start: number): number {
  let at = start + 1;
  const near = Math.min(at + shortString, bytes.length);
  for (; at < near; at += 1) {
    if (bytes[at] === quote) return at;
    if (bytes[at] === backslash) at += 1;
  }
  for (;;) {
    const end = bytes.indexOf(quote, at);
    if (end < 0) return bytes.length;
    let slashes = 0;
    while (bytes[end - 1 - slashes] === backslash && end - 1 - slashes >= at) slashes += 1;
    if (slashes % 2 === 0) return end;
    at = end + 1;
  }
}

function skipSpace(bytes: Buffer, start: number): number {
  let at = start;
  while (bytes[at] === 0x20 || bytes[at] === 0x0a || bytes[at] === 0x0d || bytes[at] === 0x09) at += 1;
  return at;
}
