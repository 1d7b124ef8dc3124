/** A registered receiver: gets the events of accounts that let the client see their address or profile. */
export interface Receiver {
  clientId: string;
  url: string;
}

/** How many receivers may be registered. */
export const RECEIVER_LIMIT = 50;

/** Who is told of security events by itself, in the order of registration. */
export class Receivers {
  #receivers: Receiver[];

  constructor(receivers: Receiver[]) {
    this.#receivers = [...receivers];
  }

  list(): Receiver[] {
    return [...this.#receivers];
  }

  /** Registers a receiver; the same one again changes nothing. */
  add(receiver: Receiver): void {
    this.remove(receiver);
    this.#receivers.push(receiver);
  }

  /** Answers whether there was such a receiver. */
  remove({ clientId, url }: Receiver): boolean {
    const before = this.#receivers.length;
    this.#receivers = this.#receivers.filter((other) => other.clientId !== clientId || other.url !== url);
    return this.#receivers.length < before;
  }
}
