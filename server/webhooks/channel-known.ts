/** Channels and what is watched, as messages find them: the tables of `channel-store.ts`. */
import { first, type Queryable } from '../db/pool.ts';
import { takenMs } from './channel-store.ts';

type KnownChannel = {
  connection: number;
  target: string;
  tokenDigest: Buffer;
  state: 'asked' | 'open' | 'ending';
  askedAt: Date;
};

/** One of a living connection of the integration that has not expired. */
export async function findChannel(
  q: Queryable,
  {
    id,
    integrationId,
    environmentId,
    at,
  }: { id: string; integrationId: number; environmentId: number; at: Date },
): Promise<KnownChannel | undefined> {
  return first(
    await q.query<KnownChannel>(
      `select channel.connection_id as connection, channel.target, channel.token_digest as "tokenDigest", channel.state,
         channel.asked_at as "askedAt"
       from channel
       join connection on connection.id = channel.connection_id and connection.deleted_at is null
       where channel.id = $1
         and channel.expires_at > $4
         and connection.integration_id = $2
         and connection.environment_id = $3`,
      [id, integrationId, environmentId, at],
    ),
  );
}

/** A channel that nobody got an answer for shows by a message what it is called, so it can be stopped. */
export async function endOrphan(
  q: Queryable,
  { id, resourceId, at }: { id: string; resourceId: string; at: Date },
): Promise<void> {
  const bySomebodyElse = new Date(at.getTime() - takenMs);
  await q.query(
    `update channel
     set state = 'ending', resource_id = $2, next_at = $3
     where id = $1 and state = 'asked' and asked_at < $4`,
    [id, resourceId, at, bySomebodyElse],
  );
}

/** Notes that a run is due after the one that goes on; `at` null: that it is not any more. */
export async function noteNoticed(
  q: Queryable,
  { connection, target, at }: { connection: number; target: string; at: Date | null },
): Promise<void> {
  await q.query('update watch set noticed_at = $3 where connection_id = $1 and target = $2', [
    connection,
    target,
    at,
  ]);
}

/** Noted before `before`, the oldest first. */
export function listNoticed(
  q: Queryable,
  { before, max }: { before: Date; max: number },
): Promise<{ id: number; connection: number; target: string }[]> {
  return q.query(
    `select id, connection_id as connection, target
     from watch
     where noticed_at < $1
     order by noticed_at
     limit $2`,
    [before, max],
  );
}
