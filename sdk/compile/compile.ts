/**
 * A folder of functions as what can be deployed: found, their types checked, each bundled by itself.
 *
 * Does not own what a bundle may require, nor what a definition may say: the service judges that at the deploy.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
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

type Options = { signal?: AbortSignal; files?: readonly FunctionFile[] };

/** A folder in which files go on changing is given up after so many tries. */
const maxTries = 3;

/**
 * Of `files`, else of all there are, as they stand at one moment: types, bundles and sources are read one after the other, and
 * what is bundled must be what was checked. Throws ENOENT where there is no such folder, and where the compiler could not
 * be run.
 */
export async function compile(path: string, options: Options = {}): Promise<Compilation> {
  const folder = resolve(path);
  for (let tries = 1; tries <= maxTries; tries++) {
    const stamp = await stampOf(folder);
    const compilation = await compileOnce(folder, options);
    if (stamp === (await stampOf(folder))) return compilation;
    options.signal?.throwIfAborted();
  }
  const message = 'files change while they are compiled; try again when they are at rest';
  return { functions: [], faults: [{ file: folder, message }], warnings: [] };
}

const isCode = /\.[cm]?[jt]sx?$/;

/** Other for each content that the code of the folder has had. */
async function stampOf(folder: string): Promise<string> {
  const stamps: string[] = [];
  const look = async (directory: string): Promise<void> => {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
      const path = join(directory, entry.name);
      if (entry.isDirectory()) await look(path).catch(() => {});
      if (!isCode.test(entry.name)) continue;
      // What went since leaves nothing.
      const found = await stat(path, { bigint: true }).catch(() => undefined);
      stamps.push([path, found?.ino, found?.size, found?.ctimeNs].join(' '));
    }
  };
  await look(folder);
  return stamps.sort().join('\n');
}

async function compileOnce(folder: string, { signal, files: chosen }: Options): Promise<Compilation> {
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
