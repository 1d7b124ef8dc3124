import type { Db, Tx } from '../db/pool.ts';
import { maxAlertEvents } from '../events/alerts.ts';
import type { EndpointFormat, EndpointKind } from './endpoints.ts';

/** The right to send the oldest waiting delivery of a lane, until its lease ends. */
export type Claim = {
  readonly owner: string;
  /** By the clock of `performance.now()`: the lease lasts at least its full time from here. */
  readonly leasedAtMs: number;
  readonly environmentId: number;
  readonly environment: string;
  readonly endpoint: {
    readonly id: number;
    readonly kind: EndpointKind;
    readonly format: EndpointFormat;
    readonly url: string;
    /** Whether its breaker is open: this attempt decides whether it closes. */
    readonly isProbe: boolean;
  };
  readonly lane: number;
  readonly delivery: Head;
  /** The deliveries behind it that the same alert reports. Empty for an endpoint that gets events. */
  readonly others: readonly number[];
};

export type Head = {
  readonly id: number;
  /** Attempts before this one. */
  readonly attempts: number;
  readonly queuedAt: Date;
  readonly eventId: string;
  readonly type: string;
  readonly createdAt: Date;
  readonly data: Record<string, unknown>;
};

type Looked = {
  ready: number[];
  /** The `after` of the next look, 0 after the last endpoint. */
  lookOnAfter: number;
  /** Whether it has examined an endpoint. */
  hasLanes: boolean;
  /** The database's time in milliseconds since the epoch. */
  databaseMs: number;
};

const databaseMs = 'extract(epoch from clock_timestamp())::float8 * 1000';

/** As `findReady` for the first endpoints, at a third of its cost while no delivery waits. */
export async function findReadyIfAny(db: Db, of: Parameters<typeof findReady>[1]): Promise<Looked> {
  const [found] = await db.query<{ hasLanes: boolean; databaseMs: number }>(
    `select
       (select endpoint_id from delivery_lane order by endpoint_id limit 1) is not null as "hasLanes",
       ${databaseMs} as "databaseMs"`,
  );
  if (found === undefined) throw new Error('A statement without a condition had no row.');
  return found.hasLanes ? findReady(db, of) : { ready: [], lookOnAfter: 0, ...found };
}

/**
 * Endpoints that a delivery may be sent to by `now`, among the next `maxLooked` after `after` that have waiting deliveries.
 *
 * The statement jumps along the index of lanes, whose rows exist only while a delivery waits (and at endpoints for alerts, until
 * the next alert may be sent): one jump if nothing waits, one
 * for each endpoint with a million waiting deliveries, and at most `maxLooked` jumps however many breakers are open.
 */
export async function findReady(
  db: Db,
  of: { now: Date; after: number; maxOfEndpoint: number; maxLooked: number },
): Promise<Looked> {
  const rows = await db.query<Omit<Looked, 'ready'> & { id: number | null }>(readySql, [
    of.now,
    of.after,
    of.maxOfEndpoint,
    of.maxLooked,
  ]);
  const [looked] = rows;
  if (looked === undefined) throw new Error('A statement without a condition had no row.');
  return { ...looked, ready: rows.flatMap(({ id }) => id ?? []) };
}

// A probe needs no due lane: the only lane of an endpoint that works again might be due an hour later.
export const readySql = `
  with recursive busy (endpoint_id, nth) as (
    (select endpoint_id, 1 from delivery_lane where endpoint_id > $2 order by endpoint_id limit 1)
    union all
    select next.endpoint_id, busy.nth + 1
    from busy
    cross join lateral (
      select delivery_lane.endpoint_id
      from delivery_lane
      where delivery_lane.endpoint_id > busy.endpoint_id
      order by delivery_lane.endpoint_id
      limit 1
    ) as next
    where busy.nth < $4
  ), ready as (
    select endpoint.id
    from busy
    join endpoint on endpoint.id = busy.endpoint_id
    where endpoint.deleted_at is null
      and endpoint.disabled_at is null
      and coalesce(endpoint.open_until <= $1, true)
      and coalesce(endpoint.paused_until <= $1, true)
      and (
        select endpoint.open_until is not null or due_at <= greatest($1, now())
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and coalesce(lease_until <= clock_timestamp(), true)
        order by due_at
        limit 1
      )
      and (
        select count(*)
        from delivery_lane
        where delivery_lane.endpoint_id = busy.endpoint_id
          and owner is not null
          and lease_until > clock_timestamp()
      ) < case when endpoint.open_until is null then $3::bigint else 1 end
  )
  select
    looked.last as "lookOnAfter",
    looked.lanes > 0 as "hasLanes",
    ${databaseMs} as "databaseMs",
    ready.id
  from (
    select coalesce(max(endpoint_id) filter (where nth = $4), 0) as last, count(*) as lanes from busy
  ) as looked
  left join ready on true`;

type Target = {
  environmentId: number;
  environment: string;
  kind: EndpointKind;
  format: EndpointFormat;
  url: string;
  isProbe: boolean;
};

type Claiming = {
  endpointId: number;
  now: Date;
  /** The maximum number of claims. */
  max: number;
  /** The maximum number of deliveries under way to the endpoint, from all nodes together. One if it is a probe. */
  maxOfEndpoint: number;
  leaseMs: number;
};

/**
 * Claims due deliveries of an endpoint that no node sends, one of each lane. Empty if nothing may be sent to the endpoint, or
 * if another node is claiming there.
 *
 * A claim takes a lane, not a delivery, so an endpoint gets the events of a connection one after the other, in their order.
 * Leases use the database's clock, so the clocks of nodes may differ.
 */
export async function claimLanes(db: Db, claiming: Claiming): Promise<Claim[]> {
  const { endpointId, now } = claiming;
  return db.transaction(async (tx) => {
    const leasedAtMs = performance.now();
    // The transaction that locks the row counts and claims. Other nodes continue with other endpoints.
    const [target] = await tx.query<Target>(
      `select
         endpoint.environment_id as "environmentId",
         environment.name as environment,
         kind,
         format,
         url,
         open_until is not null as "isProbe",
         ${forShortWork}
       from endpoint
       join environment on environment.id = endpoint.environment_id
       where endpoint.id = $1
         and endpoint.deleted_at is null
         and disabled_at is null
         and coalesce(open_until <= $2, true)
         and coalesce(paused_until <= $2, true)
       for no key update of endpoint skip locked`,
      [endpointId, now],
    );
    if (target === undefined) return [];
    const { environmentId, environment, kind, format, url, isProbe } = target;
    const owner = crypto.randomUUID();
    const lanes = await takeLanes(tx, { ...claiming, owner, isProbe });
    if (lanes.length === 0) return [];
    const heads = await findHeads(tx, { endpointId, lanes });
    const endpoint = { id: endpointId, kind, format, url, isProbe };
    const claims = heads.map(
      ({ lane, ...delivery }): Claim => ({
        owner,
        leasedAtMs,
        environmentId,
        environment,
        endpoint,
        lane,
        delivery,
        others: [],
      }),
    );
    return format === 'standard' ? claims : withOthers(tx, claims);
  });
}

/**
 * Settings of a transaction that claims or settles, as columns of its first statement. Its commit does not wait for the
 * disk: a crash of the database may undo it, and the event is sent again under the same ID, as after any lost response. If
 * the node freezes in the transaction, the database ends it and its locks.
 */
export const forShortWork = `
  set_config('synchronous_commit', 'off', true),
  set_config('idle_in_transaction_session_timeout', '10000', true)`;

/**
 * A probe takes a due lane without failures if there is one, since an event that no receiver accepts must not stop the
 * others. Otherwise it takes a lane with failures, before its next attempt is due.
 */
async function takeLanes(tx: Tx, of: Claiming & { owner: string; isProbe: boolean }): Promise<number[]> {
  const max = of.isProbe ? Math.min(of.max, 1) : of.max;
  const maxOfEndpoint = of.isProbe ? 1 : of.maxOfEndpoint;
  const tries: [due: string, by: Date | 'infinity'][] = of.isProbe
    ? [
        [dueLanes.unfailed, of.now],
        [dueLanes.failing, 'infinity'],
      ]
    : [[dueLanes.all, of.now]];
  for (const [due, by] of tries) {
    const rows = await tx.query<{ lane: number }>(
      `update delivery_lane
       set owner = $5, lease_until = clock_timestamp() + make_interval(secs => $6)
       from (${due}) as due
       where delivery_lane.endpoint_id = $1 and delivery_lane.lane = due.lane
       returning delivery_lane.lane`,
      [of.endpointId, by, max, maxOfEndpoint, of.owner, of.leaseMs / 1000],
    );
    if (rows.length > 0) return rows.map(({ lane }) => lane);
  }
  return [];
}

// Counts the deliveries under way in a statement that begins after the endpoint's row is locked: an earlier statement would
// not include what another node has just claimed.
const dueLanesSql = (condition: string) => `
  select lane
  from delivery_lane
  where endpoint_id = $1
    and due_at <= greatest($2, now())
    and ${condition}
    and coalesce(lease_until <= clock_timestamp(), true)
  order by due_at
  limit least(
    $3::bigint,
    greatest(
      0,
      $4::bigint - (
        select count(*)
        from delivery_lane
        where endpoint_id = $1 and owner is not null and lease_until > clock_timestamp()
      )
    )
  )
  for update skip locked`;

export const dueLanes = {
  all: dueLanesSql('true'),
  unfailed: dueLanesSql('failures = 0'),
  failing: dueLanesSql('failures > 0'),
};

/**
 * Adds the deliveries that wait behind the heads. No further delivery is queued in these lanes before the commit. A node of a
 * version without alerts puts events of other types and integrations in the same lane: they get messages of their own.
 */
async function withOthers(tx: Tx, claims: readonly Claim[]): Promise<Claim[]> {
  const result: Claim[] = [];
  for (const claim of claims) {
    const waiting = await tx.query<{ id: number }>(
      `select delivery.id
       from delivery
       join event on event.id = delivery.event_id
       where delivery.endpoint_id = $1
         and delivery.lane = $2
         and delivery.status = 'waiting'
         and event.type = $3
         and event.data ->> 'provider_config_key' is not distinct from $4
       order by delivery.position, delivery.id
       limit ${maxAlertEvents}`,
      [claim.endpoint.id, claim.lane, claim.delivery.type, claim.delivery.data.provider_config_key ?? null],
    );
    const others = waiting.map(({ id }) => id).filter((id) => id !== claim.delivery.id);
    result.push({ ...claim, others });
  }
  return result;
}

/** The oldest waiting delivery of a lane. Both columns of the lane are given as SQL. */
export const headSql = ({ endpointId, lane }: { endpointId: string; lane: string }) => `
  select
    delivery.id,
    delivery.attempts,
    delivery.queued_at as "queuedAt",
    event.id as "eventId",
    event.type,
    event.created_at as "createdAt",
    event.data
  from delivery
  join event on event.id = delivery.event_id
  where delivery.endpoint_id = ${endpointId}
    and delivery.lane = ${lane}
    and delivery.status = 'waiting'
  order by delivery.position, delivery.id
  limit 1`;

/**
 * The oldest waiting deliveries of lanes whose rows the transaction locked in an earlier statement. A writer that queues a
 * delivery takes that lock first, so a lane without a waiting delivery is empty now, and is deleted.
 */
export function findHeads(
  tx: Tx,
  { endpointId, lanes }: { endpointId: number; lanes: readonly number[] },
): Promise<(Head & { lane: number })[]> {
  return tx.query(headsSql, [endpointId, lanes]);
}

export const headsSql = `
  with found as materialized (
    select taken.lane, head.*
    from unnest($2::bigint[]) as taken (lane)
    left join lateral (${headSql({ endpointId: '$1', lane: 'taken.lane' })}) as head on true
  ), closed as (
    delete from delivery_lane
    using found
    where delivery_lane.endpoint_id = $1
      and delivery_lane.lane = found.lane
      and found.id is null
  )
  select *
  from found
  where id is not null`;
