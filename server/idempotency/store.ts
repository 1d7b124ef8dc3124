/** The table `idempotent_request`. */

import type { Db } from '../db/pool.ts';
import { first, isViolationOf } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Job } from '../jobs/jobs.ts';

/** A request by its caller, method, path and key. */
export type RequestId = { environmentId: number; digest: Buffer };

type StoredRequest = {
  fingerprint: Buffer;
  answer: Buffer | null;
  isFinal: boolean;
  /** Whether a node does the work now. */
  isLeased: boolean;
};

/** A lost node holds its requests for this time. */
const leaseMs = 15_000;
/** Leaves time for two further attempts. */
export const renewEveryMs = 5_000;
const keptMs = 24 * 60 * 60 * 1000;
const removedAtOnce = 1_000;

/**
 * Takes a request that no node has begun, or whose answer was not final, and returns whether that succeeded. The caller must
 * renew its lease until `keepAnswer`.
 */
export async function takeRequest(
  db: Db,
  { environmentId, digest }: RequestId,
  { fingerprint, keyId, at }: { fingerprint: Buffer; keyId: number | undefined; at: Date },
): Promise<boolean> {
  try {
    const taken = await db.query(
      `insert into idempotent_request as held
         (environment_id, digest, fingerprint, key_id, created_at, leased_until)
       values ($1, $2, $3, $4, $5, now() + $6 * interval '1 ms')
       on conflict (environment_id, digest) do update
       set created_at = excluded.created_at, leased_until = excluded.leased_until, answer = null
       where held.answer is not null and not held.is_final and held.fingerprint = excluded.fingerprint
       returning environment_id`,
      [environmentId, digest, fingerprint, keyId ?? null, at, leaseMs],
    );
    return taken.length > 0;
  } catch (error) {
    if (isViolationOf(error, 'idempotent_request_key_id_fkey')) throw new AppError('unknown_account');
    throw error;
  }
}

export async function findRequest(
  db: Db,
  { environmentId, digest }: RequestId,
): Promise<StoredRequest | undefined> {
  const rows = await db.query<StoredRequest>(
    `select fingerprint, answer, is_final as "isFinal", leased_until > now() as "isLeased"
     from idempotent_request
     where environment_id = $1 and digest = $2`,
    [environmentId, digest],
  );
  return first(rows);
}

export async function renewLease(db: Db, { environmentId, digest }: RequestId): Promise<void> {
  await db.query(
    `update idempotent_request
     set leased_until = now() + $3 * interval '1 ms'
     where environment_id = $1 and digest = $2 and answer is null`,
    [environmentId, digest, leaseMs],
  );
}

/** Has no effect if the request is gone, as after the revocation of its key. */
export async function keepAnswer(
  db: Db,
  { environmentId, digest }: RequestId,
  { answer, isFinal }: { answer: Buffer; isFinal: boolean },
): Promise<void> {
  await db.query(
    `update idempotent_request
     set answer = $3, is_final = $4
     where environment_id = $1 and digest = $2 and answer is null`,
    [environmentId, digest, answer, isFinal],
  );
}

/** Removes requests after 24 hours. */
export function idempotencySweepJob({ db, now }: { db: Db; now: () => Date }): Job<Record<string, never>> {
  return {
    name: 'idempotency.sweep',
    async run(_, signal) {
      for (let removed = removedAtOnce; removed === removedAtOnce && !signal.aborted; ) {
        const rows = await db.query(
          `delete from idempotent_request
           where (environment_id, digest) in (
             select environment_id, digest
             from idempotent_request
             where created_at < $1
             limit $2
           )
           returning environment_id`,
          [new Date(now().getTime() - keptMs), removedAtOnce],
        );
        removed = rows.length;
      }
    },
  };
}
