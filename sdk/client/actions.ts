import { isTrellisError, TrellisError } from './errors.ts';
import { pause } from './retry.ts';
import type { Answer, CallOptions } from './route-call.ts';
import { randomKey, type Sent, type Transport } from './transport.ts';

export type ActionOptions = Pick<CallOptions, 'signal' | 'timeoutMs'> & {
  /** The number of retries by the service after a temporary failure, 0 to 5. */
  maxRetries?: number | undefined;
  /**
   * The Idempotency-Key of the call: a repeat with the same key returns the first response for 24 hours and does not run the
   * action. Then the action also runs to its end if the signal aborts. `run` has none by default, `runAsync` a random one.
   */
  idempotencyKey?: string | undefined;
};
export type ResultOptions = Pick<CallOptions, 'signal'> & {
  /** The time to wait for the end of the run. Defaults to 20 minutes, which is longer than an action can run. */
  timeoutMs?: number | undefined;
  /** The longest interval between requests; the first interval is 100 ms. Defaults to 2,000. */
  pollMs?: number | undefined;
};

/** The service ends an action after 15 minutes. */
const maxRunMs = 16 * 60_000;
const maxWaitMs = 20 * 60_000;

/** The actions of one connection. */
export class Actions {
  readonly #transport: Transport;
  readonly #headers: Record<string, string>;

  /** @internal */
  constructor(transport: Transport, headers: Record<string, string>) {
    this.#transport = transport;
    this.#headers = headers;
  }

  /**
   * Runs an action and returns its output. Aborting the signal cancels the action, unless the call has an `idempotencyKey`.
   * Throws the error of the action.
   *
   * Use `runAsync` for an action that takes minutes: networks and platforms close a request without a response (Node after
   * five minutes).
   */
  run<Output = unknown>(name: string, input?: unknown, options: ActionOptions = {}): Promise<Output> {
    const { maxRetries, signal, timeoutMs = maxRunMs, idempotencyKey } = options;
    const sent = this.#sent(name, input, { maxRetries });
    return this.#transport.json({ ...sent, signal, timeoutMs, idempotencyKey });
  }

  /** Starts an action and returns without its output. The action continues if this program ends. */
  async runAsync<Output = unknown>(
    name: string,
    input?: unknown,
    { maxRetries, signal, timeoutMs, idempotencyKey = randomKey() }: ActionOptions = {},
  ): Promise<ActionRun<Output>> {
    const sent = this.#sent(name, input, { maxRetries, isAsync: true });
    const { id } = await this.#transport.json<{ id: string }>({ ...sent, signal, timeoutMs, idempotencyKey });
    return this.get(id);
  }

  /** The handle of a run that `runAsync` started, by the ID of the run. Sends no request. */
  get<Output = unknown>(id: string): ActionRun<Output> {
    return new ActionRun(this.#transport, id);
  }

  #sent(
    name: string,
    input: unknown,
    { maxRetries, isAsync }: { maxRetries: number | undefined; isAsync?: boolean },
  ): Sent {
    return {
      route: 'POST /functions/actions/trigger',
      headers: { ...this.#headers, 'x-async': isAsync, 'x-max-retries': maxRetries },
      body: { action_name: name, input },
    };
  }
}

/** A run of an action that `runAsync` started. */
export class ActionRun<Output = unknown> {
  readonly id: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.id = id;
  }

  /**
   * Waits for the end of the run and returns its output. Throws the error that `run` would have thrown, `timeout` after
   * `timeoutMs`, and `not_found` if the result is not available: the function or the connection was deleted, the run ended too
   * long ago, or it does not exist.
   */
  async result({ signal, timeoutMs = maxWaitMs, pollMs = 2_000 }: ResultOptions = {}): Promise<Output> {
    const endsAt = Date.now() + timeoutMs;
    let hasEnded = false;
    for (let waitMs = Math.min(100, pollMs); ; waitMs = Math.min(pollMs, waitMs * 2)) {
      const leftMs = endsAt - Date.now();
      if (leftMs <= 0) {
        const message = `The action ${this.id} did not end within ${timeoutMs} ms. It continues to run.`;
        throw new TrellisError({ code: 'timeout', message });
      }
      try {
        const sent = { route: 'GET /functions/actions/{id}', path: { id: this.id } };
        return await this.#transport.json<Output>({ ...sent, signal, timeoutMs: leftMs });
      } catch (error) {
        if (!isTrellisError(error, 'not_found') || hasEnded) throw error;
      }
      // If the run has ended since the request, its output is requested once more.
      hasEnded = await this.#hasEnded({ signal, timeoutMs: Math.max(0, endsAt - Date.now()) });
      if (hasEnded) continue;
      await pause(Math.min(waitMs, Math.max(0, endsAt - Date.now())), signal);
    }
  }

  /** Also false if the key may call actions but not read runs. Throws `not_found` if the run does not exist. */
  async #hasEnded(call: Pick<CallOptions, 'signal' | 'timeoutMs'>): Promise<boolean> {
    try {
      const sent = { route: 'GET /functions/runs/{id}', path: { id: this.id }, ...call };
      const { state } = await this.#transport.json<Answer<'GET /functions/runs/{id}'>>(sent);
      return state !== 'waiting' && state !== 'running';
    } catch (error) {
      if (isTrellisError(error, 'forbidden')) return false;
      throw error;
    }
  }
}
