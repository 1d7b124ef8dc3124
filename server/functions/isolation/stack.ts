import { SourceMap } from 'node:module';
import type { ThrownError } from './runtime.ts';

const marker = '//# sourceMappingURL=data:application/json;base64,';
/** The bundle stands in a function of one line, whose text comes before the bundle's first. */
const lead = '(function (module, exports, require) {'.length;

/** The error with its stack in the files that were written, where the bundle carries a map; else in the bundle. */
export function mapped(error: ThrownError, code: string): ThrownError {
  if (error.stack === undefined) return error;
  const frames = error.stack.split('\n').filter((line) => !/^\s+at .*(trellis:|node:|\[stdin\])/.test(line));
  const map = mapOf(code);
  if (map === undefined) return { ...error, stack: frames.join('\n') };
  const stack = frames.map((line) =>
    line.replace(/function\.js:(\d+):(\d+)/, (asWritten, row: string, column: string) => {
      const at = Number(row) === 1 ? Number(column) - lead : Number(column);
      const entry = map.findEntry(Number(row) - 1, Math.max(0, at - 1));
      if (!('originalSource' in entry)) return asWritten;
      return `${entry.originalSource}:${entry.originalLine + 1}:${entry.originalColumn + 1}`;
    }),
  );
  return { ...error, stack: stack.join('\n') };
}

function mapOf(code: string): SourceMap | undefined {
  const at = code.lastIndexOf(marker);
  if (at < 0) return undefined;
  try {
    const text = Buffer.from(code.slice(at + marker.length).trimEnd(), 'base64').toString();
    return new SourceMap(JSON.parse(text));
  } catch {
    // A map is a convenience; what is wrong with it is no fault of the run.
    return undefined;
  }
}
