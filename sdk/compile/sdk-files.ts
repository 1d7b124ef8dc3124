import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, extname } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The names under which functions import this package. */
export const sdkNames = ['trellis', 'nango'] as const;

const sourceOf = (name: string) => fileURLToPath(new URL(`../functions/${name}`, import.meta.url));

/** What `createSync` and its like are at run time. */
export const sdkModule = sourceOf(`index${extname(import.meta.filename)}`);

/** What they are for the compiler. */
export const sdkTypes = existsSync(sourceOf('index.d.ts')) ? sourceOf('index.d.ts') : sourceOf('index.ts');

/** The zod that functions run with, whatever else lies beside them. */
export const zodFolder = dirname(createRequire(import.meta.url).resolve('zod/package.json'));
