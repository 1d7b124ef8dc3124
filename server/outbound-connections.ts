/**
 * Attempts to connect, and their ends. undici goes on with an attempt whose call has been given up, for as long as its
 * connector lets it: a host that does not answer would collect them.
 */
import type { Socket } from 'node:net';
import { type buildConnector, Client, type Dispatcher, Pool } from 'undici';

/** As undici's, and returns the socket that it connects; undefined where there is none. */
export type Connector = (
  options: buildConnector.Options,
  callback: buildConnector.Callback,
) => Socket | undefined;

/** The connection that a call has been given, as long as it may not be open. */
export type Connecting = {
  /** Ends the attempt, and does nothing once the connection is open. To be called while the call waits for it. */
  giveUp(): void;
};

/** Who is told of the connection: see `AnswerHandler`. */
type Waiting = { onConnecting?(connecting: Connecting): void };

/** All attempts of one way out. */
export class Connections {
  readonly #attempts = new Set<Attempt>();

  /** How undici's Agent makes its pools, so that each of their calls can give up its attempt. */
  factoryBy(connect: Connector): (origin: string | URL, options: object) => Dispatcher {
    const factory = (origin: string | URL, options: object) =>
      new TellingClient(origin, options, new Attempt(connect, this.#attempts));
    return (origin, options) => new Pool(origin, { ...options, factory });
  }

  giveUpAll(): void {
    for (const attempt of this.#attempts) attempt.giveUp();
  }
}

/** What one client of a pool does to connect; it does so again after each end. */
class Attempt implements Connecting {
  readonly connect: buildConnector.connector;
  #socket: Socket | undefined;

  constructor(connect: Connector, attempts: Set<Attempt>) {
    this.connect = (options, callback) => {
      this.#socket = connect(options, (...result) => {
        this.#socket = undefined;
        attempts.delete(this);
        callback(...result);
      });
      if (this.#socket !== undefined) attempts.add(this);
    };
  }

  giveUp(): void {
    this.#socket?.destroy(new Error('nobody waits for the connection'));
  }
}

/** A pool gives a client that has no connection yet one call alone, so that the attempt is that call's. */
class TellingClient extends Client {
  readonly #attempt: Attempt;

  constructor(origin: string | URL, options: Client.Options, attempt: Attempt) {
    super(origin, { ...options, connect: attempt.connect });
    this.#attempt = attempt;
  }

  override dispatch(
    options: Dispatcher.DispatchOptions & { waiting?: Waiting },
    handler: Dispatcher.DispatchHandler,
  ): boolean {
    options.waiting?.onConnecting?.(this.#attempt);
    return super.dispatch(options, handler);
  }
}
