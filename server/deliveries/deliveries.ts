import type { Queryable } from '../db/pool.ts';

export const deliveryStatuses = ['waiting', 'delivered', 'dead'] as const;
export type DeliveryStatus = (typeof deliveryStatuses)[number];

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

/** Newest first, those before `before`; none of deleted endpoints. */
export async function listDeliveries(
  db: Queryable,
  {
    environmentId,
    endpoint,
    status,
    before,
    limit,
  }: {
    environmentId: number;
    endpoint?: number | undefined;
    status?: DeliveryStatus | undefined;
    before?: number | undefined;
    limit: number;
  },
): Promise<Delivery[]> {
  const values: unknown[] = [environmentId, before ?? Number.MAX_SAFE_INTEGER, limit];
  const ofEndpoint = endpoint === undefined ? '' : `and delivery.endpoint_id = $${values.push(endpoint)}`;
  // Each status has its own order in the indexes, and each is planned for how rare it is; together they are as many rows
  // as a page for each.
  const newest = (status === undefined ? deliveryStatuses : [status]).map(
    (wanted) => `
      (
        select delivery.*
        from delivery
        join endpoint on endpoint.id = delivery.endpoint_id and endpoint.deleted_at is null
        where delivery.environment_id = $1
          and delivery.id < $2
          and delivery.status = '${wanted}'
          ${ofEndpoint}
        order by delivery.id desc
        limit $3
      )`,
  );
  return db.query<Delivery>(
    `select
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
       delivery.settled_at as "settledAt"
     from (${newest.join(' union all ')}) as delivery
     join event on event.id = delivery.event_id
     order by delivery.id desc
     limit $3`,
    values,
  );
}
