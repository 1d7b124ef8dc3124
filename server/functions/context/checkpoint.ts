/**
 * The checkpoint of a function for a connection and a variant: at most one, sealed with the connection's key.
 *
 * A checkpoint is a position in a list. The part of the list before it counts for delete tracking only if the same tracking was
 * open when the checkpoint was written. So `written` has the run that wrote it and the trackings that cover that part. Earlier
 * versions of the service do not write it, and increase `version` beyond the one in `written`.
 */
import { z } from 'zod';
import { type Db, first, type Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import { type Beginning, findOpenTrackings } from '../../records/write/track-deletes.ts';
import type { DataKey } from '../../vault.ts';

type CheckpointPlace = { connectionId: number; functionId: number; variant: string };
/**
 * The trackings that cover everything that was read before a checkpoint: `own`, which cover the reads of the run, and
 * `trackings` of the checkpoint at which the run began, if they are open and of a model in `touched` (undefined: any model).
 * Otherwise a tracking of a removed model would stay in all later checkpoints. An own tracking stays even if another caller
 * closed it, so that the list before the checkpoint does not count as untracked.
 */
export type Coverage = {
  own: readonly string[];
  trackings: readonly string[];
  touched: readonly string[] | undefined;
};

const context = 'function checkpoint';
const maxFields = 16;

/** Flat, within the limits of official clients. */
export const checkpointInput = z
  .record(z.string().min(1).max(255), z.union([z.string().max(4_000), z.number(), z.boolean()]))
  .refine((fields) => Object.keys(fields).length <= maxFields, `has more than ${maxFields} fields`);
type Checkpoint = z.infer<typeof checkpointInput>;

/** The checkpoint with its version, which is 0 if there is none. */
export async function findCheckpoint(
  q: Queryable,
  { at, dataKey }: { at: CheckpointPlace; dataKey: DataKey },
): Promise<{ value: Checkpoint | undefined; version: number }> {
  const found = first(
    await q.query<{ value: Buffer; version: number }>(
      `select value, version
       from function_checkpoint
       where connection_id = $1 and function_id = $2 and variant = $3`,
      [at.connectionId, at.functionId, at.variant],
    ),
  );
  if (found === undefined) return { value: undefined, version: 0 };
  return { value: openCheckpoint(found.value, dataKey), version: found.version };
}

export function openCheckpoint(sealed: Buffer, dataKey: DataKey): Checkpoint {
  return dataKey.openJson(sealed, context) as Checkpoint;
}

type Written = { run: string; trackings: string[]; succeeded?: number };

/**
 * Determines where a run of the function begins, for delete tracking. Call it before the run reads or writes the checkpoint.
 *
 * A checkpoint that a successful run of the same version left behind, written while no tracking held what it had read, is a
 * start: `{page: 1}`, or the time of the last full read. A page in the middle of an untracked list looks the same. A stale
 * checkpoint was written by an unfinished run in a tracking that was ended or held since: the run died between the end and
 * `clearCheckpoint`, and the list after the checkpoint is not the whole one. It is removed if `stale` says so.
 */
export async function resolveBeginning(
  db: Pick<Db, 'transaction'>,
  { at, versionId, stale }: { at: CheckpointPlace; versionId: number; stale: 'kept' | 'removed' },
): Promise<Beginning> {
  return db.transaction(async (tx) => {
    const found = first(
      await tx.query<{ written: Written | null }>(
        `select case when (written ->> 'version')::bigint = version then written end as written
         from function_checkpoint
         where connection_id = $1 and function_id = $2 and variant = $3
         for no key update`,
        [at.connectionId, at.functionId, at.variant],
      ),
    );
    if (found === undefined) return 'start';
    if (found.written === null) return { trackings: [] };
    const { trackings, succeeded } = found.written;
    if (trackings.length === 0) return succeeded === versionId ? 'start' : { trackings };
    if (stale === 'kept' || succeeded !== undefined) return { trackings };
    const open = await findOpenTrackings(tx, {
      connection: at.connectionId,
      variant: at.variant,
      trackings,
    });
    if (open.length >= trackings.length) return { trackings };
    await removeCheckpoint(tx, at);
    return 'start';
  });
}

/**
 * Replaces the version that was read, 0 for none, and returns the new version. Throws `checkpoint_conflict` if another writer
 * was first.
 */
export async function saveCheckpoint(
  db: Pick<Db, 'transaction'>,
  {
    at,
    dataKey,
    runId,
    coverage,
    value,
    version,
  }: {
    at: CheckpointPlace;
    dataKey: DataKey;
    runId: string;
    coverage: Coverage;
    value: Checkpoint;
    version: number;
  },
): Promise<number> {
  const sealed = dataKey.sealJson(value, context);
  const written = (next: string) =>
    `jsonb_build_object('version', ${next}, 'run', $5::text, 'trackings', $6::uuid[])`;
  return db.transaction(async (tx) => {
    // A tracking that closes after this read is closed for the next run, which ignores it.
    const open = await findOpenTrackings(tx, {
      connection: at.connectionId,
      variant: at.variant,
      trackings: coverage.trackings,
      models: coverage.touched,
    });
    const trackings = [...new Set([...coverage.own, ...open])];
    const values = [at.connectionId, at.functionId, at.variant, sealed, runId, trackings];
    const stored = first(
      version === 0
        ? await tx.query<{ version: number }>(
            `insert into function_checkpoint (connection_id, function_id, variant, value, written)
             values ($1, $2, $3, $4, ${written('1')})
             on conflict on constraint function_checkpoint_pkey do nothing
             returning version`,
            values,
          )
        : await tx.query<{ version: number }>(
            `update function_checkpoint
             set value = $4, version = version + 1, updated_at = now(), written = ${written('version + 1')}
             where connection_id = $1 and function_id = $2 and variant = $3 and version = $7
             returning version`,
            [...values, version],
          ),
    );
    if (stored === undefined) throw new AppError('checkpoint_conflict');
    return stored.version;
  });
}

/** Stores that the run that wrote the checkpoint has succeeded, with its version of the function. */
export async function markSucceeded(
  q: Queryable,
  { at, runId, versionId }: { at: CheckpointPlace; runId: string; versionId: number },
): Promise<void> {
  await q.query(
    `update function_checkpoint
     set written = written || jsonb_build_object('succeeded', $5::bigint)
     where connection_id = $1
       and function_id = $2
       and variant = $3
       and written ->> 'run' = $4
       and (written ->> 'version')::bigint = version`,
    [at.connectionId, at.functionId, at.variant, runId, versionId],
  );
}

export async function removeCheckpoint(q: Queryable, at: CheckpointPlace): Promise<void> {
  await q.query(
    `delete from function_checkpoint
     where connection_id = $1 and function_id = $2 and variant = $3`,
    [at.connectionId, at.functionId, at.variant],
  );
}
