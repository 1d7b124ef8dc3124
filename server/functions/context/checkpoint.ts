/** Where a function is to go on for a connection and a variant: sealed with the connection's key, one at most. */
import { z } from 'zod';
import { type Db, first, type Queryable } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { DataKey } from '../../vault.ts';

export type CheckpointPlace = { connectionId: number; functionId: number; variant: string };

const context = 'function checkpoint';
const mostFields = 16;

/** Flat; what official clients accept as one. */
export const checkpointInput = z
  .record(z.string().min(1).max(255), z.union([z.string().max(4_000), z.number(), z.boolean()]))
  .refine((fields) => Object.keys(fields).length <= mostFields, `has more than ${mostFields} fields`);
export type Checkpoint = z.infer<typeof checkpointInput>;

/** With its version, 0 where there is none. */
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

/**
 * Stores one in the place of the version that was read, 0 for none, and answers its version. Throws
 * `checkpoint_conflict` where another writer was first.
 */
export async function saveCheckpoint(
  db: Pick<Db, 'transaction'>,
  {
    at,
    dataKey,
    value,
    version,
  }: { at: CheckpointPlace; dataKey: DataKey; value: Checkpoint; version: number },
): Promise<number> {
  const sealed = dataKey.sealJson(value, context);
  return db.transaction(async (tx) => {
    const stored = first(
      version === 0
        ? await tx.query<{ version: number }>(
            `insert into function_checkpoint (connection_id, function_id, variant, value)
             values ($1, $2, $3, $4)
             on conflict on constraint function_checkpoint_pkey do nothing
             returning version`,
            [at.connectionId, at.functionId, at.variant, sealed],
          )
        : await tx.query<{ version: number }>(
            `update function_checkpoint
             set value = $4, version = version + 1, updated_at = now()
             where connection_id = $1 and function_id = $2 and variant = $3 and version = $5
             returning version`,
            [at.connectionId, at.functionId, at.variant, sealed, version],
          ),
    );
    if (stored === undefined) throw new AppError('checkpoint_conflict');
    return stored.version;
  });
}

/** Whether there was one. */
export async function removeCheckpoint(q: Queryable, at: CheckpointPlace): Promise<boolean> {
  const removed = await q.query<{ version: number }>(
    `delete from function_checkpoint
     where connection_id = $1 and function_id = $2 and variant = $3
     returning version`,
    [at.connectionId, at.functionId, at.variant],
  );
  return removed.length > 0;
}
