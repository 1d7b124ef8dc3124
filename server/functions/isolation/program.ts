/**
 * The texts that a process of customer code is given: our own part, and the packages that a bundle may require. Both are
 * made by esbuild once and kept, since the process can read no file.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleOwn } from './bundle-own.ts';

export type ChildProgram = {
  /** Run by Node as it stands. */
  script: string;
  /** CommonJS, by the name under which a bundle requires it. */
  modules: Record<string, string>;
};

let made: Promise<ChildProgram> | undefined;

export function childProgram(): Promise<ChildProgram> {
  made ??= make().catch((error) => {
    made = undefined;
    throw error;
  });
  return made;
}

async function make(): Promise<ChildProgram> {
  const child = fileURLToPath(new URL(`./child${extname(import.meta.filename)}`, import.meta.url));
  const [script, zod] = await Promise.all([
    bundleOwn({ entryPoints: [child], platform: 'node' }),
    bundleOwn({
      stdin: { contents: "module.exports = require('zod');", resolveDir: import.meta.dirname },
      platform: 'neutral',
      mainFields: ['main'],
      conditions: ['require'],
      minify: true,
    }),
  ]);
  return { script, modules: { zod } };
}
