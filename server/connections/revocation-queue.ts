import { writeAudit } from '../activity/audit.ts';
import { type Db, first, type Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import type { IntegrationReading } from '../integrations/store.ts';
import type { Vault } from '../vault.ts';
import type { Evidence } from './health.ts';
import { isExchanging, lockUnit, sendingMs } from './revocation-lock.ts';
import { type About, keepTokens, openNote, type Sealed } from './revocation-store.ts';
import { isGrantShared, isGrantSharedSince } from './shared-grants.ts';

/**
 * When a noted revocation is sent, and how it ends.
 *
 * Owns: that none ends a grant which somebody has come to use, that each is forgotten with a word to the application
 * unless it was carried out. Does not own: what a note holds (`revocation-store.ts`), sending (`revocations.ts`).
 */

/**
 * `done`: the grant has ended; `queued`: it is tried again; `shared`: it stays, since a living connection needs it;
 * `failed`: the provider has refused for so long that it was given up.
 */
export type RevocationOutcome = 'done' | 'queued' | 'shared' | 'failed';

const giveUpAfterMs = 3 * 24 * 3600_000;
/** The longest pause between two attempts, whatever the provider asks for. */
export const longestWaitMs = 6 * 3600_000;

type Row = {
  id: number;
  environmentId: number;
  unit: string | null;
  accountId: string | null;
  isForced: boolean;
  secrets: Buffer;
  attempts: number;
  evidence: Evidence | null;
  isUnderWay: boolean;
  createdAt: Date;
};
/** One that may be sent, opened. */
export type Revocation = Sealed & Omit<Row, 'secrets'>;

/**
 * Decides, under the lock of the unit, whether it may be sent now, and marks that this node does: then it must be over
 * within `sendingMs`. What it comes to otherwise is written. Throws `UnreadableNote`.
 */
export async function takeRevocation(
  db: Db,
  { id, reading, now }: { id: number; reading: IntegrationReading; now: () => Date },
): Promise<Revocation | RevocationOutcome> {
  return db.transaction(async (tx) => {
    const [noted] = await tx.query<{ unit: string | null }>('select unit from revocation where id = $1', [
      id,
    ]);
    if (noted?.unit) await lockUnit(tx, noted.unit);
    const row = first(
      await tx.query<Row & { dataKey: Buffer }>(
        `select
           revocation.id, environment_id as "environmentId", unit, account_id as "accountId",
           is_forced as "isForced", secrets, attempts, evidence,
           coalesce(sending_until > clock_timestamp(), false) as "isUnderWay",
           revocation.created_at as "createdAt", data_key.wrapped as "dataKey"
         from revocation
         join environment on environment.id = environment_id
         join data_key on data_key.id = environment.data_key
         where revocation.id = $1
         for update of revocation`,
        [id],
      ),
    );
    if (row === undefined) return 'done';
    if (row.isUnderWay) return 'queued';
    const { secrets, dataKey, ...known } = row;
    const taken: Revocation = { ...known, ...openNote(secrets, { dataKey, vault: reading.vault }) };
    if (row.unit !== null && (await isNeeded(tx, { ...row, unit: row.unit, reading }))) {
      await forgetRevocation(tx, { taken, type: 'connection.revoke_dropped' });
      return 'shared';
    }
    // One that nobody has tried, since the service was down for so long, gets its attempt.
    if (row.attempts > 0 && isTooOld(row, now())) {
      await forgetRevocation(tx, { taken, type: 'connection.revoke_failed', more: outcomeOf(row) });
      return 'failed';
    }
    if (row.unit !== null && (await isExchanging(tx, row.unit))) return 'queued';
    const attempts = row.attempts + 1;
    await tx.query(
      `update revocation
       set attempts = $2, sending_until = clock_timestamp() + make_interval(secs => $3)
       where id = $1`,
      [id, attempts, sendingMs / 1000],
    );
    return { ...taken, attempts };
  });
}

/** Whether it is given up unless it succeeds now. */
export function isTooOld({ createdAt }: Pick<Row, 'createdAt'>, at: Date): boolean {
  return at.getTime() - createdAt.getTime() >= giveUpAfterMs;
}

/** A forced one ends whatever was there when it was asked for, also what a refresh has kept alive. */
async function isNeeded(
  tx: Tx,
  {
    unit,
    accountId,
    isForced,
    createdAt,
    reading,
  }: Omit<Row, 'unit'> & { unit: string; reading: IntegrationReading },
): Promise<boolean> {
  if (!isForced) return isGrantShared(tx, { unit, accountId: accountId ?? undefined, reading });
  return accountId !== null && isGrantSharedSince(tx, { unit, accountId, reading, since: createdAt });
}

/**
 * Notes what an attempt came to that has not ended the grant: the tokens that are left, and when the next may be.
 * `isUnderWay` says that the provider may still be at it.
 */
export async function noteAttempt(
  db: Db,
  {
    taken,
    left,
    evidence,
    isUnderWay,
    nextAt,
    vault,
  }: {
    taken: Revocation;
    left: string[];
    evidence: Evidence;
    isUnderWay: boolean;
    nextAt: Date;
    vault: Vault;
  },
): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query(
      `update revocation
       set sending_until = case when $2 then sending_until end, next_at = $3, evidence = $4
       where id = $1`,
      [taken.id, isUnderWay, nextAt, JSON.stringify(evidence)],
    );
    if (left.length < taken.tokens.length) await keepTokens(tx, { note: taken, left, vault });
  });
}

/** One that cannot be opened comes up again after the others; once it is too old it is given up. */
export async function putOffUnreadable(db: Db, { id, now }: { id: number; now: Date }): Promise<void> {
  const at = now.getTime();
  await db.transaction(async (tx) => {
    const [gone] = await tx.query<{ environmentId: number; about: About; attempts: number }>(
      `delete from revocation
       where id = $1 and created_at <= $2
       returning environment_id as "environmentId", about, attempts`,
      [id, new Date(at - giveUpAfterMs)],
    );
    if (gone === undefined) {
      await tx.query('update revocation set next_at = $2 where id = $1', [id, new Date(at + longestWaitMs)]);
      return;
    }
    const { environmentId, about, attempts } = gone;
    await queueEvent(tx, {
      environmentId,
      type: 'connection.revoke_failed',
      data: {
        ...about,
        account: null,
        tags: {},
        end_user: null,
        ...outcomeOf({ evidence: { error: 'secrets_unreadable' }, attempts }),
      },
    });
    await writeAudit(tx, {
      environmentId,
      actor: 'service',
      action: 'connection.revoke_failed',
      target: `${about.provider_config_key}/${about.connection_id}`,
    });
  });
}

type Outcome = { evidence: Evidence; attempts: number };

/** What the event of one that was given up tells. */
export function outcomeOf({ evidence, attempts }: Pick<Row, 'evidence' | 'attempts'>): Outcome {
  return { evidence: evidence ?? {}, attempts };
}

/**
 * The end of a revocation, in the audit log, and unless it was carried out in an event. False where it was forgotten
 * already.
 */
export async function forgetRevocation(
  tx: Tx,
  {
    taken: { id, environmentId, event, attempts, isForced },
    type,
    more,
  }: {
    taken: Revocation;
    type: 'connection.revoked' | 'connection.revoke_dropped' | 'connection.revoke_failed';
    more?: Outcome;
  },
): Promise<boolean> {
  const gone = await tx.query('delete from revocation where id = $1 returning id', [id]);
  if (gone.length === 0) return false;
  if (type !== 'connection.revoked') {
    await queueEvent(tx, { environmentId, type, data: { ...event, ...more } });
  }
  await writeAudit(tx, {
    environmentId,
    actor: 'service',
    action: type,
    target: `${event.provider_config_key}/${event.connection_id}`,
    details: { attempts, forced: isForced },
  });
  return true;
}
