/**
 * The migrations of this version: numbered `.sql` files, in their order.
 *
 * The comment at the beginning of a file may have these lines:
 * `-- runs with: 0033`: services whose newest migration is 0033 or a later one run on a schema with this migration.
 * `-- outside a transaction`: the statements run one by one, as `create index concurrently` requires, and may run again.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

export type Migration = {
  /** The name of the file. */
  name: string;
  /** The number of the oldest migration whose services run with it; undefined: only services that have it. */
  runsWith: number | undefined;
  /** They are sent one by one: an extension may refuse a text of several that change tables. */
  statements: string[];
  isOutsideTransaction: boolean;
};

export const migrationsDirectory = join(import.meta.dirname, '../../migrations');

/** The number at the beginning of a migration's name. */
export function numberOf(name: string): number {
  return Number(name.slice(0, 4));
}

export async function listMigrations(directory = migrationsDirectory): Promise<string[]> {
  return (await readdir(directory)).filter((file) => /^\d{4}_.*\.sql$/.test(file)).sort();
}

export async function readMigration(name: string, directory = migrationsDirectory): Promise<Migration> {
  const text = await readFile(join(directory, name), 'utf8');
  const [head = ''] = /^(--.*\n)*/.exec(text) ?? [];
  const [, runsWith] = /^-- runs with: (\d{4})$/m.exec(head) ?? [];
  return {
    name,
    runsWith: runsWith === undefined ? undefined : Number(runsWith),
    statements: statementsOf(text),
    isOutsideTransaction: /^-- outside a transaction$/m.test(head),
  };
}

/** A comment, a string, a quoted name, the body of a function, or one other character. */
const token = /--.*|\/\*[\s\S]*?\*\/|'(?:[^']|'')*'|"[^"]*"|\$(\w*)\$[\s\S]*?\$\1\$|[\s\S]/g;

/** Splits a text at the semicolons that end its statements. */
export function statementsOf(text: string): string[] {
  const statements = [''];
  let isEmpty = true;
  for (const [part] of text.matchAll(token)) {
    if (part === ';') {
      if (!isEmpty) statements.push('');
      isEmpty = true;
      continue;
    }
    statements[statements.length - 1] += part;
    if (!/^(?:--|\/\*|\s)/.test(part)) isEmpty = false;
  }
  return isEmpty ? statements.slice(0, -1) : statements;
}
