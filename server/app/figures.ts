/** Metrics of a node at /metrics that no module counts: the state of the node when a client requests them. */

import { metricsRoute } from '../http/metrics-route.ts';
import type { App } from '../http/server.ts';
import type { Reading } from '../metrics/instruments.ts';
import { callsInFlight, metrics } from '../metrics/metrics.ts';
import { createMetricsText } from '../metrics/text.ts';
import { version } from '../version.ts';
import { createDatabaseReader } from './database-figures.ts';
import type { Functions } from './functions.ts';
import type { Parts } from './parts.ts';

/** Adds the route; nothing is read before somebody asks. */
export function tellMetrics(
  app: App,
  { config, db }: Pick<Parts, 'config' | 'db'>,
  { runner, runtime }: Pick<Functions, 'runner' | 'runtime'>,
): void {
  const readDatabase = createDatabaseReader(db);

  function readNode(): Reading[] {
    const { total, idle, waiting } = db.load();
    const processes = runtime.counts();
    return [
      metrics.buildInfo.reads([[version, process.versions.node], 1]),
      metrics.proxyInFlight.reads([[], callsInFlight.value]),
      metrics.dbConnections.reads([['used'], total - idle], [['idle'], idle]),
      metrics.dbWaiting.reads([[], waiting]),
      metrics.runsRunning.reads([[], runner.running()]),
      metrics.functionProcesses.reads(
        [['running'], processes.running],
        [['idle'], processes.processes - processes.running],
        [['waiting'], processes.waiting],
      ),
    ];
  }

  const read = createMetricsText(async () => [...(await readDatabase()), ...readNode()]);
  metricsRoute(app, { token: config.metricsToken, baseUrl: config.baseUrl, read });
}
