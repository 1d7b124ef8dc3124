/** JSON from customer code: small values are parsed here, large ones are passed on as bytes. */
import { freeBytes } from '../../large-buffer.ts';
import { examineOnThread } from './code-queue.ts';
import {
  type Examined,
  examineJson,
  faultOfJson,
  maxInlineBytes,
  maxParsedBytes,
  maxParsedValues,
  mayNameProto,
} from './json-limits.ts';
import { slice } from './time-slice.ts';

/** JSON that is too large to be parsed on the main thread. */
export class LargeJson {
  readonly bytes: Buffer<ArrayBuffer>;
  readonly values: number;

  constructor(bytes: Buffer<ArrayBuffer>, values: number) {
    this.bytes = bytes;
    this.values = values;
  }

  /** Frees the memory. The bytes cannot be read afterwards. */
  free(): void {
    if (!this.bytes.buffer.detached) freeBytes(this.bytes);
  }
}

export type Read = { value: unknown; values: number } | { fault: string };

/** Parses small JSON; undefined for JSON that a thread must examine first. */
export function readSmall(bytes: Buffer<ArrayBuffer>): Read | undefined {
  return bytes.length > maxInlineBytes ? undefined : parsed(bytes, examineJson(bytes));
}

/** The value, or a `LargeJson` if it is too large to be parsed here. With `isParsed`, a `LargeJson` is valid JSON. */
export async function readLarge(
  given: Buffer<ArrayBuffer>,
  by: { isParsed: boolean } = { isParsed: false },
): Promise<Read> {
  const { bytes, ...examined } = await examineOnThread(given, by);
  if (examined.fault !== undefined) {
    freeBytes(bytes);
    return { fault: examined.fault };
  }
  await slice.turn();
  const isLarge = bytes.length > maxParsedBytes || examined.values > maxParsedValues;
  const { values } = examined;
  if (isLarge) return { value: new LargeJson(bytes, values), values };
  try {
    return parsed(bytes, examined);
  } finally {
    freeBytes(bytes);
  }
}

function parsed(bytes: Buffer, { values, fault }: Examined): Read {
  if (fault !== undefined) return { fault };
  try {
    const value: unknown = JSON.parse(bytes.toString('utf8'));
    const named = mayNameProto(bytes) ? faultOfJson(value) : undefined;
    return named === undefined ? { value, values } : { fault: named };
  } catch {
    return { fault: 'It is not JSON.' };
  }
}
