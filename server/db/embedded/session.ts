// One connection to an embedded server, for state that ends with its session: a backup, a replication slot, settings. Such a
// server has no pooler; all other code uses pool.ts.

import pg from 'pg';
import type { EmbeddedConnection } from './run.ts';

export interface Session {
  /** The rows; int8 as text. */
  query<R extends object = Record<string, unknown>>(text: string, values?: readonly unknown[]): Promise<R[]>;
}

/** Lends a session to `work` and ends it. If the server goes away, the current statement fails, or the next one. */
export async function withSession<T>(
  target: EmbeddedConnection,
  work: (session: Session, client: pg.Client) => Promise<T>,
): Promise<T> {
  const client = new pg.Client({ ...target });
  // A server that goes away between two statements: the next one fails. Without a listener the process would end.
  client.on('error', () => {});
  await client.connect();
  try {
    return await work(
      {
        async query<R extends object>(text: string, values: readonly unknown[] = []) {
          return (await client.query<R>(text, [...values])).rows;
        },
      },
      client,
    );
  } finally {
    await client.end().catch(() => {});
  }
}
