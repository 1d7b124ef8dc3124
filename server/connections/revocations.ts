import { type RevocationAnswer, revokeToken } from '../auth-modes/revocation.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import type { Fetch } from '../auth-modes/token-response.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { IntegrationReading } from '../integrations/store.ts';
import { eachInTurn } from '../jobs/each.ts';
import type { Job } from '../jobs/jobs.ts';
import type { Logger } from '../log.ts';
import { withSandbox } from '../providers/sandbox.ts';
import { TemplateError } from '../providers/template-grammar.ts';
import { forgetTokens } from './grants.ts';
import { sendingMs, sweepExchanges } from './revocation-lock.ts';
import {
  forgetRevocation,
  isTooOld,
  longestWaitMs,
  noteAttempt,
  outcomeOf,
  putOffUnreadable,
  type Revocation,
  type RevocationOutcome,
  takeRevocation,
} from './revocation-queue.ts';
import { UnreadableNote } from './revocation-store.ts';

/**
 * Grants of deleted connections, ended at their provider.
 *
 * Owns: that each is sent until the provider has answered or three days have passed. Does not own: whether a deletion
 * wants one (`disconnect.ts`), whether it may still be sent (`revocation-queue.ts`), the protocol
 * (`auth-modes/revocation.ts`), what ends together (`revocation-lock.ts`).
 */
export type RevocationDeps = {
  db: Db;
  reading: IntegrationReading;
  fetchFor: (of: { isTest: boolean }) => Fetch;
  log: Logger;
  now?: () => Date;
};

const firstWaitMs = 60_000;
/** A provider that does not answer in it may still end the grant until `sendingMs` have passed. */
const requestMs = sendingMs / 2;
const maxAtOnce = 100;

/**
 * Sends a revocation, a token after the other until one has ended the grant or all are dead, unless a living connection
 * has come to need the grant since it was noted: then it is dropped, with an event. A failure leaves what is not done to
 * the job. `signal` ends the wait for the provider. Throws `UnreadableNote`.
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

/** Sends what is due, and what an outage had put off. */
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
            if (error instanceof UnreadableNote) await putOffUnreadable(db, { id, now: now() });
            // The next run takes it again, after those that were due before.
            else await db.query('update revocation set next_at = $2 where id = $1', [id, now()]);
            throw error;
          }
        },
      });
    },
  };
}

/** Without a fault the grant has ended; else `left` are the tokens that the provider has not judged. */
type Sent = { fault: TokenFault; left: string[] } | { fault: undefined };

async function send(
  deps: RevocationDeps,
  { taken, signal }: { taken: Revocation; signal: AbortSignal },
): Promise<Sent> {
  for (const [index, token] of taken.tokens.entries()) {
    const answer = await revoke(deps, { taken, token, signal });
    if (!answer.ok) return { fault: answer.fault, left: taken.tokens.slice(index) };
    if (answer.was === 'ended') break;
  }
  return { fault: undefined };
}

async function revoke(
  { reading, fetchFor, log }: RevocationDeps,
  { taken, token, signal }: { taken: Revocation; token: string; signal: AbortSignal },
): Promise<RevocationAnswer> {
  const { catalog, testClient } = reading;
  const { provider, isTest, client, values } = taken;
  const definition = catalog.find(provider);
  // Test tokens go to the sandbox or nowhere.
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
    log.warn({ err: error }, 'a revocation cannot be sent');
    return {
      ok: false,
      fault: { kind: 'protocol', error: error instanceof AppError ? error.code : 'invalid_address' },
    };
  }
}

async function settle(
  { db, reading, now = () => new Date() }: RevocationDeps,
  { taken, ...sent }: { taken: Revocation } & Sent,
): Promise<RevocationOutcome> {
  const { unit, accountId, attempts } = taken;
  const { fault } = sent;
  if (fault === undefined) {
    await db.transaction(async (tx) => {
      const isGone = await forgetRevocation(tx, { taken, type: 'connection.revoked' });
      if (isGone && unit !== null && accountId !== null) await forgetTokens(tx, { unit, accountId });
    });
    return 'done';
  }
  const evidence = {
    ...(fault.error !== undefined && { error: fault.error }),
    ...(fault.httpStatus !== undefined && { http_status: fault.httpStatus }),
  };
  if (isTooOld(taken, now())) {
    const more = outcomeOf({ evidence, attempts });
    await db.transaction((tx) => forgetRevocation(tx, { taken, type: 'connection.revoke_failed', more }));
    return 'failed';
  }
  const ownWaitMs = Math.min(firstWaitMs * 2 ** (attempts - 1), longestWaitMs);
  const waitMs = Math.max(ownWaitMs, Math.min(fault.retryAfterMs ?? 0, longestWaitMs));
  await noteAttempt(db, {
    taken,
    left: sent.left,
    evidence,
    isUnderWay: isUnderWay(fault),
    vault: reading.vault,
    nextAt: new Date(now().getTime() + waitMs),
  });
  return 'queued';
}

/** Whether the provider may still be at it. */
function isUnderWay({ error }: TokenFault): boolean {
  return error === 'network' || error === 'timeout';
}
