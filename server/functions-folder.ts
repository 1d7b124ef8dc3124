/**
 * A folder of functions that this service deploys by itself, at its start and, in development, at each change.
 *
 * Owns when it is compiled and what is told of it. Does not own how (`sdk/compile/`) nor what may be deployed
 * (`functions/deploys/deploy.ts`).
 */
import { stat } from 'node:fs/promises';
import { type Compilation, compile } from '../sdk/compile/compile.ts';
import { shown } from '../sdk/compile/fault.ts';
import { watchFolder } from '../sdk/compile/watch-folder.ts';
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
/** After what could not be foreseen it is tried again, first after `againMs`, at last after so long. */
const maxPauseMs = 60_000;

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
  /** Until nothing has changed for a while; and until it is tried again although nothing changed. */
  let calm: NodeJS.Timeout | undefined;
  let next: NodeJS.Timeout | undefined;
  let pauseMs = againMs;
  let running = Promise.resolve();
  const changes = watchFolder(directory, {
    onChange() {
      clearTimeout(calm);
      if (!signal.aborted) calm = setTimeout(run, calmMs);
    },
    onError: (error) => log.warn({ err: error }, 'the folder of functions is watched no more'),
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
    clearTimeout(next);
    if (signal.aborted) return;
    const mine = setTimeout(async () => {
      const found = await deploys.db
        .query('select from integration where environment_id = $1 and key = any ($2)', [environmentId, keys])
        .catch(() => []);
      // Meanwhile it may be deployed for another reason.
      if (next !== mine) return;
      if (found.length > 0) run();
      else awaitOneOf(keys, environmentId);
    }, againMs);
    next = mine;
  }

  return {
    start() {
      // Without a folder there is nothing to deploy, and nothing to remove.
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
