import { setTimeout as wait } from 'node:timers/promises';
import { type Credentials, ownClientOf } from '../auth-modes/mode.ts';
import { revocationUnit } from '../auth-modes/revocation.ts';
import { type Db, first, type Queryable, type Tx } from '../db/pool.ts';
import type { Integration, OAuthClient } from '../integrations/store.ts';

/**
 * What a revocation at a provider ends along with the token that it names.
 *
 * Owns: the unit of a grant, which is that of the client that it was given to; the order between the revocations of a
 * unit and the grants that come to be in it. Does not own: which connections share a unit (`shared-grants.ts`), when
 * and how a revocation is sent (`revocations.ts`).
 */

/**
 * How long a revocation holds up exchanges, from when it began: until its answer has come, and where none comes, as
 * long as the provider may still carry it out. After it the node that sends is taken to be lost. This and the next are
 * by the database's clock: nodes must not differ about them.
 */
export const sendingMs = 20_000;
/** For how long an exchange counts as under way when its node has stopped responding. */
const exchangeMs = 90_000;
const pollMs = 50;

type Of = Pick<Integration, 'provider' | 'client'>;

/** Of a connection's grant. Undefined where a token is revoked alone, or cannot be revoked. */
export function unitOf(credentials: Credentials, integration: Of): string | undefined {
  return unitOfClient(integration, ownClientOf(credentials));
}

function unitOfClient({ provider, client }: Of, own: OAuthClient | undefined): string | undefined {
  // A test integration has no client while the sandbox is off.
  return client && revocationUnit(provider, (own ?? client).clientId);
}

/**
 * Until the transaction ends, nobody else decides about the unit: of connections that are deleted at once, the last
 * one sees that it is. Take it before the lock of any connection.
 */
export async function lockUnit(tx: Tx, unit: string): Promise<void> {
  await tx.query(`select pg_advisory_xact_lock(hashtextextended('revocation ' || $1, 0))`, [unit]);
}

/**
 * Runs `work`, which exchanges a code for tokens and saves them, while no revocation of the unit is under way: the
 * provider would end the new grant along with the old one. Revocations that come up wait for its end. `ownClient` is
 * the one that the end user brought, in place of the integration's.
 */
export async function whileExchanging<T>(
  db: Db,
  { integration, ownClient }: { integration: Of; ownClient: OAuthClient | undefined },
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
