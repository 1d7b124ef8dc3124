import { setImmediate as turn } from 'node:timers/promises';
import * as esbuild from 'esbuild';

/**
 * Returns the environment of a child process that is not a node of the service: only `variables`, and nothing of the
 * parent's environment, which contains the master keys and the database addresses with their passwords.
 *
 * Disables Node's compile cache: programs such as Vite enable it in `/tmp/node-compile-cache`, and Node runs code from there
 * even if another user owns the directory.
 */
export function childEnvironment(variables: Record<string, string> = {}): Record<string, string> {
  return { NODE_DISABLE_COMPILE_CACHE: '1', ...variables };
}

/** Like esbuild's `build`, but restarts the esbuild process after it died, and repeats the builds that failed with it. */
export const build: typeof esbuild.build = (options) =>
  start(options).catch(async (error) => {
    // The build failed because of its input.
    if ('errors' in error) throw error;
    await esbuild.stop();
    // Lets every build that failed with the process call `stop` first, which would end the next process.
    await turn();
    return start(options);
  });

/** esbuild starts its process synchronously in the first call, with `process.env`; it has no option for the environment. */
const start: typeof esbuild.build = (options) => {
  const environment = process.env;
  process.env = childEnvironment();
  try {
    return esbuild.build(options);
  } finally {
    process.env = environment;
  }
};
