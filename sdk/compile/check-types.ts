import { execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, isAbsolute, join, relative, sep } from 'node:path';
import { childEnvironment } from '../child-environment.ts';
import type { Fault } from './fault.ts';
import { sdkNames, sdkTypes, zodFolder } from './sdk-files.ts';

/** `unchecked` says why nothing could be said. */
export type TypeCheck = { faults: Fault[] } | { unchecked: string };

/**
 * What the TypeScript compiler says of these files, with the types of this package under all its names. Takes a second or
 * two. The compiler is the folder's own where it has one, else that of this installation.
 */
export async function checkTypes(
  folder: string,
  { files, signal }: { files: readonly string[]; signal?: AbortSignal | undefined },
): Promise<TypeCheck> {
  const compiler = findFrom(folder, 'typescript') ?? findFrom(import.meta.dirname, 'typescript');
  if (compiler === undefined) {
    return {
      unchecked: 'types were not checked: install "typescript" beside the functions to have them checked',
    };
  }
  const project = await mkdtemp(join(tmpdir(), 'trellis-types-'));
  try {
    const config = join(project, 'tsconfig.json');
    await writeFile(config, JSON.stringify(settings(folder, files)));
    const output = await compile([join(compiler, 'bin/tsc'), '--project', config, '--pretty', 'false'], {
      cwd: folder,
      signal,
    });
    return { faults: read(output, folder) };
  } finally {
    await rm(project, { recursive: true, force: true });
  }
}

function settings(folder: string, files: readonly string[]) {
  const { paths, typeRoots } = typesFor(folder);
  return {
    compilerOptions: {
      ...{ target: 'esnext', lib: ['esnext'], module: 'esnext', moduleResolution: 'bundler' },
      ...{ strict: true, noEmit: true, skipLibCheck: true, allowImportingTsExtensions: true },
      resolveJsonModule: true,
      rootDir: '/',
      paths,
      ...(typeRoots === undefined ? { types: [] } : { types: ['node'], typeRoots }),
    },
    files: files.map((file) => join(folder, file)),
  };
}

/** Where the compiler finds what functions of a folder import, and the types of Node if they are anywhere. */
export function typesFor(folder: string): {
  paths: Record<string, string[]>;
  typeRoots: string[] | undefined;
} {
  const nodeTypes = findFrom(folder, '@types/node') ?? findFrom(import.meta.dirname, '@types/node');
  return {
    paths: { ...Object.fromEntries(sdkNames.map((name) => [name, [sdkTypes]])), zod: [zodFolder] },
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

/** What it prints, whether or not it found something. Throws where it did not run. */
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
        // It ends with 1 or 2 where it found something.
        if (error === null || (typeof error.code === 'number' && error.code <= 2)) resolve(stdout || stderr);
        else
          reject(
            new Error(`The TypeScript compiler did not run: ${stderr || error.message}`, { cause: error }),
          );
      },
    );
  });
}

/** Lines `path(line,column): error TS1234: message`; what is indented goes on with the line before. */
function read(output: string, folder: string): Fault[] {
  const faults: Fault[] = [];
  for (const line of output.split('\n')) {
    const [, path, row, column, message] = /^(.+?)\((\d+),(\d+)\): error (TS\d+: .*)$/.exec(line) ?? [];
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
