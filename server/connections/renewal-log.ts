import { logged, type Tell } from '../activity/logged.ts';
import type { Activity } from '../activity/writer.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import { metrics } from '../metrics/metrics.ts';
import { errorCodeOf, spanned } from '../tracing/tracing.ts';
import { evidenceOf } from './health.ts';
import type { LiveConnection } from './reader.ts';

/** What an attempt to renew credentials says of each answer that brought none. */
export type TellFault = (fault: TokenFault) => void;

/** Logs, counts and traces one attempt to renew the credentials of a connection: what the provider answered, and what came of it. */
export function loggedRenewal(
  activity: Activity,
  connection: LiveConnection,
  attempt: (tell: TellFault) => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const { environmentId, integrationKey: integration, connectionId } = connection;
  const work = () =>
    logged(
      activity,
      {
        type: 'refresh',
        environmentId,
        integration,
        connection: connectionId,
        actor: 'service',
        // Another node took over, or other credentials came in between: this one has no say.
        of: (renewed: LiveConnection | undefined) =>
          renewed === undefined ? { status: 'failed', errorCode: 'superseded' } : {},
      },
      (tell) => attempt((fault) => tellFault(tell, fault)),
    );
  return measured(connection.providerName, work);
}

async function measured(
  provider: string,
  work: () => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const startedAt = performance.now();
  let outcome = 'renewed';
  try {
    return await spanned(
      'refresh',
      { kind: 'internal', attributes: { 'trellis.provider': provider } },
      async (span) => {
        const renewed = await work();
        if (renewed === undefined) outcome = 'superseded';
        span?.set({ 'trellis.outcome': outcome });
        return renewed;
      },
    );
  } catch (error) {
    outcome = errorCodeOf(error);
    throw error;
  } finally {
    metrics.refreshes.add([provider, outcome]);
    metrics.refreshDuration.observe([provider], (performance.now() - startedAt) / 1000);
  }
}

function tellFault(tell: Tell, fault: TokenFault): void {
  tell('warn', 'the provider gave no new credentials', { kind: fault.kind, ...evidenceOf(fault) });
}
