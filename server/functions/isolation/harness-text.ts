/**
 * The authoring SDK as texts: what calls a function inside its process, and the modules that a bundle may require by the
 * SDK's names. Made by esbuild once and kept, since the process can read no file.
 */
import { extname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { bundleOwn } from './bundle-own.ts';
import type { RuntimeParts } from './runtime.ts';

/** The names of the authoring SDK: ours, and the one that existing functions import. */
export const sdkNames = ['trellis', 'nango'] as const;

let made: Promise<Required<RuntimeParts>> | undefined;

/** For `createRuntime`. */
export function sdkParts(): Promise<Required<RuntimeParts>> {
  made ??= make().catch((error) => {
    made = undefined;
    throw error;
  });
  return made;
}

async function make(): Promise<Required<RuntimeParts>> {
  const [harness, sdk] = await Promise.all([bundled('harness/start'), bundled('index')]);
  return { harness, modules: Object.fromEntries(sdkNames.map((name) => [name, sdk])) };
}

function bundled(name: string): Promise<string> {
  const path = `../../../sdk/functions/${name}${extname(import.meta.filename)}`;
  return bundleOwn({
    entryPoints: [fileURLToPath(new URL(path, import.meta.url))],
    external: ['zod'],
    platform: 'neutral',
  });
}
