import type { Session } from '../db/embedded-session.ts';

/** What has to go from one database of ours to another: its tables, their partitions, the numbers they have come to. */
export type Table = { name: string; columns: string };
type Sum = { rows: string; sum: string };

const ours = `(select relnamespace from pg_class where oid = 'migration'::regclass)`;

/** Tables that hold rows of their own, partitions among them; names and columns as SQL spells them. */
export function listTables(session: Session): Promise<Table[]> {
  return session.query<Table>(
    `select
       relation.oid::regclass::text as name,
       string_agg(quote_ident(attribute.attname), ', ' order by attribute.attnum) as columns
     from pg_class as relation
     join pg_attribute as attribute on attribute.attrelid = relation.oid
     where relation.relnamespace = ${ours}
       and relation.relkind = 'r'
       and attribute.attnum > 0
       and not attribute.attisdropped
       and attribute.attgenerated = ''
     group by relation.oid
     order by relation.oid::regclass::text`,
  );
}

/** Makes the partitions that `from` has and `to` lacks. */
export async function makePartitions({ from, to }: { from: Session; to: Session }): Promise<void> {
  const partitions = await from.query<{ name: string; parent: string; bound: string }>(
    `select
       relation.oid::regclass::text as name,
       inhparent::regclass::text as parent,
       pg_get_expr(relation.relpartbound, relation.oid) as bound
     from pg_class as relation
     join pg_inherits on inhrelid = relation.oid
     where relation.relnamespace = ${ours} and relation.relispartition and relation.relkind = 'r'`,
  );
  for (const { name, parent, bound } of partitions)
    await to.query(`create table if not exists ${name} partition of ${parent} ${bound}`);
}

/** How many rows, and a sum over the text of each, whatever their order: the same in every version. */
export async function sumOf(session: Session, { name, columns }: Table): Promise<Sum> {
  const [sum] = await session.query<Sum>(
    `select count(*)::text as rows, coalesce(sum(hashtextextended(one::text, 0)), 0)::text as sum
     from (select ${columns} from ${name}) as one`,
  );
  return sum!;
}

/** Lets the numbers of rows go on where they stand. */
export async function copyCounters({ from, to }: { from: Session; to: Session }): Promise<void> {
  const counters = await from.query<{ name: string; value: string | null }>(
    `select format('%I.%I', schemaname, sequencename) as name, last_value::text as value
     from pg_sequences
     where schemaname = (select nspname from pg_namespace where oid = ${ours})`,
  );
  for (const { name, value } of counters)
    if (value !== null) await to.query('select setval($1::regclass, $2::bigint)', [name, value]);
}

/** Schemas that are neither PostgreSQL's nor ours: an operator's own, of which nobody here knows anything. */
export async function listForeignSchemas(session: Session): Promise<string[]> {
  const rows = await session.query<{ name: string }>(
    `select nspname as name
     from pg_namespace
     where nspname !~ '^pg_' and nspname not in ('information_schema', 'pgboss') and oid <> ${ours}
     order by nspname`,
  );
  return rows.map(({ name }) => name);
}
