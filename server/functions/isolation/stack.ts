import { locateOnThread, type Place } from './code-queue.ts';
import type { RunOrder, ThrownError } from './runtime.ts';

const marker = '//# sourceMappingURL=data:application/json;base64,';
/** The bundle stands in a function of one line, whose text comes before the bundle's first. */
const lead = '(function (module, exports, require) {'.length;
/** More is of no use to a reader. */
const maxLines = 100;
const maxLineLength = 1_000;
const place = /function\.js:(\d{1,9}):(\d{1,9})/;

/**
 * The error with its stack in the files that were written, where the bundle carries a map; else in the bundle. The map
 * is read on a thread, once for as long as the bundle is among those that failed last.
 */
export async function mapped(error: ThrownError, bundle: RunOrder['bundle']): Promise<ThrownError> {
  if (error.stack === undefined) return error;
  const lines = error.stack
    .split('\n', maxLines)
    .map((line) => line.slice(0, maxLineLength))
    .filter((line) => !/^\s+at .*(trellis:|node:|\[stdin\])/.test(line));
  const places = lines.map(placeIn);
  const asked = places.filter((one) => one !== undefined);
  const at = asked.length > 0 ? bundle.code.lastIndexOf(marker) : -1;
  if (at < 0) return { ...error, stack: lines.join('\n') };
  const mapOf = () => bundle.code.slice(at + marker.length).trimEnd();
  // A map is a convenience: a run does not fail in another way because its map cannot be used.
  const found = await locateOnThread(bundle.id, { places: asked, mapOf }).catch(() => []);
  const left = found.values();
  const written = places.map((one) => (one === undefined ? undefined : left.next().value));
  const stack = lines.map((line, n) =>
    written[n] === undefined ? line : line.replace(place, () => written[n]!),
  );
  return { ...error, stack: stack.join('\n') };
}

function placeIn(line: string): Place | undefined {
  const [, row, column] = place.exec(line) ?? [];
  if (row === undefined) return undefined;
  const at = Number(row) === 1 ? Number(column) - lead : Number(column);
  return { row: Number(row) - 1, column: Math.max(0, at - 1) };
}
