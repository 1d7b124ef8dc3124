/**
 * What is watched for connections, and the push channels that watch it: the tables `watching`, `watch` and `channel`.
 *
 * Does not own: what must be watched and when (`watches.ts`), or the calls to the provider (`channel-request.ts`). A node
 * that takes a row advances the row's time: only one node does the work, and if that node is killed, another node does it
 * later.
 */
import { createHash } from 'node:crypto';
import type { ConnectionPlace } from '../../connections/store/store.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';

/** A connection, and the environment's name for the address of its messages. */
type WatchedPlace = ConnectionPlace & { environment: string };
export type Watch = WatchedPlace & { id: number; connection: number; target: string; attempts: number };
/** A connection whose metadata must be read. */
export type WatchedConnection = WatchedPlace & { id: number };
export type Channel = ConnectionPlace & {
  id: string;
  connection: number;
  target: string;
  resourceId: string;
};
export type WatchFault = { code: string; message: string };

/** The time that a node has for the rows that it took. */
const takenMs = 2 * 60_000;
const later = (at: Date, ms: number) => new Date(at.getTime() + ms);

const placeColumns = `
  connection.environment_id as "environmentId",
  environment.name as environment,
  integration.key as "integrationKey",
  connection.connection_id as "connectionId"`;
const placeTables = `
  join integration on integration.id = connection.integration_id
  join environment on environment.id = connection.environment_id`;
const channelColumns = `
  channel.id, connection.id as connection, channel.target, channel.resource_id as "resourceId", ${placeColumns}`;

/** The functions whose syncs subscribe to changes. */
async function listSubscribed(q: Queryable): Promise<{ id: number; provider: string; isTest: boolean }[]> {
  return q.query(
    `select function.id, integration.provider, integration.is_test as "isTest"
     from function
     join function_version version on version.id = function.version_id
     join integration on integration.id = function.integration_id
     where function.kind = 'sync'
       and function.is_enabled
       and jsonb_array_length(version.definition -> 'webhook_subscriptions') > 0`,
  );
}

export const digestOf = (token: string): Buffer => createHash('sha256').update(token).digest();

/**
 * Adds the connections to these providers that have a subscribed sync now. Their metadata is read immediately. Reads the
 * active syncs of subscribed functions, whose connections are watched: `takeConnections` reads more of each.
 */
export async function beginWatching(
  q: Queryable,
  { providers, isSandboxOn, at }: { providers: readonly string[]; isSandboxOn: boolean; at: Date },
): Promise<void> {
  const functions = (await listSubscribed(q))
    .filter(({ provider, isTest }) => providers.includes(provider) && (!isTest || isSandboxOn))
    .map(({ id }) => id);
  if (functions.length === 0) return;
  await q.query(
    `with missing as materialized (
       select distinct sync.connection_id
       from sync
       where sync.function_id = any($1)
         and sync.state = 'active'
         and not exists (select from watching where watching.connection_id = sync.connection_id)
     )
     insert into watching (connection_id, look_at)
     select connection.id, $2::timestamptz
     from missing
     join connection on connection.id = missing.connection_id and connection.deleted_at is null
     on conflict (connection_id) do nothing`,
    [functions, at],
  );
}

/** Ends the channels of connections without a subscribed sync, and deletes the channels of deleted connections. */
export async function endWatching(db: Db, at: Date): Promise<void> {
  await db.transaction(async (tx) => {
    await tx.query(
      `delete from channel
       using connection
       where connection.id = channel.connection_id and connection.deleted_at is not null`,
    );
    const functions = (await listSubscribed(tx)).map(({ id }) => id);
    const gone = await tx.query<{ id: number }>(
      `delete from watching
       where connection_id in (
         select connection_id
         from watching
         where not exists (
             select
             from sync
             where sync.connection_id = watching.connection_id
               and sync.function_id = any($1)
               and sync.state = 'active'
           )
           or exists (select from connection where id = watching.connection_id and deleted_at is not null)
         for update skip locked
       )
       returning connection_id as id`,
      [functions],
    );
    await endOpen(tx, { at, where: 'connection_id = any($2)', values: [gone.map(({ id }) => id)] });
  });
}

/** Ends open channels. `where` has the parameters $2, $3, ... */
async function endOpen(
  tx: Tx,
  { at, where, values }: { at: Date; where: string; values: readonly unknown[] },
): Promise<void> {
  await tx.query(`update channel set state = 'ending', next_at = $1 where state = 'open' and ${where}`, [
    at,
    ...values,
  ]);
}

/** Takes due rows of connections that are not deleted. They are due again at `until`. */
function takeDue<R extends object>(
  q: Queryable,
  of: { table: 'watching' | 'watch' | 'channel'; columns: string; at: Date; until: Date; max: number },
): Promise<R[]> {
  const { table } = of;
  const [key, due] = table === 'watching' ? ['connection_id', 'look_at'] : ['id', 'next_at'];
  return q.query<R>(
    `update ${table}
     set ${due} = $2
     from connection
     ${placeTables}
     where ${table}.${key} in (
         select ${key} from ${table} where ${due} <= $1 order by ${due} limit $3 for update skip locked
       )
       and connection.id = ${table}.connection_id
       and connection.deleted_at is null
     returning ${of.columns}`,
    [of.at, of.until, of.max],
  );
}

/** Takes connections whose metadata must be read now. */
export function takeConnections(
  q: Queryable,
  { at, againMs, max }: { at: Date; againMs: number; max: number },
): Promise<WatchedConnection[]> {
  const columns = `connection.id, ${placeColumns}`;
  return takeDue(q, { table: 'watching', columns, at, until: later(at, againMs), max });
}

/** Sets the targets of a connection: ends the channels of all other targets. */
export async function setTargets(
  tx: Tx,
  { connection, targets, at }: { connection: number; targets: readonly string[]; at: Date },
): Promise<void> {
  // While the row is locked, no transaction ends the watching of the connection.
  const held = await tx.query('select from watching where connection_id = $1 for key share', [connection]);
  if (held.length === 0) return;
  await tx.query('delete from watch where connection_id = $1 and target <> all($2)', [connection, targets]);
  const where = 'connection_id = $2 and target <> all($3)';
  await endOpen(tx, { at, where, values: [connection, targets] });
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
       -- An address that ends with a parameter has the channel's ID after it.
       and (
         channel.address is distinct from case when $2 like '%=' then $2 || channel.id::text else $2 end
         or channel.asked_at < $3
       )
       -- A watch that failed has its own time.
       and watch.attempts = 0`,
    [connection, address, grantedAt, at],
  );
}

/** Takes watches that need a new channel now. */
export function takeWatches(q: Queryable, { at, max }: { at: Date; max: number }): Promise<Watch[]> {
  const columns = `watch.id, connection.id as connection, watch.target, watch.attempts, ${placeColumns}`;
  return takeDue(q, { table: 'watch', columns, at, until: later(at, takenMs), max });
}

/** Stores a channel before it is requested from the provider. `secret` is sealed, if messages are verified with it. */
export async function insertChannel(
  tx: Tx,
  of: {
    id: string;
    token: string;
    secret: Buffer | null;
    address: string;
    watch: Watch;
    at: Date;
    expiresAt: Date;
    /** Null if only the provider's response has it. */
    resourceId: string | null;
  },
): Promise<void> {
  await tx.query(
    `insert into channel (id, connection_id, target, token_digest, secret, state, asked_at, expires_at, address, resource_id)
     values ($1, $2, $3, $4, $5, 'asked', $6, $7, $8, $9)`,
    [
      of.id,
      of.watch.connection,
      of.watch.target,
      digestOf(of.token),
      of.secret,
      of.at,
      of.expiresAt,
      of.address,
      of.resourceId,
    ],
  );
}

/** Stores the sealed secret that the provider hands over while it creates the channel. Returns whether it is the first one. */
export async function setSecret(tx: Tx, { id, secret }: { id: string; secret: Buffer }): Promise<boolean> {
  const rows = await tx.query(
    `update channel
     set secret = $2
     where id = $1 and state = 'asked' and secret is null
     returning id`,
    [id, secret],
  );
  return rows.length > 0;
}

type OpenChannel = { id: string; resourceId: string; address: string | null; askedAt: Date };

/** Finds the open channel of a watch. */
export async function findOpen(
  q: Queryable,
  { connection, target, at }: { connection: number; target: string; at: Date },
): Promise<OpenChannel | undefined> {
  const [open] = await q.query<OpenChannel>(
    `select id, resource_id as "resourceId", address, asked_at as "askedAt"
     from channel
     where connection_id = $1 and target = $2 and state = 'open' and expires_at > $3`,
    [connection, target, at],
  );
  return open;
}

/** The provider has extended the channel. */
export async function extend(
  tx: Tx,
  { id, watch, expiresAt, renewAt }: { id: string; watch: Watch; expiresAt: Date; renewAt: Date },
): Promise<void> {
  await tx.query('update watch set next_at = $2, attempts = 0, fault = null where id = $1', [
    watch.id,
    renewAt,
  ]);
  await tx.query(`update channel set expires_at = $2 where id = $1 and state = 'open'`, [id, expiresAt]);
}

/** Lets the watch of a channel be renewed now. */
export async function renewSoon(
  q: Queryable,
  { connection, target, at }: { connection: number; target: string; at: Date },
): Promise<void> {
  await q.query(
    `update watch
     set next_at = least(next_at, $3)
     where connection_id = $1 and target = $2 and attempts = 0`,
    [connection, target, at],
  );
}

/** Messages of the channel are accepted from now on, and the previous channel ends. A channel without a watch ends at once. */
export async function markOpen(
  tx: Tx,
  of: {
    id: string;
    watch: Watch;
    resourceId: string;
    /** Sealed; undefined if there is none, or if it is stored already. */
    secret: Buffer | undefined;
    expiresAt: Date;
    renewAt: Date;
    at: Date;
  },
): Promise<void> {
  const { id, watch, at } = of;
  const wanted = await tx.query(
    `update watch
     set next_at = $2, attempts = 0, fault = null
     where id = $1
     returning id`,
    [watch.id, of.renewAt],
  );
  const where = 'connection_id = $2 and target = $3';
  await endOpen(tx, { at, where, values: [watch.connection, watch.target] });
  await tx.query(
    `update channel
     set state = case when $4 then 'open' else 'ending' end,
       next_at = case when not $4 then $5::timestamptz end,
       resource_id = $2,
       secret = coalesce($6, secret),
       expires_at = $3
     where id = $1 and state = 'asked'`,
    [id, of.resourceId, of.expiresAt, wanted.length > 0, at, of.secret ?? null],
  );
}

/**
 * Stores why a request made no channel. With `isUnanswered` the provider may have the channel. Returns whether the last
 * request did not have the same fault.
 */
export async function storeFault(
  tx: Tx,
  of: { id: string | undefined; watch: Watch; fault: WatchFault; nextAt: Date; isUnanswered: boolean },
): Promise<boolean> {
  if (!of.isUnanswered && of.id !== undefined)
    await tx.query(`delete from channel where id = $1 and state = 'asked'`, [of.id]);
  const [before] = await tx.query<{ fault: WatchFault | null }>(
    'select fault from watch where id = $1 for update',
    [of.watch.id],
  );
  await tx.query('update watch set next_at = $2, attempts = attempts + 1, fault = $3 where id = $1', [
    of.watch.id,
    of.nextAt,
    JSON.stringify(of.fault),
  ]);
  return before !== undefined && before.fault?.code !== of.fault.code;
}

/** Takes channels that must be stopped now. */
export function takeEnding(q: Queryable, { at, max }: { at: Date; max: number }): Promise<Channel[]> {
  return takeDue(q, { table: 'channel', columns: channelColumns, at, until: later(at, takenMs), max });
}

/** Takes all channels of a connection that is about to be deleted. If it stays, new channels are requested. */
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
     returning ${channelColumns}`,
    [connection, later(at, takenMs)],
  );
}

/** The channel is not stopped before `until`. */
export async function postponeEnd(q: Queryable, { id, until }: { id: string; until: Date }): Promise<void> {
  await q.query(`update channel set next_at = $2 where id = $1 and state = 'ending'`, [id, until]);
}

export async function deleteChannel(q: Queryable, id: string): Promise<void> {
  await q.query('delete from channel where id = $1', [id]);
}

/** Deletes expired channels: they send no more messages. */
export async function deleteExpired(q: Queryable, at: Date): Promise<void> {
  await q.query('delete from channel where expires_at <= $1', [at]);
}

type KnownChannel = WatchedPlace & {
  connection: number;
  target: string;
  tokenDigest: Buffer;
  /** Sealed. */
  secret: Buffer | null;
  state: 'asked' | 'open' | 'ending';
};

/** Finds a channel that has not expired, of a connection of the integration. */
export async function findChannel(
  q: Queryable,
  of: { id: string; integrationId: number; environmentId: number; at: Date },
): Promise<KnownChannel | undefined> {
  const [channel] = await q.query<KnownChannel>(
    `select channel.connection_id as connection, channel.target, channel.token_digest as "tokenDigest", channel.secret,
       channel.state, ${placeColumns}
     from channel
     join connection on connection.id = channel.connection_id and connection.deleted_at is null
     ${placeTables}
     where channel.id = $1
       and channel.expires_at > $4
       and connection.integration_id = $2
       and connection.environment_id = $3`,
    [of.id, of.integrationId, of.environmentId, of.at],
  );
  return channel;
}

/** Stores the resource ID that a message has revealed of a channel whose creation response is missing. */
export async function setResource(
  q: Queryable,
  { id, resourceId }: { id: string; resourceId: string },
): Promise<void> {
  await q.query(`update channel set resource_id = $2 where id = $1 and state = 'asked'`, [id, resourceId]);
}

/** Ends channels without a creation response, if they can be stopped. A node may wait for the response for a while. */
export async function endLost(q: Queryable, at: Date): Promise<void> {
  await q.query(
    `update channel
     set state = 'ending', next_at = $1
     where state = 'asked' and resource_id is not null and asked_at < $2`,
    [at, later(at, -takenMs)],
  );
}

/** Sets the time of a message that came while a run went on, so that another run follows; null if none must follow. */
export async function setNoticed(
  q: Queryable,
  { connection, target, at }: { connection: number; target: string; at: Date | null },
): Promise<void> {
  await q.query('update watch set noticed_at = $3 where connection_id = $1 and target = $2', [
    connection,
    target,
    at,
  ]);
}

/** Lists the watches with a message before `before`, oldest first. */
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
