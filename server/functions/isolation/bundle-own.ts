import type { BuildOptions } from 'esbuild';
import { build } from '../../../sdk/child-environment.ts';

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
