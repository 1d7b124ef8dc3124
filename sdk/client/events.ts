import type { TrellisError } from './errors.ts';
import type { EventData } from './event-types.ts';
import { Paged } from './paged.ts';
import { pause, retryUntilAvailable } from './retry.ts';
import type { Answer, Body, CallOptions, KeyedCallOptions } from './route-call.ts';
import type { Transport } from './transport.ts';

/** The event types of this version. */
export type EventType = keyof EventData;
/** An event. `type` determines the type of `data`. A newer service may send further types: ignore unknown types. */
export type TrellisEvent = {
  [T in EventType]: {
    /** The ID of the event, which is the same in each delivery. */
    id: string;
    type: T;
    environment: string;
    created_at: string;
    data: EventData[T];
  };
}[EventType];

/** An event type, or a prefix such as `connection.*`. */
export type EventTypeName = EventType | `${string}.*`;

export type EventListOptions = Pick<CallOptions, 'signal'> & {
  /** The position after which to start. Defaults to the oldest stored event. */
  after?: string | undefined;
  types?: readonly EventTypeName[] | undefined;
  pageSize?: number | undefined;
};
export type EventPage = { events: TrellisEvent[]; next_after: string };

export type EventFollowOptions = EventListOptions & {
  /**
   * The time in seconds for which the service delays its response until the next event, 0 to 30. Defaults to 30. It is added
   * to the client's `timeoutMs`.
   */
  waitS?: number | undefined;
  /** Called before each retry after an outage. */
  onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
};

/** The event feed of the environment. */
export class Events {
  /** The endpoints that receive events. */
  readonly endpoints: Endpoints;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.endpoints = new Endpoints(transport);
  }

  /** Lists the existing events, oldest first. */
  list(options: EventListOptions = {}): Paged<TrellisEvent, EventPage> {
    const read = (after: string | undefined) => this.#page({ ...options, after }, 0);
    return new Paged(
      async function* () {
        for (let after = options.after; ; ) {
          const page = await read(after);
          yield page;
          if (page.events.length === 0 || page.next_after === after) return;
          after = page.next_after;
        }
      },
      ({ events }) => events,
    );
  }

  /**
   * Yields existing and new events in pages that are never empty. Does not end. Store `next_after` after you processed a page,
   * and pass it as `after` the next time: no event is lost, and an event may come twice.
   *
   * Retries during outages. Throws `cursor_expired` if events after `after` were deleted because of their age.
   */
  async *follow(options: EventFollowOptions = {}): AsyncGenerator<EventPage, void, undefined> {
    const { waitS = 30, signal, onRetry } = options;
    let { after } = options;
    for (;;) {
      const page = await retryUntilAvailable(() => this.#page({ ...options, after }, waitS), {
        signal,
        onRetry,
      });
      after = page.next_after;
      if (page.events.length > 0) yield page;
      else if (waitS === 0) await pause(1_000, signal);
    }
  }

  #page({ after, types, pageSize, signal }: EventListOptions, waitS: number): Promise<EventPage> {
    const query = { after, types: types?.join(','), limit: pageSize, ...(waitS > 0 && { wait: waitS }) };
    const timeoutMs = this.#transport.timeoutMs + waitS * 1_000;
    return this.#transport.json({ route: 'GET /events', query, signal, timeoutMs });
  }
}

/** The endpoints that receive events. */
export class Endpoints {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Lists all endpoints, including those of the settings and of connections. */
  list({
    signal,
  }: Pick<CallOptions, 'signal'> = {}): Paged<Answer<'GET /events/endpoints'>['endpoints'][number]> {
    const transport = this.#transport;
    return new Paged(
      async function* () {
        for (let after: string | undefined; ; ) {
          const sent = { route: 'GET /events/endpoints', query: { after }, signal };
          const page = await transport.json<Answer<'GET /events/endpoints'>>(sent);
          yield page.endpoints;
          if (page.next_after === null) return;
          after = page.next_after;
        }
      },
      (page) => page,
    );
  }

  create(
    body: Body<'POST /events/endpoints'>,
    call: KeyedCallOptions = {},
  ): Promise<Answer<'POST /events/endpoints'>> {
    return this.#transport.json({ route: 'POST /events/endpoints', body, ...call });
  }

  update(
    id: number,
    body: Body<'PATCH /events/endpoints/{id}'>,
    call: CallOptions = {},
  ): Promise<Answer<'PATCH /events/endpoints/{id}'>> {
    return this.#transport.json({ route: 'PATCH /events/endpoints/{id}', path: { id }, body, ...call });
  }

  delete(id: number, call: CallOptions = {}): Promise<Answer<'DELETE /events/endpoints/{id}'>> {
    return this.#transport.json({ route: 'DELETE /events/endpoints/{id}', path: { id }, ...call });
  }
}
