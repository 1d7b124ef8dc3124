import type { Queryable } from '../../server/db/pool.ts';

type Node = {
  'Node Type': string;
  'Relation Name'?: string;
  'Index Name'?: string;
  Alias?: string;
  'Index Cond'?: string;
  Filter?: string;
  'Join Filter'?: string;
  'Hash Cond'?: string;
  'Merge Cond'?: string;
  'TID Cond'?: string;
  Plans?: Node[];
};
export type Explained = { Plan: Node };

type Index = {
  name: string;
  /** Null for an expression. */
  columns: (string | null)[];
  isUnique: boolean;
  isPartial: boolean;
};
type Table = { columns: string[]; indexes: Index[]; bytes: number };

/** The named tables, and their partitions, by the name of the relation that a plan scans. */
export async function readTables(q: Queryable, names: readonly string[]): Promise<Map<string, Table>> {
  const rows = await q.query<Table & { name: string }>(
    `select
       relname as name,
       pg_relation_size(class.oid) as bytes,
       (select array_agg(attname::text) from pg_attribute where attrelid = class.oid and attnum > 0) as columns,
       (select coalesce(json_agg(json_build_object(
          'name', (select relname from pg_class where oid = indexrelid),
          'isUnique', indisunique,
          'isPartial', indpred is not null,
          'columns', (select json_agg(attname order by at)
            from unnest(indkey::int[]) with ordinality as key (attnum, at)
            left join pg_attribute on attrelid = indrelid and pg_attribute.attnum = key.attnum
            where at <= indnkeyatts)
        )), '[]')
        from pg_index
        where indrelid = class.oid) as indexes
     from pg_class as class
     where relkind = 'r' and relname ~ ('^(' || $1 || ')(_\\d{8})?$') and relnamespace = 'public'::regnamespace`,
    [names.join('|')],
  );
  return new Map(rows.map(({ name, ...table }) => [name, table]));
}

/** An index of fewer pages or a table of as few is read wholly for the price of a search. */
const smallBytes = 10 * 8192;

/**
 * What is wrong with a plan: each scan of these tables that reads the table wholly, and each index scan that narrows by
 * fewer columns than the best index of the table could by the same conditions. Columns that only filter are read for all rows
 * of the owner.
 */
export function faultsOf({ Plan }: Explained, tables: ReadonlyMap<string, Table>): string[] {
  return scansOf(Plan, []).flatMap(({ node, around }) => {
    const table = tables.get(node['Relation Name'] ?? '');
    if (table === undefined || table.bytes < smallBytes || node['TID Cond'] !== undefined) return [];
    const alias = node.Alias ?? '';
    const searched = searchesOf(node);
    const inIndex = searched.flatMap(({ 'Index Cond': condition }) => condition ?? []).join(' ');
    const all = [inIndex, node.Filter ?? '', ...around].join(' ');
    const [used, known] = [comparedIn(inIndex, table, alias), comparedIn(all, table, alias)];
    const what = `${node['Node Type']} ${searched.map((by) => by['Index Name']).join()} on ${node['Relation Name']}: ${inIndex}`;
    // By no owner.
    if (!table.indexes.some(({ columns: [lead] }) => known.get(lead ?? '') === 'equal')) return [];
    if (inIndex === '') return [`${what} [all: ${all}]`];
    const chosen = table.indexes.filter(({ name }) => searched.some((by) => by['Index Name'] === name));
    if (
      chosen.some(
        ({ isUnique, columns }) => isUnique && columns.every((column) => used.get(column ?? '') === 'equal'),
      )
    )
      return [];
    if (chosen.some(({ columns }) => columns.includes(null))) return [];
    const best = table.indexes
      .filter(({ isPartial }) => !isPartial)
      .map((index) => ({ index, count: reach(index, known) }));
    const max = Math.max(0, ...best.map(({ count }) => count));
    const reached = Math.max(0, ...chosen.map((index) => reach(index, used)));
    return reached >= max ? [] : [`${what} [all: ${all}] could use ${max} columns, uses ${reached}`];
  });
}

/** How many of the index's columns a search narrows by: equal ones, and one that is bounded. */
function reach({ columns }: Index, compared: ReadonlyMap<string, 'equal' | 'bounded'>): number {
  const ends = columns.findIndex((column) => compared.get(column ?? '') !== 'equal');
  if (ends < 0) return columns.length;
  return compared.has(columns[ends] ?? '') ? ends + 1 : ends;
}

function scansOf(node: Node, around: string[]): { node: Node; around: string[] }[] {
  const own = [node['Join Filter'], node['Hash Cond'], node['Merge Cond']].flatMap(
    (condition) => condition ?? [],
  );
  const below = (node.Plans ?? []).flatMap((child) => scansOf(child, [...around, ...own]));
  const isScan = node['Relation Name'] !== undefined && /Scan/.test(node['Node Type']);
  return isScan ? [{ node, around }, ...below] : below;
}

/** The nodes that search an index for a scan. */
function searchesOf(node: Node): Node[] {
  if (node['Index Name'] !== undefined) return [node];
  return node['Node Type'] === 'Bitmap Heap Scan' || /^Bitmap(And|Or)$/.test(node['Node Type'])
    ? (node.Plans ?? []).flatMap(searchesOf)
    : [];
}

/** The columns of the table that the condition compares, and how. */
function comparedIn(condition: string, { columns }: Table, alias: string): Map<string, 'equal' | 'bounded'> {
  const compared = new Map<string, 'equal' | 'bounded'>();
  for (const column of columns) {
    const name = `(?:(?<![\\w.])|(?<=[( ]${alias}\\.))"?${column}"?`;
    if (new RegExp(`${name} = |[^<>!] = \\(?${alias}\\.${column}\\b`).test(condition))
      compared.set(column, 'equal');
    else if (new RegExp(`${name} (<|>|<=|>=) `).test(condition)) compared.set(column, 'bounded');
  }
  return compared;
}
