/** The thread that examines large JSON of customer code and parses its source maps. `code-queue.ts` starts it. */

import { SourceMap } from 'node:module';
import { parentPort } from 'node:worker_threads';
import type { ThreadAnswer } from '../../work-thread.ts';
import type { Done, Order, Place } from './code-queue.ts';
import { examineJson, faultOfJson, mayNameProto } from './json-limits.ts';

/** The maximum size of the mappings of a map: in memory they take 40 times as much. */
const maxMappings = 1024 * 1024;
/** The maximum number of JSON values in a map. */
const maxMapValues = 200_000;

/** By bundle, the last used one at the end; undefined for a bundle without a usable map. */
const maps = new Map<string, { map: SourceMap | undefined; size: number }>();

parentPort?.on('message', (order: Order) => {
  if ('examine' in order) {
    const { bytes, isParsed } = order.examine;
    const json = Buffer.from(bytes.buffer);
    answer({ done: { ...examine(json, isParsed), bytes } }, [bytes.buffer]);
  } else {
    answer({ done: locate(order.locate) });
  }
});

function examine(bytes: Buffer, isParsed: boolean): { values: number; fault: string | undefined } {
  const examined = examineJson(bytes);
  if (examined.fault !== undefined || !(isParsed || mayNameProto(bytes))) return examined;
  try {
    return { ...examined, fault: faultOfJson(JSON.parse(bytes.toString('utf8'))) };
  } catch {
    return { ...examined, fault: 'It is not JSON.' };
  }
}

function locate({ bundle, map: text, places }: Extract<Order, { locate: object }>['locate']): Done {
  const known = text === undefined ? maps.get(bundle) : readMap(text);
  if (known === undefined) return { places: undefined };
  maps.delete(bundle);
  maps.set(bundle, known);
  let size = 0;
  for (const [other, { size: more }] of [...maps].reverse()) {
    size += more;
    if (size > maxMappings && other !== bundle) maps.delete(other);
  }
  return { places: places.map((place) => written(place, known.map)) };
}

function readMap(base64: string): { map: SourceMap | undefined; size: number } {
  const bytes = Buffer.from(base64, 'base64');
  const { values, fault } = examineJson(bytes);
  if (fault !== undefined || values > maxMapValues) return { map: undefined, size: 0 };
  try {
    const { sourcesContent: _, ...read } = JSON.parse(bytes.toString()) as Record<string, unknown>;
    const size = String(read.mappings).length;
    if (size > maxMappings || read.sections !== undefined) return { map: undefined, size: 0 };
    return { map: new SourceMap(read as never), size };
  } catch {
    return { map: undefined, size: 0 };
  }
}

function written({ row, column }: Place, map: SourceMap | undefined): string | undefined {
  const entry = map?.findEntry(row, column);
  if (entry === undefined || !('originalSource' in entry)) return undefined;
  return `${String(entry.originalSource).slice(0, 1_000)}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
}

function answer(message: ThreadAnswer<Done>, transfer: ArrayBuffer[] = []): void {
  parentPort?.postMessage(message, transfer);
}
