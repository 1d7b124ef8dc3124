import type { Catalog } from '../../server/providers/catalog.ts';
import type { FormField } from '../../server/providers/definition.ts';

const titles = (...forms: Readonly<Record<string, FormField>>[]) =>
  forms.flatMap((form) => Object.values(form).map(({ title }) => title)).join(', ');

/** The list of docs/reference/providers.md: what there is, what each asks for, and what it was checked against. */
export function providerTable(catalog: Catalog): string {
  const rows = catalog.list().map((definition) => {
    const { name, display_name, docs, verified, auth_mode } = definition;
    const checked = typeof verified === 'string' ? verified : `[${verified.on}](${verified.page})`;
    const fields = titles(
      definition.integration_config,
      definition.connection_config,
      definition.credentials,
    );
    return `| \`${name}\` | [${display_name}](${docs}) | ${fields} | ${auth_mode === 'OAUTH2' ? checked : ''} |`;
  });
  return ['| name | provider | asks for | checked |', '|---|---|---|---|', ...rows].join('\n');
}

const MARKS = /(<!-- written by scripts\/providers\.ts -->\n).*?(\n<!-- end -->)/s;

/** A page with its list brought up to date. Throws for one that has no place for it. */
export function withTable(page: string, catalog: Catalog): string {
  if (!MARKS.test(page))
    throw new Error('docs/reference/providers.md has no marks to write the list between');
  return page.replace(MARKS, (_, begin: string, end: string) => `${begin}${providerTable(catalog)}${end}`);
}
