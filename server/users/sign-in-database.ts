import {
  CamelCasePlugin,
  Kysely,
  PostgresAdapter,
  PostgresIntrospector,
  PostgresQueryCompiler,
} from 'kysely';
import type { Queryable } from '../db/pool.ts';

/**
 * Our database as better-auth wants it: names in camel case, statements through the service's own pool and as it sends
 * them, unnamed. There are no transactions; better-auth asks for none where it is told so.
 */
export function signInDatabase(db: Queryable): Kysely<unknown> {
  const connection = {
    async executeQuery<R>({ sql, parameters }: { sql: string; parameters: readonly unknown[] }) {
      return { rows: (await db.query(sql, parameters)) as R[] };
    },
    // biome-ignore lint/correctness/useYield: nothing here streams
    async *streamQuery(): AsyncGenerator<never> {
      throw new Error('sign-in streams nothing');
    },
  };
  const noTransaction = async (): Promise<void> => {
    throw new Error('sign-in has no transactions');
  };
  return new Kysely({
    dialect: {
      createAdapter: () => new PostgresAdapter(),
      createDriver: () => ({
        init: async () => {},
        acquireConnection: async () => connection,
        beginTransaction: noTransaction,
        commitTransaction: noTransaction,
        rollbackTransaction: noTransaction,
        releaseConnection: async () => {},
        destroy: async () => {},
      }),
      createIntrospector: (kysely) => new PostgresIntrospector(kysely),
      createQueryCompiler: () => new PostgresQueryCompiler(),
    },
    plugins: [new CamelCasePlugin()],
  });
}
