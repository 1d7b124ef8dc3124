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
  /** One text, or the statements of a migration that runs outside a transaction. */
  text: string | string[];
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
    text: /^-- outside a transaction$/m.test(head) ? statementsOf(text) : text,
  };
}

/** For a text without function bodies: a statement ends with a line that ends in a semicolon. */
function statementsOf(text: string): string[] {
  return text.split(/;[ \t]*$/m).filter((part) => part.replace(/^\s*--.*$/gm, '').trim() !== '');
}
