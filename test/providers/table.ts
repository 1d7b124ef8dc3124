import type { Catalog } from '../../server/providers/catalog.ts';
import type { FormField, ProviderDefinition } from '../../server/providers/definition.ts';

const titles = (...forms: Readonly<Record<string, FormField>>[]) =>
  forms.flatMap((form) => Object.values(form).map(({ title }) => title)).join(', ');

const HEAD = ['| name | provider | auth mode | asks for | level |', '|---|---|---|---|---|'];

/** The list of docs/reference/providers.md: a table for each first category, with what each provider asks for. */
export function providerTables(catalog: Catalog): string {
  const byCategory = Map.groupBy(catalog.list(), ({ categories: [first = 'other'] }) => first);
  return [...byCategory.entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([category, all]) => [`## ${titleOf(category)}`, '', ...HEAD, ...all.map(rowOf)].join('\n'))
    .join('\n\n');
}

function rowOf(definition: ProviderDefinition): string {
  const { name, display_name, docs, level, source, auth_mode } = definition;
  const fields = titles(definition.integration_config, definition.connection_config, definition.credentials);
  const facts = source === undefined ? level : `${level} [${source.on}](${source.page})`;
  return `| \`${name}\` | [${display_name}](${docs}) | ${auth_mode} | ${fields} | ${facts} |`;
}

/** Abbreviations stay in capitals. */
function titleOf(category: string): string {
  return category.length <= 3 ? category.toUpperCase() : category[0]!.toUpperCase() + category.slice(1);
}

const MARKS = /(<!-- written by scripts\/providers\.ts -->\n).*?(\n<!-- end -->)/s;

/** A page with its list brought up to date. Throws for one that has no place for it. */
export function withTable(page: string, catalog: Catalog): string {
  if (!MARKS.test(page))
    throw new Error('docs/reference/providers.md has no marks to write the list between');
  return page.replace(MARKS, (_, begin: string, end: string) => `${begin}${providerTables(catalog)}${end}`);
}
