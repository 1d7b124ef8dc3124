/**
 * Ends a run: its row, its sync and the events of both, in one transaction that only the owner of the run can commit.
 */
import type { OperationDetails } from '../../activity/operations.ts';
import { type Db, first, type Queryable, type Tx } from '../../db/pool.ts';
import { failuresBeforeEvent } from '../../events/event-types.ts';
import { queueEvent } from '../../events/outbox.ts';
import type { Vault } from '../../vault.ts';
import { writeWhileHeld } from '../../work.ts';
import { queueFailedEvent, queueSucceededEvent } from '../action-events.ts';
import { markSucceeded } from '../context/checkpoint.ts';
import { releaseAllLocks } from '../context/locks.ts';
import type { ModelCounts, RunCounts } from '../context/service-call.ts';
import type { Claim } from './claims.ts';
import type { EarlierAttempt, RunState } from './runs.ts';
import {
  keyReader,
  openError,
  type RunError,
  type SealingKey,
  type StoredError,
  storedError,
  wrappedKeySql,
} from './sealed-output.ts';

/** The outcome of an attempt. */
export type Ending =
  /** `output` is sealed. */
  | { state: 'succeeded'; output: Buffer | null }
  /** `by` seals an error of customer code. */
  | { state: 'failed'; error: RunError; mayPass: boolean; by?: SealingKey | undefined }
  | { state: 'cancelled'; error: RunError }
  /** The code was not called, because of its connection: see `error`. */
  | { state: 'held'; error: RunError };

export type Settling = { claim: Claim; ending: Ending; now: Date; random: number };

/** The pause between two attempts: 5 s, then four times as long each time, at most an hour, up to a quarter more or less. */
function backoffMs(attempt: number, random: number): number {
  return Math.min(5_000 * 4 ** (attempt - 1), 3_600_000) * (0.75 + random / 2);
}

/** The new state of the run. Undefined if the run has another owner by now: nothing was written. */
export async function settle(db: Db, settling: Settling): Promise<'ended' | 'waits' | undefined> {
  return db.transaction(async (tx) => {
    const { claim, ending } = settling;
    // A sync is locked before its run, as a trigger and a reset do.
    if (claim.syncId !== null)
      await tx.query('select from sync where id = $1 for no key update', [claim.syncId]);
    const held = first(
      await tx.query<{ isCancelled: boolean }>(
        `select cancel_requested as "isCancelled"
         from run
         where id = $1 and owner = $2
         for update`,
        [claim.id, claim.owner],
      ),
    );
    if (held === undefined) return undefined;
    await releaseAllLocks(tx, claim.id);
    const isAgain = ending.state === 'failed' && ending.mayPass && claim.attempt < claim.maxAttempts;
    if (isAgain && !held.isCancelled) {
      await tryAgain(tx, { ...settling, ending });
      return 'waits';
    }
    if (ending.state === 'held') await endHeld(tx, { ...settling, ending });
    else if (isAgain) await end(tx, { ...settling, ending: cancelled });
    else await end(tx, settling);
    return 'ended';
  });
}

/** The ending of a run that was cancelled before it began, or before its next attempt. */
export const cancelled = {
  state: 'cancelled',
  error: { code: 'cancelled', message: 'The run was cancelled before it began.' },
} as const satisfies Ending;

async function tryAgain(
  tx: Tx,
  { claim, ending: { error, by }, now, random }: Settling & { ending: Extract<Ending, { state: 'failed' }> },
): Promise<void> {
  const { code, message } = error;
  const entry: EarlierAttempt = {
    attempt: claim.attempt,
    ended_at: now.toISOString(),
    error: storedError({ code, message }, by),
  };
  const notBefore = new Date(now.getTime() + backoffMs(claim.attempt, random));
  await tx.query(
    `update run
     set state = 'waiting', owner = null, lease_until = null, not_before = $2, error = $3, counts = $4,
       earlier = earlier || $5::jsonb
     where id = $1`,
    [
      claim.id,
      notBefore,
      JSON.stringify(storedError(error, by)),
      JSON.stringify(claim.counts),
      JSON.stringify([entry]),
    ],
  );
}

/** Deletes the input, which may be megabytes. */
async function end(tx: Tx, { claim, ending, now }: Settling): Promise<void> {
  const by = ending.state === 'failed' ? ending.by : undefined;
  const error = 'error' in ending ? JSON.stringify(storedError(ending.error, by)) : null;
  const ended = first(
    await tx.query<{ startedAt: Date }>(
      `update run
       set state = $2, owner = null, lease_until = null, ended_at = $3, output = $4, error = $5, counts = $6, input = null
       where id = $1
       returning started_at as "startedAt"`,
      [
        claim.id,
        ending.state,
        now,
        ending.state === 'succeeded' ? ending.output : null,
        error,
        JSON.stringify(claim.counts),
      ],
    ),
  );
  await queueActionEvent(tx, { claim, ending });
  if (claim.syncId === null) return;
  const of = { claim, now, startedAt: ended?.startedAt ?? claim.queuedAt };
  if (ending.state === 'succeeded') await syncSucceeded(tx, of);
  else if (ending.state === 'failed') await syncFailed(tx, { ...of, error: ending.error });
  else await tx.query('update sync set last_ended_at = $2 where id = $1', [claim.syncId, now]);
}

/** Queues the event of an action without a waiting caller. */
async function queueActionEvent(
  tx: Tx,
  { claim, ending }: Pick<Settling, 'claim' | 'ending'>,
): Promise<void> {
  if (claim.kind !== 'action' || claim.trigger !== 'action') return;
  const { environmentId, id, connection } = claim;
  const action = { ...connection, environmentId, id, function: claim.function.name };
  if ('error' in ending) await queueFailedEvent(tx, action, ending.error);
  else await queueSucceededEvent(tx, action);
}

type Ended = { claim: Claim; now: Date; startedAt: Date };

async function syncSucceeded(tx: Tx, { claim, now, startedAt }: Ended): Promise<void> {
  await tx.query(
    `update sync
     set last_ended_at = $2, last_succeeded_at = case when $3 then $4 else last_succeeded_at end, failures = 0, held = null
     where id = $1`,
    [claim.syncId, now, claim.kind === 'sync', startedAt],
  );
  if (claim.kind === 'sync') {
    const { connection, function: of, variant, id: runId, versionId } = claim;
    const at = { connectionId: connection.id, functionId: of.id, variant };
    await markSucceeded(tx, { at, runId, versionId });
  }
  for (const model of claim.definition.models) {
    const { added = 0, updated = 0, deleted = 0 } = countsOf(claim.counts, model);
    const data = {
      ...subjectOf(claim),
      model,
      run: claim.id,
      sync_type: syncTypeOf(claim),
      started_at: startedAt.toISOString(),
    };
    const { environmentId } = claim;
    if (added + updated + deleted === 0)
      await queueEvent(tx, { environmentId, type: 'sync.unchanged', data });
    else {
      const changed = { ...data, added, updated, deleted };
      await queueEvent(tx, { environmentId, type: 'sync.changed', data: changed });
    }
  }
}

async function syncFailed(
  tx: Tx,
  { claim, now, startedAt, error }: Ended & { error: RunError },
): Promise<void> {
  const sync = first(
    await tx.query<{ failures: number }>(
      `update sync
       set last_ended_at = $2, failures = failures + 1, held = null
       where id = $1
       returning failures`,
      [claim.syncId, now],
    ),
  );
  const { environmentId } = claim;
  const failures = sync?.failures ?? 1;
  const data = {
    ...subjectOf(claim),
    run: claim.id,
    sync_type: syncTypeOf(claim),
    error: { code: error.code, message: error.message },
    failures,
    started_at: startedAt.toISOString(),
    failed_at: now.toISOString(),
  };
  await queueEvent(tx, { environmentId, type: 'sync.failed', data });
  if (failures === failuresBeforeEvent) await queueEvent(tx, { environmentId, type: 'sync.failing', data });
}

/**
 * A held run is reported once, by `held` of its sync. A scheduled run is deleted: otherwise there might be one a minute. Other
 * runs remain as failed.
 */
async function endHeld(tx: Tx, settling: Settling & { ending: { error: RunError } }): Promise<void> {
  const { claim, ending, now } = settling;
  const { error } = ending;
  if (claim.trigger === 'schedule') await tx.query('delete from run where id = $1', [claim.id]);
  else {
    await tx.query(
      `update run
       set state = 'failed', owner = null, lease_until = null, ended_at = $2, error = $3, input = null
       where id = $1`,
      [claim.id, now, JSON.stringify(error)],
    );
    await queueActionEvent(tx, { claim, ending });
  }
  const changed = await tx.query(
    `update sync
     set held = $2
     where id = $1 and (held is null or held ->> 'code' <> $3)
     returning id`,
    [claim.syncId, JSON.stringify(error), error.code],
  );
  if (changed.length === 0) return;
  await queueEvent(tx, {
    environmentId: claim.environmentId,
    type: 'sync.held',
    data: {
      ...subjectOf(claim),
      error: { code: error.code, message: error.message },
      since: now.toISOString(),
    },
  });
}

/** The name of a model may be that of a property that every object has. */
function countsOf(counts: RunCounts, model: string): Partial<ModelCounts> {
  return Object.hasOwn(counts, model) ? counts[model]! : {};
}

function subjectOf({ connection, function: of, variant }: Claim) {
  return {
    connection_id: connection.connectionId,
    provider_config_key: connection.integrationKey,
    function: of.name,
    variant,
  };
}

function syncTypeOf({ kind, lastSucceededAt }: Claim): 'INITIAL' | 'INCREMENTAL' | 'WEBHOOK' {
  if (kind === 'webhook') return 'WEBHOOK';
  return lastSucceededAt === null ? 'INITIAL' : 'INCREMENTAL';
}

/** The details of a run for the activity log. */
export function detailsOf(claim: Claim): OperationDetails {
  const sum = { added: 0, updated: 0, deleted: 0, unchanged: 0 };
  for (const counts of Object.values(claim.counts)) {
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += counts[name];
  }
  return {
    run: claim.id,
    function: claim.function.name,
    kind: claim.kind,
    trigger: claim.trigger,
    variant: claim.variant,
    attempt: claim.attempt,
    ...sum,
  };
}

/**
 * As `settle`, repeated through outages of the database while this node holds the run: the outcome of an action exists only
 * here. Returns the ending in the row, which is the same object as `settling.ending` if that was written; undefined if the
 * run has another owner by now. `onFailure` gets the error of each repeated attempt.
 */
export async function settleWhileHeld(
  db: Db,
  settling: Settling,
  { vault, isHeld, onFailure }: { vault: Vault; isHeld: () => boolean; onFailure: (error: unknown) => void },
): Promise<Ending | undefined> {
  return writeWhileHeld(
    async (isInDoubt) => {
      if ((await settle(db, settling)) !== undefined) return settling.ending;
      if (!isInDoubt) return undefined;
      // An earlier attempt may have been committed although its answer was lost.
      const { ending } = await findEnding(db, { id: settling.claim.id, vault });
      return ending?.state === settling.ending.state ? settling.ending : ending;
    },
    { isHeld, onFailure },
  );
}

/**
 * The ending of a run in its row; undefined while it is not over. The row does not store whether a failure is temporary.
 * `isLeft`: it is not over, and no node has held it for `leftAfterS`.
 */
export async function findEnding(
  q: Queryable,
  { id, vault, leftAfterS = 0 }: { id: string; vault: Vault; leftAfterS?: number },
): Promise<{ ending: Ending | undefined; isLeft: boolean }> {
  const row = first(
    await q.query<{
      state: RunState;
      output: Buffer | null;
      error: StoredError | null;
      wrapped: Buffer | null;
      isLeft: boolean;
    }>(
      `select
         run.state,
         run.output,
         run.error,
         ${wrappedKeySql} as wrapped,
         coalesce(run.lease_until <= clock_timestamp() - make_interval(secs => $2), true) as "isLeft"
       from run
       where run.id = $1`,
      [id, leftAfterS],
    ),
  );
  if (row === undefined) return { ending: undefined, isLeft: true };
  const { state, output, isLeft } = row;
  if (state === 'waiting' || state === 'running') return { ending: undefined, isLeft };
  if (state === 'succeeded') return { ending: { state, output }, isLeft };
  const error = row.error
    ? openError(row.error, keyReader(vault)(row.wrapped))
    : { code: 'internal', message: 'unexpected error' };
  return { ending: state === 'cancelled' ? { state, error } : { state, error, mayPass: false }, isLeft };
}
