/**
 * The feed: the events of an environment by position.
 *
 * Owns: pages, valid positions, and waiting for the next event. Does not own: how an event gets its position
 * (`sequence.ts`), and removal by age (`retention.ts`).
 *
 * Positions count the events of all environments, so those of one environment have gaps. A position stays valid for
 * ever, unless events after it were removed: then it is refused, so that no reader misses an event without notice.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Db, first } from '../db/pool.ts';
import { placeNext } from '../db/sequencer.ts';
import { AppError } from '../errors.ts';
import { withIntegrationId } from '../http/spellings.ts';
import type { EventWire } from './catalogue.ts';
import { eventTypes } from './event-types.ts';
import { eventSequence } from './sequence.ts';

export type FeedPage = {
  events: EventWire[];
  /** The position after which the reader continues. */
  next: number;
  /** The last position in all environments. */
  last: number;
};

type PageRequest = {
  of: { environmentId: number; environment: string };
  limit: number;
  /** By default all types. */
  types?: readonly string[] | undefined;
};
type EventRow = {
  id: string;
  position: number;
  type: string;
  data: Record<string, unknown>;
  createdAt: Date;
};

/** A position after all others. */
export const beyondAll = 9_223_372_036_854_775_807n;

// Ranges of whole index rows, ordered by whole index rows. With `environment_id = $1 ... order by position` the planner
// may walk the index of positions through the events of all other environments: 27,000 blocks for a rare type among a
// million, not 20.
const page = ({ after, before, order }: { after: string; before: string; order: 'asc' | 'desc' }) => `
  select id, position, type, data, created_at as "createdAt"
  from event
  where (environment_id, position) > ($1, ${after}) and (environment_id, position) < ($1, ${before})
  order by environment_id ${order}, position ${order}
  limit $3`;

/**
 * Each type by its own index range, of which no more is read than a page. PostgreSQL 15 ends a row comparison only
 * where its first column ends: if less than a page is left of a type, it reads on in the index, to the end of the
 * environment's events.
 */
const pageOfTypes = ({ after, before, order }: Parameters<typeof page>[0]) => `
  select found.*
  from unnest($4::text[]) as wanted
  cross join lateral (
    select id, position, type, data, created_at as "createdAt"
    from event
    where
      (environment_id, type, position) > ($1, wanted, ${after})
      and (environment_id, type, position) < ($1, wanted, ${before})
    order by environment_id ${order}, type ${order}, position ${order}
    limit $3
  ) as found
  order by position ${order}
  limit $3`;

const following = { after: '$2', before: String(beyondAll), order: 'asc' } as const;
const latest = { after: '0', before: '$2', order: 'desc' } as const;

/** A page of the newest events of a connection, by its ID. Several integrations can have a connection with the same ID. */
const latestOfConnection = `
  select id, position, type, data, created_at as "createdAt"
  from event
  where
    (environment_id, data ->> 'connection_id', position) > ($1, $4, 0)
    and (environment_id, data ->> 'connection_id', position) < ($1, $4, $2)
    and ($5::text is null or data ->> 'provider_config_key' = $5)
    and ($6::text[] is null or type = any($6))
  order by environment_id desc, data ->> 'connection_id' desc, position desc
  limit $3`;

/**
 * The SQL of a page and its fourth parameter. All types count as no filter: one range is read faster than one for each.
 */
function pageFor(types: readonly string[] | undefined, range: Parameters<typeof page>[0]) {
  const isFiltered = types !== undefined && types.length < eventTypes.length;
  return isFiltered ? { sql: pageOfTypes(range), types: [types] } : { sql: page(range), types: [] };
}

/** The ends of the feed, in the snapshot of the page: events that are removed during the read count as removed. */
const ends = `
  select
    last_position as last,
    events_removed_to as "removedTo",
    coalesce((
      select position
      from event
      where
        (environment_id, position) > (environment.id, 0)
        and (environment_id, position) < (environment.id, ${beyondAll})
      order by environment_id desc, position desc
      limit 1
    ), 0) as newest
  from environment
  cross join sequencer
  where environment.id = $1 and sequencer.name = 'event'`;

type Ends = { last: number; newest: number; removedTo: number };

/**
 * Reads at most `limit` events after a position, oldest first; without a position from the oldest event that is kept.
 * With `types`, `next` skips all other events. The cost does not depend on the position.
 *
 * Throws `invalid_cursor` for a position after the last one, and `cursor_expired` if an event after it was removed.
 */
export async function readFeed(
  db: Pick<Db, 'query'>,
  { of, after, limit, types }: PageRequest & { after: number | undefined },
): Promise<FeedPage> {
  const { sql, types: wanted } = pageFor(types, following);
  const rows = await db.query<Ends & (EventRow | { [name in keyof EventRow]: null })>(
    `with ends as (${ends})
     select *
     from ends
     left join lateral (${sql}) as page on true
     order by position`,
    [of.environmentId, after ?? 0, limit, ...wanted],
  );
  const known = first(rows);
  // The environment and its keys were just removed.
  if (known === undefined) throw new AppError('unknown_account');
  const { last, newest, removedTo } = known;
  if (after !== undefined && after > last) {
    throw new AppError(
      'invalid_cursor',
      'The position is not valid: send `next_cursor` or `next_after` of an earlier response.',
    );
  }
  if (after !== undefined && after < removedTo) {
    throw new AppError(
      'cursor_expired',
      'Events after this position were removed by age. Omit `after` to continue with the oldest event that is kept.',
    );
  }
  const found = rows.filter((row): row is Ends & EventRow => row.id !== null);
  const end = found.length === limit ? found.at(-1)?.position : undefined;
  return {
    events: found.map((row) => toWire(row, of)),
    next: end ?? Math.max(after ?? 0, newest, removedTo),
    last,
  };
}

/**
 * Reads the newest events of an environment, newest first, or those before a position, for people. A follower uses
 * `readFeed`, which reports missed events. `next` is undefined if there are no older events.
 */
export async function readLatest(
  db: Pick<Db, 'query'>,
  {
    of,
    before,
    limit,
    types,
    connection,
  }: PageRequest & {
    before: number | undefined;
    /** By default the events of all connections. */
    connection?: { id: string; integration: string | undefined } | undefined;
  },
): Promise<{ events: EventWire[]; next: number | undefined }> {
  const range = [of.environmentId, before ?? beyondAll, limit + 1];
  const all = pageFor(types, latest);
  const rows =
    connection === undefined
      ? await db.query<EventRow>(all.sql, [...range, ...all.types])
      : await db.query<EventRow>(latestOfConnection, [
          ...range,
          connection.id,
          connection.integration ?? null,
          types ?? null,
        ]);
  const shown = rows.slice(0, limit);
  return {
    events: shown.map((row) => toWire(row, of)),
    next: rows.length > limit ? shown.at(-1)?.position : undefined,
  };
}

function toWire({ id, type, data, createdAt }: EventRow, { environment }: PageRequest['of']): EventWire {
  return { id, type, environment, created_at: createdAt.toISOString(), data: withIntegrationId(data) };
}

type Waiter = { position: number; wake: (isPast: boolean) => void; fail: (error: unknown) => void };

/**
 * Wakes readers that wait for the next event. Polls the database every `everyMs` for all waiting readers of this node, and
 * not at all if there are none. This also finds the events of other nodes. If a poll fails, all current waits reject with
 * its error.
 */
export function createFeedWatch(db: Db, { everyMs = 100 }: { everyMs?: number } = {}) {
  const waiting = new Set<Waiter>();
  const stopping = new AbortController();
  let isPolling = false;

  async function poll(): Promise<void> {
    const current = [...waiting];
    try {
      await placeNext(db, eventSequence);
      const [row] = await db.query<{ last: number }>(
        `select last_position as last from sequencer where name = 'event'`,
      );
      for (const { position, wake } of current) if (row !== undefined && row.last > position) wake(true);
    } catch (error) {
      for (const { fail } of current) fail(error);
    }
  }

  async function keepPolling(): Promise<void> {
    if (isPolling) return;
    isPolling = true;
    while (waiting.size > 0) {
      await poll();
      // The socket of a waiting client keeps the process alive.
      await sleep(everyMs, undefined, { ref: false });
    }
    isPolling = false;
  }

  return {
    /** Resolves with true when the last position of all environments is after this one; with false on `given` or `stop`. */
    async waitPast(position: number, given: AbortSignal): Promise<boolean> {
      const signal = AbortSignal.any([given, stopping.signal]);
      if (signal.aborted) return false;
      const { promise, resolve, reject } = Promise.withResolvers<boolean>();
      const waiter: Waiter = { position, wake: resolve, fail: reject };
      const end = () => resolve(false);
      signal.addEventListener('abort', end, { once: true });
      waiting.add(waiter);
      void keepPolling();
      try {
        return await promise;
      } finally {
        waiting.delete(waiter);
        signal.removeEventListener('abort', end);
      }
    },
    /** Ends every wait, and each later wait immediately. */
    stop: () => stopping.abort(),
  };
}
