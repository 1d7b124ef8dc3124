import { setTimeout as pause } from 'node:timers/promises';
import { renewalOf } from '../../auth-modes/modes.ts';
import type { Tokens } from '../../auth-modes/oauth2-request.ts';
import { type Db, mayPass, type Tx } from '../../db/pool.ts';
import { missingScopes } from '../../providers/scopes.ts';
import type { Vault } from '../../vault.ts';
import { healthToWire, missingScopesOf } from '../health/health.ts';
import type { StatusTransitions } from '../health/status-transitions.ts';
import { revokeLate } from '../revocation/revocation-queue.ts';
import type { LiveConnection } from '../store/reader.ts';
import { swapCredentials } from '../store/save.ts';
import { findHead, queueConnectionEvent } from '../store/store.ts';
import { endLease, type Lease, leaseMsOf, recordAnswer, settleLease, stretchLease } from './lease.ts';
import {
  keepRefreshToken,
  keptAfter,
  lockGrant,
  sealKept,
  storeSuccessor,
} from './previous-refresh-tokens.ts';
import type { Renewable } from './refresh-request.ts';

/** The provider's answer to a refresh, and the refresh token that was used. */
export type RefreshAnswer = { lease: Lease; tokens: Tokens; used: string };
/** `isStored`: by another try. Then the grant may have newer tokens, and this one must not add its own to them. */
type Attempt = RefreshAnswer & { isStored: () => boolean };

/** How long an answer stays in memory if the database does not store it: it may be the only valid token. */
const longestStoreMs = 24 * 3_600_000;
/**
 * The time limit of one try, which is also that of the check after it. Tries alternate between a fresh and a pooled
 * connection, because pooled connections fail after a failover, and a full server refuses fresh ones. So two tries
 * with their checks and pauses must take less than `storeMs` of `refresh.ts`, the time that a node waits before it
 * takes over.
 */
const tryMs = 1_000;
const longestPauseMs = 400;
/**
 * The time limit of the try that runs beside the others after the first failure, for a database that is slow but responds.
 * On an overloaded machine the others alone stored an answer after up to 84 s.
 */
const patientTryMs = 10_000;
/**
 * After so many failed tries while the database responds, every other pair of tries stores only the refresh token.
 */
const maxRefusals = 5;
/** The pause after an answer that the database cannot store. */
const unstorableMs = 60_000;

/**
 * Stores the answer to a refresh, whatever happened to the connection since: no refresh token is lost while its grant
 * lives.
 *
 * Retries while the database is unavailable, also after a commit with an unknown outcome, because the provider may
 * have invalidated the old token. Extends the lease meanwhile. If the whole answer cannot be stored, stores the
 * refresh token and then throws the reason.
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
}): (connection: Renewable, given: RefreshAnswer) => Promise<void> {
  return async function store(connection, given) {
    const giveUpAt = performance.now() + longestStoreMs;
    let refusal: unknown;
    let isStored = false;
    const answer = { connection, ...given, isStored: () => isStored };
    let patient: Promise<boolean> | undefined;
    for (let tries = 1, refusals = 0; ; tries += 1) {
      // Two tries each, so that both go over a fresh and a pooled connection.
      const isWhole = refusal === undefined || (mayPass(refusal) && tries % 4 < 2);
      const put = isWhole ? storeAll : storeToken;
      const [way, otherWay] =
        tries % 2 === 1 ? (['pooled', 'fresh'] as const) : (['fresh', 'pooled'] as const);
      try {
        await db.transactionWithin((tx) => put(tx, answer), { ms: tryMs, connection: way });
        const isComplete = isWhole || isStored;
        isStored = true;
        if (isComplete) return;
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
      if (refusal === undefined)
        patient ??= db
          .transactionWithin((tx) => storeAll(tx, answer), { ms: patientTryMs, connection: 'pooled' })
          .then(
            () => {
              isStored = true;
              return true;
            },
            () => {
              patient = undefined;
              return false;
            },
          );
      await Promise.race([patient, pause(Math.min(50 * 2 ** (tries - 1), longestPauseMs))]);
      if (isStored) return;
    }
    throw refusal;
  };

  /**
   * Whether the database executes a small statement. It extends the lease, so that no other node takes over without
   * the answer.
   */
  async function isLeaseHeld(
    connection: Renewable,
    { lease }: RefreshAnswer,
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
    { connection, ...given }: Attempt & { connection: Renewable },
  ): Promise<void> {
    const { lease, tokens, used, isStored } = given;
    const current = await lockGrant(tx, { connection, lease });
    if (isStored()) return;
    if (current?.version !== connection.credentialsVersion) return storeToken(tx, { connection, ...given });
    const previous = connection.credentials;
    const granted = tokens.scopes && [...tokens.scopes];
    const { provider } = connection.integration;
    await swapCredentials(tx, {
      current: connection,
      credentials: renewalOf(previous).after(tokens, { previous, secret: used }),
      grant: {
        accessExpiresAt: tokens.expiresAt,
        refreshExpiresAt: tokens.refreshExpiresAt,
        scopesGranted: granted,
        lacksScopes:
          granted && missingScopesOf({ ...connection, scopesGranted: granted }, provider).length > 0,
      },
      isUnproven: tokens.isUnproven === true,
      at: now(),
    });
    const left = keptAfter(connection, { lease, now: current.kept, used, given: tokens.refreshToken });
    await settleLease(tx, { connection, lease, keptTokens: sealKept(connection, left), at: now() });
    await transitions.recovered(tx, connection);
    if (granted) await reportLostScopes(tx, connection, granted);
  }

  /** Stores only the refresh token, if the other credentials are outdated or cannot be stored. */
  async function storeToken(
    tx: Tx,
    { connection, lease, tokens, used, isStored }: Attempt & { connection: LiveConnection },
  ): Promise<void> {
    const current = await lockGrant(tx, { connection, lease });
    if (isStored()) return;
    const token = tokens.refreshToken;
    const failures = lease.failures + 1;
    const notBefore = new Date(now().getTime() + unstorableMs);
    await recordAnswer(tx, { connection, lease });
    await endLease(tx, { connection, lease, isResponsePending: false, failures, notBefore });
    if (current === undefined) return revokeLate(tx, { connection, token, vault, at: now() });
    if (token === undefined || token === current.refreshToken) return;
    // A reconnect without a new refresh token kept the one that this refresh has used: to send it again may end the
    // grant.
    if (current.refreshToken === used) await storeSuccessor(tx, { connection, token, locked: current });
    else await keepRefreshToken(tx, { connection, token, kept: current.kept });
  }
}

async function reportLostScopes(tx: Tx, connection: LiveConnection, granted: string[]): Promise<void> {
  const { provider } = connection.integration;
  const before = connection.scopesGranted;
  const lost = before ? missingScopes(provider, { wanted: before, granted }) : [];
  if (lost.length === 0) return;
  const { state } = healthToWire((await findHead(tx, connection)) ?? connection, provider);
  await queueConnectionEvent(tx, connection, { type: 'connection.scopes_reduced', state, lost_scopes: lost });
}
