import type { Queryable } from '../../server/db/pool.ts';

/** Of a larger table as many rows are read as this many bytes hold: sealed payloads may be gigabytes. */
const maxOfTable = 32 * 1024 * 1024;
const rowsAtOnce = 20_000;

/**
 * All that stands in a database, table by table and as text: every column of every table of every schema that is not
 * PostgreSQL's own, partitions and the queue's tables included. Bytes are shown as they are beside their hexadecimal.
 */
export async function* textsOfDatabase(db: Queryable): AsyncIterable<{ table: string; text: string }> {
  const tables = await db.query<{ table: string }>(
    `select format('%I.%I', nspname, relname) as table
     from pg_class
     join pg_namespace on pg_namespace.oid = relnamespace
     where relkind in ('r', 'm') and nspname !~ '^pg_' and nspname <> 'information_schema'
       and pg_relation_size(pg_class.oid) > 0
     order by 1`,
  );
  for (const { table } of tables) {
    let length = 0;
    for (let from = 0; length < maxOfTable; from += rowsAtOnce) {
      const [page] = await db.query<{ text: string | null; rows: number }>(
        `select string_agg(of::text, E'\\n') as text, count(*) as rows
         from (select * from ${table} order by ctid offset $1 limit $2) as of`,
        [from, rowsAtOnce],
      );
      const text = page?.text ?? '';
      length += text.length;
      if (text !== '') yield { table, text: `${text}\n${bytesIn(text)}` };
      if ((page?.rows ?? 0) < rowsAtOnce) break;
    }
  }
}

/** What `bytea` columns hold, each byte a character. */
function bytesIn(text: string): string {
  const all = text.matchAll(/\\x((?:[0-9a-f]{2})+)/g);
  return Array.from(all, ([, hex]) => Buffer.from(hex!, 'hex').toString('latin1')).join('\n');
}
