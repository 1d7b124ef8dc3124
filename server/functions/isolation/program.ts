/**
 * The texts that a process for functions gets: its own program, the packages that a bundle may require, and the harness
 * that calls the exported function. esbuild makes each once from files of the service, since the process may read no file.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { BuildOptions } from 'esbuild';
import { build } from '../../../sdk/child-environment.ts';
import { keepResult } from '../../concurrency.ts';
import type { RuntimeParts } from './run-order.ts';

/**
 * Bundles files of the service to CommonJS. Never give it the text of a customer: esbuild opens the files that a text
 * names, as the user of the service.
 */
export async function bundleOwn(options: BuildOptions): Promise<string> {
  const { outputFiles } = await build({
    bundle: true,
    write: false,
    format: 'cjs',
    target: 'node26',
    logLevel: 'silent',
    ...options,
  });
  return outputFiles![0]!.text;
}

/** The path of a module of the service, with the extension that this file has: `.ts`, or `.js` in the package. */
export function modulePath(path: string): string {
  return fileURLToPath(new URL(path + extname(import.meta.filename), import.meta.url));
}

type ChildProgram = {
  /** The text of the process. */
  script: string;
  /** CommonJS, by the name under which a bundle requires it. */
  modules: Record<string, string>;
};

export const childProgram = keepResult(async (): Promise<ChildProgram> => {
  const [script, zod] = await Promise.all([
    bundleOwn({ entryPoints: [modulePath('./child')], platform: 'node' }),
    bundleOwn({
      stdin: { contents: "module.exports = require('zod');", resolveDir: import.meta.dirname },
      platform: 'neutral',
      mainFields: ['main'],
      conditions: ['require'],
      minify: true,
    }),
  ]);
  return { script, modules: { zod } };
});

/** The names of the authoring SDK: its own, that of the package, and the one that existing functions import. */
export const sdkNames = ['trellis', '@trellis-run/trellis', 'nango'] as const;

/** The harness and the modules of the authoring SDK, for `createRuntime`. */
export const sdkParts = keepResult(async (): Promise<RuntimeParts> => {
  const [harness, sdk] = await Promise.all(
    ['harness/start', 'index'].map((name) =>
      bundleOwn({
        entryPoints: [modulePath(`../../../sdk/functions/${name}`)],
        external: ['zod'],
        platform: 'neutral',
      }),
    ),
  );
  return { harness: harness!, modules: Object.fromEntries(sdkNames.map((name) => [name, sdk!])) };
});
