import { setTimeout as pause } from 'node:timers/promises';
import { renewalOf } from '../auth-modes/mode.ts';
import type { Tokens } from '../auth-modes/token-request.ts';
import { type Db, mayPass, type Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';
import { missingScopes } from '../providers/scopes.ts';
import type { Vault } from '../vault.ts';
import { keepCandidate, keptAfter, lockGrant, putSuccessor, sealKept } from './candidates.ts';
import { connectionEvent } from './event.ts';
import { refusalOf } from './health.ts';
import { endLease, type Lease, settleLease } from './lease.ts';
import type { ConnectionReader, LiveConnection } from './reader.ts';
import type { Renewable } from './refresh-request.ts';
import { revokeLate } from './revocation-notes.ts';
import { swapCredentials } from './save.ts';
import type { States } from './states.ts';

/** The provider's answer to a refresh, and the refresh token that was used for it. */
export type Given = { lease: Lease; tokens: Tokens; used: string };

/** How long an answer is kept in memory for a database that does not take it: it may be the only token that is good. */
const longestStoreMs = 24 * 3_600_000;
/** Between two tries. Less than `storeMs` of `refresh.ts`, for which a node that takes over lets this one go first. */
const longestPauseMs = 2_000;
/** Until the next attempt where an answer came that the database cannot hold. */
const unstorableMs = 60_000;

/**
 * How an answer gets into the connection, whatever happened to it meanwhile: no refresh token that a provider gave is
 * thrown away while the grant lives.
 *
 * Tries again while the database is away, since the provider may have taken the old token for good. Answers the
 * connection as it is then; throws `connection_needs_reauth` where another word than the provider's answer ended it.
 */
export function createRefreshStore({
  db,
  reader,
  states,
  vault,
  now,
}: {
  db: Db;
  reader: Pick<ConnectionReader, 'reread'>;
  states: Pick<States, 'recovered'>;
  vault: Vault;
  now: () => Date;
}): (connection: Renewable, given: Given) => Promise<LiveConnection> {
  return async function store(connection, given) {
    try {
      await persist(() => db.transaction((tx) => storeAll(tx, { connection, ...given })));
    } catch (error) {
      if (!mayPass(error)) {
        await persist(() => db.transaction((tx) => storeToken(tx, { connection, ...given }))).catch(() => {});
      }
      throw error;
    }
    const current = await persist(() => reader.reread(connection));
    const refusal = refusalOf(current, current.integration.provider);
    if (refusal !== undefined) throw refusal;
    return current;
  };

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
    await states.recovered(tx, connection);
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
    await endLease(tx, { connection, lease, isReplyOwed: false, failures, notBefore });
    if (current === undefined) return revokeLate(tx, { connection, token, vault, at: now() });
    if (token === undefined || token === current.refreshToken) return;
    // A reconnect that brought no token of its own kept the one that is used up now: to send it again may end the
    // grant.
    if (current.refreshToken === used) await putSuccessor(tx, { connection, token, locked: current });
    else await keepCandidate(tx, { connection, token, kept: current.kept });
  }
}

/** Does `work` again while only the database's state is in its way; also after a commit whose outcome is unknown. */
async function persist<T>(work: () => Promise<T>): Promise<T> {
  const giveUpAt = performance.now() + longestStoreMs;
  for (let pauseMs = 50; ; pauseMs = Math.min(pauseMs * 2, longestPauseMs)) {
    try {
      return await work();
    } catch (error) {
      if (!mayPass(error) || performance.now() > giveUpAt) throw error;
      await pause(pauseMs);
    }
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
