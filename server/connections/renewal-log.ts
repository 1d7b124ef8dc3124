import { logged, type Tell } from '../activity/logged.ts';
import type { Activity } from '../activity/writer.ts';
import type { TokenFault } from '../auth-modes/token-fault.ts';
import { evidenceOf } from './health.ts';
import type { LiveConnection } from './reader.ts';

/** What an attempt to renew credentials says of each answer that brought none. */
export type TellFault = (fault: TokenFault) => void;

/** Logs one attempt to renew the credentials of a connection: what the provider answered, and what came of it. */
export function loggedRenewal(
  activity: Activity,
  connection: LiveConnection,
  attempt: (tell: TellFault) => Promise<LiveConnection | undefined>,
): Promise<LiveConnection | undefined> {
  const { environmentId, integrationKey: integration, connectionId } = connection;
  return logged(
    activity,
    {
      type: 'refresh',
      environmentId,
      integration,
      connection: connectionId,
      actor: 'service',
      // Another node took over, or other credentials came in between: this one has no say.
      of: (renewed) => (renewed === undefined ? { status: 'failed', errorCode: 'superseded' } : {}),
    },
    (tell) => attempt((fault) => tellFault(tell, fault)),
  );
}

function tellFault(tell: Tell, fault: TokenFault): void {
  tell('warn', 'the provider gave no new credentials', { kind: fault.kind, ...evidenceOf(fault) });
}
