import type { Run } from './queries.ts';

export type Advice = { text: string; leadsTo?: 'connection' | 'activity' | 'code' | 'records' };

const refused: Advice = {
  text: 'The provider refused a call of the function. The calls and the answers stand in the activity of the connection.',
  leadsTo: 'activity',
};
const outage: Advice = {
  text: 'This passes, as a rule: a sync goes on from its checkpoint at its next time. Run it again to see at once.',
  leadsTo: 'activity',
};
const process: Advice = {
  text: 'Work in smaller steps: save page by page, keep a checkpoint, and let each page go before the next.',
  leadsTo: 'code',
};

const known: Record<string, Advice> = {
  connection_needs_reauth: { text: 'The account must be connected again.', leadsTo: 'connection' },
  connection_blocked: {
    text: 'The connection is blocked until its cause is gone; it is tried again by itself.',
    leadsTo: 'connection',
  },
  connection_refresh_failed: {
    text: 'Fresh credentials could not be had. That is tried again.',
    leadsTo: 'connection',
  },
  missing_scopes: {
    text: 'Reconnect the account with the scopes that the function declares.',
    leadsTo: 'connection',
  },
  connection_deleted: { text: 'Nothing is to be done: the connection is gone, and its records with it.' },
  ERR_BAD_REQUEST: refused,
  ERR_BAD_RESPONSE: refused,
  ERR_NETWORK: outage,
  upstream_unreachable: outage,
  upstream_timeout: outage,
  upstream_unreadable: outage,
  upstream_unknown_outcome: {
    text: 'Nobody knows whether the provider has done what was asked. Look there before it is repeated.',
    leadsTo: 'activity',
  },
  quota_exhausted: {
    text: "The provider's quota was used up for longer than the run could wait. The next run goes on.",
    leadsTo: 'activity',
  },
  unavailable: outage,
  function_unavailable: {
    text: 'No process could be had for it, or its node stopped. The log of the service says more; run it again.',
  },
  function_timeout: process,
  function_out_of_memory: process,
  function_log_flood: {
    text: 'Log less, or less often: a line a page, not a line a record.',
    leadsTo: 'code',
  },
  function_disabled: { text: 'Turn the function on, and run it again.' },
  function_threw: {
    text: 'The code of the function threw. The stack names the line; the log tells what it did before.',
    leadsTo: 'code',
  },
  action_error: {
    text: "The action threw it on purpose, for its caller: see the action's code.",
    leadsTo: 'code',
  },
  invalid_action_input: { text: 'The input does not fit what the action declares.', leadsTo: 'code' },
  invalid_action_output: {
    text: 'What the action answered does not fit what it declares: one of both is wrong.',
    leadsTo: 'code',
  },
  checkpoint_conflict: { text: 'Another run wrote the checkpoint meanwhile. The next run reads it again.' },
  mass_delete_held: {
    text: 'More records would have been deleted than the guard allows, so none was. If the provider returns them again, run the sync again. If they are gone, allow the deletion once.',
    leadsTo: 'records',
  },
  run_lost: { text: 'The node that ran it was gone; another one went on from the checkpoint.' },
};

const threwNoError: Advice = {
  text: 'The code threw something that is not an Error, so there is no stack. The log tells what it did before.',
  leadsTo: 'code',
};

/** Of a throw; who may not see what was thrown sees no payload at all. */
function isWithoutStack(error: NonNullable<Run['error']>): boolean {
  const { code, payload } = error;
  return code === 'function_threw' && payload !== undefined && stackOf({ error }) === undefined;
}

/** What to do about what a run came to; what the code itself threw under a code of its own is the code's. */
export function adviceOn({ error, state }: Pick<Run, 'error' | 'state'>): Advice | undefined {
  if (error === null) return undefined;
  const found = isWithoutStack(error) ? threwNoError : known[error.code];
  if (found !== undefined) return found;
  if (state === 'cancelled')
    return { text: 'What it saved until then stays; the next run goes on from its checkpoint.' };
  return { text: 'The log below tells what the code did before.', leadsTo: 'code' };
}

/** What the code threw beside its message, such as what a provider answered; as text to be read. */
export function thrownWith({ error }: Pick<Run, 'error'>): string | undefined {
  const { payload } = error ?? {};
  if (typeof payload !== 'object' || payload === null || !('payload' in payload)) return undefined;
  return JSON.stringify(payload.payload, null, 2);
}

/** "Held: 200 of 300 records of Row would be deleted.", which the message of a held deletion begins with. */
export function heldText(message: string): string {
  return `Held: ${message.split(', so none was.')[0]}.`;
}

/** Where the code was when it threw, as its stack has it; nothing where that is the message alone. */
export function stackOf({ error }: Pick<Run, 'error'>): string | undefined {
  const { payload } = error ?? {};
  const stack =
    typeof payload === 'object' && payload !== null ? (payload as { stack?: unknown }).stack : undefined;
  return typeof stack === 'string' && stack.trim().includes('\n') ? stack : undefined;
}
