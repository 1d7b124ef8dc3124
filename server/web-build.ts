/**
 * Builds the browser's side of a clone, and the client for applications, while the service already runs.
 *
 * Owns: when it is built, and how the build replaces the previous one. Does not own: the settings of the build
 * (`web/vite.config.ts`), how it is served (`http/pages/static.ts`).
 */
import { spawn } from 'node:child_process';
import { existsSync, globSync, statSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { childEnvironment } from '../sdk/child-environment.ts';
import type { Building, Web } from './http/pages/static.ts';
import { isAlive } from './is-alive.ts';
import type { Logger } from './log.ts';

const root = join(import.meta.dirname, '..');
const source = join(root, 'web');

/** The directory of the built files. */
export const webDirectory = join(source, 'dist');

/** For a service in a test or a tool: it serves the existing build and builds nothing. */
export const builtWeb: Web = { directory: webDirectory, building: () => ({ is: 'none' }) };

export type WebBuild = Web & {
  /** Builds if there is no build, or if a file of `web/` or a document is newer. Never throws; it is not awaited. */
  start(): void;
  /** Resolves when no build runs any more, after a success or a failure. */
  settled(): Promise<void>;
  /** Ends a running build; the earlier build stays. */
  stop(): Promise<void>;
};

export function createWebBuild({ log }: { log: Logger }): WebBuild {
  let building: Building = { is: 'none' };
  let running: { end: () => void; done: Promise<void> } | undefined;
  return {
    directory: webDirectory,
    building: () => building,
    start() {
      const vite = join(root, 'node_modules/vite/bin/vite.js');
      if (isWebBuilt() || !existsSync(vite)) return;
      building = { is: 'running' };
      const startedAt = Date.now();
      running = build(vite, (why) => {
        if (why === undefined) {
          building = { is: 'none' };
          log.info({ ms: Date.now() - startedAt }, 'dashboard built');
        } else {
          building = { is: 'failed', why };
          log.warn({ why }, 'the dashboard could not be built');
        }
      });
    },
    settled: async () => running?.done,
    async stop() {
      running?.end();
      await running?.done;
    },
  };
}

/**
 * Whether there is a build and no source is newer, such as those of a later version. A package has no sources.
 */
export function isWebBuilt(): boolean {
  const built = statSync(join(webDirectory, 'dashboard/index.html'), { throwIfNoEntry: false });
  if (built === undefined) return false;
  const files = globSync('web/**/*.{ts,tsx,js,css,html,svg}', {
    cwd: root,
    exclude: ['web/dist/**', 'web/dist.*/**'],
  });
  if (files.length === 0) return true;
  if (!existsSync(join(webDirectory, 'client'))) return false;
  const client = globSync('sdk/{client,connect,element,react}/*.ts', {
    cwd: root,
    exclude: ['**/*.test.ts'],
  });
  const documents = globSync(['docs/**/*.md', '*.md'], { cwd: root });
  return [...files, ...client, ...documents].every(
    (file) => statSync(join(root, file)).mtimeMs <= built.mtimeMs,
  );
}

/** Several services of one clone may build at the same time: the files of the last one stay, all of one build. */
async function putInPlace(fresh: string): Promise<void> {
  const former = `${fresh}.former`;
  for (let tries = 1; ; tries += 1) {
    await rename(webDirectory, former).catch(() => undefined);
    try {
      await rename(fresh, webDirectory);
      break;
    } catch (error) {
      if (tries === 5) throw error;
    } finally {
      await rm(former, { recursive: true, force: true });
    }
  }
}

/** Removes the files of killed builds: their names have the ID of the process. */
async function sweep(): Promise<void> {
  for (const left of globSync('dist.*', { cwd: source })) {
    if (isAlive(Number(left.split('.')[1]))) continue;
    await rm(join(source, left), { recursive: true, force: true });
  }
}

/** Builds beside the served build, and renames the result at the end: no reader gets parts of two builds. */
function build(
  vite: string,
  tell: (why: string | undefined) => void,
): { end: () => void; done: Promise<void> } {
  const fresh = `${webDirectory}.${process.pid}`;
  const child = spawn(process.execPath, [vite, 'build', source, '--outDir', fresh, '--logLevel', 'error'], {
    cwd: root,
    env: childEnvironment(),
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    said = (said + text).slice(-4000);
  });
  let isEnded = false;
  const exited = new Promise<string | undefined>((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code) => resolve(code === 0 ? undefined : said.trim() || `vite ended with ${code}`));
  });
  const done = exited
    .then(async (why) => {
      await sweep();
      if (why === undefined && !isEnded) {
        await putInPlace(fresh);
      } else {
        await rm(fresh, { recursive: true, force: true });
      }
      if (!isEnded) tell(why);
    })
    .catch((error: unknown) => tell(error instanceof Error ? error.message : String(error)));
  const end = () => {
    isEnded = true;
    child.kill('SIGKILL');
  };
  return { end, done };
}
