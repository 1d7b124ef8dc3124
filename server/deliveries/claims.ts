import type { Db, Tx } from '../db/pool.ts';
import type { EndpointKind } from './endpoints.ts';

/** The right to send the oldest waiting delivery of a lane, for as long as its lease lasts. */
export type Claim = {
  readonly owner: string;
  /** By the clock of `performance.now()`: from then on the lease lasts at least its time. */
  readonly leasedAtMs: number;
  readonly environmentId: number;
  readonly environment: string;
  readonly endpoint: {
    readonly id: number;
    readonly kind: EndpointKind;
    readonly url: string;
    /** Whether its breaker is open, so that this attempt decides. */
    readonly isProbe: boolean;
  };
  readonly lane: number;
  readonly delivery: Head;
};

export type Head = {
  readonly id: number;
  /** Before the one that is due. */
  readonly attempts: number;
  readonly queuedAt: Date;
  readonly eventId: string;
  readonly type: string;
  readonly createdAt: Date;
  readonly data: Record<string, unknown>;
};

type Target = {
  environmentId: number;
  environment: string;
  kind: EndpointKind;
  url: string;
  isProbe: boolean;
};

type Claiming = {
  endpointId: number;
  now: Date;
  /** At most so many claims. */
  max: number;
  /** So many deliveries may be under way to an endpoint, from all nodes together; of probes one. */
  maxOfEndpoint: number;
  leaseMs: number;
};

/**
 * What is due by `now` at an endpoint and nobody sends, one delivery a lane; none where the endpoint may not be sent to, or
 * another node is claiming there.
 *
 * A lane is claimed, not a delivery: so an endpoint gets the events of a connection one after the other, in their order.
 * Leases go by the database's clock, so that nodes need not agree about the time; a node whose clock is late is not late.
 */
export async function claimLanes(db: Db, claiming: Claiming): Promise<Claim[]> {
  const { endpointId, now } = claiming;
  return db.transaction(async (tx) => {
    const leasedAtMs = performance.now();
    // The transaction that locks the row counts and claims; the others look at other endpoints.
    const [target] = await tx.query<Target>(
      `select
         endpoint.environment_id as "environmentId",
         environment.name as environment,
         kind,
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
    const { environmentId, environment, kind, url, isProbe } = target;
    const owner = crypto.randomUUID();
    const lanes = await takeLanes(tx, { ...claiming, owner, isProbe });
    if (lanes.length === 0) return [];
    const heads = await findHeads(tx, { endpointId, lanes });
    const endpoint = { id: endpointId, kind, url, isProbe };
    return heads.map(({ lane, ...delivery }) => ({
      ...{ owner, leasedAtMs, environmentId, environment, endpoint, lane, delivery },
    }));
  });
}

/**
 * Settings of a transaction that claims or settles, as columns of its first statement. Its commit does not wait for the
 * disk: what a crash of the database takes back is sent again under the same id, as after any lost answer. And where its
 * node freezes half-way, its locks end.
 */
export const forShortWork = `
  set_config('synchronous_commit', 'off', true),
  set_config('idle_in_transaction_session_timeout', '10000', true)`;

/**
 * For a probe, a lane that has not failed where one is due: an event that nobody can take must not stop the others. Else one
 * that has, though its next attempt would be later.
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

// What is under way is counted here, in a statement that begins when the endpoint's row is held: one that began before
// would not see what another node has just claimed.
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

/** The oldest waiting delivery of a lane, whose two columns are given as SQL. */
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
 * The oldest waiting deliveries of lanes whose rows the transaction has locked in a statement before: who queues more
 * takes that lock first, so a lane in which nothing is found now is empty, and closed.
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
