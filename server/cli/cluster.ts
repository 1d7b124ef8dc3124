import { loadConfigWithoutKeys } from '../config/config.ts';
import { readMigrationState } from '../db/migrate.ts';
import type { Db } from '../db/pool.ts';
import { requireNodesSince } from '../nodes/nodes.ts';
import { checkCluster, readClusterState } from '../ops/cluster/checks.ts';
import { distribute, isCitus } from '../ops/cluster/distribute.ts';
import { type ClusterStatus, readClusterStatus } from '../ops/cluster/status.ts';
import { withDatabase } from './database.ts';
import { type JsonOption, log, printJson } from './terminal.ts';

/** Nodes find the names of datasets in `dataset_name` from this migration on. */
const namesMigration = 67;

/** `trellis cluster distribute`: exits with 0 also if the records are distributed already. */
export async function distributeCommand(): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    await requireReady(db);
    const isNew = await distribute(db, log).catch((error: unknown) => {
      if ((error as { code?: unknown }).code !== '55P03') throw error;
      throw new Error('The tables are in use. Stop the nodes, or try again when they have less to do.');
    });
    console.log(isNew ? 'The records are distributed.' : 'The records were distributed already.');
    return 0;
  });
}

/** Throws an error with the remedy. */
async function requireReady(db: Db): Promise<void> {
  if (!(await isCitus(db)))
    throw new Error(
      'The database has no Citus. Install it on each machine, and run there, in this database: create extension citus',
    );
  const { pending } = await readMigrationState(db);
  if (pending.length > 0)
    throw new Error(
      'The schema is of an earlier version. Start this version once, then run this command again.',
    );
  await requireNodesSince(db, { migration: namesMigration, what: 'records on a cluster' });
  const { state, message, fix } = checkCluster(await readClusterState(db));
  if (state !== 'ok') throw new Error(`${message} ${fix}`);
}

/** `trellis cluster status`: exits with 1 if the records are not distributed, or if a worker is not reachable. */
export async function clusterStatusCommand({ json }: JsonOption): Promise<number> {
  return withDatabase(loadConfigWithoutKeys(), async (db) => {
    const status = await readClusterStatus(db);
    if (json) printJson(toWire(status));
    else printTable(status);
    return status.isDistributed && status.workers.every(({ isReachable }) => isReachable) ? 0 : 1;
  });
}

/** A line for each worker, tabs between the columns. */
function printTable({ isDistributed, workers }: ClusterStatus): void {
  if (!isDistributed) {
    console.log('The records are not distributed.');
    return;
  }
  console.log(['worker', 'groups of shards', 'MB', 'in doubt'].join('\t'));
  for (const { name, groups, isReachable, bytes, inDoubt } of workers) {
    const size = isReachable ? Math.round(bytes / 1024 / 1024) : 'not reachable';
    console.log([name, groups, size, inDoubt ?? ''].join('\t'));
  }
}

function toWire({ isDistributed, workers }: ClusterStatus) {
  return {
    distributed: isDistributed,
    workers: workers.map(({ name, isReachable, groups, bytes, inDoubt }) => ({
      name,
      reachable: isReachable,
      shard_groups: groups,
      bytes,
      in_doubt: inDoubt ?? null,
    })),
  };
}
