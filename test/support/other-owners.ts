import type { Db } from '../../server/db/pool.ts';

type OtherOwners = {
  /** Each with a dataset. */
  connections: number;
  /** Of those, how many have 1,000 records. */
  datasets: number;
  /** Runs, events, deliveries, and entries of both logs, of each so many; also notes of what was seen, receipts, consumers. */
  rows: number;
};

/**
 * Rows of other owners in the large tables of a database that has no connection yet. Nothing of them is due. Their environments, integrations and functions are not in the database, so
 * foreign keys are not checked while they are written, which a superuser may do. There has to be a partition for today.
 */
export async function fillOtherOwners(db: Db, of: OtherOwners): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query('set local session_replication_role = replica');
    for (const statement of statements(of)) await tx.query(statement);
  });
}

const numbers = (count: number) => `generate_series(1, ${count}) as n`;
/** An id that no sequence reaches. */
const oneOf = (count: number) => `1000000 + n % ${count}`;

const statements = ({ connections, datasets, rows }: OtherOwners): string[] => [
  `insert into connection (environment_id, integration_id, connection_id, data_key, account_id)
   select ${oneOf(200)}, ${oneOf(400)}, 'other-' || n, gen_random_uuid(), 'account-' || n
   from ${numbers(connections)}`,
  `insert into connection_name (connection_id, environment_id, created_at, names)
   select id, environment_id, created_at, names_of(connection)
   from connection`,
  `insert into dataset (connection, model, variant, last_seq, records)
   select id, 'Row', 'base', case when id <= ${datasets} then 1000 else 0 end, case when id <= ${datasets} then 1000 else 0 end
   from connection
   order by id`,
  `insert into record (dataset_id, seq, first_seen_at, last_modified_at, deleted_at, size, hash, external_id)
   select id, n, now(), now(), case when n % 50 = 0 then now() end, 100, '\\x00', 'record-' || lpad(n::text, 8, '0')
   from dataset, ${numbers(1_000)}
   where records > 0`,
  `insert into payload (dataset_id, seq, body) select dataset_id, seq, '\\x00' from record`,
  `insert into tracked (dataset_id, seqs) select 1 + n % 5000, array[n] from ${numbers(rows)}`,
  `insert into prune (dataset_id, pruned_at, seqs, count, bytes)
   select 1 + n % 5000, now(), int8multirange(int8range(n, n + 1)), 1, 1
   from ${numbers(rows)}`,
  `insert into consumer (dataset_id, name, seq, acknowledged_at)
   select 1 + n % ${connections}, 'consumer-' || n, 1, now()
   from ${numbers(rows)}`,
  `insert into run
     (id, environment_id, function_id, version_id, connection_id, sync_id, kind, trigger, state, ended_at)
   select gen_random_uuid(), ${oneOf(200)}, ${oneOf(500)}, ${oneOf(500)}, 1 + n % 5000, ${oneOf(5_000)},
     'sync', 'schedule', case when n % 20 = 0 then 'failed' else 'succeeded' end, now()
   from ${numbers(rows)}`,
  `insert into run_line (run_id, position, at, level, message) select id, 1, now(), 'info', 'other' from run`,
  `insert into event (id, position, environment_id, type, data)
   select gen_random_uuid(), n, ${oneOf(200)}, 'records.dataset_emptied',
     '{"connection_id": "other", "provider_config_key": "crm", "model": "Row", "variant": "base", "records": 1, "deleted": 0}'
   from ${numbers(rows)}`,
  `insert into audit (position, chain, environment_id, actor, action, target)
   select n, '\\x00', ${oneOf(200)}, 'service', 'connection.created', 'other-' || n
   from ${numbers(rows)}`,
  `update sequencer set last_position = ${rows} where name in ('event', 'audit')`,
  `insert into delivery
     (environment_id, endpoint_id, event_id, position, lane, status, queued_at, settled_at)
   select environment_id, environment_id, id, position, position % 1000, 'delivered', now(), now()
   from event`,
  `insert into delivery_lane (endpoint_id, lane, due_at)
   select ${oneOf(200)}, n, 'infinity'
   from ${numbers(rows)}`,
  `insert into operation (id, created_at, environment_id, type, status, integration, connection)
   select gen_random_uuid(), now(), ${oneOf(200)}, case when n % 10 = 0 then 'sync' else 'proxy' end,
     case when n % 20 = 0 then 'failed' else 'success' end, 'crm', 'other-' || n
   from ${numbers(rows)}`,
  `insert into operation_message (operation_id, created_at, position, level, message, details)
   select id, created_at, 1, 'info', 'other', '{}'
   from operation`,
  `insert into operation_count (
     environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram
   )
   select 1 + n % 200, (array[60, 3600, 86400])[1 + n % 3], now() - n * interval '1 minute', 'proxy', 'success', 'crm', '', '', 1, '{1}'
   from ${numbers(rows)}`,
];
