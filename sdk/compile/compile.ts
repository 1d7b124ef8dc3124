/**
 * Compiles a folder of functions for a deploy: finds the functions, checks their types, and bundles each of them.
 *
 * Does not own what a bundle may require or a definition may contain: the service checks that at the deploy.
 */
import { readdir, readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { bundle } from './bundle.ts';
import { checkTypes } from './check-types.ts';
import { type Fault, type FunctionFile, findFunctions } from './files.ts';

export type Compiled = FunctionFile & { code: string; source: string };

export type Compilation = {
  /** All functions, or none if there are faults. */
  functions: Compiled[];
  faults: Fault[];
  /** The functions whose files, or files that they import, have the faults. Types alone are not followed to the file that declares them. */
  faulty: FunctionFile[];
  /** Hints for the author that do not prevent a deploy. */
  warnings: string[];
};

type Options = { signal?: AbortSignal; files?: readonly FunctionFile[] };

/** The largest number of attempts while files of the folder change. */
const maxTries = 3;

/**
 * Compiles `files`, by default all functions of the folder. Types, bundles and sources are read one after another; if a file
 * changed in between, starts again, so that the bundled code is the checked code. Throws ENOENT if the folder does not exist,
 * and an error if the TypeScript compiler cannot run.
 */
export async function compile(path: string, options: Options = {}): Promise<Compilation> {
  const folder = resolve(path);
  for (let tries = 1; tries <= maxTries; tries++) {
    const fingerprint = await fingerprintOf(folder);
    const compilation = await compileOnce(folder, options);
    if (fingerprint === (await fingerprintOf(folder))) return compilation;
    options.signal?.throwIfAborted();
  }
  const message = 'files changed during each compilation; try again once they no longer change';
  return { functions: [], faults: [{ file: folder, message }], faulty: [], warnings: [] };
}

/** As `compile`, but leaves the faulty functions out. `functions` is empty if faults cannot be assigned to functions. */
export async function compileWithoutFaulty(path: string): Promise<Compilation> {
  let files = await findFunctions(resolve(path));
  const faults: Fault[] = [];
  const faulty: FunctionFile[] = [];
  for (;;) {
    const compilation = await compile(path, { files });
    faults.push(
      ...compilation.faults.filter((fault) => !faults.some((known) => isDeepStrictEqual(known, fault))),
    );
    faulty.push(...compilation.faulty);
    if (compilation.faults.length === 0 || compilation.faulty.length === 0)
      return { ...compilation, faults, faulty };
    files = files.filter((file) => !compilation.faulty.includes(file));
  }
}

const isCode = /\.[cm]?[jt]sx?$/;

/** A text that changes whenever a code file of the folder changes: inode, size and change time of each file. */
async function fingerprintOf(folder: string): Promise<string> {
  const lines: string[] = [];
  const visit = async (directory: string): Promise<void> => {
    for (const entry of await readdir(directory, { withFileTypes: true })) {
      if (entry.name.startsWith('.') || entry.name === 'node_modules') continue;
      const path = join(directory, entry.name);
      if (entry.isDirectory()) await visit(path).catch(() => {});
      if (!isCode.test(entry.name)) continue;
      // A file that was deleted since has no values.
      const found = await stat(path, { bigint: true }).catch(() => undefined);
      lines.push([path, found?.ino, found?.size, found?.ctimeNs].join(' '));
    }
  };
  await visit(folder);
  return lines.sort().join('\n');
}

async function compileOnce(folder: string, { signal, files: chosen }: Options): Promise<Compilation> {
  const files = chosen ?? (await findFunctions(folder));
  if (files.length === 0) return { functions: [], faults: [], faulty: [], warnings: [] };
  const unnamed = files.filter(({ name }) => !/^[\w-]{1,255}$/.test(name));
  if (unnamed.length > 0) {
    const message = "the name of a function's file must be up to 255 of A-Z a-z 0-9 _ -";
    const faults = unnamed.map(({ file }) => ({ file, message }));
    return { functions: [], faults, faulty: unnamed, warnings: [] };
  }
  const [types, ...bundled] = await Promise.all([
    checkTypes(folder, { files: files.map(({ file }) => file), signal }),
    ...files.map(async (file) => ({ file, result: await bundle(folder, file.file) })),
  ]);
  const warnings = 'unchecked' in types ? [types.unchecked] : [];
  const faults = [
    ...bundled.flatMap(({ result }) => ('faults' in result ? result.faults : [])),
    ...('faults' in types ? types.faults : []),
  ];
  if (faults.length > 0) {
    const withFaults = new Set(faults.map(({ file }) => file));
    const faulty = bundled.filter(
      ({ result }) => 'faults' in result || result.inputs.some((input) => withFaults.has(input)),
    );
    return { functions: [], faults, faulty: faulty.map(({ file }) => file), warnings };
  }
  const functions = await Promise.all(
    bundled.flatMap(({ file, result }) =>
      'code' in result
        ? [
            readFile(join(folder, file.file), 'utf8').then((source) => ({
              ...file,
              code: result.code,
              source,
            })),
          ]
        : [],
    ),
  );
  return { functions, faults, faulty: [], warnings };
}
