import { actorOf } from '../activity/audit.ts';
import { logged } from '../activity/logged.ts';
import type { OperationDetails, OperationType } from '../activity/operations.ts';
import type { Activity } from '../activity/writer.ts';
import type { Caller } from '../http/caller.ts';

type Call = {
  id: string;
  caller: Caller;
  headers: { 'provider-config-key': string; 'connection-id': string };
  body: { model: string; variant: string };
};

/** As `logged`, for a call that changes records: whose they are, which, and what `detailsOf` counts in the result. */
export async function loggedCall<T>(
  activity: Activity,
  call: Call & {
    type: Extract<OperationType, `records.${string}`>;
    detailsOf: (result: T) => OperationDetails;
  },
  work: () => Promise<T>,
): Promise<T> {
  const { id, caller, headers, body, type, detailsOf } = call;
  const { model, variant } = body;
  const about = {
    type,
    environmentId: caller.environmentId,
    integration: headers['provider-config-key'].slice(0, 255),
    connection: headers['connection-id'].slice(0, 255),
    actor: actorOf(caller),
    requestId: id,
    details: { model, variant },
    of: (result: T) => ({ details: { model, variant, ...detailsOf(result) } }),
  };
  return logged(activity, about, work);
}
