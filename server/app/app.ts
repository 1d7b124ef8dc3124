import { findKeyFault } from '../data-keys/master-keys.ts';
import { readMigrationState } from '../db/migrate.ts';
import { isLeaving } from '../http/drain.ts';
import { healthRoutes, type ReadyCheck } from '../http/health.ts';
import type { Web } from '../http/pages/static.ts';
import { type App, createBareHttp } from '../http/server.ts';
import type { Job } from '../jobs/jobs.ts';
import { builtWeb } from '../web-build.ts';
import { addMetricsRoute, type Siblings } from './figures.ts';
import { createFunctions, runWhile } from './functions.ts';
import { listJobs } from './jobs.ts';
import { createParts, deliverWhile, endParts, type Parts, type PartsDeps } from './parts.ts';
import { addRoutes, createCallers, createServer } from './routes.ts';

export { providersDirectory } from '../providers/catalog.ts';

type AppDeps = PartsDeps & {
  /** Starts the removal of a deleted connection's records. Never awaited. */
  afterConnectionDeleted: () => void;
  /** Runs a job each minute on one node. Absent: no job runs. */
  everyMinute?: (job: Job<Record<string, never>>) => Promise<void>;
  /** Absent: the existing build is served, and nothing is built. */
  web?: Web;
  /** The processes behind the same port; absent if there is one. */
  siblings?: Siblings | undefined;
};

/**
 * One node's HTTP interface, with all modules wired together; it does not listen yet.
 *
 * By its role it serves all routes, runs the background jobs, or both. A node without routes reports only whether it
 * is alive.
 */
export async function createApp({
  afterConnectionDeleted,
  everyMinute,
  web = builtWeb,
  siblings,
  ...deps
}: AppDeps): Promise<App> {
  const parts = createParts(deps);
  const { config, log } = parts;
  const callers = config.role === 'worker' ? undefined : await createCallers(parts);
  const app =
    callers === undefined
      ? await createBareHttp({ config, log, limits: { maxConnections: config.limits.maxConnections } })
      : await createServer(parts, callers);
  endParts(app, parts, async () => callers?.keys.settled());
  const functions = createFunctions(app, parts);
  healthRoutes(app, { checks: readyChecks(parts), isStopping: () => isLeaving(app) });
  addMetricsRoute(app, parts, { ...functions, siblings });
  if (callers !== undefined) {
    await addRoutes(app, { parts, callers, functions, web, afterConnectionDeleted });
  }
  if (config.role !== 'api') {
    deliverWhile(app, parts);
    if (config.functions.isOn) runWhile(app, parts, functions);
    for (const job of listJobs(parts, functions)) await everyMinute?.(job);
  }
  return app;
}

/** The conditions for a node's work. */
function readyChecks({ db, vault }: Parts): ReadyCheck[] {
  return [
    {
      name: 'database',
      find: async () => {
        await db.query('select 1');
        return undefined;
      },
    },
    {
      name: 'migrations',
      find: async () => {
        const { pending, refused } = await readMigrationState(db);
        if (pending.length > 0) return `The database lacks ${pending.join(', ')}.`;
        return refused.length > 0 ? `The database is of a newer version: ${refused.join(', ')}.` : undefined;
      },
    },
    {
      name: 'keys',
      find: async () => {
        const fault = await findKeyFault(db, vault.masterKeys);
        return fault?.message;
      },
    },
  ];
}
