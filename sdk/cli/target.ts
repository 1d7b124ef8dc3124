/** `<integration>/<function>`, or with the kind's folder between where several have the name. */
import { type FunctionFile, findFunctions } from '../compile/files.ts';
import { UsageError } from './arguments.ts';

export const places = { sync: 'syncs', action: 'actions', on_event: 'on-events' } as const;

export type Target = { integrationKey: string; name: string; kind?: FunctionFile['kind'] | undefined };

export function readTarget(given: string | undefined): Target {
  if (given === undefined) throw new UsageError('Which function? Name it as <integration>/<function>.');
  const parts = given.split('/');
  const [integrationKey, name] = [parts[0], parts.at(-1)];
  const place = parts.length === 3 ? parts[1] : undefined;
  const kind = (Object.keys(places) as FunctionFile['kind'][]).find((one) => places[one] === place);
  if (!integrationKey || !name || parts.length < 2 || parts.length > 3 || (parts.length === 3 && !kind)) {
    throw new UsageError(
      `"${given}" is no function: write <integration>/<function>, or <integration>/syncs/<function>, actions or on-events.`,
    );
  }
  return { integrationKey, name: name.replace(/\.ts$/, ''), kind };
}

export function titleOf({ integrationKey, kind, name }: FunctionFile): string {
  return `${integrationKey}/${places[kind]}/${name}`;
}

/** The one file that is meant. Throws a UsageError that says what there is. */
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
  const all = (found.length > 0 ? found : files).map(titleOf).join(', ');
  if (found.length > 0) throw new UsageError(`Several functions are called ${title}: name one of ${all}.`);
  throw new UsageError(`There is no function ${title} in ${folder}${all && `, which has ${all}`}.`);
}

/** A UsageError where there is no such folder, else what was given. */
export function noFolder(folder: string, error: unknown): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENOENT') return new UsageError(`There is no folder ${folder}.`);
  return code === 'ENOTDIR' ? new UsageError(`${folder} is no folder.`) : error;
}

export async function functionsIn(folder: string): Promise<FunctionFile[]> {
  try {
    return await findFunctions(folder);
  } catch (error) {
    throw noFolder(folder, error);
  }
}
