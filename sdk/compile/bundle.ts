import { join } from 'node:path';
import type { BuildFailure } from 'esbuild';
import { build } from '../child-environment.ts';
import type { Fault } from './fault.ts';
import { sdkModule, sdkNames } from './sdk-files.ts';

/**
 * One function as CommonJS that requires nothing but zod and modules of Node, with a source map at its end that names files
 * below the folder. Types are passed over here, those that are imported like values too.
 */
export async function bundle(folder: string, file: string): Promise<{ code: string } | { faults: Fault[] }> {
  try {
    const { outputFiles } = await build({
      absWorkingDir: folder,
      entryPoints: [join(folder, file)],
      outfile: join(folder, 'function.cjs'),
      bundle: true,
      write: false,
      alias: Object.fromEntries(sdkNames.map((name) => [name, sdkModule])),
      external: ['zod'],
      format: 'cjs',
      platform: 'node',
      target: 'node26',
      sourcemap: 'inline',
      sourcesContent: false,
      // Whatever the folder's own says: an import that is used as a type alone must go.
      tsconfigRaw: { compilerOptions: { target: 'esnext', verbatimModuleSyntax: false } },
      logLevel: 'silent',
    });
    return { code: outputFiles[0]!.text };
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
