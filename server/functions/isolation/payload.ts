/** What code of customers sends as JSON: read here where that is quickly done, and passed on as bytes where it is not. */
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

/** JSON that would hold up the service if it were parsed on the main thread. */
export class LargeJson {
  readonly bytes: Buffer<ArrayBuffer>;
  readonly values: number;

  constructor(bytes: Buffer<ArrayBuffer>, values: number) {
    this.bytes = bytes;
    this.values = values;
  }
}

export type Read = { value: unknown; values: number } | { fault: string };

/** Small JSON, read at once; undefined for JSON that a thread must look at first. */
export function readSmall(bytes: Buffer<ArrayBuffer>): Read | undefined {
  return bytes.length > maxInlineBytes ? undefined : parsed(bytes, examineJson(bytes));
}

/** The value, or a `LargeJson` if it is too large to be parsed here. With `isParsed` a `LargeJson` is JSON for certain. */
export async function readLarge(
  given: Buffer<ArrayBuffer>,
  by: { isParsed: boolean } = { isParsed: false },
): Promise<Read> {
  const { bytes, ...examined } = await examineOnThread(given, by);
  if (examined.fault !== undefined) return { fault: examined.fault };
  await slice.turn();
  const isLarge = bytes.length > maxParsedBytes || examined.values > maxParsedValues;
  const { values } = examined;
  return isLarge ? { value: new LargeJson(bytes, values), values } : parsed(bytes, examined);
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
