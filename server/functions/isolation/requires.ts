import type { Message } from 'esbuild';
import { build } from '../../../sdk/child-environment.ts';

/** What a bundle may require. `node:` may stand before the names of Node's modules. */
export const allowedModules: readonly string[] = [
  'buffer',
  'crypto',
  'events',
  'stream',
  'url',
  'util',
  'zod',
];

/** A place in the bundle that asks for something else; line and column count from 1, undefined where it is not known. */
export type RefusedRequire = {
  module: string;
  line: number | undefined;
  column: number | undefined;
  message: string;
};

/**
 * What a bundle requires or imports beyond the allow-list and `also`, the names of the authoring SDK. For the deploy, which
 * refuses what this returns. A module's name that is computed is not seen here; the loader refuses it.
 *
 * Throws SyntaxError where the text is no JavaScript.
 */
export async function refusedRequires(code: string, also: readonly string[] = []): Promise<RefusedRequire[]> {
  const allowed = new Set([...allowedModules, ...allowedModules.map((name) => `node:${name}`), ...also]);
  allowed.delete('node:zod');
  const refused = 'refused: ';
  const plugin = {
    name: 'allow-list',
    setup: (setup: Parameters<NonNullable<Parameters<typeof build>[0]['plugins']>[number]['setup']>[0]) => {
      setup.onResolve({ filter: /.*/ }, ({ path, kind }) => {
        if (kind === 'entry-point') return undefined;
        if (kind !== 'dynamic-import' && allowed.has(path)) return { path, external: true };
        return { errors: [{ text: refused + path, detail: path }] };
      });
    },
  };
  const options = { bundle: true, write: false, logLevel: 'silent', logLimit: 0, plugins: [plugin] } as const;
  const stdin = { contents: code, loader: 'js', sourcefile: 'bundle' } as const;
  try {
    await build({ ...options, plugins: [...options.plugins], stdin, format: 'cjs', platform: 'neutral' });
    return [];
  } catch (error) {
    const { errors } = error as { errors?: Message[] };
    if (errors === undefined) throw error;
    const syntax = errors.find(({ text }) => !text.startsWith(refused));
    if (syntax)
      throw new SyntaxError(`${syntax.text} (line ${syntax.location?.line ?? '?'})`, { cause: error });
    return errors.map(({ text, location }) => ({
      module: text.slice(refused.length),
      line: location?.line,
      column: location === null ? undefined : location.column + 1,
      message: `A function cannot use "${text.slice(refused.length)}": only ${[...allowedModules, ...also].join(', ')}.`,
    }));
  }
}
