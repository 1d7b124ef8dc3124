// One connection to an embedded server for a command that needs what ends with a session: a backup that is under way, a
// slot, settings of its own. No pooler stands before such a server; elsewhere pool.ts is the way.

import pg from 'pg';
import type { EmbeddedConnection } from './embedded-run.ts';

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
