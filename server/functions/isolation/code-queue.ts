import { extname } from 'node:path';
import { WorkThread } from '../../work-thread.ts';
import type { Examined } from './json-limits.ts';

/** In a bundle, both counted from 0. */
export type Place = { row: number; column: number };

/** What the thread is sent. `map` is the map as base64, once for each bundle that the thread says it does not know. */
export type Order =
  | { examine: { bytes: Uint8Array<ArrayBuffer>; isParsed: boolean } }
  | { locate: { bundle: string; map: string | undefined; places: Place[] } };

export type Done =
  | (Examined & { bytes: Uint8Array<ArrayBuffer> })
  | { places: (string | undefined)[] | undefined };

/** A thread with more in its heap ends, and what it was asked is refused. */
const maxHeapMb = 192;

const thread = new WorkThread<Order, Done>({
  file: new URL(`./code-thread${extname(import.meta.filename)}`, import.meta.url),
  idleMs: 5_000,
  maxHeapMb,
});

/**
 * How many values the JSON has and why it may not be passed on. With `isParsed` it is JSON for certain. Takes `bytes`
 * away and gives them back.
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
 * Where the places stand in the files that were written, as `file:line:column`; undefined for a place that the map does
 * not have. `mapOf` is called where the thread does not know the bundle's map.
 */
export async function locateOnThread(
  bundle: string,
  { places, mapOf }: { places: Place[]; mapOf: () => string },
): Promise<(string | undefined)[]> {
  const ask = async (map: string | undefined) =>
    (await thread.order({ locate: { bundle, map, places } }, [])) as { places: string[] | undefined };
  const known = await ask(undefined);
  return known.places ?? (await ask(mapOf())).places ?? [];
}
