import type { Queryable } from '../../server/db/pool.ts';

/** The schema of a database as SQL text: the same text for the same schema on every PostgreSQL. */
export async function describeSchema(db: Queryable): Promise<string> {
  const names = await db.query<{ name: string }>(`
    select relname as name
    from pg_class
    where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
    order by relname collate "C"`);
  const texts: string[] = [];
  for (const { name } of names) texts.push(await describeTable(db, name));
  const functions = await db.query<{ text: string }>(`
    select pg_get_functiondef(oid) as text
    from pg_proc
    where pronamespace = 'public'::regnamespace
    order by proname collate "C"`);
  for (const { text } of functions) texts.push(`${text.trimEnd()};`);
  return `${texts.join('\n\n')}\n`;
}

async function describeTable(db: Queryable, table: string): Promise<string> {
  const columns = await db.query<{ line: string }>(
    `select concat_ws(' ',
              attname,
              format_type(atttypid, atttypmod),
              case when attcollation <> typcollation then format('collate "%s"', collname) end,
              case when attidentity = 'a' then 'generated always as identity' end,
              case when attnotnull then 'not null' end,
              'default ' || pg_get_expr(adbin, adrelid)
            ) as line
     from pg_attribute
     join pg_type on pg_type.oid = atttypid
     left join pg_collation on pg_collation.oid = attcollation
     left join pg_attrdef on adrelid = attrelid and adnum = attnum
     where attrelid = $1::regclass and attnum > 0 and not attisdropped
     order by attnum`,
    [table],
  );
  // Since PostgreSQL 18 a not-null constraint is listed too; the column says it already.
  const constraints = await db.query<{ line: string }>(
    `select format('constraint %s %s', conname, pg_get_constraintdef(oid)) as line
     from pg_constraint
     where conrelid = $1::regclass and contype <> 'n'
     order by conname collate "C"`,
    [table],
  );
  const indexes = await db.query<{ line: string }>(
    `select pg_get_indexdef(indexrelid) as line
     from pg_index
     where indrelid = $1::regclass
       and not exists (select from pg_constraint where conindid = indexrelid)
     order by indexrelid::regclass::text collate "C"`,
    [table],
  );
  const triggers = await db.query<{ line: string }>(
    `select pg_get_triggerdef(oid) as line
     from pg_trigger
     where tgrelid = $1::regclass and not tgisinternal
     order by tgname collate "C"`,
    [table],
  );
  const body = [...columns, ...constraints].map(({ line }) => `  ${line}`).join(',\n');
  const rest = [...indexes, ...triggers].map(({ line }) => `${line};`);
  return [`create table ${table} (\n${body}\n);`, ...rest].join('\n');
}
