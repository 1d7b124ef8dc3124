/**
 * Folders of functions: the operator's, which the service deploys at its start and, in development, at each change, and
 * `shipped/`, whose functions come with the service.
 *
 * Owns: when they are compiled, and the log lines about it. Does not own: the compiler (`sdk/compile/`), the rules for a deploy
 * (`functions/deploys/deploy.ts`).
 */
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { bundle } from '../sdk/compile/bundle.ts';
import { type Compilation, compile } from '../sdk/compile/compile.ts';
import { findFunctions, formatFault } from '../sdk/compile/files.ts';
import { watchFolder } from '../sdk/compile/watch-folder.ts';
import type { Db } from './db/pool.ts';
import { getEnvironment } from './environments/store.ts';
import { AppError } from './errors.ts';
import { type Deploys, deploy } from './functions/deploys/deploy.ts';
import type { ShippedBundle } from './functions/deploys/shipped.ts';
import type { Logger } from './log.ts';

export type FunctionsFolder = {
  /** Deploys once, and at each change if it is watched. Never throws; it is not awaited. */
  start(): void;
  /** Resolves when no compilation and no deploy runs any more. */
  stop(): Promise<void>;
};

/** A change is compiled after this time without another one: editors write in several steps. */
const calmMs = 200;
/** How often the database is checked for a missing integration. */
const againMs = 3_000;
/** The longest pause after an unexpected failure; the first one is `againMs`. */
const maxPauseMs = 60_000;

export function createFunctionsFolder(
  folder: Deploys & {
    directory: string;
    /** The name of the environment that it belongs to. */
    environment: string;
    isWatched: boolean;
    log: Logger;
  },
): FunctionsFolder {
  const { directory, environment, isWatched, log, ...deploys } = folder;
  const stopping = new AbortController();
  const { signal } = stopping;
  /** The timers for a deploy after changes, and for one without a change. */
  let calm: NodeJS.Timeout | undefined;
  let next: NodeJS.Timeout | undefined;
  let pauseMs = againMs;
  let running = Promise.resolve();
  const changes = watchFolder(directory, {
    onChange() {
      clearTimeout(calm);
      if (!signal.aborted) calm = setTimeout(run, calmMs);
    },
    onError: (error) => log.warn({ err: error }, 'the folder of functions is no longer watched'),
  });

  function run(): void {
    clearTimeout(next);
    next = undefined;
    running = running.then(deployNow).then(
      () => {
        pauseMs = againMs;
      },
      (error: unknown) => {
        if (signal.aborted) return;
        log.error({ err: error }, 'the folder of functions could not be deployed');
        clearTimeout(next);
        next = setTimeout(run, pauseMs);
        pauseMs = Math.min(2 * pauseMs, maxPauseMs);
      },
    );
  }

  async function deployNow(): Promise<void> {
    if (signal.aborted) return;
    if (isWatched) changes.renew();
    const compilation = await compile(directory, { signal });
    for (const warning of compilation.warnings) log.warn(warning);
    for (const fault of compilation.faults) log.error(`functions: ${formatFault(fault)}`);
    if (compilation.faults.length > 0) {
      log.error('functions: nothing was deployed; the previous versions keep running');
      return;
    }
    const { id: environmentId } = await getEnvironment(deploys.db, environment);
    const { there, missing } = await byIntegration(deploys.db, { environmentId, compilation });
    if (missing.length > 0) {
      const named = missing.map((key) => `"${key}"`).join(', ');
      log.warn(
        `functions: no integration of ${environment} has the ID ${named}; its functions are deployed once it exists`,
      );
      if (isWatched) awaitOneOf(missing, environmentId);
    }
    try {
      const deployed = await deploy(deploys, {
        environmentId,
        given: there,
        reconcile: 'all',
        origin: 'folder',
        actor: 'service',
      });
      log.info(`functions: ${deployed.length} of ${directory} are deployed in ${environment}`);
    } catch (error) {
      if (!(error instanceof AppError) || error.code !== 'invalid_function') throw error;
      log.error(`functions: ${error.message}`);
    }
  }

  function awaitOneOf(keys: string[], environmentId: number): void {
    clearTimeout(next);
    if (signal.aborted) return;
    const mine = setTimeout(async () => {
      const found = await deploys.db
        .query('select from integration where environment_id = $1 and key = any ($2)', [environmentId, keys])
        .catch(() => []);
      // A change may have started a deploy meanwhile.
      if (next !== mine) return;
      if (found.length > 0) run();
      else awaitOneOf(keys, environmentId);
    }, againMs);
    next = mine;
  }

  return {
    start() {
      // Without a folder nothing is deployed, and nothing is removed.
      stat(directory).then(run, () => {});
    },
    async stop() {
      stopping.abort();
      clearTimeout(calm);
      clearTimeout(next);
      next = undefined;
      changes.close();
      await running;
    },
  };
}

async function byIntegration(
  db: Db,
  { environmentId, compilation }: { environmentId: number; compilation: Compilation },
) {
  const rows = await db.query<{ key: string }>('select key from integration where environment_id = $1', [
    environmentId,
  ]);
  const keys = new Set(rows.map(({ key }) => key));
  const there = compilation.functions
    .filter(({ integrationKey }) => keys.has(integrationKey))
    .map((one) => ({ ...one, features: [], sdkVersion: null, path: [one.file] }));
  const absent = compilation.functions.filter(({ integrationKey }) => !keys.has(integrationKey));
  return { there, missing: [...new Set(absent.map(({ integrationKey }) => integrationKey))] };
}

const shippedDirectory = join(import.meta.dirname, '../shipped');

/** The bundles of all functions of `shipped/`, which has one folder a provider. Takes some tens of milliseconds. */
export async function bundleShipped(): Promise<ShippedBundle[]> {
  const files = await findFunctions(shippedDirectory);
  return Promise.all(
    files.map(async ({ integrationKey: provider, kind, name, file }) => {
      const [made, source] = await Promise.all([
        bundle(shippedDirectory, file),
        readFile(join(shippedDirectory, file), 'utf8'),
      ]);
      if ('faults' in made) throw new Error(made.faults.map(formatFault).join('\n'));
      return { provider, kind, name, code: made.code, source };
    }),
  );
}
