import { extname } from 'node:path';
import { WorkThread } from '../../work-thread.ts';
import type { Examined } from './json-limits.ts';

/** A position in a bundle; both numbers count from 0. */
export type Place = { row: number; column: number };

/** `map` is the source map as base64, sent only if the thread does not have it. */
export type Order =
  | { examine: { bytes: Uint8Array<ArrayBuffer>; isParsed: boolean } }
  | { locate: { bundle: string; map: string | undefined; places: Place[] } };

export type Done =
  | (Examined & { bytes: Uint8Array<ArrayBuffer> })
  | { places: (string | undefined)[] | undefined };

/** A thread with a larger heap ends, and its orders fail. */
const maxHeapMb = 112;

const thread = new WorkThread<Order, Done>({
  file: new URL(`./code-thread${extname(import.meta.filename)}`, import.meta.url),
  idleMs: 5_000,
  maxHeapMb,
});

/**
 * The number of values of the JSON, and the reason to refuse it. With `isParsed` the JSON is parsed in any case. Transfers
 * `bytes` to the thread and back.
 */
export async function examineOnThread(
  bytes: Uint8Array<ArrayBuffer>,
  { isParsed }: { isParsed: boolean },
): Promise<Examined & { bytes: Buffer<ArrayBuffer> }> {
  const done = (await thread.order({ examine: { bytes, isParsed } }, [bytes.buffer])) as Extract<
    Done,
    { bytes: object }
  >;
  return { ...done, bytes: Buffer.from(done.bytes.buffer) };
}

/**
 * The positions in the authored files, as `file:line:column`; undefined for a position that the map lacks. `mapOf` is called
 * if the thread does not have the bundle's map.
 */
export async function locateOnThread(
  bundle: string,
  { places, mapOf }: { places: Place[]; mapOf: () => string },
): Promise<(string | undefined)[]> {
  const locate = async (map: string | undefined) =>
    (await thread.order({ locate: { bundle, map, places } }, [])) as { places: string[] | undefined };
  const known = await locate(undefined);
  return known.places ?? (await locate(mapOf())).places ?? [];
}
