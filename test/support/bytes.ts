import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Files below `dir` that hold any of these values. */
export async function findBytes(dir: string, values: readonly Buffer[]): Promise<string[]> {
  const found: string[] = [];
  for (const entry of await readdir(dir, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const path = join(entry.parentPath, entry.name);
    const bytes = await readFile(path);
    if (values.some((value) => bytes.includes(value))) found.push(path);
  }
  return found;
}
