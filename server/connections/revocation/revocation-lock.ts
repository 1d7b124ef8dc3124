/**
 * Revocation units: the grants that a provider ends together when one token is revoked.
 *
 * Owns: the unit of a grant, which follows from its OAuth client; the table `exchange` and the order between the
 * revocations of a unit and its new grants. Does not own: which connections share a unit (`shared-grants.ts`), when
 * and how a revocation is sent (`revocations.ts`).
 */
import { setTimeout as wait } from 'node:timers/promises';
import { type Credentials, ownClientOf } from '../../auth-modes/modes.ts';
import { revocationUnit } from '../../auth-modes/revocation.ts';
import { type Db, first, type Queryable, type Tx } from '../../db/pool.ts';
import type { Integration, OAuthClient } from '../../integrations/store.ts';

/**
 * How long a revocation may block exchanges: until its response, and without a response, as long as the provider may
 * still carry it out. Then the sending node counts as lost. This time and the next are measured by the database's
 * clock, so that all nodes agree.
 */
export const sendingMs = 20_000;
/** How long an exchange counts as under way if its node stops responding. */
const exchangeMs = 90_000;
const pollMs = 50;

type UnitIntegration = Pick<Integration, 'provider' | 'client'>;

/** The unit of a connection's grant. Undefined if the provider revokes a token alone, or has no revocation. */
export function unitOf(credentials: Credentials, integration: UnitIntegration): string | undefined {
  return unitOfClient(integration, ownClientOf(credentials));
}

function unitOfClient(
  { provider, client }: UnitIntegration,
  own: OAuthClient | undefined,
): string | undefined {
  // A test integration has no client while the sandbox is off.
  return client && revocationUnit(provider, (own ?? client).clientId);
}

/**
 * Locks the unit until the transaction ends, so that of several connections deleted at the same time the last one is
 * recognized as the last. Call it before a lock of any connection.
 */
export async function lockUnit(tx: Tx, unit: string): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('revocation ' || $1, 0))`, [unit]);
}

/**
 * Runs `work`, which exchanges a code for tokens and saves them, while no revocation of the unit is under way: the
 * provider would end the new grant together with the old one. Later revocations wait until `work` ends. `ownClient`:
 * the end user's OAuth client, used instead of the integration's.
 */
export async function whileExchanging<T>(
  db: Db,
  { integration, ownClient }: { integration: UnitIntegration; ownClient: OAuthClient | undefined },
  work: () => Promise<T>,
): Promise<T> {
  const unit = unitOfClient(integration, ownClient);
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
    // From here on no revocation of the unit begins.
    while (await isRevoking(db, unit)) await wait(pollMs);
    return await work();
  } finally {
    // A failure here must not undo the saved connection. A row that cannot be deleted expires.
    await db.query('delete from exchange where id = $1', [id]).catch(() => {});
  }
}

/** Whether a code is being exchanged in the unit. The caller holds its lock. */
export async function isExchanging(tx: Tx, unit: string): Promise<boolean> {
  const found = await tx.query(
    'select from exchange where unit = $1 and expires_at > clock_timestamp() limit 1',
    [unit],
  );
  return found.length > 0;
}

/** Deletes the exchanges of crashed nodes. */
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
