import { setTimeout as pause } from 'node:timers/promises';
import { renewalOf } from '../auth-modes/mode.ts';
import type { Tokens } from '../auth-modes/token-request.ts';
import { type Db, mayPass, type Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { missingScopes } from '../providers/scopes.ts';
import type { Vault } from '../vault.ts';
import { connectionEvent } from './event.ts';
import { endLease, type Lease, noteAnswered, settleLease, stretchLease } from './lease.ts';
import { keepRefreshToken, keptAfter, lockGrant, putSuccessor, sealKept } from './previous-refresh-tokens.ts';
import type { LiveConnection } from './reader.ts';
import { leaseMsOf, type Renewable } from './refresh-request.ts';
import { revokeLate } from './revocation-store.ts';
import { swapCredentials } from './save.ts';
import type { StatusTransitions } from './status-transitions.ts';

/** The provider's answer to a refresh, and the refresh token that was used for it. */
export type Given = { lease: Lease; tokens: Tokens; used: string };

/** How long an answer is kept in memory for a database that does not take it: it may be the only token that is good. */
const longestStoreMs = 24 * 3_600_000;
/**
 * For one try, for the look that follows it, and between two: twice all three are less than `storeMs` of `refresh.ts`, for
 * which a node that takes over waits, since of two tries one goes over a fresh connection and one over a pooled one. One
 * of them may be all there is: the pooled ones lead nowhere after a failover, and fresh ones are refused by a server that is
 * full.
 */
const tryMs = 1_000;
const longestPauseMs = 400;
/** Every so many tries, one has more time once it has begun, for a database that is slow, not silent. */
const patientEach = 6;
const patientTryMs = 10_000;
/** Tries that failed while the database was there, after which the refresh token alone is tried in turn. */
const maxRefusals = 5;
/** Until the next attempt where an answer came that the database cannot hold. */
const unstorableMs = 60_000;

/**
 * How an answer gets into the connection, whatever happened to it meanwhile: no refresh token that a provider gave is
 * thrown away while the grant lives.
 *
 * Tries again while only the database's state is in the way, also after a commit whose outcome is unknown, since the
 * provider may have taken the old token for good; meanwhile the lease is extended where the database takes that. What
 * cannot be stored as it is, now or ever, is thrown once the refresh token is stored.
 */
export function createRefreshStore({
  db,
  transitions,
  vault,
  now,
  storeMs,
}: {
  db: Db;
  transitions: Pick<StatusTransitions, 'recovered'>;
  vault: Vault;
  now: () => Date;
  storeMs: number;
}): (connection: Renewable, given: Given) => Promise<void> {
  return async function store(connection, given) {
    const giveUpAt = performance.now() + longestStoreMs;
    let refusal: unknown;
    for (let tries = 1, refusals = 0; ; tries += 1) {
      // Two and two, so that either goes by both ways.
      const isWhole = refusal === undefined || (mayPass(refusal) && tries % 4 < 2);
      const put = isWhole ? storeAll : storeToken;
      const [way, otherWay] =
        tries % 2 === 1 ? (['pooled', 'fresh'] as const) : (['fresh', 'pooled'] as const);
      try {
        await db.transactionWithin((tx) => put(tx, { connection, ...given }), {
          ms: tries % patientEach === 0 ? patientTryMs : tryMs,
          connectMs: tryMs,
          connection: way,
        });
        if (isWhole) return;
        break;
      } catch (error) {
        if (performance.now() > giveUpAt) throw error;
        if (!mayPass(error)) {
          if (refusal !== undefined && !mayPass(refusal)) throw refusal;
          refusal = error;
          continue;
        }
        refusals = (await isLeaseHeld(connection, given, otherWay)) ? refusals + 1 : 0;
        if (refusals >= maxRefusals) refusal ??= error;
      }
      await pause(Math.min(50 * 2 ** (tries - 1), longestPauseMs));
    }
    throw refusal;
  };

  /** Whether the database takes a small statement; by it, nobody takes over who has no answer in hand. */
  async function isLeaseHeld(
    connection: Renewable,
    { lease }: Given,
    way: 'pooled' | 'fresh',
  ): Promise<boolean> {
    const extension = { connection, lease, forMs: leaseMsOf(connection, storeMs) };
    return db
      .transactionWithin((tx) => stretchLease(tx, extension), { ms: tryMs, connection: way })
      .then(
        () => true,
        () => false,
      );
  }

  async function storeAll(
    tx: Tx,
    { connection, ...given }: Given & { connection: Renewable },
  ): Promise<void> {
    const { lease, tokens, used } = given;
    const current = await lockGrant(tx, { connection, lease });
    if (current?.version !== connection.credentialsVersion) return storeToken(tx, { connection, ...given });
    const previous = connection.credentials;
    const granted = tokens.scopes && [...tokens.scopes];
    await swapCredentials(tx, {
      current: connection,
      credentials: renewalOf(previous).after(tokens, { previous, secret: used }),
      grant: {
        accessExpiresAt: tokens.expiresAt,
        refreshExpiresAt: tokens.refreshExpiresAt,
        scopesGranted: granted,
      },
      at: now(),
    });
    const left = keptAfter(connection, { lease, now: current.kept, used, given: tokens.refreshToken });
    await settleLease(tx, { connection, lease, keptTokens: sealKept(connection, left), at: now() });
    await transitions.recovered(tx, connection);
    if (granted) await tellLostScopes(tx, connection, granted);
  }

  /** The refresh token alone, where the rest is of no use or cannot be stored. */
  async function storeToken(
    tx: Tx,
    { connection, lease, tokens, used }: Given & { connection: LiveConnection },
  ): Promise<void> {
    const current = await lockGrant(tx, { connection, lease });
    const token = tokens.refreshToken;
    const failures = lease.failures + 1;
    const notBefore = new Date(now().getTime() + unstorableMs);
    await noteAnswered(tx, { connection, lease });
    await endLease(tx, { connection, lease, isResponsePending: false, failures, notBefore });
    if (current === undefined) return revokeLate(tx, { connection, token, vault, at: now() });
    if (token === undefined || token === current.refreshToken) return;
    // A reconnect that brought no token of its own kept the one that is used up now: to send it again may end the
    // grant.
    if (current.refreshToken === used) await putSuccessor(tx, { connection, token, locked: current });
    else await keepRefreshToken(tx, { connection, token, kept: current.kept });
  }
}

async function tellLostScopes(tx: Tx, connection: LiveConnection, granted: string[]): Promise<void> {
  const { provider } = connection.integration;
  const before = connection.scopesGranted;
  const lost = before ? missingScopes(provider, { wanted: before, granted }) : [];
  if (lost.length === 0) return;
  await queueEvent(tx, {
    environmentId: connection.environmentId,
    type: 'connection.scopes_reduced',
    data: { ...connectionEvent(connection), lost_scopes: lost },
  });
}
