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

/**
 * How long a revocation holds up exchanges, from when it began: until its answer has come, and where none comes, as
 * long as the provider may still carry it out. After it the node that sends is taken to be lost. This and the next are
 * by the database's clock: nodes must not differ about them.
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
 * Whose access is looked for: the account's whose grant may end, where it is known. `exceptId` is the connection that
 * asks.
 */
type Asked = {
  unit: string;
  accountId: string | undefined;
  exceptId?: number | undefined;
  reading: IntegrationReading;
};

/** Living; what needs its user anyway loses nothing. */
const living = `integration_id = any($1) and deleted_at is null and status <> 'needs_reauth'`;

/**
 * Whether a living connection of the unit, in any environment, would lose access with the account's grant: one of the
 * account, or where an account is not known, one that may be of it. Ends at the first that it finds.
 */
export async function hasSharers(
  q: Queryable,
  { unit, accountId, exceptId, reading }: Asked,
): Promise<boolean> {
  const others = `select from connection where ${living} and id is distinct from $2`;
  const integrations = await integrationsOf(q, { unit, reading });
  // An account has an index, which one condition with `or` would not use.
  const [row] = await (accountId === undefined
    ? q.query<{ found: boolean }>(`select exists (${others}) as found`, [integrations, exceptId ?? null])
    : q.query<{ found: boolean }>(
        `select exists (${others} and account_id = $3) or exists (${others} and account_id is null) as found`,
        [integrations, exceptId ?? null, accountId],
      ));
  return row?.found === true;
}

/** How many `hasSharers` looks for, and which of them are known to be of the account, by ID. */
export async function countSharers(
  q: Queryable,
  { unit, accountId, exceptId, reading }: Asked,
): Promise<{ count: number; certain: { id: number; environmentId: number }[] }> {
  const integrations = await integrationsOf(q, { unit, reading });
  const given = [integrations, exceptId ?? null];
  const count = async (condition: string) => {
    const [row] = await q.query<{ count: number }>(
      `select count(*) as count from connection where ${living} and id is distinct from $2 ${condition}`,
      given,
    );
    return row?.count ?? 0;
  };
  if (accountId === undefined) return { count: await count(''), certain: [] };
  const certain = await q.query<{ id: number; environmentId: number }>(
    `select id, environment_id as "environmentId"
     from connection
     where ${living} and id is distinct from $2 and account_id = $3
     order by id`,
    [...given, accountId],
  );
  return { count: certain.length + (await count('and account_id is null')), certain };
}

/** Whether a living connection of the account in the unit has a grant that was given after `since`. */
export async function hasSharersSince(
  q: Queryable,
  {
    unit,
    accountId,
    since,
    reading,
  }: { unit: string; accountId: string; since: Date; reading: IntegrationReading },
): Promise<boolean> {
  const [row] = await q.query<{ found: boolean }>(
    `select exists (
       select from connection where ${living} and account_id = $2 and granted_at > $3
     ) as found`,
    [await integrationsOf(q, { unit, reading }), accountId, since],
  );
  return row?.found === true;
}

/**
 * Runs `work`, which exchanges a code for tokens and saves them, while no revocation of the unit is under way: the
 * provider would end the new grant along with the old one. Revocations that come up wait for its end.
 */
export async function whileExchanging<T>(
  db: Db,
  integration: Pick<Integration, 'provider' | 'client'>,
  work: () => Promise<T>,
): Promise<T> {
  const unit = unitOf(integration);
  if (unit === undefined) return work();
  const id = await db.transaction(async (tx) => {
    await lockUnit(tx, unit);
    const [row] = await tx.query<{ id: number }>(
      `insert into exchange (unit, expires_at)
       values ($1, clock_timestamp() + make_interval(secs => $2))
       returning id`,
      [unit, exchangeMs / 1000],
    );
    return row?.id;
  });
  try {
    // None begins from here on.
    while (await isRevoking(db, unit)) await wait(pollMs);
    return await work();
  } finally {
    // What was saved stays saved: a mark that cannot be taken away expires.
    await db.query('delete from exchange where id = $1', [id]).catch(() => {});
  }
}

/** Whether a code is being exchanged in the unit; its lock is held. */
export async function isExchanging(tx: Tx, unit: string): Promise<boolean> {
  const found = await tx.query(
    'select from exchange where unit = $1 and expires_at > clock_timestamp() limit 1',
    [unit],
  );
  return found.length > 0;
}

/** Forgets the exchanges of nodes that died in the middle. */
export async function sweepExchanges(db: Db): Promise<void> {
  await db.query('delete from exchange where expires_at <= clock_timestamp()');
}

async function isRevoking(q: Queryable, unit: string): Promise<boolean> {
  const found = await q.query(
    'select from revocation where unit = $1 and sending_until > clock_timestamp() limit 1',
    [unit],
  );
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
