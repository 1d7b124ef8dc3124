import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BuildFailure } from 'esbuild';
import { build } from '../child-environment.ts';
import type { Fault } from './files.ts';

/** The package names under which functions import the authoring SDK. */
export const sdkNames = ['trellis', '@trellis-run/trellis', 'nango'] as const;

const pathInSdk = (name: string) => fileURLToPath(new URL(`../functions/${name}`, import.meta.url));

/** The module that a bundle gets for these names. */
const sdkModule = pathInSdk(`index${extname(import.meta.filename)}`);

/** The declarations for the other names of the authoring SDK. */
export const sdkTypes = typesIn('index');

/** The declarations for `nango` and `@nangohq/runner-sdk`. */
export const nangoTypes = typesIn('nango-types');

function typesIn(name: string): string {
  const declarations = pathInSdk(`${name}.d.ts`);
  return existsSync(declarations) ? declarations : pathInSdk(`${name}.ts`);
}

/** The folder of the zod version that functions run with. A zod installed beside the functions is ignored. */
export const zodFolder = dirname(createRequire(import.meta.url).resolve('zod/package.json'));

/**
 * Bundles one function as CommonJS that requires only zod and modules of Node. Ends with a source map whose paths are
 * relative to the folder. `inputs` are the bundled files, as paths below the folder. Does not check types, and removes imports that
 * are used only as types.
 */
export async function bundle(
  folder: string,
  file: string,
): Promise<{ code: string; inputs: string[] } | { faults: Fault[] }> {
  try {
    const { outputFiles, metafile } = await build({
      absWorkingDir: folder,
      entryPoints: [join(folder, file)],
      outfile: join(folder, 'function.cjs'),
      bundle: true,
      write: false,
      metafile: true,
      alias: Object.fromEntries(sdkNames.map((name) => [name, sdkModule])),
      external: ['zod'],
      format: 'cjs',
      platform: 'node',
      target: 'node26',
      sourcemap: 'inline',
      sourcesContent: false,
      // Overrides the tsconfig.json of the folder, which could keep imports that are used only as types.
      tsconfigRaw: { compilerOptions: { target: 'esnext', verbatimModuleSyntax: false } },
      logLevel: 'silent',
    });
    return { code: outputFiles[0]!.text, inputs: Object.keys(metafile.inputs) };
  } catch (error) {
    const { errors } = error as Partial<BuildFailure>;
    if (errors === undefined) throw error;
    return {
      faults: errors.map(({ text, location }) => ({
        file: location?.file ?? file,
        ...(location && { line: location.line, column: location.column + 1 }),
        message: text,
      })),
    };
  }
}
