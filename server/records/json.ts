/**
 * JSON from bytes, by the rules of every route's body: UTF-8, of which malformed parts are replaced, and a byte order
 * mark, which is passed over. Throws SyntaxError, also for names that would reach a prototype where somebody copies
 * the value carelessly (`__proto__`, and `prototype` in `constructor`).
 */
export function readJson(bytes: Buffer): unknown {
  const text = bytes.toString('utf8');
  return readerOf(bytes)(text.startsWith('\ufeff') ? text.slice(1) : text);
}

/** Reads texts that were cut from `bytes`, by the same rules but for the mark: what is to be looked for is found once. */
export function readerOf(bytes: Buffer): (text: string) => unknown {
  // A name with escapes shows only when it is read.
  const isSuspect = ['__proto__', 'constructor', '\\u'].some((part) => bytes.includes(part));
  if (!isSuspect) return (text) => JSON.parse(text);
  return (text) => {
    const value: unknown = JSON.parse(text);
    refusePoison(value);
    return value;
  };
}

function refusePoison(value: unknown): void {
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
