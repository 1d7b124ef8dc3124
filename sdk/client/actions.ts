import { isTrellisError, TrellisError } from './errors.ts';
import { pause } from './retry.ts';
import type { Answer, CallOptions } from './route-call.ts';
import type { Sent, Transport } from './transport.ts';

export type ActionOptions = Pick<CallOptions, 'signal' | 'timeoutMs'> & {
  /** Further attempts by the service, 0 to 5, where one fails in a way that passes. */
  maxRetries?: number | undefined;
};
export type ResultOptions = Pick<CallOptions, 'signal'> & {
  /** How long to wait for its end; 20 minutes unless said otherwise, which is more than an action may take. */
  timeoutMs?: number | undefined;
  /** How often to ask, at first more often; 2,000 unless said otherwise. */
  pollMs?: number | undefined;
};

/** An action may take 15 minutes. */
const maxRunMs = 16 * 60_000;
const maxWaitMs = 20 * 60_000;

/** Actions of one connection. */
export class Actions {
  readonly #transport: Transport;
  readonly #headers: Record<string, string>;

  /** @internal */
  constructor(transport: Transport, headers: Record<string, string>) {
    this.#transport = transport;
    this.#headers = headers;
  }

  /**
   * Runs an action and waits for its output. Aborting the signal cancels the action. For an action that takes minutes use
   * `runAsync`: networks and platforms stop waiting for a response (Node after five minutes).
   */
  run<Output = unknown>(name: string, input?: unknown, options: ActionOptions = {}): Promise<Output> {
    const { maxRetries, signal, timeoutMs = maxRunMs } = options;
    return this.#transport.json({ ...this.#sent(name, input, { maxRetries }), signal, timeoutMs });
  }

  /** Leaves an action to run. It runs on whatever becomes of this program. */
  async runAsync<Output = unknown>(
    name: string,
    input?: unknown,
    { maxRetries, signal, timeoutMs }: ActionOptions = {},
  ): Promise<ActionRun<Output>> {
    const sent = this.#sent(name, input, { maxRetries, isAsync: true });
    const { id } = await this.#transport.json<{ id: string }>({ ...sent, signal, timeoutMs });
    return this.get(id);
  }

  /** A run that was left to run, by its id. */
  get<Output = unknown>(id: string): ActionRun<Output> {
    return new ActionRun(this.#transport, id);
  }

  #sent(
    name: string,
    input: unknown,
    { maxRetries, isAsync }: { maxRetries: number | undefined; isAsync?: boolean },
  ): Sent {
    return {
      route: 'POST /action/trigger',
      headers: { ...this.#headers, 'x-async': isAsync, 'x-max-retries': maxRetries },
      body: { action_name: name, input },
    };
  }
}

/** An action that was left to run. */
export class ActionRun<Output = unknown> {
  readonly id: string;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport, id: string) {
    this.#transport = transport;
    this.id = id;
  }

  /**
   * Its output, as soon as it is over. Throws the error that a call which waited would have thrown, and `not_found` where
   * nobody will hear of the run: its function or its connection was deleted, it ended long ago, or there is no such run.
   */
  async result({ signal, timeoutMs = maxWaitMs, pollMs = 2_000 }: ResultOptions = {}): Promise<Output> {
    const endsAt = Date.now() + timeoutMs;
    let hasEnded = false;
    for (let waitMs = Math.min(100, pollMs); ; waitMs = Math.min(pollMs, waitMs * 2)) {
      const leftMs = endsAt - Date.now();
      if (leftMs <= 0) {
        const message = `The action ${this.id} is not over in the time given. It runs on.`;
        throw new TrellisError({ code: 'timeout', message });
      }
      try {
        const sent = { route: 'GET /action/{id}', path: { id: this.id } };
        return await this.#transport.json<Output>({ ...sent, signal, timeoutMs: leftMs });
      } catch (error) {
        if (!isTrellisError(error, 'not_found') || hasEnded) throw error;
      }
      // It may have ended since: then its output is asked for once more.
      hasEnded = await this.#hasEnded({ signal, timeoutMs: Math.max(0, endsAt - Date.now()) });
      if (hasEnded) continue;
      await pause(Math.min(waitMs, Math.max(0, endsAt - Date.now())), signal);
    }
  }

  /** False also where the key may call actions and not look at runs. Throws `not_found` where there is no such run. */
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
