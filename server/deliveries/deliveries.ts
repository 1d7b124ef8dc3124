import { first, type Queryable } from '../db/pool.ts';

export const deliveryStatuses = ['waiting', 'delivered', 'dead'] as const;
type DeliveryStatus = (typeof deliveryStatuses)[number];

/** What became of an event at an endpoint. */
export type Delivery = {
  readonly id: number;
  readonly endpoint: number;
  readonly status: DeliveryStatus;
  readonly attempts: number;
  readonly eventId: string;
  readonly type: string;
  readonly integration: string | null;
  readonly connection: string | null;
  readonly createdAt: Date;
  readonly queuedAt: Date;
  readonly lastAttemptAt: Date | null;
  readonly lastAttempt: unknown;
  readonly settledAt: Date | null;
};

/** How many deliveries one call looks at for those of a type: no index knows both. */
const maxLooked = 5_000;

const columns = `
  delivery.id,
  delivery.endpoint_id as endpoint,
  delivery.status,
  delivery.attempts,
  event.id as "eventId",
  event.type,
  event.data ->> 'provider_config_key' as integration,
  event.data ->> 'connection_id' as connection,
  event.created_at as "createdAt",
  delivery.queued_at as "queuedAt",
  delivery.last_attempt_at as "lastAttemptAt",
  delivery.last_attempt as "lastAttempt",
  delivery.settled_at as "settledAt"`;

/**
 * Newest first, those before `before`; none of deleted endpoints. `next` is the `before` of the next page, undefined
 * where there is none. With a type a page may be short, or empty, and still not be the last one.
 */
export async function listDeliveries(
  db: Queryable,
  {
    environmentId,
    endpoint,
    status,
    type,
    before,
    limit,
  }: {
    environmentId: number;
    endpoint?: number | undefined;
    status?: DeliveryStatus | undefined;
    type?: string | undefined;
    before?: number | undefined;
    limit: number;
  },
): Promise<{ deliveries: Delivery[]; next: number | undefined }> {
  const maxRead = type === undefined ? limit : maxLooked;
  const values: unknown[] = [environmentId, before ?? Number.MAX_SAFE_INTEGER, maxRead, limit];
  const ofEndpoint = endpoint === undefined ? '' : `and delivery.endpoint_id = $${values.push(endpoint)}`;
  const ofType = type === undefined ? '' : `where event.type = $${values.push(type)}`;
  // Each status has its own order in the indexes; together they are as many rows as a page for each. The planner does not
  // see which status it is: for a waiting one it might read the index of all that wait in any environment.
  const newest = (status === undefined ? deliveryStatuses : [status]).map(
    (wanted) => `
      (
        select delivery.*
        from delivery
        join endpoint on endpoint.id = delivery.endpoint_id and endpoint.deleted_at is null
        where delivery.environment_id = $1
          and delivery.id < $2
          and delivery.status = (select '${wanted}')
          ${ofEndpoint}
        order by delivery.id desc
        limit $3
      )`,
  );
  const rows = await db.query<{ looked: number; oldest: number } & (Delivery | { id: null })>(
    `with looked as materialized (
       select *
       from (${newest.join(' union all ')}) as delivery
       order by delivery.id desc
       limit $3
     ),
     edge as (select count(*)::integer as looked, min(id) as oldest from looked)
     select edge.*, found.*
     from edge
     left join lateral (
       select ${columns}
       from looked as delivery
       join event on event.id = delivery.event_id
       ${ofType}
       order by delivery.id desc
       limit $4
     ) as found on true
     order by found.id desc`,
    values,
  );
  const [edge] = rows;
  const deliveries = rows.filter((row) => row.id !== null);
  const last = deliveries.length === limit ? deliveries.at(-1)?.id : undefined;
  const isMoreToLook = edge !== undefined && edge.looked === maxRead;
  return { deliveries, next: last ?? (isMoreToLook ? edge.oldest : undefined) };
}

/** One with its whole event; undefined where the environment has none of this ID, or its endpoint is deleted. */
export async function findDelivery(
  db: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<(Delivery & { data: Record<string, unknown> }) | undefined> {
  return first(
    await db.query<Delivery & { data: Record<string, unknown> }>(
      `select ${columns}, event.data
       from delivery
       join endpoint on endpoint.id = delivery.endpoint_id and endpoint.deleted_at is null
       join event on event.id = delivery.event_id
       where delivery.id = $1 and delivery.environment_id = $2`,
      [id, environmentId],
    ),
  );
}
