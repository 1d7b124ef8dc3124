import type { Catalog } from '../../server/providers/catalog.ts';
import {
  type FormField,
  levels,
  type ProviderDefinition,
  type WebhookPlace,
  type WebhookRules,
} from '../../server/providers/definition.ts';

const titles = (...forms: Readonly<Record<string, FormField>>[]) =>
  forms.flatMap((form) => Object.values(form).map(({ title }) => title)).join(', ');

const tableHead = ['| name | provider | auth mode | asks for | level |', '|---|---|---|---|---|'];

/** The number of providers by auth mode and level. */
function levelTable(catalog: Catalog): string {
  const all = catalog.list();
  const row = (title: string, of: readonly ProviderDefinition[]) => {
    const counts = levels.map((level) => of.filter((one) => one.level === level).length);
    return `| ${[title, ...counts, of.length].join(' | ')} |`;
  };
  const byMode = [...Map.groupBy(all, ({ auth_mode }) => auth_mode)].toSorted(
    ([, a], [, b]) => b.length - a.length,
  );
  return [
    `| auth mode | ${levels.join(' | ')} | all |`,
    `|---|${'---|'.repeat(levels.length)}---|`,
    ...byMode.map(([mode, of]) => row(mode, of)),
    row('all', all),
  ].join('\n');
}

/**
 * The list of docs/reference/providers.md: the numbers by auth mode and level, and a table for each first category, with what
 * each provider asks for.
 */
export function providerTables(catalog: Catalog): string {
  const byCategory = Map.groupBy(catalog.list(), ({ categories: [first = 'other'] }) => first);
  const tables = [...byCategory.entries()]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([category, all]) => [`## ${titleOf(category)}`, '', ...tableHead, ...all.map(rowOf)].join('\n'));
  return [levelTable(catalog), ...tables].join('\n\n');
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

const marks = /(<!-- written by scripts\/providers\.ts -->\n).*?(\n<!-- end -->)/s;

/** A page with its list brought up to date. Throws for one that has no place for it. */
export function withTable(page: string, catalog: Catalog): string {
  return between(page, providerTables(catalog));
}

/** The page of webhooks with its table brought up to date. Throws for one that has no place for it. */
export function withWebhooks(page: string, catalog: Catalog): string {
  const rows = catalog
    .list()
    .toSorted((a, b) => (a.name < b.name ? -1 : 1))
    .flatMap(({ name, webhook }) => (webhook === undefined ? [] : [webhookRow(name, webhook)]));
  const lines = ['', '| provider | proof | type | connection |', '|---|---|---|---|', ...rows, ''];
  return between(page, lines.join('\n'));
}

function between(page: string, text: string): string {
  if (!marks.test(page)) throw new Error('the page has no marks to write a list between');
  return page.replace(marks, (_, begin: string, end: string) => `${begin}${text}${end}`);
}

function webhookRow(name: string, { proof, type, connection }: WebhookRules): string {
  const at =
    proof.scheme === 'standard'
      ? `\`${proof.headers}-signature\``
      : proof.header
        ? `\`${proof.header}\``
        : 'query' in proof && proof.query
          ? `\`?${proof.query}=\``
          : `\`${'body' in proof ? proof.body : ''}\` in the body`;
  const notes = [
    'timestamp_body' in proof && proof.timestamp_body ? `, with \`${proof.timestamp_body}\`` : '',
    proof.scheme === 'certificate' ? ', under a certificate' : '',
    proof.scheme === 'id_token' ? ' (token of a service account)' : '',
    'basic' in proof && proof.basic ? ' (user name and password)' : '',
    proof.key === 'client_secret' ? ' (client secret)' : '',
    'required' in proof && proof.required === 'unset'
      ? ' if a secret is set; otherwise every sender is accepted'
      : '',
  ];
  const by = { connection_id: 'ID', account: 'account', email: 'e-mail address', tag: '' };
  const found = connection?.map(
    (of) => `${of.by === 'tag' ? `tag \`${of.tag}\`` : by[of.by]}: ${placeOf(of.from)}`,
  );
  const types = type?.map(placeOf).join(', ') ?? '`*` only';
  return `| \`${name}\` | ${at}${notes.join('')} | ${types} | ${found?.join('; ') ?? ''} |`;
}

function placeOf(place: WebhookPlace): string {
  if ('header' in place) return `\`${place.header}\``;
  if ('query' in place) return `\`?${place.query}=\``;
  return place.base64_json ? `\`${place.base64_json}\` in \`${place.body}\`` : `\`${place.body}\``;
}
