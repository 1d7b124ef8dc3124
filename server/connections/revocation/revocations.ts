/**
 * Sends the revocations of deleted connections' grants to their providers.
 *
 * Owns: requests until the provider has answered or three days have passed. Does not own: whether a deletion revokes
 * the grant (`disconnect.ts`), whether a revocation may still be sent (`revocation-queue.ts`), the protocol
 * (`auth-modes/revocation.ts`), which grants end together (`revocation-lock.ts`).
 */
import { type RevocationAnswer, revokeToken } from '../../auth-modes/revocation.ts';
import type { TokenFault } from '../../auth-modes/token-fault.ts';
import type { Db } from '../../db/pool.ts';
import { AppError } from '../../errors.ts';
import type { IntegrationReading } from '../../integrations/store.ts';
import { eachInTurn, type Job } from '../../jobs/jobs.ts';
import type { Logger } from '../../log.ts';
import type { Fetch } from '../../outbound/outbound.ts';
import { catalogOfEnvironment } from '../../providers/environment-definitions.ts';
import { withSandbox } from '../../providers/sandbox.ts';
import { TemplateError } from '../../providers/template.ts';
import { forgetTokens } from './issued-tokens.ts';
import { sendingMs, sweepExchanges } from './revocation-lock.ts';
import {
  endRevocation,
  isTooOld,
  longestWaitMs,
  putOffUnreadable,
  type Revocation,
  type RevocationOutcome,
  recordAttempt,
  takeRevocation,
  UnreadableRevocation,
} from './revocation-queue.ts';

export type RevocationDeps = {
  db: Db;
  reading: IntegrationReading;
  fetchFor: (of: { isTest: boolean }) => Fetch;
  log: Logger;
  now?: () => Date;
};

const firstWaitMs = 60_000;
/** After this timeout the provider may still end the grant until `sendingMs` have passed. */
const requestMs = sendingMs / 2;
const maxAtOnce = 100;

/**
 * Sends a revocation, one token after the other until one has ended the grant or all are invalid. Drops it, with an
 * event, if a living connection needs the grant now. After a failure the job sends the remaining tokens.
 * `signal` ends the wait for the provider. Throws `UnreadableRevocation`.
 */
export async function sendRevocation(
  deps: RevocationDeps,
  { id, signal }: { id: number; signal: AbortSignal },
): Promise<RevocationOutcome> {
  const taken = await takeRevocation(deps.db, {
    id,
    reading: deps.reading,
    now: deps.now ?? (() => new Date()),
  });
  if (typeof taken === 'string') return taken;
  const sent = await send(deps, { taken, signal });
  return settle(deps, { taken, ...sent });
}

/** Sends the due revocations and deletes expired exchanges. */
export function revocationJob(deps: RevocationDeps): Job<Record<string, never>> {
  const { db, log, now = () => new Date() } = deps;
  return {
    name: 'connections.revocations',
    async run(_, stopping) {
      await sweepExchanges(db);
      const due = await db.query<{ id: number }>(
        'select id from revocation where next_at <= $1 order by next_at limit $2',
        [now(), maxAtOnce],
      );
      await eachInTurn(due, {
        job: 'connections.revocations',
        log,
        signal: stopping,
        async work({ id }) {
          const signal = AbortSignal.any([stopping, AbortSignal.timeout(requestMs)]);
          try {
            await sendRevocation(deps, { id, signal });
          } catch (error) {
            if (error instanceof UnreadableRevocation) await putOffUnreadable(db, { id, now: now() });
            // The next run takes it again, after all that were due earlier.
            else await db.query('update revocation set next_at = $2 where id = $1', [id, now()]);
            throw error;
          }
        },
      });
    },
  };
}

/** Without a fault the grant has ended; else `left` has the tokens that the provider has not judged. */
type SendResult = { fault: TokenFault; left: string[] } | { fault: undefined };

async function send(
  deps: RevocationDeps,
  { taken, signal }: { taken: Revocation; signal: AbortSignal },
): Promise<SendResult> {
  const { tokens } = taken.secrets;
  for (const [index, token] of tokens.entries()) {
    const answer = await revoke(deps, { taken, token, signal });
    if (!answer.ok) return { fault: answer.fault, left: tokens.slice(index) };
    if (answer.was === 'ended') break;
  }
  return { fault: undefined };
}

async function revoke(
  { db, reading, fetchFor, log }: RevocationDeps,
  { taken, token, signal }: { taken: Revocation; token: string; signal: AbortSignal },
): Promise<RevocationAnswer> {
  const { catalog, testClient } = reading;
  const { provider, isTest, client, values } = taken.secrets;
  const { environmentId } = taken;
  const known = await catalogOfEnvironment(db, { catalog, environmentId, names: [provider] });
  const definition = known.find(provider);
  // Test tokens go only to the sandbox.
  if (definition === undefined || (isTest && testClient === undefined)) {
    return { ok: false, fault: { kind: 'transient', error: 'provider_unavailable' } };
  }
  try {
    return await revokeToken({
      definition: isTest && testClient ? withSandbox(definition, testClient.url) : definition,
      client: { ...client, scopes: [] },
      values,
      token,
      fetch: fetchFor({ isTest }),
      signal,
    });
  } catch (error) {
    if (!(error instanceof AppError || error instanceof TemplateError)) throw error;
    log.warn({ err: error }, 'a revocation request cannot be sent');
    return {
      ok: false,
      fault: { kind: 'protocol', error: error instanceof AppError ? error.code : 'invalid_address' },
    };
  }
}

async function settle(
  { db, reading, now = () => new Date() }: RevocationDeps,
  { taken, ...sent }: { taken: Revocation } & SendResult,
): Promise<RevocationOutcome> {
  const { unit, accountId } = taken;
  const { fault } = sent;
  if (fault === undefined) {
    await db.transaction(async (tx) => {
      const isEnded = await endRevocation(tx, { taken, type: 'connection.revoked' });
      if (isEnded && unit !== null && accountId !== null) await forgetTokens(tx, { unit, accountId });
    });
    return 'done';
  }
  const evidence = {
    ...(fault.error !== undefined && { error: fault.error }),
    ...(fault.httpStatus !== undefined && { http_status: fault.httpStatus }),
  };
  if (isTooOld(taken, now())) {
    const type = 'connection.revoke_failed';
    await db.transaction((tx) => endRevocation(tx, { taken, type, evidence }));
    return 'failed';
  }
  const ownWaitMs = Math.min(firstWaitMs * 2 ** (taken.attempts - 1), longestWaitMs);
  const waitMs = Math.max(ownWaitMs, Math.min(fault.retryAfterMs ?? 0, longestWaitMs));
  await recordAttempt(db, {
    taken,
    left: sent.left,
    evidence,
    isUnderWay: isUnderWay(fault),
    vault: reading.vault,
    nextAt: new Date(now().getTime() + waitMs),
  });
  return 'queued';
}

/** The provider may still carry out the request. */
function isUnderWay({ error }: TokenFault): boolean {
  return error === 'network' || error === 'timeout';
}
