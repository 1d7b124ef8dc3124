import type { Operation } from '../activity/operations.ts';
import type { Attempt } from './attempts.ts';
import type { Finished } from './callback.ts';
import { type ConnectFailure, type FlowFacts, nextSteps } from './failures.ts';

/** The line of a trip that made or renewed a connection; undefined where it goes on. */
export function flowEnded(
  finished: Finished,
  { attempt, at }: { attempt: Attempt; at: Date },
): Operation | undefined {
  if (finished.kind !== 'saved') return undefined;
  const { connection, missingScopes } = finished;
  return {
    type: 'connect',
    status: 'success',
    environmentId: attempt.environmentId,
    integration: connection.integrationKey,
    connection: connection.connectionId,
    actor: `session:${attempt.sessionId}`,
    durationMs: at.getTime() - attempt.begunAt.getTime(),
    messages:
      missingScopes.length === 0
        ? []
        : [
            {
              level: 'warn',
              message: 'not all scopes were granted',
              details: { missing: missingScopes.join(' ') },
            },
          ],
  };
}

/** The line of a trip that made none. */
export function flowFailed(
  { environmentId, settings, integration, begunAt, cause, evidence }: FlowFacts & ConnectFailure,
  at: Date,
): Operation {
  return {
    type: 'connect',
    status: 'failed',
    environmentId,
    integration: integration.key,
    connection: settings.reconnect?.connection,
    durationMs: at.getTime() - begunAt.getTime(),
    errorCode: cause,
    messages: [{ level: 'error', message: nextSteps[cause], details: evidence }],
  };
}
