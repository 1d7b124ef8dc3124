/**
 * The live refresh tokens of an account with one OAuth client. Some providers limit them and silently revoke the
 * oldest.
 *
 * Owns: the table `issued_token`, the column `token_slots`, the event `connection.token_slots`. Does not own:
 * requests for tokens and their revocation, the text of the warning (`health/warnings.ts`).
 *
 * The oldest token that a living connection needs, and all tokens issued after it, occupy a slot. An earlier token
 * that was superseded is revoked before any needed one, so it does not count.
 */
import { createHash } from 'node:crypto';
import { revocationUnit } from '../../auth-modes/revocation.ts';
import type { Db, Queryable, Tx } from '../../db/pool.ts';
import type { Integration } from '../../integrations/store.ts';
import { eachInTurn, type Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import { slotsNextStep } from '../health/warnings.ts';
import { type ConnectionHead, findHead, queueConnectionEvent, type TokenSlots } from '../store/store.ts';

const slotsJobName = 'connections.token-slots';
const nearShare = 0.8;
const oldestNextStep =
  'The account has the maximum number of active grants with this OAuth client, and the grant of this connection is the oldest: the next grant revokes it without notice. Ask the user to connect again.';

type Account = { id: string };
type ConnectionRef = Pick<ConnectionHead, 'id' | 'environmentId'>;
/** The oldest token in a slot always has a connection, because a connection needs it. */
type Token = { id: number; connection: number; environmentId: number };

/**
 * Records a refresh token that the provider has just issued. Reports an account that comes near the limit (once each
 * time), and the connection whose token the provider would revoke next (once per token). `connection` is the row that
 * has the token; undefined for a token that was received and not stored, which also occupies a slot. `wasDead`: the
 * replaced token was already invalid. Does nothing if the provider has no limit or the account is unknown.
 *
 * Call it in the transaction that stores the token, as the last statement that locks rows.
 */
export async function recordIssuedToken(
  tx: Tx,
  given: {
    integration: Pick<Integration, 'provider' | 'client'>;
    account: Account | undefined;
    connection: ConnectionRef | undefined;
    wasDead: boolean;
    at: Date;
  },
): Promise<void> {
  const { integration, account, connection, wasDead, at } = given;
  const { provider, client } = integration;
  const limit = provider.refresh_token_lifetime.live_per_account;
  if (limit === undefined || account === undefined || client === undefined) return;
  const holder = hashOf(`${provider.token?.url} ${client.clientId}`, account);
  const unit = revocationUnit(provider, client.clientId);
  await lockHolder(tx, holder);
  const usedBefore = (await listSlots(tx, holder)).length;
  // No connection needs an older token, so this one does not count.
  if (connection === undefined && usedBefore === 0) return;
  if (connection !== undefined) await supersede(tx, { connection, wasDead, at });
  await tx.query(
    `insert into issued_token (holder, unit_holder, connection, issued_at, superseded_at)
     values ($1, $2, $3, $4, $5)`,
    [
      holder,
      unit === undefined ? null : hashOf(unit, account),
      connection?.id ?? null,
      at,
      connection === undefined ? at : null,
    ],
  );
  await deleteUnneeded(tx, { holder, unusedSince: unusedSince(provider, at) });
  const occupied = await dropOldest(tx, { holder, limit });
  const slots = { used: occupied.length, limit };
  if (connection !== undefined) await storeSlots(tx, { id: connection.id, slots });
  const [oldest] = occupied;
  if (oldest === undefined) return;
  if (!isNearLimit({ used: usedBefore, limit }) && isNearLimit(slots)) {
    await queueSlotsEvent(tx, { of: connection ?? connectionOf(oldest), slots, isNext: false });
  }
  if (slots.used >= limit && (await markReported(tx, { token: oldest, at }))) {
    await queueSlotsEvent(tx, { of: connectionOf(oldest), slots, isNext: true });
  }
}

/** Deletes all tokens of the account in the unit, because the provider has revoked them together. */
export async function forgetTokens(
  tx: Queryable,
  { unit, accountId }: { unit: string; accountId: string },
): Promise<void> {
  await tx.query('delete from issued_token where unit_holder = $1', [hashOf(unit, { id: accountId })]);
}

/** Updates the slots of connections near the limit, one at a time. Returns the number of changed connections. */
export async function updateTokenSlots(
  db: Db,
  { log, signal }: { log: Logger; signal: AbortSignal },
): Promise<number> {
  const holders = await db.query<{ holder: Buffer; limit: number }>(
    `select issued_token.holder, max((connection.token_slots->>'limit')::integer) as limit
     from connection
     join issued_token on issued_token.connection = connection.id and issued_token.superseded_at is null
     where connection.token_slots is not null
       and connection.deleted_at is null
     group by issued_token.holder`,
  );
  let changed = 0;
  for (const { holder, limit } of holders) {
    const slots = { used: (await listSlots(db, holder)).length, limit };
    const stale = await db.query<{ id: number }>(
      `select connection.id
       from connection
       join issued_token on issued_token.connection = connection.id and issued_token.superseded_at is null
       where issued_token.holder = $1
         and connection.deleted_at is null
         and connection.token_slots is distinct from $2::jsonb
       order by connection.id`,
      [holder, isNearLimit(slots) ? JSON.stringify(slots) : null],
    );
    await eachInTurn(stale, {
      job: slotsJobName,
      log,
      signal,
      async work({ id }) {
        await storeSlots(db, { id, slots });
        changed += 1;
      },
    });
    if (signal.aborted) return changed;
  }
  const dropped = await db.query(
    `update connection
     set token_slots = null
     where token_slots is not null
       and deleted_at is null
       and not exists (
         select from issued_token where issued_token.connection = connection.id and superseded_at is null
       )
     returning id`,
  );
  return changed + dropped.length;
}

/**
 * Deletes the tokens of accounts without a connection that needs one: all later tokens are younger, so the old ones
 * no longer matter. Examines at most `max` accounts after `after`. Returns the last one, or undefined at the end.
 */
export async function sweepTokens(
  db: Db,
  { after, max }: { after: Buffer | undefined; max: number },
): Promise<Buffer | undefined> {
  const seen = await db.query<{ holder: Buffer; isHeld: boolean }>(
    `with seen as (
       select distinct holder from issued_token where holder > $1 order by holder limit $2
     )
     select holder, exists (select from ${heldBy}) as "isHeld" from seen order by holder`,
    [after ?? Buffer.alloc(0), max],
  );
  for (const { holder } of seen.filter(({ isHeld }) => !isHeld)) {
    await db.transaction(async (tx) => {
      await lockHolder(tx, holder);
      await tx.query(
        `with seen as (select $1::bytea as holder)
         delete from issued_token
         using seen
         where issued_token.holder = seen.holder
           and not exists (select from ${heldBy})`,
        [holder],
      );
    });
  }
  return seen.length < max ? undefined : seen.at(-1)?.holder;
}

/** The tokens of `seen.holder` that a connection needs. */
const heldBy = `issued_token as held
  join connection on connection.id = held.connection
  where held.holder = seen.holder and held.superseded_at is null and connection.account_id is not null`;

/** How many accounts one run examines. */
const maxSwept = 500;

/**
 * Updates the warnings of accounts near the limit after other connections of the account were created, connected
 * again or deleted. Deletes the tokens of accounts without a connection.
 */
export function tokenSlotsJob({ db, log }: { db: Db; log: Logger }): Job<Record<string, never>> {
  let after: Buffer | undefined;
  return {
    name: slotsJobName,
    async run(_, signal) {
      await updateTokenSlots(db, { log, signal });
      if (!signal.aborted) after = await sweepTokens(db, { after, max: maxSwept });
    },
  };
}

/** The account uses at least 80 % of the limit. */
function isNearLimit({ used, limit }: TokenSlots): boolean {
  return used >= limit * nearShare;
}

/** Stores the slots for the connection's health; null while the account is not near the limit. */
async function storeSlots(q: Queryable, { id, slots }: { id: number; slots: TokenSlots }): Promise<void> {
  await q.query('update connection set token_slots = $2 where id = $1 and deleted_at is null', [
    id,
    isNearLimit(slots) ? JSON.stringify(slots) : null,
  ]);
}

/** The event belongs to the environment of its connection; the cause may be in another environment. */
async function queueSlotsEvent(
  tx: Queryable,
  { of, slots, isNext }: { of: ConnectionRef; slots: TokenSlots; isNext: boolean },
): Promise<void> {
  const connection = await findHead(tx, of);
  if (connection === undefined) return;
  const next_step = isNext ? oldestNextStep : slotsNextStep(slots);
  const type = 'connection.token_slots';
  await queueConnectionEvent(tx, connection, { type, ...slots, is_next: isNext, next_step });
}

/** Locks the tokens of the account until the transaction ends. Do not lock a connection after it. */
async function lockHolder(tx: Tx, holder: Buffer): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('tokens ' || $1, 0))`, [
    holder.toString('hex'),
  ]);
}

/**
 * The tokens that occupy a slot, oldest first, beginning with the first one that a living connection needs. The token
 * of a connection that needs its user is invalid. A connection without an account was deleted, or its token was
 * imported.
 */
async function listSlots(q: Queryable, holder: Buffer): Promise<Token[]> {
  return q.query<Token>(
    `with alive as (
       select
         issued_token.id,
         issued_token.issued_at,
         connection.id as connection,
         connection.environment_id,
         issued_token.superseded_at is null and connection.account_id is not null as is_needed
       from issued_token
       left join connection on connection.id = issued_token.connection
       where issued_token.holder = $1
         and not coalesce(issued_token.superseded_at is null and connection.status = 'needs_reauth', false)
     ), oldest as (
       select issued_at, id from alive where is_needed order by issued_at, id limit 1
     )
     select alive.id, connection, environment_id as "environmentId"
     from alive, oldest
     where (alive.issued_at, alive.id) >= (oldest.issued_at, oldest.id)
     order by alive.issued_at, alive.id`,
    [holder],
  );
}

async function supersede(
  tx: Tx,
  { connection, wasDead, at }: { connection: { id: number }; wasDead: boolean; at: Date },
): Promise<void> {
  if (wasDead) {
    await tx.query('delete from issued_token where connection = $1 and superseded_at is null', [
      connection.id,
    ]);
    return;
  }
  await tx.query(
    'update issued_token set superseded_at = $2 where connection = $1 and superseded_at is null',
    [connection.id, at],
  );
}

/** Deletes the oldest tokens beyond the limit, which the provider has revoked. Returns the remaining ones. */
async function dropOldest(tx: Tx, { holder, limit }: { holder: Buffer; limit: number }): Promise<Token[]> {
  const occupied = await listSlots(tx, holder);
  const dropped = occupied.slice(0, Math.max(0, occupied.length - limit)).map(({ id }) => id);
  if (dropped.length === 0) return occupied;
  await tx.query('delete from issued_token where id = any($1)', [dropped]);
  return listSlots(tx, holder);
}

/** Deletes tokens older than all needed ones, and tokens that have expired because they were not used. */
async function deleteUnneeded(
  tx: Tx,
  { holder, unusedSince }: { holder: Buffer; unusedSince: Date | undefined },
): Promise<void> {
  await tx.query(
    `with known as (
       select
         issued_token.id,
         issued_token.issued_at,
         coalesce(issued_token.superseded_at, connection.deleted_at) as unused_since,
         issued_token.superseded_at is null and connection.account_id is not null as is_needed
       from issued_token
       left join connection on connection.id = issued_token.connection
       where issued_token.holder = $1
     ), oldest as (
       select issued_at, id from known where is_needed order by issued_at, id limit 1
     )
     delete from issued_token
     using known
     left join oldest on true
     where issued_token.id = known.id
       and ((known.issued_at, known.id) < (oldest.issued_at, oldest.id) or known.unused_since < $2)`,
    [holder, unusedSince ?? null],
  );
}

/** False if the token was already reported as the next to be revoked. */
async function markReported(tx: Tx, { token, at }: { token: Token; at: Date }): Promise<boolean> {
  const marked = await tx.query(
    'update issued_token set told_at = $2 where id = $1 and told_at is null returning id',
    [token.id, at],
  );
  return marked.length > 0;
}

function connectionOf({ connection: id, environmentId }: Token): ConnectionRef {
  return { id, environmentId };
}

function unusedSince(provider: Integration['provider'], at: Date): Date | undefined {
  const days = provider.refresh_token_lifetime.unused_days;
  return days === undefined ? undefined : new Date(at.getTime() - days * 24 * 3600_000);
}

function hashOf(what: string, account: Account): Buffer {
  return createHash('sha256')
    .update(JSON.stringify([what, account.id]))
    .digest();
}
