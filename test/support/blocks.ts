import type { Db, Queryable } from '../../server/db/pool.ts';

/** What one statement read, with its plan as text. */
type Read = { blocks: number; plan: string };

/**
 * The same database, and what each statement outside a transaction reads, and each `select` within one. `explain` executes each
 * one before it runs, so a statement that writes writes twice.
 */
export function countingBlocks(db: Db): { db: Db; reads: Read[] } {
  const reads: Read[] = [];
  const counting = (of: Queryable): Queryable => {
    const explain = async (text: string, values: readonly unknown[] = []) => {
      const lines = await of.query<Record<string, string>>(
        `explain (analyze, buffers, timing off) ${text}`,
        values,
      );
      const plan = lines.map((line) => line['QUERY PLAN']).join('\n');
      // The first line is that of the whole statement; a statement that read nothing has only that of its planning.
      const [, hit = '0', read = '0'] =
        /Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?/.exec(plan.split('\nPlanning:')[0]!) ?? [];
      reads.push({ blocks: Number(hit) + Number(read), plan: `${text}\n${plan}` });
    };
    return {
      database: of.database,
      async query(text, values) {
        await explain(text, values);
        return of.query(text, values);
      },
      async run(built) {
        const { sql, parameters } = built.compile();
        await explain(sql, parameters);
        return of.run(built);
      },
    };
  };
  const transaction: Db['transaction'] = (work, mode) =>
    db.transaction((tx) => {
      const counted = counting(tx);
      return work({
        ...tx,
        query: (text, values) => (/^\s*select\b/.test(text) ? counted : tx).query(text, values),
      });
    }, mode);
  return { db: { ...db, ...counting(db), transaction }, reads };
}
