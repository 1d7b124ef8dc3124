import { setTimeout as wait } from 'node:timers/promises';
import { revocationUnit } from '../auth-modes/revocation.ts';
import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import type { Integration, IntegrationReading } from '../integrations/store.ts';
import { withSandbox } from '../providers/sandbox.ts';

/**
 * What a revocation at a provider ends along with the token that it names.
 *
 * Owns: which connections share a unit, in whatever environment; the order between the revocations of a unit and the
 * grants that come to be in it. Does not own: when and how a revocation is sent (`revocations.ts`).
 */

/** Another connection that a revocation ends, or may end where one of both accounts is not known. */
export type Sharer = { id: number; environmentId: number; isCertain: boolean; grantedAt: Date };

/**
 * How long a revocation holds up exchanges, from when it began: until its answer has come, and where none comes, as
 * long as the provider may still carry it out. After it the node that sends is taken to be lost.
 */
export const sendingMs = 20_000;
/** How long an exchange is believed to go on whose node is not heard of again. */
const exchangeMs = 90_000;
const pollMs = 50;

/** Undefined where a token is revoked alone, or cannot be revoked. */
export function unitOf({ provider, client }: Pick<Integration, 'provider' | 'client'>): string | undefined {
  // A test integration has no client while the sandbox is off.
  return client && revocationUnit(provider, client.clientId);
}

/**
 * Until the transaction ends, nobody else decides about the unit: of connections that are deleted at once, the last
 * one sees that it is. Take it before the lock of any connection.
 */
export async function lockUnit(tx: Tx, unit: string): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('revocation ' || $1, 0))`, [unit]);
}

/**
 * The living connections of the unit, in any environment, that would lose access with the account's grant: those of
 * the account, and where an account is not known, those that may be of it. What needs its user anyway loses nothing.
 */
export async function findSharers(
  q: Queryable,
  { unit, accountId, reading }: { unit: string; accountId: string | undefined; reading: IntegrationReading },
): Promise<Sharer[]> {
  return q.query<Sharer>(
    `select
       id, environment_id as "environmentId", coalesce(account_id = $2, false) as "isCertain",
       granted_at as "grantedAt"
     from connection
     where integration_id = any($1)
       and deleted_at is null
       and status <> 'needs_reauth'
       and ($2::text is null or account_id is null or account_id = $2)
     order by id`,
    [await integrationsOf(q, { unit, reading }), accountId ?? null],
  );
}

/**
 * Runs `work`, which exchanges a code for tokens and saves them, while no revocation of the unit is under way: the
 * provider would end the new grant along with the old one. Revocations that come up wait for its end.
 */
export async function whileExchanging<T>(
  db: Db,
  { integration, now }: { integration: Pick<Integration, 'provider' | 'client'>; now: () => Date },
  work: () => Promise<T>,
): Promise<T> {
  const unit = unitOf(integration);
  if (unit === undefined) return work();
  const id = await db.transaction(async (tx) => {
    await lockUnit(tx, unit);
    const [row] = await tx.query<{ id: number }>(
      'insert into exchange (unit, expires_at) values ($1, $2) returning id',
      [unit, new Date(now().getTime() + exchangeMs)],
    );
    return row?.id;
  });
  try {
    // None begins from here on. By a clock that is ahead, one may seem to go on for longer than it can.
    const giveUpAt = performance.now() + sendingMs;
    while (performance.now() < giveUpAt && (await isRevoking(db, { unit, now: now() }))) await wait(pollMs);
    return await work();
  } finally {
    // What was saved stays saved: a mark that cannot be taken away expires.
    await db.query('delete from exchange where id = $1', [id]).catch(() => {});
  }
}

/** Whether a code is being exchanged in the unit; its lock is held. */
export async function isExchanging(tx: Tx, { unit, now }: { unit: string; now: Date }): Promise<boolean> {
  const found = await tx.query('select from exchange where unit = $1 and expires_at > $2 limit 1', [
    unit,
    now,
  ]);
  return found.length > 0;
}

/** Forgets the exchanges of nodes that died in the middle. */
export async function sweepExchanges(db: Db, now: Date): Promise<void> {
  await db.query('delete from exchange where expires_at <= $1', [now]);
}

async function isRevoking(q: Queryable, { unit, now }: { unit: string; now: Date }): Promise<boolean> {
  const found = await q.query('select from revocation where unit = $1 and sending_until > $2 limit 1', [
    unit,
    now,
  ]);
  return first(found) !== undefined;
}

/**
 * The integrations of all environments whose grants end together. A unit ends in the client ID or, for a project, in
 * its beginning: real ones are found by that in the index, test ones by their provider.
 */
async function integrationsOf(
  q: Queryable,
  { unit, reading }: { unit: string; reading: IntegrationReading },
): Promise<number[]> {
  const { catalog, testClient } = reading;
  const testProviders = catalog.list().filter((definition) => {
    if (testClient === undefined || definition.sandbox === undefined) return false;
    return revocationUnit(withSandbox(definition, testClient.url), testClient.clientId) === unit;
  });
  const beginning = unit.slice(unit.lastIndexOf(' ') + 1);
  const rows = await q.query<{ id: number; provider: string; clientId: string | null }>(
    `select id, provider, client_id as "clientId"
     from integration
     where not is_test and client_id collate "C" >= $1 and client_id collate "C" < $2
     union all
     select id, provider, null
     from integration
     where is_test and provider = any($3)`,
    [beginning, `${beginning}\u{10ffff}`, testProviders.map(({ name }) => name)],
  );
  return rows
    .filter(({ provider, clientId }) => {
      const definition = catalog.find(provider);
      return clientId === null || (definition && revocationUnit(definition, clientId) === unit);
    })
    .map(({ id }) => id);
}
