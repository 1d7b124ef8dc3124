/** Where functions stand in a folder: `<integration>/{syncs,actions,on-events}/<name>.ts`. Other files are theirs to import. */
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';

const kindOf = { syncs: 'sync', actions: 'action', 'on-events': 'on_event' } as const;

export type FunctionFile = {
  integrationKey: string;
  kind: (typeof kindOf)[keyof typeof kindOf];
  name: string;
  /** Below the folder, with `/`. */
  file: string;
};

/** In the order of their paths. Throws ENOENT where there is no such folder, ENOTDIR where it is none. */
export async function findFunctions(folder: string): Promise<FunctionFile[]> {
  const found: FunctionFile[] = [];
  for (const integrationKey of await namesIn(folder)) {
    if (integrationKey.startsWith('.') || integrationKey === 'node_modules') continue;
    for (const [place, kind] of Object.entries(kindOf)) {
      const path = join(folder, integrationKey, place);
      const files = await readdir(path, { withFileTypes: true }).catch(nothingThere);
      const names = files.filter((file) => !file.isDirectory()).map((file) => file.name);
      for (const file of names.toSorted()) {
        const [, name] = /^([^.]+)\.ts$/.exec(file) ?? [];
        if (name !== undefined) {
          found.push({ integrationKey, kind, name, file: `${integrationKey}/${place}/${file}` });
        }
      }
    }
  }
  return found;
}

async function namesIn(folder: string): Promise<string[]> {
  return (await readdir(folder)).toSorted();
}

function nothingThere(error: NodeJS.ErrnoException): [] {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
  throw error;
}
