import { setTimeout as pause } from 'node:timers/promises';
import { type Db, first, mayPass, type Queryable } from '../../db/pool.ts';
import type { Vault } from '../../vault.ts';
import type { RunState } from './runs.ts';
import { keyReader, openError, type StoredError, wrappedKeySql } from './sealed-output.ts';
import { type Ending, type Settling, settle } from './settle.ts';

const againMs = 250;

/**
 * As `settle`, through outages of the database for as long as the run is this node's: what an action came to nobody else can
 * tell. The ending that stands, which is `settling`'s itself where that was written; undefined where the run is another
 * node's by now. `onFailure` is told of each attempt that another one follows.
 */
export async function settleWhileHeld(
  db: Db,
  settling: Settling,
  { vault, isHeld, onFailure }: { vault: Vault; isHeld: () => boolean; onFailure: (error: unknown) => void },
): Promise<Ending | undefined> {
  let isInDoubt = false;
  for (;;) {
    try {
      if ((await settle(db, settling)) !== undefined) return settling.ending;
      if (!isInDoubt) return undefined;
      // An attempt may have been committed whose answer did not arrive.
      const { ending } = await findEnding(db, { id: settling.claim.id, vault });
      return ending?.state === settling.ending.state ? settling.ending : ending;
    } catch (error) {
      if (!isHeld() || !mayPass(error)) throw error;
      onFailure(error);
      isInDoubt = true;
    }
    await pause(againMs);
  }
}

/**
 * What a run came to, as its row says; undefined while it is not over. That a failure may pass is not kept, and not said.
 * `isLeft`: it is not over, and nobody has had it for `leftAfterS`.
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
