/** The limits of JSON from customer code, checked on its bytes before anything is parsed. */

/** Longer JSON is examined on a thread. 64 KB of brackets take 1 ms to examine and 5 ms to parse. */
export const maxInlineBytes = 64 * 1024;
/** What may be parsed on the main thread: 50,000 values take about 15 ms. */
export const maxParsedBytes = 2 * 1024 * 1024;
export const maxParsedValues = 50_000;
/** The maximum of any message: the records of a save, or the result of an action. */
export const maxValues = 1_000_000;
const maxDepth = 128;

const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const [openArray, closeArray, openObject, closeObject] = [0x5b, 0x5d, 0x7b, 0x7d];

/** `values` counts brackets and commas: one more than the commas of an array of numbers. */
export type Examined = { values: number; fault: string | undefined };

/** Counts the values of JSON. For other bytes the result is arbitrary, and takes the same time. */
export function examineJson(bytes: Buffer): Examined {
  let values = 0;
  let depth = 0;
  for (let at = 0; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === quote) at = endOfString(bytes, at);
    else if (byte === openArray || byte === openObject) {
      values += 1;
      depth += 1;
      if (depth > maxDepth) return { values, fault: tooDeep(maxDepth) };
    } else if (byte === closeArray || byte === closeObject) depth -= 1;
    else if (byte === comma) values += 1;
    if (values > maxValues)
      return { values, fault: `It has more than ${maxValues.toLocaleString('en')} values.` };
  }
  return { values, fault: undefined };
}

function endOfString(bytes: Buffer, begin: number): number {
  for (let end = begin; ; ) {
    end = bytes.indexOf(quote, end + 1);
    if (end < 0) return bytes.length;
    let escapes = end;
    while (bytes[escapes - 1] === backslash) escapes -= 1;
    if ((end - escapes) % 2 === 0) return end;
  }
}

/** Whether a key `__proto__` is possible: in plain text, or with escapes that JSON.stringify never writes. */
export function mayNameProto(bytes: Buffer): boolean {
  return ['__proto__', '\\u005', '\\u006', '\\u007'].some((text) => bytes.includes(text));
}

const tooDeep = (levels: number) => `It is nested deeper than ${levels} levels.`;

/**
 * Why a value is refused; undefined if it is accepted. `__proto__` would change the object that it is merged into, and deeper
 * nesting overflows the stack of recursive code.
 */
export function faultOfJson(value: unknown, levels = maxDepth): string | undefined {
  let level: unknown[] = [value];
  for (let depth = 0; level.length > 0; depth++) {
    if (depth > levels) return tooDeep(levels);
    const next: unknown[] = [];
    for (const item of level) {
      if (item === null || typeof item !== 'object') continue;
      if (Object.hasOwn(item, '__proto__')) return 'It has a key `__proto__`.';
      for (const inner of Object.values(item))
        if (inner !== null && typeof inner === 'object') next.push(inner);
    }
    level = next;
  }
  return undefined;
}
