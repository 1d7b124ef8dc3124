/** The events at the end of an action whose caller has disconnected: they report every outcome to the application. */
import type { Tx } from '../db/pool.ts';
import { queueEvent } from '../events/outbox.ts';

type QueuedAction = {
  id: string;
  environmentId: number;
  connectionId: string;
  integrationKey: string;
  function: string;
};

const maxMessage = 1_000;

export async function queueSucceededEvent(tx: Tx, action: QueuedAction): Promise<void> {
  const { environmentId } = action;
  await queueEvent(tx, { environmentId, type: 'action.succeeded', data: subjectOf(action) });
}

export async function queueFailedEvent(
  tx: Tx,
  action: QueuedAction,
  { code, message }: { code: string; message: string },
): Promise<void> {
  const { environmentId } = action;
  const error = { code, message: message.slice(0, maxMessage) };
  await queueEvent(tx, { environmentId, type: 'action.failed', data: { ...subjectOf(action), error } });
}

/** Locks the queued actions of a function, or one run if it is a queued action, in the order of all lockers. */
export function lockQueuedActions(
  tx: Tx,
  of: { environmentId: number } & ({ functionId: number } | { runId: string }),
): Promise<QueuedAction[]> {
  return tx.query<QueuedAction>(
    `select
       run.id,
       run.environment_id as "environmentId",
       connection.connection_id as "connectionId",
       integration.key as "integrationKey",
       function.name as function
     from run
     join function on function.id = run.function_id
     join integration on integration.id = function.integration_id
     join connection on connection.id = run.connection_id
     where run.environment_id = $1
       and ($2::bigint is null or run.function_id = $2)
       and ($3::uuid is null or run.id = $3)
       and run.kind = 'action'
       and run.trigger = 'action'
       and run.state in ('waiting', 'running')
     order by run.id
     for update of run`,
    [of.environmentId, 'functionId' in of ? of.functionId : null, 'runId' in of ? of.runId : null],
  );
}

function subjectOf({ id, connectionId, integrationKey, function: name }: QueuedAction) {
  return { connection_id: connectionId, provider_config_key: integrationKey, function: name, run: id };
}
