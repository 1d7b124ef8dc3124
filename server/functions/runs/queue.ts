/** Queues runs for another reason than the schedule: calls of actions, events, webhooks, triggers, and new credentials. */
import { randomUUIDv7 } from 'node:crypto';
import type { LiveConnection } from '../../connections/store/reader.ts';
import { holdConnection } from '../../connections/store/store.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { currentTraceparent } from '../../tracing/tracing.ts';
import type { DeployedFunction } from '../deploys/store.ts';
import { type Claim, leaseMs, type RunKind, type Trigger } from './claims.ts';
import { inputContext } from './execute.ts';
import { syncAttempts } from './schedule.ts';

type RequestedRun = {
  /** `id` is null for a connection that is not stored yet. */
  connection: {
    id: number | null;
    environmentId: number;
    integrationKey: string;
    connectionId: string;
  };
  found: Pick<DeployedFunction, 'id' | 'name' | 'versionId' | 'definition'>;
  kind: RunKind & ('action' | 'on_event');
  priority: number;
  /** Sealed with the connection's key. */
  input: Buffer | null;
  now: Date;
};

/** Queues a run for any node, and returns its ID. Throws `unknown_connection` if the connection is deleted. */
export async function queueRun(
  tx: Tx,
  { trigger, maxAttempts, ...requested }: RequestedRun & { trigger: Trigger; maxAttempts: number },
): Promise<string> {
  const id = randomUUIDv7();
  await insert(tx, { ...requested, id, trigger, maxAttempts, owner: undefined });
  return id;
}

/**
 * Creates a run with a claim of this node, because a caller waits for it: no other node takes it while its lease is renewed.
 * `leaseMs` is for a lease that is not renewed. Throws as `queueRun`.
 */
export async function beginRun(
  db: Db,
  { environment, ...requested }: RequestedRun & { environment: string; leaseMs?: number },
): Promise<Claim> {
  const { connection, found, now, kind, input } = requested;
  const { environmentId, integrationKey, connectionId } = connection;
  const [id, owner] = [randomUUIDv7(), crypto.randomUUID()];
  const leasedAtMs = performance.now();
  await db.transaction((tx) => insert(tx, { ...requested, id, owner, trigger: 'manual', maxAttempts: 1 }));
  return {
    id,
    owner,
    leasedAtMs,
    environmentId,
    environment,
    function: { id: found.id, name: found.name, isEnabled: true },
    versionId: found.versionId,
    definition: found.definition,
    connection: { id: connection.id ?? 0, connectionId, integrationKey },
    syncId: null,
    variant: 'base',
    kind,
    trigger: 'manual',
    attempt: 1,
    maxAttempts: 1,
    queuedAt: now,
    notBefore: now,
    isResumed: false,
    isCancelled: false,
    input,
    counts: {},
    lastSucceededAt: null,
    traceparent: currentTraceparent(),
  };
}

async function insert(
  tx: Tx,
  run: RequestedRun & {
    id: string;
    trigger: Trigger;
    maxAttempts: number;
    /** Undefined: the run waits in the queue. */
    owner: string | undefined;
    leaseMs?: number;
  },
): Promise<void> {
  const { connection, found, now, owner } = run;
  if (connection.id !== null) await holdConnection(tx, connection.id);
  const isClaimed = owner !== undefined;
  await tx.query(
    `insert into run (id, environment_id, function_id, version_id, connection_id, kind, trigger, state, priority,
       not_before, queued_at, started_at, attempt, most_attempts, owner, lease_until, input, traceparent)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $12, $13, $14,
       case when $14::uuid is not null then clock_timestamp() + make_interval(secs => $15) end, $16, $17)`,
    [
      run.id,
      connection.environmentId,
      found.id,
      found.versionId,
      connection.id,
      run.kind,
      run.trigger,
      isClaimed ? 'running' : 'waiting',
      run.priority,
      now,
      isClaimed ? now : null,
      isClaimed ? 1 : 0,
      run.maxAttempts,
      owner ?? null,
      (run.leaseMs ?? leaseMs) / 1000,
      run.input,
      currentTraceparent(),
    ],
  );
}

/** The maximum number of waiting runs for one connection. A provider repeats a webhook that gets a 503. */
const maxWaiting = 1_000;
/** Changes that a webhook announces come before the schedule. */
const webhookPriority = 10;
const webhookAttempts = 3;

/**
 * Queues a run for each active sync of the connection that subscribes to `type` or to all types, and returns their number. A
 * webhook without a type is only for syncs that subscribe to all. Throws `unavailable` (503) if too many runs wait already.
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
    throw new AppError('unavailable', `The connection already has ${maxWaiting} waiting runs.`, {
      retryAfterS: 60,
    });
  // Holds the key: nothing sealed is written after its destruction.
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
      connection.environmentId,
      connection.id,
      webhookPriority,
      at,
      webhookAttempts,
      input,
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

/** Notifications within this time share one run. */
const gatherMs = 5_000;
/** The minimum time between the starts of such runs. */
const betweenMs = 30_000;

/**
 * Queues a run in a few seconds for each active sync of a connection that subscribes to one of `types`, or to any type if
 * that is undefined: one run each, however often this is called before it begins. Returns the number of waiting runs, and
 * the number of runs that have begun: these may have read before the change, and this call queues no run after them.
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
     -- No transaction pauses them meanwhile.
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
     -- A failed run waits for its own time.
     where run.state = 'waiting' and run.attempt = 0
     returning sync_id`,
    [
      syncIds,
      syncIds.map(() => randomUUIDv7()),
      webhookPriority,
      at,
      new Date(at.getTime() + gatherMs),
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

/** A triggered run comes before the schedule. */
const manualPriority = 5;

/**
 * Makes each of these syncs run now, so that a run reads all changes before this call. A sync without a run gets one, and a
 * waiting run is due now. A run that has begun may have read before the change: one more run follows it, however often
 * this is called meanwhile. The caller must hold the locks of the syncs, so that none of their runs ends in between. Returns
 * the number of runs that wait now.
 */
export function queueRuns(
  tx: Tx,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<number> {
  const traceparent = currentTraceparent();
  return queueTriggered(tx, { runs: syncIds.map((syncId) => ({ syncId, traceparent })), at });
}

/**
 * Queues at most 500 runs that were to follow a run that has ended by now. Each look of a node calls this, and nodes share the
 * work.
 */
export async function queueFollowing(db: Db, at: Date): Promise<void> {
  const found = await db.query<{ id: number }>(
    `select sync.id
     from sync_again as again
     join sync on sync.id = again.sync_id
     join function on function.id = sync.function_id and function.version_id is not null
     join connection on connection.id = sync.connection_id and connection.deleted_at is null
     where not exists (
       select from run
       where sync_id = sync.id and kind = 'sync' and state in ('waiting', 'running') and started_at is not null
     )
     limit ${maxFollowing}`,
  );
  if (found.length === 0) return;
  await db.transaction(async (tx) => {
    const locked = await tx.query<{ id: number }>(
      'select id from sync where id = any($1) order by id for no key update skip locked',
      [found.map(({ id }) => id)],
    );
    // Read again under the lock: another node may have queued the run, and a pause may have withdrawn it.
    const runs = await tx.query<FollowingRun>(
      'select sync_id as "syncId", traceparent from sync_again where sync_id = any($1)',
      [locked.map(({ id }) => id)],
    );
    await queueTriggered(tx, { runs, at });
  });
}

const maxFollowing = 500;
type FollowingRun = { syncId: number; traceparent: string | null };

async function queueTriggered(
  tx: Tx,
  { runs, at }: { runs: readonly FollowingRun[]; at: Date },
): Promise<number> {
  const rows = await tx.query<{ syncId: number; hasBegun: boolean }>(
    `insert into run
       (id, environment_id, function_id, version_id, connection_id, sync_id, variant, kind, trigger, priority, most_attempts,
        not_before, queued_at, traceparent)
     select
       given.id, function.environment_id, function.id, function.version_id, sync.connection_id, sync.id, sync.variant, 'sync',
       'manual', $4, ${syncAttempts}, $5, $5, given.traceparent
     from unnest($1::bigint[], $2::uuid[], $3::text[]) as given (sync_id, id, traceparent)
     join sync on sync.id = given.sync_id
     join function on function.id = sync.function_id
     order by sync.id
     on conflict (sync_id) where state in ('waiting', 'running') and kind = 'sync' do update
     set not_before = least(run.not_before, excluded.not_before),
       priority = excluded.priority,
       trigger = excluded.trigger,
       traceparent = excluded.traceparent
     where run.state = 'waiting'
     returning sync_id as "syncId", started_at is not null as "hasBegun"`,
    [
      runs.map(({ syncId }) => syncId),
      runs.map(() => randomUUIDv7()),
      runs.map(({ traceparent }) => traceparent),
      manualPriority,
      at,
    ],
  );
  const ahead = new Set(rows.filter(({ hasBegun }) => !hasBegun).map(({ syncId }) => syncId));
  const behind = runs.filter(({ syncId }) => !ahead.has(syncId));
  await tx.query('delete from sync_again where sync_id = any($1)', [[...ahead]]);
  await tx.query(
    `insert into sync_again (sync_id, traceparent)
     select given.sync_id, given.traceparent
     from unnest($1::bigint[], $2::text[]) as given (sync_id, traceparent)
     order by given.sync_id
     on conflict (sync_id) do update
     set traceparent = excluded.traceparent`,
    [behind.map(({ syncId }) => syncId), behind.map(({ traceparent }) => traceparent)],
  );
  return rows.length;
}

/** Errors of runs and of held syncs that end when the account is connected again. */
const endedByReconnect = [
  'connection_needs_reauth',
  'connection_blocked',
  'connection_refresh_failed',
  'missing_scopes',
];

/**
 * For a connection with new credentials: resets the syncs that were held, or whose last run failed because of the connection,
 * and makes the active ones run now. Other failures stay.
 */
export async function resumeSyncsOf(
  tx: Tx,
  { connectionId, at }: { connectionId: number; at: Date },
): Promise<void> {
  const resumed = await tx.query<{ id: number; state: 'active' | 'paused' }>(
    `update sync
     set held = null, failures = 0
     from (
       select sync.id
       from sync
       left join lateral (
         select run.error ->> 'code' as code
         from run
         where run.sync_id = sync.id and run.ended_at is not null
         order by run.id desc
         limit 1
       ) as last on sync.failures > 0
       where sync.connection_id = $1 and (sync.held is not null or last.code = any($2))
       order by sync.id
       for no key update of sync
     ) as stopped
     where sync.id = stopped.id
     returning sync.id, sync.state`,
    [connectionId, endedByReconnect],
  );
  const syncIds = resumed.filter(({ state }) => state === 'active').map(({ id }) => id);
  if (syncIds.length > 0) await queueRuns(tx, { syncIds: syncIds.sort((a, b) => a - b), at });
}
