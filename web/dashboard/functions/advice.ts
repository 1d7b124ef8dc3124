import type { Run } from './queries.ts';

export type Advice = { text: string; leadsTo?: 'connection' | 'activity' | 'code' | 'records' };

const refused: Advice = {
  text: 'The provider rejected a call of the function. The activity of the connection has the calls and the responses.',
  leadsTo: 'activity',
};
const outage: Advice = {
  text: 'This error is usually temporary.',
  leadsTo: 'activity',
};
const process: Advice = {
  text: 'Use smaller steps: save page by page, set a checkpoint, and do not keep pages in memory.',
  leadsTo: 'code',
};

const known: Record<string, Advice> = {
  connection_needs_reauth: { text: 'Reconnect the account.', leadsTo: 'connection' },
  connection_blocked: {
    text: 'The connection is blocked until its cause is resolved. It is checked again automatically.',
    leadsTo: 'connection',
  },
  connection_refresh_failed: {
    text: 'The credentials could not be refreshed. The refresh is retried automatically.',
    leadsTo: 'connection',
  },
  missing_scopes: {
    text: 'Reconnect the account with the scopes that the function declares.',
    leadsTo: 'connection',
  },
  connection_deleted: { text: 'The connection and its records were deleted. There is nothing to do.' },
  ERR_BAD_REQUEST: refused,
  ERR_BAD_RESPONSE: refused,
  ERR_NETWORK: outage,
  upstream_unreachable: outage,
  upstream_timeout: outage,
  upstream_unreadable: outage,
  upstream_unknown_outcome: {
    text: 'The provider may have processed the call. Check at the provider before you repeat it.',
    leadsTo: 'activity',
  },
  quota_exhausted: {
    text: 'The quota of the provider was used up for longer than the run could wait. The next run continues.',
    leadsTo: 'activity',
  },
  unavailable: outage,
  function_unavailable: {
    text: 'No process was available, or the node stopped. See the log of the service, and run it again.',
  },
  function_timeout: process,
  function_out_of_memory: process,
  function_log_flood: {
    text: 'Write fewer log lines: one per page instead of one per record.',
    leadsTo: 'code',
  },
  function_disabled: { text: 'Turn the function on and run it again.' },
  function_threw: {
    text: 'The code of the function threw an error. The stack has the line, the log has the previous steps.',
    leadsTo: 'code',
  },
  action_error: {
    text: 'The action threw this error on purpose, for its caller. See the code of the action.',
    leadsTo: 'code',
  },
  invalid_action_input: { text: 'The input does not match the schema of the action.', leadsTo: 'code' },
  invalid_action_output: {
    text: 'The output does not match the schema of the action. Change the code or the schema.',
    leadsTo: 'code',
  },
  checkpoint_conflict: { text: 'Another run changed the checkpoint. The next run reads it again.' },
  mass_delete_held: {
    text: 'The sync would have deleted more records than the guard allows, so it deleted none. If the provider returns the records again, run the sync again. If they are gone, allow the deletion once.',
    leadsTo: 'records',
  },
  run_lost: { text: 'The node of the run was lost. Another node continued from the checkpoint.' },
};

const threwNoError: Advice = {
  text: 'The code threw a value that is not an Error, so there is no stack. The log has the previous steps.',
  leadsTo: 'code',
};

/** For a throw. Users without access to payloads see none. */
function isWithoutStack(error: NonNullable<Run['error']>): boolean {
  const { code, payload } = error;
  return code === 'function_threw' && payload !== undefined && stackOf({ error }) === undefined;
}

const outageOfSync: Advice = {
  ...outage,
  text: `${outage.text} The sync continues from its checkpoint at its next time. You can also run it again now.`,
};

/** The next step for a failed run. An error with a code of the function's own is explained by its code. */
export function adviceOn({ error, state, kind }: Pick<Run, 'error' | 'state' | 'kind'>): Advice | undefined {
  if (error === null) return undefined;
  const found = isWithoutStack(error) ? threwNoError : known[error.code];
  if (found === outage && kind === 'sync') return outageOfSync;
  if (found !== undefined) return found;
  if (state === 'cancelled' && kind === 'sync')
    return { text: 'Saved records remain. The next run continues from the checkpoint.' };
  return { text: 'The log below has the previous steps.', leadsTo: 'code' };
}

/** The payload that the code threw, such as a response of the provider, as text. */
export function thrownWith({ error }: Pick<Run, 'error'>): string | undefined {
  const { payload } = error ?? {};
  if (typeof payload !== 'object' || payload === null || !('payload' in payload)) return undefined;
  return JSON.stringify(payload.payload, null, 2);
}

/** "Held: 200 of 300 records of Row would be deleted.", from the message of a held deletion. */
export function heldText(message: string): string {
  return `Held: ${message.split(', so no')[0]}.`;
}

/** The stack of a throw; undefined if it only has the message. */
export function stackOf({ error }: Pick<Run, 'error'>): string | undefined {
  const { payload } = error ?? {};
  const stack =
    typeof payload === 'object' && payload !== null ? (payload as { stack?: unknown }).stack : undefined;
  return typeof stack === 'string' && stack.trim().includes('\n') ? stack : undefined;
}
