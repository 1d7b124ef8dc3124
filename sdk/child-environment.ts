import { setImmediate as turn } from 'node:timers/promises';
import * as esbuild from 'esbuild';

/**
 * The environment of a child process that is not a node of the service: the variables named and nothing of the parent's
 * environment, which holds the master keys and the addresses of databases with their passwords.
 *
 * Node's compile cache is off: programs such as Vite turn it on in `/tmp/node-compile-cache`, and Node runs what it finds
 * there even if another user owns the directory.
 */
export function childEnvironment(named: Record<string, string> = {}): Record<string, string> {
  return { NODE_DISABLE_COMPILE_CACHE: '1', ...named };
}

/**
 * As esbuild's `build`, and starts esbuild again when its process died, which esbuild does not. Builds under way are then
 * repeated.
 */
export const build: typeof esbuild.build = (options) =>
  start(options).catch(async (error) => {
    // Faults of the build itself.
    if ('errors' in error) throw error;
    await esbuild.stop();
    // Until every build that failed with the process has called `stop`, which would end the next process.
    await turn();
    return start(options);
  });

/** esbuild starts its process at the first call, synchronously and with `process.env`; it has no option for another one. */
const start: typeof esbuild.build = (options) => {
  const own = process.env;
  process.env = childEnvironment();
  try {
    return esbuild.build(options);
  } finally {
    process.env = own;
  }
};
