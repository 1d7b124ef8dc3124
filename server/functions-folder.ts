/**
 * A folder of functions that this service deploys by itself, at its start and, in development, at each change.
 *
 * Owns when it is compiled and what is told of it. Does not own how (`sdk/compile/`) nor what may be deployed
 * (`functions/deploys/deploy.ts`).
 */
import { type FSWatcher, watch } from 'node:fs';
import { stat } from 'node:fs/promises';
import { type Compilation, compile } from '../sdk/compile/compile.ts';
import { shown } from '../sdk/compile/fault.ts';
import type { Db } from './db/pool.ts';
import { getEnvironment } from './environments/store.ts';
import { AppError } from './errors.ts';
import { type Deploys, deploy } from './functions/deploys/deploy.ts';
import type { Logger } from './log.ts';

export type FunctionsFolder = {
  /** Deploys once, and at each change where it is watched. Never throws; it is not awaited. */
  start(): void;
  /** Resolves when nothing of it runs any more. */
  stop(): Promise<void>;
};

/** So long nothing may change before it is compiled: editors write in several steps. */
const calmMs = 200;
/** How often it is looked whether an integration that was missing is there. */
const againMs = 3_000;

export function createFunctionsFolder({
  directory,
  environment,
  isWatched,
  log,
  ...deploys
}: Deploys & {
  directory: string;
  /** The name of the environment that it belongs to. */
  environment: string;
  isWatched: boolean;
  log: Logger;
}): FunctionsFolder {
  const stopping = new AbortController();
  const { signal } = stopping;
  let watcher: FSWatcher | undefined;
  let timer: NodeJS.Timeout | undefined;
  let running = Promise.resolve();
  const later = (ms: number) => {
    clearTimeout(timer);
    if (!signal.aborted) timer = setTimeout(run, ms);
  };
  function run(): void {
    running = running.then(deployNow).catch((error: unknown) => {
      if (!signal.aborted) log.error({ err: error }, 'the folder of functions could not be deployed');
    });
  }

  async function deployNow(): Promise<void> {
    if (signal.aborted) return;
    const compilation = await compile(directory, { signal });
    for (const warning of compilation.warnings) log.warn(warning);
    for (const fault of compilation.faults) log.error(`functions: ${shown(fault)}`);
    if (compilation.faults.length > 0) {
      log.error('functions: nothing was deployed; what ran before goes on');
      return;
    }
    const { id: environmentId } = await getEnvironment(deploys.db, environment);
    const { there, missing } = await byIntegration(deploys.db, { environmentId, compilation });
    if (missing.length > 0) {
      const named = missing.map((key) => `"${key}"`).join(', ');
      log.warn(`functions: no integration of ${environment} has the ID ${named}; its functions wait for it`);
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
    clearTimeout(timer);
    if (signal.aborted) return;
    timer = setTimeout(async () => {
      const found = await deploys.db
        .query('select from integration where environment_id = $1 and key = any ($2)', [environmentId, keys])
        .catch(() => []);
      if (found.length > 0) run();
      else awaitOneOf(keys, environmentId);
    }, againMs);
  }

  return {
    start() {
      stat(directory).then(
        () => {
          if (isWatched && !signal.aborted) {
            watcher = watch(directory, { recursive: true }, () => later(calmMs));
            watcher.on('error', (error) =>
              log.warn({ err: error }, 'the folder of functions is watched no more'),
            );
          }
          run();
        },
        // Without a folder there is nothing to deploy, and nothing to remove.
        () => {},
      );
    },
    async stop() {
      stopping.abort();
      clearTimeout(timer);
      watcher?.close();
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
