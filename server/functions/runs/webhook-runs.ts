/**
 * Runs by what a provider sent: of `onWebhook`, which is given it, and of syncs that look for themselves what has changed. Both
 * of the syncs of a connection that subscribe to its kind.
 */
import { randomUUIDv7 } from 'node:crypto';
import type { LiveConnection } from '../../connections/reader.ts';
import { holdConnection } from '../../connections/store.ts';
import type { Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { currentTraceparent } from '../../tracing/cause.ts';
import { inputContext } from './execute.ts';
import { syncAttempts } from './schedule.ts';

/** Of one connection. A provider that is told to come again does; one that floods us fills no table. */
const maxWaiting = 1_000;
/** What a webhook changed should be seen soon, before what a sync's turn is for. */
const priority = 10;
const maxAttempts = 3;

/**
 * Queues a run for each active sync of the connection that subscribes to `type`, or to all; answers how many. A webhook
 * without a type goes to those alone that take all. Throws `unavailable` (503) where too many wait already.
 */
export async function queueWebhookRuns(
  tx: Tx,
  {
    connection,
    type,
    payload,
    at,
  }: { connection: LiveConnection; type: string | undefined; payload: unknown; at: Date },
): Promise<number> {
  const syncs = await tx.query<{ id: number; functionId: number; versionId: number; variant: string }>(
    `select sync.id, function.id as "functionId", function.version_id as "versionId", sync.variant
     from sync
     join function on function.id = sync.function_id
     join function_version version on version.id = function.version_id
     where sync.connection_id = $1
       and function.environment_id = $2
       and function.is_enabled
       and sync.state = 'active'
       and (version.definition ->> 'has_webhook')::boolean
       and version.definition -> 'webhook_subscriptions' ?| $3
     order by sync.id`,
    [connection.id, connection.environmentId, ['*', ...(type === undefined ? [] : [type])]],
  );
  if (syncs.length === 0) return 0;
  const waiting = await tx.query(
    `select from run where connection_id = $1 and state = 'waiting' limit ${maxWaiting}`,
    [connection.id],
  );
  if (waiting.length >= maxWaiting)
    throw new AppError('unavailable', `${maxWaiting} runs of the connection wait already.`, {
      retryAfterS: 60,
    });
  // Nothing sealed is written once the key is gone.
  await holdConnection(tx, connection.id);
  const input = connection.dataKey.sealJson(payload, inputContext);
  await tx.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, priority,
       not_before, queued_at, most_attempts, input, traceparent)
     select given.id, $1, given.function_id, given.version_id, $2, given.sync_id, given.variant, 'webhook', 'webhook', $3,
       $4, $4, $5, $6, $12
     from unnest($7::uuid[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[])
       as given (id, function_id, version_id, sync_id, variant)`,
    [
      ...[connection.environmentId, connection.id, priority, at, maxAttempts, input],
      syncs.map(() => randomUUIDv7()),
      syncs.map(({ functionId }) => functionId),
      syncs.map(({ versionId }) => versionId),
      syncs.map(({ id }) => id),
      syncs.map(({ variant }) => variant),
      currentTraceparent(),
    ],
  );
  return syncs.length;
}

/** Of several notices within it one run comes. */
const gatherMs = 5_000;
/** Between the beginnings of such runs. */
const betweenMs = 30_000;

/**
 * Lets the active syncs of a connection that subscribe to one of `types`, or to any where it is undefined, run in a few
 * seconds: one run each, however often this is called until it begins. Answers how many wait, and how many have a run that
 * has begun, also where that waits to go on: it may have read before the change, and nothing follows it by this.
 */
export async function queueSyncsSoon(
  tx: Tx,
  { connection, types, at }: { connection: number; types: readonly string[] | undefined; at: Date },
): Promise<{ waiting: number; running: number }> {
  const syncs = await tx.query<{ id: number }>(
    `select sync.id
     from sync
     join function on function.id = sync.function_id
     join function_version version on version.id = function.version_id
     join connection on connection.id = sync.connection_id and connection.deleted_at is null
     where sync.connection_id = $1
       and function.is_enabled
       and sync.state = 'active'
       and case
         when $2::text[] is null then jsonb_array_length(version.definition -> 'webhook_subscriptions') > 0
         else version.definition -> 'webhook_subscriptions' ?| $2
       end
     order by sync.id
     -- Nobody pauses them meanwhile.
     for share of sync`,
    [connection, types ?? null],
  );
  const syncIds = syncs.map(({ id }) => id);
  const waiting = await tx.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, priority,
       most_attempts, not_before, queued_at, traceparent)
     select given.id, function.environment_id, function.id, function.version_id, sync.connection_id, sync.id, sync.variant,
       'sync', 'webhook', $3, ${syncAttempts},
       greatest($5::timestamptz, last.started_at + make_interval(secs => ${betweenMs / 1000})), $4, $6
     from unnest($1::bigint[], $2::uuid[]) as given (sync_id, id)
     join sync on sync.id = given.sync_id
     join function on function.id = sync.function_id
     left join lateral (
       select run.started_at
       from run
       where run.sync_id = sync.id and run.kind = 'sync'
       order by run.id desc
       limit 1
     ) as last on true
     order by sync.id
     on conflict (sync_id) where state in ('waiting', 'running') and kind = 'sync' do update
     set not_before = least(run.not_before, excluded.not_before)
     -- One that failed has its own time.
     where run.state = 'waiting' and run.attempt = 0
     returning sync_id`,
    [
      ...[syncIds, syncIds.map(() => randomUUIDv7()), priority, at, new Date(at.getTime() + gatherMs)],
      currentTraceparent(),
    ],
  );
  const running = await tx.query(
    `select
     from run
     where sync_id = any($1) and kind = 'sync' and state in ('waiting', 'running') and started_at is not null`,
    [syncIds],
  );
  return { waiting: waiting.length, running: running.length };
}
