/** The requirements of a Citus cluster, before records are distributed over it and while they are. */
import { type Config, ConfigError } from '../../config/config.ts';
import { type Db, openDb } from '../../db/pool.ts';
import { withWorkers } from '../../db/workers.ts';
import { type Check, type CheckResult, fail, messageOf, ok, skipped, warn } from '../doctor/check.ts';
import { isCitus, isDistributed } from './distribute.ts';

export type DirectSettings = Partial<Pick<Config, 'databaseUrl' | 'records'>>;

/** The oldest major version that was tested. */
const oldestMajor = 13;
/** A dataset whose transaction is in doubt is locked until Citus recovers it. */
const maxRecoveryMs = 10_000;

/** The state of a cluster, read from the coordinator alone. */
export type ClusterState = {
  /** Of the extension, such as `13.2-1`. */
  version: string;
  recoveryMs: number;
  isCoordinatorAdded: boolean;
  /** Workers that may have shards. */
  workers: number;
  /** Machines without the metadata, as `host:port`. */
  unsynced: string[];
  /** Shards of records with several copies. */
  copiedShards: number;
};

export async function readClusterState(db: Db): Promise<ClusterState> {
  const [state] = await db.query<ClusterState>(
    `select
       (select extversion from pg_extension where extname = 'citus') as version,
       (select setting::integer from pg_settings where name = 'citus.recover_2pc_interval') as "recoveryMs",
       coalesce(bool_or(groupid = 0), false) as "isCoordinatorAdded",
       count(*) filter (where groupid > 0 and shouldhaveshards) as workers,
       coalesce(
         array_agg(nodename || ':' || nodeport) filter (where groupid > 0 and not (hasmetadata and metadatasynced)),
         '{}'
       ) as unsynced,
       (
         select count(*)
         from (
           select
           from pg_dist_placement
           join pg_dist_shard using (shardid)
           where logicalrelid::text = 'record'
           group by shardid
           having count(*) > 1
         ) as copied
       ) as "copiedShards"
     from pg_dist_node
     where isactive and noderole = 'primary'`,
  );
  return state as ClusterState;
}

/** The first fault; `ok` if records may be, or are, distributed. */
export function checkCluster(state: ClusterState): CheckResult {
  const { version, recoveryMs, isCoordinatorAdded, workers, unsynced, copiedShards } = state;
  if (Number.parseInt(version, 10) < oldestMajor)
    return fail(
      `This is Citus ${version}.`,
      `Install Citus ${oldestMajor} or later on each machine, and run there: alter extension citus update`,
    );
  if (!isCoordinatorAdded)
    return fail(
      'The address of the coordinator is not set.',
      `On the coordinator: select citus_set_coordinator_host('HOST', PORT)`,
    );
  if (workers === 0)
    return fail(
      'The cluster has no worker.',
      `On the coordinator, for each worker: select citus_add_node('HOST', PORT)`,
    );
  if (unsynced.length > 0)
    return fail(
      `The metadata is not synced to ${unsynced.join(', ')}.`,
      'On the coordinator: select start_metadata_sync_to_all_nodes()',
    );
  if (copiedShards > 0)
    return fail(
      `${copiedShards} shards of records have several copies, which Citus does not keep equal after a failure.`,
      'Use one copy (citus.shard_replication_factor = 1), and a standby of each worker instead.',
    );
  if (recoveryMs < 0)
    return fail(
      'Citus does not recover transactions that are in doubt, and their datasets stay locked.',
      `On each machine: alter system set citus.recover_2pc_interval = '5s', and select pg_reload_conf()`,
    );
  if (recoveryMs > maxRecoveryMs)
    return warn(
      `Citus recovers transactions that are in doubt each ${recoveryMs / 1000} s, and locks their datasets until then.`,
      `On each machine: alter system set citus.recover_2pc_interval = '5s', and select pg_reload_conf()`,
    );
  return ok(`Citus ${version} with ${workers} ${workers === 1 ? 'worker' : 'workers'}.`);
}

/** Skipped without Citus. */
export function clusterCheck(db: Db): Check {
  return {
    name: 'cluster',
    async run() {
      if (!(await isCitus(db))) return skipped('The database is not a Citus cluster.');
      const result = checkCluster(await readClusterState(db));
      if (await isDistributed(db)) return result;
      return result.state === 'ok'
        ? ok(`${result.message} The records are not distributed: trellis cluster distribute.`)
        : { ...result, state: 'warn' };
    },
  };
}

/** That nodes may connect to the workers. Skipped without TRELLIS_RECORDS_DIRECT. */
export function workersCheck(db: Db, { databaseUrl: url, records }: DirectSettings): Check {
  return {
    name: 'workers',
    async run() {
      if (url === undefined || records === undefined)
        return skipped('Nodes do not connect to the workers of a cluster.');
      if (!(await isDistributed(db)))
        return fail(
          'TRELLIS_RECORDS_DIRECT is on, and the records are not distributed.',
          'Run trellis cluster distribute, or switch it off.',
        );
      const open = (at: string) => openDb({ url: at }, { maxConnections: 1, workerOf: db.database });
      await using workers = withWorkers({ ...db, end: async () => {} }, { url, urls: records.urls, open });
      const found = await workers.probe();
      const away = found.filter(({ fault }) => fault !== undefined);
      if (away.length === 0) return ok(`All ${found.length} workers accept connections.`);
      return fail(
        `Workers do not accept connections: ${away.map(({ name, fault }) => `${name} (${messageOf(fault)})`).join(', ')}.`,
        'Check that they run, and allow the nodes and the role of DATABASE_URL in their pg_hba.conf, or name them in TRELLIS_RECORDS_DATABASE_URLS.',
      );
    },
  };
}

/** Throws ConfigError if the records are distributed over a cluster that must not be used. */
export async function requireSoundCluster(db: Db): Promise<void> {
  if (!(await isDistributed(db))) return;
  const { state, message, fix } = checkCluster(await readClusterState(db));
  if (state === 'fail') throw new ConfigError([`DATABASE_URL: ${message} ${fix}`]);
}
