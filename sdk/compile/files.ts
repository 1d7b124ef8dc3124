/** The files of functions: `<integration>/{syncs,actions,on-events}/<name>.ts`. Functions may import other files. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';

/** The folder of each kind of function. */
export const folderOfKind = { sync: 'syncs', action: 'actions', on_event: 'on-events' } as const;

export type FunctionFile = {
  integrationKey: string;
  kind: keyof typeof folderOfKind;
  name: string;
  /** The path below the folder, with `/`. */
  file: string;
};

/** Returns the functions of a folder, ordered by integration, kind and name. Throws ENOENT or ENOTDIR if `folder` is not a folder. */
export async function findFunctions(folder: string): Promise<FunctionFile[]> {
  const found: FunctionFile[] = [];
  for (const integrationKey of (await readdir(folder)).toSorted()) {
    if (integrationKey.startsWith('.') || integrationKey === 'node_modules') continue;
    for (const kind of Object.keys(folderOfKind) as FunctionFile['kind'][]) {
      const path = `${integrationKey}/${folderOfKind[kind]}`;
      const entries = await readdir(join(folder, path), { withFileTypes: true }).catch(ignoreMissing);
      const names = entries.filter((entry) => !entry.isDirectory()).map((entry) => entry.name);
      for (const file of names.toSorted()) {
        const [, name] = /^([^.]+)\.ts$/.exec(file) ?? [];
        if (name !== undefined) found.push({ integrationKey, kind, name, file: `${path}/${file}` });
      }
    }
  }
  return found;
}

function ignoreMissing(error: NodeJS.ErrnoException): [] {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
  throw error;
}

/** A fault in the file of a function. `file` is a path below the folder; `line` and `column` count from 1. */
export type Fault = { file: string; line?: number; column?: number; message: string };

/** Formats a fault as `file:line:column: message`, which editors and terminals turn into a link. */
export function formatFault({ file, line, column, message }: Fault): string {
  return [file, line, column, ` ${message}`].filter((part) => part !== undefined).join(':');
}
