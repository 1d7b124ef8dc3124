import { SourceMap } from 'node:module';
import { bundleName } from './load.ts';

const marker = '//# sourceMappingURL=data:application/json;base64,';
const place = new RegExp(`${bundleName.replace('.', '\\.')}:(\\d+):(\\d+)`);

/** Where in the author's files a stack passes, the innermost place first: `google-sheet/syncs/rows.ts:12:7`. */
export function placesOf(stack: string | undefined, code: string): string[] {
  const map = mapOf(code);
  const places = (stack ?? '').split('\n').flatMap((line) => {
    const [, row, column] = place.exec(line) ?? [];
    if (row === undefined) return [];
    const entry = map?.findEntry(Number(row) - 1, Number(column) - 1);
    if (entry === undefined || !('originalSource' in entry)) return [];
    return [`${entry.originalSource}:${entry.originalLine + 1}:${entry.originalColumn + 1}`];
  });
  return [...new Set(places)];
}

function mapOf(code: string): SourceMap | undefined {
  const at = code.lastIndexOf(marker);
  if (at < 0) return undefined;
  return new SourceMap(
    JSON.parse(Buffer.from(code.slice(at + marker.length).trimEnd(), 'base64').toString()),
  );
}
