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

/** In the order of their paths. Throws ENOENT where there is no such folder. */
export async function findFunctions(folder: string): Promise<FunctionFile[]> {
  const found: FunctionFile[] = [];
  for (const integrationKey of await namesIn(folder)) {
    if (integrationKey.startsWith('.') || integrationKey === 'node_modules') continue;
    for (const [place, kind] of Object.entries(kindOf)) {
      const files = await namesIn(join(folder, integrationKey, place)).catch(nothingThere);
      for (const file of files) {
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

function nothingThere(error: NodeJS.ErrnoException): string[] {
  if (error.code === 'ENOENT' || error.code === 'ENOTDIR') return [];
  throw error;
}
