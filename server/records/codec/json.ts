import { randomUUID } from 'node:crypto';
import { deepest, tooDeep } from '../../http/json-body.ts';

/** JSON from the bytes of a large body, by the rules of every route's body. */

const [quote, backslash, comma, colon] = [0x22, 0x5c, 0x2c, 0x3a];
const byteOrderMark = Buffer.from('\ufeff');
const [openArray, closeArray, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/**
 * Reads UTF-8, in which malformed parts are replaced, and skips a byte order mark. Throws SyntaxError, also for names
 * that would reach a prototype if the value were copied carelessly (`__proto__`, and `prototype` in `constructor`).
 */
export function readJson(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  return readerOf(bytes)(text.startsWith('\ufeff') ? text.slice(1) : text);
}

/** Returns a function that reads texts cut from `bytes`. The bytes are searched for forbidden names only once. */
function readerOf(bytes: Buffer): (text: string) => unknown {
  // A name with escapes is recognized only when it is parsed.
  const isSuspect = ['__proto__', 'constructor', '\\u'].some((part) => bytes.includes(part));
  if (!isSuspect) return (text) => JSON.parse(text);
  return (text) => {
    const value: unknown = JSON.parse(text);
    refusePrototypeNames(value);
    return value;
  };
}

function refusePrototypeNames(value: unknown): void {
  const open: unknown[] = [value];
  while (open.length > 0) {
    const next = open.pop();
    if (typeof next !== 'object' || next === null) continue;
    const made = (next as { constructor: unknown }).constructor;
    const reachesPrototype =
      Object.hasOwn(next, 'constructor') &&
      typeof made === 'object' &&
      made !== null &&
      Object.hasOwn(made, 'prototype');
    if (reachesPrototype || Object.hasOwn(next, '__proto__'))
      throw new SyntaxError('A name would reach a prototype');
    for (const item of Object.values(next)) if (typeof item === 'object') open.push(item);
  }
}

/**
 * Reads an object that has one long array, item by item. It accepts and returns what `readJson` does. Each item is
 * garbage while it is young, but the values of a whole body are copied by the collector again and again.
 *
 * Calls `onItem` with each item and returns the object, in which `[]` stands for the array. Returns undefined, without
 * a call, if the bytes are not an object with an array of that name, if they have the name more than once, or if the
 * array has more than `max` items. Throws SyntaxError as `readJson` does, possibly after calls, and RangeError if the
 * nesting is too deep.
 */
export function readItems(
  bytes: Buffer,
  { name, max, onItem }: { name: string; max: number; onItem: (item: unknown, index: number) => void },
): Record<string, unknown> | undefined {
  const array = findArray(bytes, name);
  if (array === undefined || array.ends.length > max) return undefined;
  // The items are cut at commas outside of strings and brackets. The whole is JSON if and only if each item is JSON,
  // and so is the object with any value in place of the items: a bracket without its pair, or a missing item, fails in
  // one of them.
  const stamp = randomUUID();
  const rest = readJson(
    Buffer.concat([bytes.subarray(0, array.start), Buffer.from(`"${stamp}"`), bytes.subarray(array.end)]),
  ) as Record<string, unknown>;
  const kept = rest[name];
  // If two arrays have the name, the last one counts.
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

/** Offsets: the start of the first item, the end of each item, and the closing bracket. */
type FoundArray = { start: number; ends: number[]; end: number };

/** Returns the array that is the value of `name` in the outermost object, or undefined if there is none. */
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
      // The object and the array around the item count as two levels.
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

/** A string up to this size is scanned here; for a longer one, a native search is faster. */
const shortString = 24;

/** Returns the offset of the quote that ends the string at `start`, or the end of the bytes if there is none. */
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
