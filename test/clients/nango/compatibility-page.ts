import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** docs/reference/compatibility.md */
export const compatibilityPage = readFileSync(
  join(import.meta.dirname, '../../../docs/reference/compatibility.md'),
  'utf8',
);

/** What the first column of the first table below a heading of the page names. */
export function namedUnder(heading: string): string[] {
  const part = compatibilityPage.split(`\n## ${heading}\n`)[1]?.split('\n## ')[0] ?? '';
  const [table = ''] = part.match(/(?:^\|.*\n)+/m) ?? [];
  return table
    .split('\n')
    .slice(2)
    .flatMap((row) => [...(row.split('|')[1] ?? '').matchAll(/`([^`]+)`/g)].map(([, name]) => name!));
}
