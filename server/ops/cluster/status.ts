/** The state of the records on a Citus cluster: shards, sizes, workers, and transactions in doubt. */
import type { Db } from '../../db/pool.ts';
import { distributedTables, isDistributed } from './distribute.ts';

export type WorkerStatus = {
  /** `host:port` */
  name: string;
  isReachable: boolean;
  /** Groups of shards: one has a shard of each table, and all rows of its datasets. */
  groups: number;
  bytes: number;
  /** Prepared transactions whose end is not known there; undefined if the machine is not reachable. */
  inDoubt: number | undefined;
};

export type ClusterStatus = { isDistributed: boolean; workers: WorkerStatus[] };

const tables = distributedTables.map(([table]) => `'${table}'`).join(', ');

/** SQL: the size of the shards of records, and the transactions in doubt, on the machine that runs it. */
const own = `
  select json_build_object(
    'bytes', (
      select coalesce(sum(pg_total_relation_size(class.oid)), 0)
      from pg_dist_shard as shard
      join pg_class as class
        on class.relname = shard.logicalrelid::text || '_' || shard.shardid and class.relkind = 'r'
      where shard.logicalrelid::text in (${tables})
    ),
    'inDoubt', (
      select count(*)
      from pg_prepared_xacts
      where database = current_database() and gid like 'citus\\_%'
    )
  )`;

/** Machines that do not answer are in the result too. The coordinator is one if it has shards. */
export async function readClusterStatus(db: Db): Promise<ClusterStatus> {
  if (!(await isDistributed(db))) return { isDistributed: false, workers: [] };
  const placed = await db.query<{ name: string; groups: number }>(
    `select
       nodename || ':' || nodeport as name,
       count(shardid) as groups
     from pg_dist_node
     left join (
       select groupid, shardid
       from pg_dist_placement
       join pg_dist_shard using (shardid)
       where logicalrelid::text = 'record'
     ) as shard using (groupid)
     where noderole = 'primary'
     group by groupid, nodename, nodeport
     having groupid > 0 or count(shardid) > 0
     order by groupid`,
  );
  const answers = await db.query<{ name: string; isReachable: boolean; answer: string }>(
    `select
       node.nodename || ':' || node.nodeport as name,
       answer.success as "isReachable",
       answer.result as answer
     from run_command_on_all_nodes($1, give_warning_for_connection_errors := true) as answer
     join pg_dist_node as node using (nodeid)`,
    [own],
  );
  const workers = placed.map(({ name, groups }) => {
    const found = answers.find((answer) => answer.name === name);
    if (!found?.isReachable) return { name, groups, isReachable: false, bytes: 0, inDoubt: undefined };
    const { bytes, inDoubt } = JSON.parse(found.answer) as { bytes: number; inDoubt: number };
    return { name, groups, isReachable: true, bytes, inDoubt };
  });
  return { isDistributed: true, workers };
}
