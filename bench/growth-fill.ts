/**
 * Fills one environment of a service step by step, by statements of its database.
 *
 * Of 100 records each one connection has a dataset and a sync. One of 1,000 connections needs a reauthorization, and one of
 * 1,000 syncs fails. Nothing is due, so that a worker has only the work that is measured. The values of sealed columns are
 * never opened.
 */
import { ensureDay } from '../server/activity/partitions.ts';
import type { Db } from '../server/db/pool.ts';

const perConnection = 100;
const maxOperations = 1_000_000;
const days = 10;
const dayMs = 86_400_000;

/** The rows of a database of so many records. */
export function rowsOf(records: number) {
  return {
    records,
    connections: records / perConnection,
    operations: Math.min(records, maxOperations),
    /** Runs, events with a delivery, entries of the audit log, and receipts of prunes, of each so many. */
    others: records / 50,
  };
}

/** Adds what is missing between two steps, and updates the statistics, as autovacuum does. */
export async function fillUp(db: Db, from: ReturnType<typeof rowsOf>, to: ReturnType<typeof rowsOf>) {
  const firstMs = Date.now() - days * dayMs;
  for (let day = 0; day <= days; day += 1) await ensureDay(db, firstMs + day * dayMs);
  const numbers = (of: keyof typeof to) => `generate_series(${from[of] + 1}, ${to[of]}) as n`;
  await db.transaction(async (tx) => {
    // Only a superuser may skip the check of foreign keys, which takes most of the time.
    await tx.query('set local session_replication_role = replica');
    await tx.query('set local synchronous_commit = off');
    await tx.query(`create temporary table scale on commit drop as
      select
        (select id from environment where name = 'dev') as environment,
        array(select id from integration order by id) as integrations,
        array(select id from function order by id) as functions,
        (select min(id) from endpoint) as endpoint,
        (select max(id) from connection) as connection,
        (select max(id) from dataset) as dataset,
        (select coalesce(max(position), 0) from event) as event,
        (select coalesce(max(position), 0) from audit) as audit,
        ${to.connections}::bigint as connections`);
    for (const statement of statements(numbers, firstMs)) await tx.query(statement);
  });
  await db.query('vacuum analyze');
}

const statements = (numbers: (of: keyof ReturnType<typeof rowsOf>) => string, firstMs: number): string[] => [
  `insert into connection (
     environment_id, integration_id, connection_id, credentials, data_key, account_id, account_email, end_user, tags, status,
     created_at, last_used_at, refreshed_at
   )
   select
     environment, integrations[1 + n % cardinality(integrations)], 'filled-' || n, decode(repeat('00', 400), 'hex'),
     gen_random_uuid(), 'account-' || n, 'person' || n || '@growth.invalid',
     jsonb_build_object('id', 'user-' || n, 'email', 'person' || n || '@growth.invalid', 'display_name', 'Person ' || n),
     jsonb_build_object('team', 'team-' || n % (connections / 10)),
     case when n % 1000 = 7 then 'needs_reauth' else 'active' end, now() - n * interval '1 s', now() - n * interval '1 s',
     now()
   from scale, ${numbers('connections')}`,
  `insert into connection_name (connection_id, environment_id, created_at, names)
   select id, environment_id, created_at, names_of(connection)
   from connection
   where id > (select connection from scale)`,
  // Deleted connections stay as rows.
  `insert into connection (environment_id, integration_id, connection_id, deleted_at)
   select environment, integrations[1], 'deleted-' || n, now()
   from scale, ${numbers('connections')}
   where n % 20 = 0`,
  `insert into data_key (id, master_key, wrapped)
   select data_key, sample.master_key, sample.wrapped
   from connection, (select * from data_key limit 1) as sample
   where connection.id > (select connection from scale) and deleted_at is null`,
  `insert into dataset (connection, model, variant, last_seq, records, payload_bytes)
   select id, 'Row', 'base', ${perConnection}, ${perConnection}, ${perConnection * 200}
   from connection
   where connection.id > (select connection from scale) and deleted_at is null`,
  `insert into sync (function_id, connection_id, next_at, last_succeeded_at, failures)
   select
     functions[1 + id % cardinality(functions)], id, now() + interval '12 h' + id % 10000 * interval '1 s', now(),
     case when id % 1000 = 9 then 1 else 0 end
   from scale, connection
   where connection.id > scale.connection and deleted_at is null`,
  `insert into record (dataset_id, seq, first_seen_at, last_modified_at, size, hash, external_id)
   select id, n, now(), now(), 200, decode(md5(id || '-' || n), 'hex'), 'record-' || lpad(n::text, 8, '0')
   from dataset, generate_series(1, ${perConnection}) as n
   where id > (select dataset from scale)`,
  `insert into payload (dataset_id, seq, body)
   select id, n, decode(repeat(md5(id || '-' || n), 7), 'hex')
   from dataset, generate_series(1, ${perConnection}) as n
   where id > (select dataset from scale)`,
  `insert into consumer (dataset_id, name, seq, acknowledged_at)
   select id, 'app', 10, now() from dataset where id > (select dataset from scale)`,
  `insert into prune (dataset_id, pruned_at, seqs, count, bytes)
   select 1 + n % connections, now(), int8multirange(int8range(n % 100, n % 100 + 1)), 1, 1
   from scale, ${numbers('others')}`,
  `insert into run (
     id, environment_id, function_id, version_id, connection_id, sync_id, kind, trigger, state, queued_at, started_at,
     ended_at, attempt
   )
   select
     ${idAt(`${firstMs} + n * 1000`)}, environment, function_id, version_id, sync.connection_id, sync.id, 'sync', 'schedule',
     case when n % 100 = 0 then 'failed' else 'succeeded' end, now() - n * interval '1 s', now() - n * interval '1 s',
     now() - n * interval '1 s', 1
   from scale, ${numbers('others')}
   join sync on sync.id = 1 + n % (select count(*) from sync)
   join function on function.id = sync.function_id`,
  `insert into event (id, position, environment_id, type, data, created_at)
   select
     gen_random_uuid(), scale.event + row_number() over (order by n), environment, 'connection.created',
     jsonb_build_object('connection_id', 'filled-' || n % connections, 'provider_config_key', 'bench'),
     now() - n * interval '1 s'
   from scale, ${numbers('others')}`,
  `insert into delivery (
     environment_id, endpoint_id, event_id, position, lane, status, attempts, queued_at, last_attempt_at, settled_at
   )
   select
     environment, endpoint, event.id, position, position % 1000,
     case when position % 1000 = 3 then 'dead' else 'delivered' end, 1, now(), now(), now()
   from scale, event
   where position > scale.event`,
  `insert into audit (position, chain, environment_id, actor, action, target)
   select
     scale.audit + row_number() over (order by n), '\\x00', environment, 'key:1', 'connection.created',
     'filled-' || n % connections
   from scale, ${numbers('others')}`,
  `update sequencer
   set last_position = case name
     when 'event' then (select max(position) from event)
     when 'audit' then (select max(position) from audit)
     else last_position
   end`,
  `insert into operation (
     id, created_at, environment_id, type, status, integration, connection, actor, duration_ms, method, path, http_status
   )
   select
     ${idAt('ms')}, to_timestamp(ms / 1000.0), environment, case when n % 50 = 0 then 'run' else 'proxy' end,
     case when n % 20 = 0 then 'failed' else 'success' end, 'bench', 'filled-' || n % connections, 'key:1', 12.5, 'GET',
     '/v4/spreadsheets/' || md5(n::text) || '/values', 200
   from scale, ${numbers('operations')}
   cross join lateral (
     select ${firstMs} + (hashint8(n) & 1048575) * ${days * dayMs - 3_600_000}::bigint / 1048576 as ms
   ) as at
   order by ms`,
  `insert into operation_count (
     environment_id, span_s, begins_at, type, status, integration, target, variant, count, histogram
   )
   select environment_id, span_s, begins_at, type, status, integration, '', '', count(*), '{0,0,0,0,0,0,0,0,0,0,0,0,1}'
   from operation
   cross join unnest(array[60, 3600, 86400]) as span_s
   cross join lateral (
     select to_timestamp(floor(extract(epoch from created_at) / span_s) * span_s) as begins_at
   ) as span
   where path is not null
   group by 1, 2, 3, 4, 5, 6
   on conflict (environment_id, span_s, begins_at, type, status, integration, target, variant)
   do update set count = excluded.count`,
];

/** A UUID of version 7 by `n`, for this time. */
const idAt = (ms: string) =>
  `(lpad(to_hex((${ms})::bigint), 12, '0') || '7' || lpad(to_hex(n % 4096), 3, '0') || '8' ||
    substr(md5(n::text), 1, 15))::uuid`;
