import { revokeToken } from '../auth-modes/revocation.ts';
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
import {
  forgetRevocation,
  isTooOld,
  longestWaitMs,
  outcomeOf,
  putOffRevocation,
  type Revocation,
  type RevocationOutcome,
  takeRevocation,
} from './revocation-notes.ts';
import { sendingMs, sweepExchanges } from './revocation-unit.ts';

/**
 * Grants of deleted connections, ended at their provider.
 *
 * Owns: that each is sent until the provider has answered or three days have passed. Does not own: whether a deletion
 * wants one (`disconnect.ts`), whether it may still be sent (`revocation-notes.ts`), the protocol
 * (`auth-modes/revocation.ts`), what ends together (`revocation-unit.ts`).
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
const mostAtOnce = 100;

/**
 * Sends a revocation once, unless a living connection has come to need the grant since it was noted: then it is
 * dropped, with an event. A failure leaves it to the job. `signal` ends the wait for the provider.
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
  const fault = await send(deps, { taken, signal });
  return settle(deps, { taken, fault });
}

/** Sends what is due, and what an outage had put off. */
export function revocationJob(deps: RevocationDeps): Job<Record<string, never>> {
  const { db, log, now = () => new Date() } = deps;
  return {
    name: 'connections.revocations',
    async run(_, stopping) {
      await sweepExchanges(db, now());
      const due = await db.query<{ id: number }>(
        'select id from revocation where next_at <= $1 order by next_at limit $2',
        [now(), mostAtOnce],
      );
      await eachInTurn(due, {
        ...{ job: 'connections.revocations', log, signal: stopping },
        async work({ id }) {
          const signal = AbortSignal.any([stopping, AbortSignal.timeout(requestMs)]);
          try {
            await sendRevocation(deps, { id, signal });
          } catch (error) {
            await putOffRevocation(db, { id, now: now() });
            throw error;
          }
        },
      });
    },
  };
}

/** The fault, or undefined when the grant has ended. */
async function send(
  { reading, fetchFor, log }: RevocationDeps,
  { taken, signal }: { taken: Revocation; signal: AbortSignal },
): Promise<TokenFault | undefined> {
  const { catalog, testClient } = reading;
  const { provider, isTest, token, client, values } = taken;
  const definition = catalog.find(provider);
  // Test tokens go to the sandbox or nowhere.
  if (definition === undefined || (isTest && testClient === undefined)) {
    return { kind: 'transient', error: 'provider_unavailable' };
  }
  try {
    const outcome = await revokeToken({
      definition: isTest && testClient ? withSandbox(definition, testClient.url) : definition,
      client: { ...client, scopes: [] },
      values,
      token,
      fetch: fetchFor({ isTest }),
      signal,
    });
    return outcome.ok ? undefined : outcome.fault;
  } catch (error) {
    if (!(error instanceof AppError || error instanceof TemplateError)) throw error;
    log.warn({ err: error }, 'a revocation cannot be sent');
    return { kind: 'protocol', error: error instanceof AppError ? error.code : 'invalid_address' };
  }
}

async function settle(
  { db, now = () => new Date() }: RevocationDeps,
  { taken, fault }: { taken: Revocation; fault: TokenFault | undefined },
): Promise<RevocationOutcome> {
  const { id, unit, accountId, attempts } = taken;
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
  await db.query(
    `update revocation
     set sending_until = case when $4 then sending_until end, next_at = $2, evidence = $3
     where id = $1`,
    [id, new Date(now().getTime() + waitMs), JSON.stringify(evidence), isUnderWay(fault)],
  );
  return 'queued';
}

/** Whether the provider may still be at it. */
function isUnderWay({ error }: TokenFault): boolean {
  return error === 'network' || error === 'timeout';
}
