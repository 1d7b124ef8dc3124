import { createHash } from 'node:crypto';
import { revocationUnit } from '../auth-modes/revocation.ts';
import type { Db, Queryable, Tx } from '../db/pool.ts';
import type { Integration } from '../integrations/store.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import type { ConnectionHead } from './store.ts';
import { isNear, storeSlots, tellNear, tellNext } from './token-slots.ts';

/**
 * How many refresh tokens of one account and client are alive, where the provider drops the oldest without a word.
 *
 * Owns: the table `issued_token`. Does not own: getting or revoking tokens, what is said of a count (`token-slots.ts`).
 *
 * A place is taken by each token issued at or after the oldest one that a living connection needs. One that was
 * superseded earlier is dropped before any that is needed, so it does no harm; a later one is in between.
 */

const slotsJobName = 'connections.token-slots';

type Account = { id: string };
/** Of the oldest that takes a place the connection is known, since one needs it. */
type Token = { id: number; connection: number; environmentId: number };

/**
 * Notes a refresh token that the provider has just issued, and tells of an account that comes near the limit (once
 * each time it does) and of the connection that the next token would end (once per token). `connection` is the
 * row that holds it; undefined for a token that came and was not kept, which takes a place all the same. `wasDead`
 * says that the token it replaces died before. Nothing is noted where the provider has no limit or no name for the
 * account.
 *
 * Call it in the transaction that stores the token, as its last statement but for writes that lock nothing.
 */
export async function noteIssuedToken(
  tx: Tx,
  {
    integration,
    account,
    connection,
    wasDead,
    at,
  }: {
    integration: Pick<Integration, 'provider' | 'client'>;
    account: Account | undefined;
    connection: Pick<ConnectionHead, 'id' | 'environmentId'> | undefined;
    wasDead: boolean;
    at: Date;
  },
): Promise<void> {
  const { provider, client } = integration;
  const limit = provider.refresh_token_lifetime.live_per_account;
  if (limit === undefined || account === undefined || client === undefined) return;
  const holder = hashOf(`${provider.token?.url} ${client.clientId}`, account);
  const unit = revocationUnit(provider, client.clientId);
  await lockHolder(tx, holder);
  const usedBefore = (await listPlaces(tx, holder)).length;
  // Older than any that somebody comes to need.
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
  await forgetHarmless(tx, { holder, unusedSince: unusedSince(provider, at) });
  const places = await dropOldest(tx, { holder, limit });
  const slots = { used: places.length, limit };
  if (connection !== undefined) await storeSlots(tx, { id: connection.id, slots });
  const [oldest] = places;
  if (oldest === undefined) return;
  if (!isNear({ used: usedBefore, limit }) && isNear(slots)) {
    await tellNear(tx, { place: connection ?? placeOf(oldest), slots });
  }
  if (slots.used >= limit && (await isNews(tx, { token: oldest, at }))) {
    await tellNext(tx, { place: placeOf(oldest), slots });
  }
}

/** Forgets every token of the account in the unit: the provider has revoked them together. */
export async function forgetTokens(
  tx: Queryable,
  { unit, accountId }: { unit: string; accountId: string },
): Promise<void> {
  await tx.query('delete from issued_token where unit_holder = $1', [hashOf(unit, { id: accountId })]);
}

/** Brings what connections say of their account's tokens up to date, a connection at a time; how many changed. */
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
    const slots = { used: (await listPlaces(db, holder)).length, limit };
    const stale = await db.query<{ id: number }>(
      `select connection.id
       from connection
       join issued_token on issued_token.connection = connection.id and issued_token.superseded_at is null
       where issued_token.holder = $1
         and connection.deleted_at is null
         and connection.token_slots is distinct from $2::jsonb
       order by connection.id`,
      [holder, isNear(slots) ? JSON.stringify(slots) : null],
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
 * Forgets the tokens of accounts of which no connection holds one any more: whatever they get next is younger, so that
 * these do no harm. Looks at so many accounts after the one given; the last it saw, or undefined where none is left.
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

/** Of `seen.holder`, the tokens that a connection holds. */
const heldBy = `issued_token as held
  join connection on connection.id = held.connection
  where held.holder = seen.holder and held.superseded_at is null and connection.account_id is not null`;

/** Accounts whose tokens one run looks at. */
const maxSwept = 500;

/**
 * Keeps the warnings of accounts near the limit true: others of the account connect, reconnect and leave. Forgets the
 * tokens of those that are gone.
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

/** Until the transaction ends, nobody else counts the tokens of the account. No connection is locked under it. */
async function lockHolder(tx: Tx, holder: Buffer): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('tokens ' || $1, 0))`, [
    holder.toString('hex'),
  ]);
}

/**
 * The tokens that take a place, oldest first: from the first one on that a living connection needs. The token of a
 * connection that needs its user died with it. A connection without an account was deleted, or got its token by import.
 */
async function listPlaces(q: Queryable, holder: Buffer): Promise<Token[]> {
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

/** Beyond the limit the provider has dropped the oldest. The places that are left. */
async function dropOldest(tx: Tx, { holder, limit }: { holder: Buffer; limit: number }): Promise<Token[]> {
  const places = await listPlaces(tx, holder);
  const dropped = places.slice(0, Math.max(0, places.length - limit)).map(({ id }) => id);
  if (dropped.length === 0) return places;
  await tx.query('delete from issued_token where id = any($1)', [dropped]);
  return listPlaces(tx, holder);
}

/** Tokens older than all that a connection may come to need again, and those that have died of disuse. */
async function forgetHarmless(
  tx: Tx,
  { holder, unusedSince }: { holder: Buffer; unusedSince: Date | undefined },
): Promise<void> {
  await tx.query(
    `with known as (
       select
         issued_token.id,
         issued_token.issued_at,
         coalesce(issued_token.superseded_at, connection.deleted_at) as unused_since,
         issued_token.superseded_at is null and connection.account_id is not null as is_held
       from issued_token
       left join connection on connection.id = issued_token.connection
       where issued_token.holder = $1
     ), oldest as (
       select issued_at, id from known where is_held order by issued_at, id limit 1
     )
     delete from issued_token
     using known
     left join oldest on true
     where issued_token.id = known.id
       and ((known.issued_at, known.id) < (oldest.issued_at, oldest.id) or known.unused_since < $2)`,
    [holder, unusedSince ?? null],
  );
}

/** Whether the token was not told of as the next to go. */
async function isNews(tx: Tx, { token, at }: { token: Token; at: Date }): Promise<boolean> {
  const told = await tx.query(
    'update issued_token set told_at = $2 where id = $1 and told_at is null returning id',
    [token.id, at],
  );
  return told.length > 0;
}

function placeOf({ connection: id, environmentId }: Token): Pick<ConnectionHead, 'id' | 'environmentId'> {
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
