/** Distributes the records over the workers of a Citus cluster, by the ids of their datasets. */
import { clusterTransaction } from '../../db/dataset-outbox.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';

/** The tables, each with the column that has the dataset's id. The shards of one dataset are on one worker. */
export const distributedTables = [
  ['dataset', 'id'],
  ['record', 'dataset_id'],
  ['payload', 'dataset_id'],
  ['prune', 'dataset_id'],
  ['tracked', 'dataset_id'],
  ['consumer', 'dataset_id'],
  ['dataset_outbox', 'dataset_id'],
] as const;

/** One dataset is in one shard. This number lets a cluster grow to 32 workers. */
const shardCount = 32;
/** A running service holds locks of the tables for less than that. */
const lockTimeoutMs = 10_000;
const references = ['prune', 'tracked', 'consumer'] as const;

/**
 * Numbers that any machine makes: microseconds. A sequence of a worker would begin at 2^48 times the number of the worker,
 * which reaches 2^53. Two rows of one dataset are never written at once. Their order is that of the writes only while the
 * dataset stays on one machine.
 */
const numbers = [...references.map((table) => [table, 'id']), ['dataset_outbox', 'ordinal']] as const;

/** Names become a table of the coordinator; unique and foreign keys become those of a distributed table. */
const before = [
  'drop view dataset_name',
  `create table dataset_name (
     id bigint generated always as identity,
     connection bigint not null,
     model text not null,
     variant text not null,
     constraint dataset_name_pkey primary key (id),
     constraint dataset_name_unique unique (connection, model, variant)
   )`,
  `insert into dataset_name (id, connection, model, variant)
   overriding system value
   select id, connection, model, variant from dataset`,
  `select setval(pg_get_serial_sequence('dataset_name', 'id'), nextval(pg_get_serial_sequence('dataset', 'id')))`,
  // Of services of earlier versions, which do not run with a cluster.
  'drop trigger dataset_tracking_id on dataset',
  'alter table dataset alter column id drop identity',
  'alter table dataset drop constraint dataset_unique',
  ...references.flatMap((table) => [
    `alter table ${table} drop constraint ${table}_dataset_id_fkey`,
    `alter table ${table} drop constraint ${table}_pkey`,
    `alter table ${table} add constraint ${table}_pkey primary key (dataset_id, id)`,
  ]),
  ...numbers.flatMap(([table, column]) => [
    `alter table ${table} alter column ${column} drop identity`,
    `alter table ${table} alter column ${column} set default (extract(epoch from clock_timestamp()) * 1000000)::bigint`,
  ]),
  // Their columns are those of the new keys.
  'drop index prune_dataset',
  'drop index tracked_place',
  `update dataset_outbox set written_in = '${clusterTransaction}'`,
  `alter table dataset_outbox alter column written_in set default '${clusterTransaction}'`,
];

const after = references.map(
  (table) =>
    `alter table ${table} add constraint ${table}_dataset_id_fkey
     foreign key (dataset_id) references dataset (id) on delete cascade`,
);

/** Whether the database has the extension. */
export async function isCitus(q: Queryable): Promise<boolean> {
  const [found] = await q.query<{ isThere: boolean }>(
    `select to_regclass('pg_catalog.pg_dist_partition') is not null as "isThere"`,
  );
  return found?.isThere === true;
}

/** Whether the records are distributed; false also without Citus. */
export async function isDistributed(q: Queryable): Promise<boolean> {
  if (!(await isCitus(q))) return false;
  const tables = await q.query(
    `select from pg_dist_partition where logicalrelid::text = 'dataset' and partmethod = 'h'`,
  );
  return tables.length > 0;
}

/**
 * Distributes the tables in one transaction, also filled ones, and then removes the rows that stay behind on the
 * coordinator. Returns false if it was done already. A process that is killed has changed nothing, or leaves only such
 * rows, which the next call removes. Calls about records wait meanwhile. Throws `lock_not_available` (55P03) if the tables
 * stay in use. `onStep` gets the text of the next step.
 */
export async function distribute(db: Db, onStep: (text: string) => void): Promise<boolean> {
  const isNew = await db.transaction(async (tx) => {
    await tx.query(`select set_config('lock_timeout', $1, true)`, [String(lockTimeoutMs)]);
    const names = distributedTables.map(([table]) => table).join(', ');
    await tx.query(`lock table dataset_name, ${names} in access exclusive mode`);
    if (await isDistributed(tx)) return false;
    await distributeLocked(tx, onStep);
    return true;
  });
  for (const [table] of distributedTables) {
    if (!(await hasLocalRows(db, table))) continue;
    onStep(`Removing the rows of ${table} that stayed on the coordinator.`);
    await db.query(`select truncate_local_data_after_distributing_table('${table}')`);
  }
  return isNew;
}

async function distributeLocked(tx: Tx, onStep: (text: string) => void): Promise<void> {
  // Copies of several tables in one transaction use one connection to each worker.
  await tx.query(
    `select
       set_config('citus.shard_count', $1, true),
       set_config('citus.shard_replication_factor', '1', true),
       set_config('citus.multi_shard_modify_mode', 'sequential', true)`,
    [String(shardCount)],
  );
  onStep('Creating the table of names, and the keys of distributed tables.');
  for (const statement of before) await tx.query(statement);
  for (const [table, column] of distributedTables) {
    const [size] = await tx.query<{ text: string }>(
      'select pg_size_pretty(pg_total_relation_size($1::regclass)) as text',
      [table],
    );
    onStep(`Distributing ${table} (${size?.text}).`);
    const together = table === 'dataset' ? 'none' : 'dataset';
    await tx.query(
      `select create_distributed_table('${table}', '${column}', colocate_with => '${together}')`,
    );
  }
  onStep('Creating the foreign keys.');
  for (const statement of after) await tx.query(statement);
}

/** Whether the coordinator's own file of a distributed table has rows. */
async function hasLocalRows(db: Db, table: string): Promise<boolean> {
  const [size] = await db.query<{ bytes: number }>('select pg_relation_size($1::regclass) as bytes', [table]);
  return (size?.bytes ?? 0) > 0;
}
