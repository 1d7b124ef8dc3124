/**
 * A folder of functions as what can be deployed: found, their types checked, each bundled by itself.
 *
 * Does not own what a bundle may require, nor what a definition may say: the service judges that at the deploy.
 */
import { readFile } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { bundle } from './bundle.ts';
import { checkTypes } from './check-types.ts';
import type { Fault } from './fault.ts';
import { type FunctionFile, findFunctions } from './files.ts';

export type Compiled = FunctionFile & { code: string; source: string };

export type Compilation = {
  /** All of the folder, or none where there are faults. */
  functions: Compiled[];
  faults: Fault[];
  /** What its author should know although nothing is refused. */
  warnings: string[];
};

/** Of `files`, else of all there are. Throws ENOENT where there is no such folder, and where the compiler could not be run. */
export async function compile(
  path: string,
  { signal, files: chosen }: { signal?: AbortSignal; files?: readonly FunctionFile[] } = {},
): Promise<Compilation> {
  const folder = resolve(path);
  const files = chosen ?? (await findFunctions(folder));
  if (files.length === 0) return { functions: [], faults: [], warnings: [] };
  const unnamed = files.filter(({ name }) => !/^[\w-]{1,255}$/.test(name));
  if (unnamed.length > 0) {
    const message = "the name of a function's file may hold up to 255 of A-Z a-z 0-9 _ -";
    return { functions: [], faults: unnamed.map(({ file }) => ({ file, message })), warnings: [] };
  }
  const [types, ...bundled] = await Promise.all([
    checkTypes(folder, { files: files.map(({ file }) => file), signal }),
    ...files.map(async (one) => ({ one, bundled: await bundle(folder, one.file) })),
  ]);
  const warnings = 'unchecked' in types ? [types.unchecked] : [];
  const faults = [
    ...bundled.flatMap(({ bundled: result }) => ('faults' in result ? result.faults : [])),
    ...('faults' in types ? types.faults : []),
  ];
  if (faults.length > 0) return { functions: [], faults, warnings };
  const functions = await Promise.all(
    bundled.flatMap(({ one, bundled: result }) =>
      'code' in result
        ? [readFile(join(folder, one.file), 'utf8').then((source) => ({ ...one, ...result, source }))]
        : [],
    ),
  );
  return { functions, faults, warnings };
}
