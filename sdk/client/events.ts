import type { TrellisError } from './errors.ts';
import type { EventData } from './event-types.ts';
import { Paged } from './paged.ts';
import { pause, withPatience } from './retry.ts';
import type { Answer, Body, CallOptions } from './route-call.ts';
import type { Transport } from './transport.ts';

/** The types of events that this version knows. */
export type EventType = keyof EventData;
/** What has happened: `type` tells what `data` holds. A newer service may have further types: pass over what you do not know. */
export type TrellisEvent = {
  [T in EventType]: {
    /** The same whenever it is sent again. */
    id: string;
    type: T;
    environment: string;
    created_at: string;
    data: EventData[T];
  };
}[EventType];

/** `connection.*` for all of a kind. */
export type EventTypeName = EventType | `${string}.*`;

export type EventListOptions = Pick<CallOptions, 'signal'> & {
  /** The position behind which to begin; the oldest event that is kept without it. */
  after?: string | undefined;
  types?: readonly EventTypeName[] | undefined;
  pageSize?: number | undefined;
};
export type EventPage = { events: TrellisEvent[]; next_after: string };

export type EventFollowOptions = EventListOptions & {
  /**
   * How long the service may keep a call waiting for the next event, in seconds, 0 to 30; 30 unless said otherwise. It comes
   * on top of the client's `timeoutMs`.
   */
  waitS?: number | undefined;
  /** Told of an outage that is waited for. */
  onRetry?: ((error: TrellisError, pauseMs: number) => void) | undefined;
};

/** The feed of what happens in the environment. */
export class Events {
  /** Addresses that events are sent to. */
  readonly endpoints: Endpoints;
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
    this.endpoints = new Endpoints(transport);
  }

  /** The events that there are by now, oldest first. */
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
   * Events as they come, in pages that are never empty. Keep `next_after` once you have acted, and begin behind it the next
   * time: no event is missed, and one may come twice. Outages are waited for. Throws `cursor_expired` where events behind
   * `after` were removed by age.
   */
  async *follow(options: EventFollowOptions = {}): AsyncGenerator<EventPage, void, undefined> {
    const { waitS = 30, signal, onRetry } = options;
    let { after } = options;
    for (;;) {
      const page = await withPatience(() => this.#page({ ...options, after }, waitS), { signal, onRetry });
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

/** Addresses that events are sent to. */
export class Endpoints {
  readonly #transport: Transport;

  /** @internal */
  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** All of them, those of the settings and of connections too. */
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
    call: CallOptions = {},
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
