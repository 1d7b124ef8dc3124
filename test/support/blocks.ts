import type { Db, Queryable } from '../../server/db/pool.ts';

/** What one statement read, with its plan as text. */
type Read = { blocks: number; plan: string };

/** The same database, and what each statement outside a transaction reads. `explain` executes each one before it runs. */
export function countingBlocks(db: Db): { db: Db; reads: Read[] } {
  const reads: Read[] = [];
  const explain = async (text: string, values: readonly unknown[] = []) => {
    const lines = await db.query<Record<string, string>>(
      `explain (analyze, buffers, timing off) ${text}`,
      values,
    );
    const plan = lines.map((line) => line['QUERY PLAN']).join('\n');
    // The first line is that of the whole statement; a statement that read nothing has only that of its planning.
    const [, hit = '0', read = '0'] =
      /Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?/.exec(plan.split('\nPlanning:')[0]!) ?? [];
    reads.push({ blocks: Number(hit) + Number(read), plan: `${text}\n${plan}` });
  };
  const counting: Queryable = {
    async query(text, values) {
      await explain(text, values);
      return db.query(text, values);
    },
    async run(built) {
      const { sql, parameters } = built.compile();
      await explain(sql, parameters);
      return db.run(built);
    },
  };
  return { db: { ...db, ...counting }, reads };
}
