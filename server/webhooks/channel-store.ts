import { createHash } from 'node:crypto';
import type { Db, Queryable, Tx } from '../db/pool.ts';

/**
 * What is watched for connections, and the channels by which it is: the tables `watching`, `watch` and `channel`.
 *
 * Does not own: what has to be watched and when something is done for it (`watches.ts`), or the provider's side
 * (`channel-request.ts`). A node that takes a row advances its time: of many nodes one does the work, and if that node is
 * killed, another does it later.
 */
export type Place = { environmentId: number; integrationKey: string; connectionId: string };
/** Where messages for it go to is told by the name. */
type Named = Place & { environment: string };
export type Watch = Named & { id: number; connection: number; target: string; attempts: number };
/** A connection whose metadata are to be read. */
export type Looked = Named & { id: number };
export type Channel = Place & { id: string; connection: number; resourceId: string };
export type WatchFault = { code: string; message: string };

/** How long one who has taken something has for it. */
export const takenMs = 2 * 60_000;
const later = (at: Date, ms: number) => new Date(at.getTime() + ms);

const placeColumns = `
  connection.environment_id as "environmentId",
  environment.name as environment,
  integration.key as "integrationKey",
  connection.connection_id as "connectionId"`;
const placeTables = `
  join integration on integration.id = connection.integration_id
  join environment on environment.id = connection.environment_id`;
/** Syncs that run by themselves and ask to be told of something. */
const hearing = `
  sync.state = 'active'
  and function.is_enabled
  and jsonb_array_length(version.definition -> 'webhook_subscriptions') > 0`;

export const digestOf = (token: string): Buffer => createHash('sha256').update(token).digest();

/** Connections that have come to have a sync that listens, at one of these providers, are looked at now. */
export async function beginWatching(
  q: Queryable,
  { providers, isSandboxOn, at }: { providers: readonly string[]; isSandboxOn: boolean; at: Date },
): Promise<void> {
  await q.query(
    `insert into watching (connection_id, look_at)
     select distinct connection.id, $2::timestamptz
     from sync
     join function on function.id = sync.function_id
     join function_version version on version.id = function.version_id
     join connection on connection.id = sync.connection_id and connection.deleted_at is null
     join integration on integration.id = connection.integration_id
     where integration.provider = any($1)
       and (not integration.is_test or $3)
       and ${hearing}
     on conflict (connection_id) do nothing`,
    [providers, at, isSandboxOn],
  );
}

/** What no sync listens to any more is not watched: its channels end. Nothing is left of a deleted connection. */
export async function endWatching(db: Db, at: Date): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query(
      `delete from channel
       using connection
       where connection.id = channel.connection_id and connection.deleted_at is not null`,
    );
    const gone = await tx.query<{ id: number }>(
      `delete from watching
       where connection_id in (
         select connection_id
         from watching
         where not exists (
           select from connection
           join sync on sync.connection_id = connection.id
           join function on function.id = sync.function_id
           join function_version version on version.id = function.version_id
           where connection.id = watching.connection_id and connection.deleted_at is null and ${hearing}
         )
         for update skip locked
       )
       returning connection_id as id`,
    );
    await tx.query(
      `update channel
       set state = 'ending', next_at = $2
       where connection_id = any($1) and state = 'open'`,
      [gone.map(({ id }) => id), at],
    );
  });
}

/** Connections whose metadata are to be read now; the others' turn comes before theirs comes again. */
export function takeLooks(
  q: Queryable,
  { at, againMs, max }: { at: Date; againMs: number; max: number },
): Promise<Looked[]> {
  return q.query(
    `update watching
     set look_at = $2
     from connection
     ${placeTables}
     where watching.connection_id in (
         select connection_id from watching where look_at <= $1 order by look_at limit $3 for update skip locked
       )
       and connection.id = watching.connection_id
       and connection.deleted_at is null
     returning connection.id, ${placeColumns}`,
    [at, later(at, againMs), max],
  );
}

/** From now on these are watched for the connection, and nothing else. */
export async function setTargets(
  tx: Tx,
  { connection, targets, at }: { connection: number; targets: readonly string[]; at: Date },
): Promise<void> {
  // Nobody ends the connection's watching meanwhile.
  const held = await tx.query('select from watching where connection_id = $1 for key share', [connection]);
  if (held.length === 0) return;
  await tx.query('delete from watch where connection_id = $1 and target <> all($2)', [connection, targets]);
  await tx.query(
    `update channel
     set state = 'ending', next_at = $3
     where connection_id = $1 and target <> all($2) and state = 'open'`,
    [connection, targets, at],
  );
  await tx.query(
    `insert into watch (connection_id, target, next_at)
     select $1, target, $3
     from unnest($2::text[]) as given (target)
     on conflict on constraint watch_unique do nothing`,
    [connection, targets, at],
  );
}

/** Requests a new channel for each watch whose channel has another address than `address`, or is older than the grant. */
export async function replaceOutdated(
  tx: Tx,
  { connection, address, grantedAt, at }: { connection: number; address: string; grantedAt: Date; at: Date },
): Promise<void> {
  await tx.query(
    `update watch
     set next_at = $4
     from channel
     where watch.connection_id = $1
       and channel.connection_id = $1
       and channel.target = watch.target
       and channel.state = 'open'
       and (channel.address is distinct from $2 or channel.asked_at < $3)
       -- One that failed has its own time.
       and watch.attempts = 0`,
    [connection, address, grantedAt, at],
  );
}

/** What wants a channel now. */
export function takeWatches(q: Queryable, { at, max }: { at: Date; max: number }): Promise<Watch[]> {
  return q.query<Watch>(
    `update watch
     set next_at = $2
     from connection
     ${placeTables}
     where watch.id in (
         select id from watch where next_at <= $1 order by next_at limit $3 for update skip locked
       )
       and connection.id = watch.connection_id
       and connection.deleted_at is null
     returning watch.id, connection.id as connection, watch.target, watch.attempts, ${placeColumns}`,
    [at, later(at, takenMs), max],
  );
}

/** Before the provider is asked. */
export async function noteAsked(
  tx: Tx,
  of: { id: string; token: string; address: string; watch: Watch; at: Date; expiresAt: Date },
): Promise<void> {
  await tx.query(
    `insert into channel (id, connection_id, target, token_digest, state, asked_at, expires_at, address)
     values ($1, $2, $3, $4, 'asked', $5, $6, $7)`,
    [of.id, of.watch.connection, of.watch.target, digestOf(of.token), of.at, of.expiresAt, of.address],
  );
}

/** Messages of the channel are accepted from now on, and the previous channel ends. A channel without a watch ends at once. */
export async function noteOpen(
  tx: Tx,
  of: { id: string; watch: Watch; resourceId: string; expiresAt: Date; renewAt: Date; at: Date },
): Promise<void> {
  const { id, watch, at } = of;
  const wanted = await tx.query(
    `update watch
     set next_at = $2, attempts = 0, fault = null
     where id = $1
     returning id`,
    [watch.id, of.renewAt],
  );
  await tx.query(
    `update channel
     set state = 'ending', next_at = $3
     where connection_id = $1 and target = $2 and state = 'open'`,
    [watch.connection, watch.target, at],
  );
  await tx.query(
    `update channel
     set state = case when $4 then 'open' else 'ending' end,
       next_at = case when not $4 then $5::timestamptz end,
       resource_id = $2,
       expires_at = $3
     where id = $1 and state = 'asked'`,
    [id, of.resourceId, of.expiresAt, wanted.length > 0, at],
  );
}

/** No channel came of it. Where the provider said no, it knows none: `isRefused`. Answers whether that is news. */
export async function noteFault(
  tx: Tx,
  of: { id: string | undefined; watch: Watch; fault: WatchFault; nextAt: Date; isRefused: boolean },
): Promise<boolean> {
  if (of.isRefused && of.id !== undefined)
    await tx.query(`delete from channel where id = $1 and state = 'asked'`, [of.id]);
  const [before] = await tx.query<{ fault: WatchFault | null }>(
    'select fault from watch where id = $1 for update',
    [of.watch.id],
  );
  await tx.query('update watch set next_at = $2, attempts = attempts + 1, fault = $3 where id = $1', [
    ...[of.watch.id, of.nextAt],
    JSON.stringify(of.fault),
  ]);
  return before !== undefined && before.fault?.code !== of.fault.code;
}

/** Channels that are to be stopped now. */
export function takeEnding(q: Queryable, { at, max }: { at: Date; max: number }): Promise<Channel[]> {
  return q.query<Channel>(
    `update channel
     set next_at = $2
     from connection
     ${placeTables}
     where channel.id in (
         select id from channel where next_at <= $1 order by next_at limit $3 for update skip locked
       )
       and connection.id = channel.connection_id
       and connection.deleted_at is null
     returning channel.id, connection.id as connection, channel.resource_id as "resourceId", ${placeColumns}`,
    [at, later(at, takenMs), max],
  );
}

/** All channels of a connection that is about to be deleted; if it stays, they are requested again. */
export async function takeAllOf(
  tx: Tx,
  { connection, at }: { connection: number; at: Date },
): Promise<Channel[]> {
  await tx.query('update watch set next_at = $2 where connection_id = $1', [connection, later(at, takenMs)]);
  return tx.query<Channel>(
    `update channel
     set state = 'ending', next_at = $2
     from connection
     ${placeTables}
     where channel.connection_id = $1
       and channel.state <> 'asked'
       and connection.id = $1
     returning channel.id, connection.id as connection, channel.resource_id as "resourceId", ${placeColumns}`,
    [connection, later(at, takenMs)],
  );
}

/** It is not stopped before that. */
export async function postponeEnd(q: Queryable, { id, until }: { id: string; until: Date }): Promise<void> {
  await q.query(`update channel set next_at = $2 where id = $1 and state = 'ending'`, [id, until]);
}

export async function forgetChannel(q: Queryable, id: string): Promise<void> {
  await q.query('delete from channel where id = $1', [id]);
}

/** What has expired is silent. */
export async function forgetExpired(q: Queryable, at: Date): Promise<void> {
  await q.query('delete from channel where expires_at <= $1', [at]);
}
