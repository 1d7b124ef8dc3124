import type pg from 'pg';
import { copyReader } from './copy.ts';

/** Statements that leave together and are answered together. */
export type Pipeline = {
  /** Queries and at most one COPY, which `copied` makes of a query. No parameters: numbers alone may be written into them. */
  statements: readonly string[];
  /** A row of the statement with this index, its values as PostgreSQL writes them. */
  onRow(statement: number, values: readonly (string | null)[]): void;
  /** A row of the COPY, as `copyRows` hands them over. */
  onCopied(fields: (Buffer | undefined)[]): void;
};

/** A query whose rows come as bytes. */
export function copied(query: string): string {
  return `copy (${query}) to stdout (format binary)`;
}

/**
 * Runs a flight as one read-only transaction that sees one moment, in one exchange with the server. Where a handler
 * throws, nothing more is handed over, and this rejects with what it threw.
 */
export function runPipeline(client: pg.ClientBase, { statements, onRow, onCopied }: Pipeline): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  const text = ['begin isolation level repeatable read read only', ...statements, 'commit'].join(';\n');
  const copy = copyReader(onCopied);
  let failure: unknown;
  /** The one that is being answered: the first is `begin`. */
  let statement = -1;
  const guarded = (work: () => void) => {
    if (failure !== undefined) return;
    try {
      work();
    } catch (error) {
      failure = error;
    }
  };
  const reader = {
    submit: (connection: { query(text: string): void }) => connection.query(text),
    handleRowDescription() {},
    handleDataRow: ({ fields }: { fields: (string | null)[] }) => guarded(() => onRow(statement, fields)),
    handleCopyData: ({ chunk }: { chunk: Buffer }) => guarded(() => copy(chunk)),
    handleCommandComplete() {
      statement += 1;
    },
    handleError: reject,
    handleReadyForQuery: () => (failure === undefined ? resolve() : reject(failure)),
  };
  client.query(reader as unknown as pg.Submittable);
  return promise;
}
