/** Runs of `onWebhook`: what a provider sent goes to the syncs of a connection that subscribe to its kind. */
import { randomUUIDv7 } from 'node:crypto';
import type { LiveConnection } from '../connections/reader.ts';
import { holdConnection } from '../connections/store.ts';
import type { Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { inputContext } from './execute.ts';

/** Of one connection. A provider that is told to come again does; one that floods us fills no table. */
const mostWaiting = 1_000;
/** What a webhook changed should be seen soon, before what a sync's turn is for. */
const priority = 10;
const mostAttempts = 3;

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
    `select from run where connection_id = $1 and state = 'waiting' limit ${mostWaiting}`,
    [connection.id],
  );
  if (waiting.length >= mostWaiting)
    throw new AppError('unavailable', `${mostWaiting} runs of the connection wait already.`, {
      retryAfterS: 60,
    });
  // Nothing sealed is written once the key is gone.
  await holdConnection(tx, connection.id);
  const input = connection.dataKey.sealJson(payload, inputContext);
  await tx.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, priority,
       not_before, queued_at, most_attempts, input)
     select given.id, $1, given.function_id, given.version_id, $2, given.sync_id, given.variant, 'webhook', 'webhook', $3,
       $4, $4, $5, $6
     from unnest($7::uuid[], $8::bigint[], $9::bigint[], $10::bigint[], $11::text[])
       as given (id, function_id, version_id, sync_id, variant)`,
    [
      ...[connection.environmentId, connection.id, priority, at, mostAttempts, input],
      syncs.map(() => randomUUIDv7()),
      syncs.map(({ functionId }) => functionId),
      syncs.map(({ versionId }) => versionId),
      syncs.map(({ id }) => id),
      syncs.map(({ variant }) => variant),
    ],
  );
  return syncs.length;
}
