/** Names of functions: `<integration>/<function>`, or `<integration>/syncs/<function>` if several kinds have the name. */
import { type FunctionFile, findFunctions, folderOfKind } from '../compile/files.ts';
import { UsageError } from './arguments.ts';

export type Target = { integrationKey: string; name: string; kind?: FunctionFile['kind'] | undefined };

/** Throws a UsageError for an invalid name. */
export function readTarget(text: string): Target {
  const parts = text.split('/');
  const [integrationKey, name] = [parts[0], parts.at(-1)];
  const kindFolder = parts.length === 3 ? parts[1] : undefined;
  const kinds = Object.keys(folderOfKind) as FunctionFile['kind'][];
  const kind = kinds.find((one) => folderOfKind[one] === kindFolder);
  if (!integrationKey || !name || parts.length < 2 || parts.length > 3 || (parts.length === 3 && !kind)) {
    throw new UsageError(
      `"${text}" is not the name of a function: write <integration>/<function>, or <integration>/{syncs,actions,on-events}/<function>.`,
    );
  }
  return { integrationKey, name: name.replace(/\.ts$/, ''), kind };
}

export function functionPath({ integrationKey, kind, name }: FunctionFile): string {
  return `${integrationKey}/${folderOfKind[kind]}/${name}`;
}

/** Returns the file of a function. Throws a UsageError if none or several match. */
export async function findTarget(folder: string, target: Target): Promise<FunctionFile> {
  const files = await functionsIn(folder);
  const found = files.filter(
    ({ integrationKey, name, kind }) =>
      integrationKey === target.integrationKey &&
      name === target.name &&
      (target.kind === undefined || kind === target.kind),
  );
  if (found.length === 1) return found[0]!;
  const title = `${target.integrationKey}/${target.name}`;
  const all = (found.length > 0 ? found : files).map(functionPath).join(', ');
  if (found.length > 0) throw new UsageError(`Several functions are named ${title}: choose one of ${all}.`);
  throw new UsageError(`There is no function ${title} in ${folder}${all && `. The folder has ${all}`}.`);
}

/** Converts ENOENT and ENOTDIR into a UsageError; returns any other error unchanged. */
export function folderError(folder: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return new UsageError(`The folder ${folder} does not exist.`);
  return code === 'ENOTDIR' ? new UsageError(`${folder} is not a folder.`) : error;
}

export async function functionsIn(folder: string): Promise<FunctionFile[]> {
  try {
    return await findFunctions(folder);
  } catch (error) {
    throw folderError(folder, error);
  }
}
