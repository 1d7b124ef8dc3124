/**
 * Endpoints: the addresses that events are sent to.
 *
 * This folder owns the tables `endpoint`, `delivery`, `delivery_lane`, `signing_key`, `event_settings`. `worker.ts`
 * sends the claims of `claims.ts`, `settle.ts` stores the outcomes, `retry-policy.ts` decides when an attempt is repeated,
 * `deliveries.ts` lists and replays, and `sweep.ts` deletes. Does not own: events, and which endpoint an event is for
 * (`events/fan-out.ts`).
 */
import type { Queryable, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Breaker } from './retry-policy.ts';

export const endpointKinds = ['events', 'primary', 'secondary', 'override'] as const;
export type EndpointKind = (typeof endpointKinds)[number];

/** What an endpoint gets: the event as JSON, or an alert as `{text}` or as a mail. */
export const endpointFormats = ['standard', 'slack', 'email'] as const;
export type EndpointFormat = (typeof endpointFormats)[number];

export type Endpoint = Breaker & {
  readonly id: number;
  readonly kind: EndpointKind;
  readonly format: EndpointFormat;
  /** `mailto:` and an address, if the format is `email`. */
  readonly url: string;
  readonly description: string;
  /** Exact names, or prefixes such as `connection.*`. Empty: all types. */
  readonly types: readonly string[];
  readonly createdAt: Date;
  /** Null while it is enabled, as is the time. */
  readonly disabledCause: DisabledCause | null;
  readonly disabledAt: Date | null;
  readonly pausedUntil: Date | null;
  readonly lastSuccessAt: Date | null;
  readonly lastFailureAt: Date | null;
  readonly lastFailure: unknown;
  /** The number of waiting deliveries, counted up to `maxCounted`, and the time of the oldest. */
  readonly waiting: number;
  readonly waitingSince: Date | null;
};
type DisabledCause = 'operator' | 'gone' | 'failing';

/**
 * The part of an address that the audit log and other receivers may show: scheme, host and port, or the domain of a mail
 * address. The path of many receivers is their secret.
 */
export function originOf(url: string): string {
  const { protocol, origin, pathname } = new URL(url);
  return protocol === 'mailto:' ? `mailto:${pathname.slice(pathname.lastIndexOf('@'))}` : origin;
}

/** Larger numbers are not exact: a page of endpoints counts the deliveries of each. */
export const maxCounted = 1_000;
/** The maximum number of endpoints of an environment, without those for addresses of connections. */
const maxEndpoints = 50;

const select = `
  select
    endpoint.id, kind, format, url, description, types,
    endpoint.created_at as "createdAt",
    disabled_cause as "disabledCause",
    disabled_at as "disabledAt",
    failures,
    failing_since as "failingSince",
    openings,
    open_until as "openUntil",
    paused_until as "pausedUntil",
    last_success_at as "lastSuccessAt",
    last_failure_at as "lastFailureAt",
    last_failure as "lastFailure",
    backlog.waiting,
    backlog.since as "waitingSince"
  from endpoint
  cross join lateral (
    select count(*) as waiting, min(queued_at) as since
    from (
      select queued_at
      from delivery
      where endpoint_id = endpoint.id and status = 'waiting'
      order by queued_at
      limit ${maxCounted}
    ) as oldest
  ) as backlog`;

/** A place in the list: after this endpoint. Endpoints for addresses of connections come last. */
export type ListPlace = { readonly isOverride: boolean; readonly id: number };

/** At most `limit` endpoints after a place, oldest first; those for addresses of connections come last. */
export async function listEndpoints(
  db: Queryable,
  by: {
    environmentId: number;
    kinds?: readonly EndpointKind[] | undefined;
    after?: ListPlace | undefined;
    limit: number;
  },
): Promise<Endpoint[]> {
  const { environmentId, kinds = endpointKinds, after = { isOverride: false, id: 0 }, limit } = by;
  const page = (of: readonly EndpointKind[], { id, max }: { id: number; max: number }) =>
    db.query<Endpoint>(
      `${select}
       where environment_id = $1 and kind = any ($2) and deleted_at is null and endpoint.id > $3
       order by endpoint.id
       limit $4`,
      [environmentId, of, id, max],
    );
  const own = kinds.filter((kind) => kind !== 'override');
  const found = after.isOverride || own.length === 0 ? [] : await page(own, { id: after.id, max: limit });
  if (found.length < limit && kinds.includes('override')) {
    const id = after.isOverride ? after.id : 0;
    found.push(...(await page(['override'], { id, max: limit - found.length })));
  }
  return found;
}

/** Endpoints whose breaker is not closed and those disabled by failures, up to `limit`; those that fail longest first. */
export function listFailingEndpoints(
  db: Queryable,
  { environmentId, limit }: { environmentId: number; limit: number },
): Promise<Pick<Endpoint, 'id' | 'url' | 'disabledCause' | 'failures' | 'failingSince'>[]> {
  return db.query(
    `select
       id,
       url,
       disabled_cause as "disabledCause",
       failures,
       coalesce(failing_since, disabled_at) as "failingSince"
     from endpoint
     where environment_id = $1
       and deleted_at is null
       and (disabled_cause in ('gone', 'failing') or (disabled_cause is null and open_until is not null))
     order by "failingSince", id
     limit $2`,
    [environmentId, limit],
  );
}

type EndpointId = { id: number; environmentId: number };

/** Throws `not_found` if the environment has no such endpoint. */
export async function getEndpoint(db: Queryable, { id, environmentId }: EndpointId): Promise<Endpoint> {
  const [row] = await db.query<Endpoint>(
    `${select}
     where endpoint.id = $1 and environment_id = $2 and deleted_at is null`,
    [id, environmentId],
  );
  if (row === undefined) throw new AppError('not_found', `This environment has no endpoint ${id}.`);
  return row;
}

/** As `getEndpoint`, and locks the row until the transaction ends. */
export async function lockEndpoint(tx: Tx, at: EndpointId): Promise<Endpoint> {
  await tx.query('select from endpoint where id = $1 and environment_id = $2 for no key update', [
    at.id,
    at.environmentId,
  ]);
  return getEndpoint(tx, at);
}

/** Returns the ID. Throws `too_many_endpoints` if the environment has the maximum number. */
export async function insertEndpoint(
  tx: Tx,
  given: {
    environmentId: number;
    url: string;
    description: string;
    types: readonly string[];
    format?: EndpointFormat;
  },
): Promise<number> {
  // The lock lets only one transaction at a time count and add.
  await tx.query('select from environment where id = $1 for no key update', [given.environmentId]);
  const [row] = await tx.query<{ id: number }>(
    `insert into endpoint (environment_id, kind, url, description, types, format)
     select $1, 'events', $2, $3, $4, $5
     where (
       select count(*) from endpoint where environment_id = $1 and kind = 'events' and deleted_at is null
     ) < ${maxEndpoints}
     returning id`,
    [given.environmentId, given.url, given.description, given.types, given.format ?? 'standard'],
  );
  if (row === undefined) throw new AppError('too_many_endpoints');
  return row.id;
}

type EndpointChange = {
  url?: string | undefined;
  description?: string | undefined;
  types?: readonly string[] | undefined;
};

/**
 * Changes the given fields. A new address resets the breaker and ends the pause, and waiting deliveries are due at once.
 */
export async function updateEndpoint(
  tx: Tx,
  { at, change, now }: { at: EndpointId; change: EndpointChange; now: Date },
): Promise<void> {
  await tx.query(
    `update endpoint
     set url = coalesce($3, url), description = coalesce($4, description), types = coalesce($5, types)
     where id = $1 and environment_id = $2 and deleted_at is null`,
    [at.id, at.environmentId, change.url ?? null, change.description ?? null, change.types ?? null],
  );
  if (change.url !== undefined) await resume(tx, at, now);
}

/** The endpoint gets events again, waiting deliveries first. Resets the breaker and ends the pause. */
export async function enableEndpoint(tx: Tx, { at, now }: { at: EndpointId; now: Date }): Promise<void> {
  await tx.query(
    `update endpoint
     set disabled_cause = null, disabled_at = null
     where id = $1 and environment_id = $2 and deleted_at is null`,
    [at.id, at.environmentId],
  );
  await resume(tx, at, now);
}

/**
 * Nothing is queued for the endpoint or sent to it until it is enabled. Waiting deliveries stay until their time for attempts
 * is over. False if it was disabled already.
 */
export async function disableEndpoint(
  tx: Tx,
  { at: { id, environmentId }, cause, now }: { at: EndpointId; cause: DisabledCause; now: Date },
): Promise<boolean> {
  const rows = await tx.query(
    `update endpoint
     set disabled_cause = $3, disabled_at = $4
     where id = $1 and environment_id = $2 and disabled_at is null and deleted_at is null
     returning id`,
    [id, environmentId, cause, now],
  );
  return rows.length > 0;
}

/** The endpoint is no longer visible to callers. `sweep.ts` deletes its deliveries. */
export async function deleteEndpoint(tx: Tx, { at, now }: { at: EndpointId; now: Date }): Promise<void> {
  await tx.query(
    'update endpoint set deleted_at = $3 where id = $1 and environment_id = $2 and deleted_at is null',
    [at.id, at.environmentId, now],
  );
}

async function resume(tx: Tx, { id, environmentId }: EndpointId, now: Date): Promise<void> {
  await tx.query(
    `update endpoint
     set failures = 0, failing_since = null, openings = 0, open_until = null, paused_until = null
     where id = $1 and environment_id = $2`,
    [id, environmentId],
  );
  await tx.query(hastenFailing, [id, now]);
}

/**
 * Sets the time of all lanes of endpoint $1 that wait after a failure to $2. They are few, since a breaker opens soon. Lanes
 * with a lease stay as they are.
 */
export const hastenFailing = `
  update delivery_lane
  set due_at = $2
  from (
    select endpoint_id, lane
    from delivery_lane
    where endpoint_id = $1 and failures > 0 and owner is null
    for update skip locked
  ) as failing
  where delivery_lane.endpoint_id = failing.endpoint_id and delivery_lane.lane = failing.lane`;
