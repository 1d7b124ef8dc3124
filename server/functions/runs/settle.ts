/**
 * How a run ends: its row, its sync and the events of both, in one transaction that only its owner can make.
 */
import type { OperationDetails } from '../../activity/operations.ts';
import { type Db, first, type Tx } from '../../db/pool.ts';
import { queueEvent } from '../../events/outbox.ts';
import { tellFailed, tellSucceeded } from '../action-over.ts';
import { noteSuccess } from '../context/checkpoint.ts';
import { releaseAllLocks } from '../context/locks.ts';
import type { ModelCounts, RunCounts } from '../context/run-counts.ts';
import type { Claim } from './claims.ts';
import type { EarlierAttempt } from './runs.ts';
import { type RunError, type SealingKey, storedError } from './sealed-output.ts';

/** What a run came to. */
export type Ending =
  /** `output` is sealed. */
  | { state: 'succeeded'; output: Buffer | null }
  /** `by` seals an error that the code threw. */
  | { state: 'failed'; error: RunError; mayPass: boolean; by?: SealingKey | undefined }
  | { state: 'cancelled'; error: RunError }
  /** The code was not called: `error` says what of its connection is in the way. */
  | { state: 'held'; error: RunError };

export type Settling = { claim: Claim; ending: Ending; counts: RunCounts; now: Date; random: number };

/** Between one attempt and the next: 5 s, then four times as long each time, an hour at most, and a quarter more or less. */
function backoffMs(attempt: number, random: number): number {
  return Math.min(5_000 * 4 ** (attempt - 1), 3_600_000) * (0.75 + random / 2);
}

/** What the row says now; undefined where the run is another node's by now: then nothing was written. */
export async function settle(db: Db, settling: Settling): Promise<'ended' | 'waits' | undefined> {
  return db.transaction(async (tx) => {
    const { claim, ending } = settling;
    // Before its run, as a trigger and a reset lock them.
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

/** Of a run that was told to end before it began, or before it began again. */
export const cancelled = {
  state: 'cancelled',
  error: { code: 'cancelled', message: 'The run was cancelled before it began.' },
} as const satisfies Ending;

/** As the row keeps an attempt that another one follows. */
function attemptOver({
  claim,
  ending: {
    error: { code, message },
    by,
  },
  now,
}: {
  claim: Claim;
  ending: Thrown;
  now: Date;
}): EarlierAttempt {
  return { attempt: claim.attempt, ended_at: now.toISOString(), error: storedError({ code, message }, by) };
}

type Thrown = { error: RunError; by?: SealingKey | undefined };

async function tryAgain(
  tx: Tx,
  { claim, ending, counts, now, random }: Settling & { ending: Thrown },
): Promise<void> {
  const notBefore = new Date(now.getTime() + backoffMs(claim.attempt, random));
  await tx.query(
    `update run
     set state = 'waiting', owner = null, lease_until = null, not_before = $2, error = $3, counts = $4,
       earlier = earlier || $5::jsonb
     where id = $1`,
    [
      ...[claim.id, notBefore, JSON.stringify(storedError(ending.error, ending.by)), JSON.stringify(counts)],
      JSON.stringify([attemptOver({ claim, ending, now })]),
    ],
  );
}

/** An input may be megabytes, and nobody asks for it any more. */
async function end(tx: Tx, { claim, ending, counts, now }: Settling): Promise<void> {
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
        JSON.stringify(counts),
      ],
    ),
  );
  await actionOver(tx, { claim, ending });
  if (claim.syncId === null) return;
  const of = { claim, counts, now, startedAt: ended?.startedAt ?? claim.queuedAt };
  if (ending.state === 'succeeded') await syncSucceeded(tx, of);
  else if (ending.state === 'failed') await syncFailed(tx, { ...of, error: ending.error });
  else await tx.query('update sync set last_ended_at = $2 where id = $1', [claim.syncId, now]);
}

/** Of an action that nobody waits for. */
async function actionOver(tx: Tx, { claim, ending }: Pick<Settling, 'claim' | 'ending'>): Promise<void> {
  if (claim.kind !== 'action' || claim.trigger !== 'action') return;
  const { environmentId, id, connection, function: of } = claim;
  const action = { ...connection, environmentId, id, function: of.name };
  if ('error' in ending) await tellFailed(tx, action, ending.error);
  else await tellSucceeded(tx, action);
}

type Ended = { claim: Claim; counts: RunCounts; now: Date; startedAt: Date };

async function syncSucceeded(tx: Tx, { claim, counts, now, startedAt }: Ended): Promise<void> {
  await tx.query(
    `update sync
     set last_ended_at = $2, last_succeeded_at = case when $3 then $4 else last_succeeded_at end, failures = 0, held = null
     where id = $1`,
    [claim.syncId, now, claim.kind === 'sync', startedAt],
  );
  if (claim.kind === 'sync') {
    const { connection, function: of, variant, id: runId, versionId } = claim;
    const at = { connectionId: connection.id, functionId: of.id, variant };
    await noteSuccess(tx, { at, runId, versionId });
  }
  for (const model of claim.definition.models) {
    const { added = 0, updated = 0, deleted = 0 } = countsOf(counts, model);
    const about = {
      ...subjectOf(claim),
      model,
      run: claim.id,
      sync_type: syncTypeOf(claim),
      started_at: startedAt.toISOString(),
    };
    const { environmentId } = claim;
    if (added + updated + deleted === 0)
      await queueEvent(tx, { environmentId, type: 'sync.unchanged', data: about });
    else {
      const data = { ...about, added, updated, deleted };
      await queueEvent(tx, { environmentId, type: 'sync.changed', data });
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
  await queueEvent(tx, {
    environmentId: claim.environmentId,
    type: 'sync.failed',
    data: {
      ...subjectOf(claim),
      run: claim.id,
      sync_type: syncTypeOf(claim),
      error: { code: error.code, message: error.message },
      failures: sync?.failures ?? 1,
      started_at: startedAt.toISOString(),
      failed_at: now.toISOString(),
    },
  });
}

/**
 * What did not start is told once, and by its sync's `held`: of what its time alone would have started no run is kept, else
 * there would be one a minute. Who asked for the run finds it, failed.
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
    await actionOver(tx, { claim, ending });
  }
  const told = await tx.query(
    `update sync
     set held = $2
     where id = $1 and (held is null or held ->> 'code' <> $3)
     returning id`,
    [claim.syncId, JSON.stringify(error), error.code],
  );
  if (told.length === 0) return;
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

/** A model may have the name of something that every object has. */
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

function syncTypeOf({
  kind,
  lastSucceededAt,
}: Pick<Claim, 'kind' | 'lastSucceededAt'>): 'INITIAL' | 'INCREMENTAL' | 'WEBHOOK' {
  if (kind === 'webhook') return 'WEBHOOK';
  return lastSucceededAt === null ? 'INITIAL' : 'INCREMENTAL';
}

/** For the activity log. */
export function detailsOf(claim: Claim, counts: RunCounts): OperationDetails {
  const sum = { added: 0, updated: 0, deleted: 0, unchanged: 0 };
  for (const of of Object.values(counts)) {
    for (const name of Object.keys(sum) as (keyof typeof sum)[]) sum[name] += of[name];
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
