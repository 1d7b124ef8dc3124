/**
 * The migrations that this version brings: numbered `.sql` files, in their order.
 *
 * The comment that a file begins with says what the machinery has to know of it, a line each:
 * `-- runs with: 0033`: services whose newest migration is that one, or a later one, run on a schema that has this one too.
 * `-- outside a transaction`: its statements are run one by one, as `create index concurrently` has to be, and may be run again.
 */
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

export type Migration = {
  /** The file's. */
  name: string;
  /** The number of the oldest migration whose services run with it; undefined: none but those that bring it. */
  runsWith: number | undefined;
  /** One text, or the statements of one that is run outside a transaction. */
  text: string | string[];
};

export const migrationsDirectory = join(import.meta.dirname, '../../migrations');

/** The number that a migration's name begins with. */
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

/** Of a text without bodies of functions: a statement ends with the line that ends in a semicolon. */
function statementsOf(text: string): string[] {
  return text.split(/;[ \t]*$/m).filter((part) => part.replace(/^\s*--.*$/gm, '').trim() !== '');
}
