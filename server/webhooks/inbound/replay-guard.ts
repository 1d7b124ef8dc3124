/**
 * Received webhooks with a signed timestamp: the table `webhook_seen`. An attacker who recorded a webhook can send it again
 * until it is too old to be accepted; a provider that repeats a webhook signs it with a new timestamp.
 */
import { createHash } from 'node:crypto';
import type { Db, Tx } from '../../db/pool.ts';
import type { Integration } from '../../integrations/store.ts';
import type { Job } from '../../jobs/jobs.ts';
import { maxAgeMs } from './signature.ts';

/** A webhook dated in the future is accepted for up to twice the maximum age; a longer time costs nothing. */
const keptMs = 3 * maxAgeMs;
const removedAtOnce = 10_000;

/**
 * Stores what was signed (`signedFacts`, the body) for this connection, and returns whether it is the first such webhook.
 * Runs in the transaction of the webhook's effects.
 */
export async function isFirstDelivery(
  tx: Tx,
  of: { integration: Integration; facts: string[]; body: Buffer; connection: number | null; at: Date },
): Promise<boolean> {
  const digest = createHash('sha256')
    .update(JSON.stringify([of.connection, ...of.facts]))
    .update(of.body)
    .digest();
  const rows = await tx.query(
    `insert into webhook_seen (integration_id, digest, seen_at)
     values ($1, $2, $3)
     on conflict do nothing
     returning seen_at`,
    [of.integration.id, digest, of.at],
  );
  return rows.length > 0;
}

/** Removes webhooks that are too old to be accepted. */
export function replaySweepJob({ db, now }: { db: Db; now: () => Date }): Job<Record<string, never>> {
  return {
    name: 'webhooks.seen',
    async run(_, signal) {
      for (let removed = removedAtOnce; removed === removedAtOnce && !signal.aborted; ) {
        const rows = await db.query(
          `delete from webhook_seen
           where (integration_id, digest) in (
             select integration_id, digest
             from webhook_seen
             where seen_at < $1
             limit $2
           )
           returning seen_at`,
          [new Date(now().getTime() - keptMs), removedAtOnce],
        );
        removed = rows.length;
      }
    },
  };
}
