import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join, relative, sep } from 'node:path';
import { childEnvironment } from '../child-environment.ts';
import { nangoTypes, sdkNames, sdkTypes, zodFolder } from './bundle.ts';
import type { Fault } from './files.ts';

/** `unchecked` is the reason why the types could not be checked. */
type TypeCheck = { faults: Fault[] } | { unchecked: string };

/**
 * Checks the types of `files`, paths below `folder`, with the TypeScript compiler; takes one to two seconds. The types of this
 * package resolve under all its names. Uses the compiler installed for the folder, else the one of this installation. Throws
 * if the compiler cannot run.
 */
export async function checkTypes(
  folder: string,
  { files, signal }: { files: readonly string[]; signal?: AbortSignal | undefined },
): Promise<TypeCheck> {
  const compiler = findFrom(folder, 'typescript') ?? findFrom(import.meta.dirname, 'typescript');
  if (compiler === undefined) {
    return {
      unchecked: 'types were not checked: install "typescript" in the folder of the functions',
    };
  }
  const directory = await mkdtemp(join(tmpdir(), 'trellis-types-'));
  try {
    const config = join(directory, 'tsconfig.json');
    const project = {
      compilerOptions: { ...compilerOptions(locateModules(folder)), resolveJsonModule: true, rootDir: '/' },
      files: files.map((file) => join(folder, file)),
    };
    await writeFile(config, JSON.stringify(project));
    const output = await compile([join(compiler, 'bin/tsc'), '--project', config, '--pretty', 'false'], {
      cwd: folder,
      signal,
    });
    return { faults: parseFaults(output, folder) };
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

/** The locations of imported modules by name, and the folder of the types of Node if they are installed. */
export type ModuleLocations = { paths: Record<string, string[]>; typeRoots: string[] | undefined };

/** The compiler options for functions. */
export function compilerOptions({ paths, typeRoots }: ModuleLocations): object {
  return {
    target: 'esnext',
    lib: ['esnext'],
    module: 'esnext',
    moduleResolution: 'bundler',
    strict: true,
    noEmit: true,
    skipLibCheck: true,
    allowImportingTsExtensions: true,
    ...(typeRoots === undefined ? { types: [] } : { types: ['node'], typeRoots }),
    ...(Object.keys(paths).length > 0 && { paths }),
  };
}

/** Locates the modules that functions in a folder may import. */
export function locateModules(folder: string): ModuleLocations {
  const nodeTypes = findFrom(folder, '@types/node') ?? findFrom(import.meta.dirname, '@types/node');
  return {
    paths: {
      ...Object.fromEntries(sdkNames.map((name) => [name, [sdkTypes]])),
      nango: [nangoTypes],
      '@nangohq/runner-sdk': [nangoTypes],
      zod: [zodFolder],
    },
    typeRoots: nodeTypes === undefined ? undefined : [dirname(nodeTypes)],
  };
}

function findFrom(folder: string, name: string): string | undefined {
  try {
    return dirname(createRequire(join(folder, 'x.js')).resolve(`${name}/package.json`));
  } catch {
    return undefined;
  }
}

/** Returns the output of the compiler, with or without faults. Throws if it did not run. */
function compile(
  args: string[],
  { cwd, signal }: { cwd: string; signal: AbortSignal | undefined },
): Promise<string> {
  return new Promise((resolve, reject) => {
    execFile(
      process.execPath,
      args,
      { cwd, env: childEnvironment(), maxBuffer: 64 * 1024 * 1024, ...(signal && { signal }) },
      (error, stdout, stderr) => {
        // Exit codes 1 and 2 mean that it found faults.
        if (error === null || (typeof error.code === 'number' && error.code <= 2)) resolve(stdout || stderr);
        else
          reject(
            new Error(`The TypeScript compiler did not run: ${stderr || error.message}`, { cause: error }),
          );
      },
    );
  });
}

/** Parses lines `path(line,column): error TS1234: message`. An indented line continues the message before it. */
function parseFaults(output: string, folder: string): Fault[] {
  const faults: Fault[] = [];
  for (const line of output.split('\n')) {
    const [, path, row, column, message] = /^(.+?)\((\d+),(\d+)\): error (TS\d+: .*)$/.exec(line) ?? [];
    // An unused `@ts-expect-error`, which other types of the SDK may need.
    if (message?.startsWith('TS2578:')) continue;
    if (path !== undefined && message !== undefined) {
      faults.push({ file: below(folder, path), line: Number(row), column: Number(column), message });
    } else if (/^\s+\S/.test(line) && faults.length > 0) faults.at(-1)!.message += `\n${line}`;
    else if (/error TS\d+/.test(line)) faults.push({ file: '', message: line });
  }
  return faults;
}

function below(folder: string, path: string): string {
  const file = isAbsolute(path) ? relative(folder, path) : path;
  return file.split(sep).join('/');
}
