/** An error that an action throws on purpose: the payload goes to the action's caller. */
export class ActionError extends Error {
  readonly type: string;
  readonly payload: Record<string, unknown>;
  readonly code = 'action_error';

  constructor(payload: Record<string, unknown> = {}) {
    const { message, type } = payload;
    super(typeof message === 'string' ? message : 'The action failed.');
    this.name = 'ActionError';
    this.type = typeof type === 'string' ? type : 'action_script_runtime_error';
    this.payload = payload;
  }
}
