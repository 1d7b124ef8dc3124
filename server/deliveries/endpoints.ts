/**
 * Where events are sent: endpoints, their deliveries, and what they are signed with.
 *
 * Owns: the tables `endpoint`, `delivery`, `delivery_lane`, `signing_key`, `event_settings`. Neighbours: `worker.ts`
 * looks for what is `worker.ts`, sends what `claims.ts` gives it and has `settle.ts` and `settle-failed.ts` note what became
 * of it, `breaker.ts` judges failures, `replay.ts` queues again, `sweep.ts` clears away. Does not own: events, and which of them goes where (`events/fan-out.ts`).
 */
import { type Queryable, type Tx, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Breaker } from './breaker.ts';

export const endpointKinds = ['events', 'primary', 'secondary', 'override'] as const;
export type EndpointKind = (typeof endpointKinds)[number];

export type Endpoint = Breaker & {
  readonly id: number;
  readonly kind: EndpointKind;
  readonly url: string;
  readonly description: string;
  /** Exact names, or `connection.*`; none means all. */
  readonly types: readonly string[];
  readonly createdAt: Date;
  /** Undefined while it is enabled. */
  readonly disabled: { cause: DisabledCause; at: Date } | undefined;
  readonly pausedUntil: Date | null;
  readonly lastSuccessAt: Date | null;
  readonly lastFailureAt: Date | null;
  readonly lastFailure: unknown;
  /** How many deliveries wait, counted up to `maxCounted`, and since when the oldest does. */
  readonly waiting: number;
  readonly waitingSince: Date | null;
};
type DisabledCause = 'operator' | 'gone' | 'failing';

/** Beyond it nobody waits for the exact number: a page of endpoints counts for each. */
export const maxCounted = 1_000;
/** Of an environment, without those that connections bring. */
const maxEndpoints = 50;

type Row = Omit<Endpoint, 'disabled'> & { disabledCause: DisabledCause | null; disabledAt: Date | null };

const select = `
  select
    endpoint.id, kind, url, description, types,
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

/** A place in the list: behind this endpoint. Those of connections come last, however many they are. */
export type ListPlace = { readonly isOverride: boolean; readonly id: number };

/**
 * At most `limit` after a place, in the order in which they were made; those that connections bring come after all others.
 */
export async function listEndpoints(
  db: Queryable,
  {
    environmentId,
    kinds = endpointKinds,
    after = { isOverride: false, id: 0 },
    limit,
  }: {
    environmentId: number;
    kinds?: readonly EndpointKind[] | undefined;
    after?: ListPlace | undefined;
    limit: number;
  },
): Promise<Endpoint[]> {
  const page = (of: readonly EndpointKind[], { id, max }: { id: number; max: number }) =>
    db.query<Row>(
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
  return found.map(fromRow);
}

type At = { id: number; environmentId: number };

/** Throws `not_found` where the environment has no such endpoint. */
export async function getEndpoint(db: Queryable, { id, environmentId }: At): Promise<Endpoint> {
  const [row] = await db.query<Row>(
    `${select}
     where endpoint.id = $1 and environment_id = $2 and deleted_at is null`,
    [id, environmentId],
  );
  if (row === undefined) throw unknownEndpoint(id);
  return fromRow(row);
}

/** As `getEndpoint`; its row is nobody else's to change before the transaction ends. */
export async function lockEndpoint(tx: Tx, at: At): Promise<Endpoint> {
  await tx.query('select from endpoint where id = $1 and environment_id = $2 for no key update', [
    at.id,
    at.environmentId,
  ]);
  return getEndpoint(tx, at);
}

/** Throws `too_many_endpoints` where the environment has as many as it may. Answers the id. */
export async function insertEndpoint(
  tx: Tx,
  given: { environmentId: number; url: string; description: string; types: readonly string[] },
): Promise<number> {
  // The lock lets only one transaction at a time count and add.
  await tx.query('select from environment where id = $1 for no key update', [given.environmentId]);
  const [row] = await tx.query<{ id: number }>(
    `insert into endpoint (environment_id, kind, url, description, types)
     select $1, 'events', $2, $3, $4
     where (
       select count(*) from endpoint where environment_id = $1 and kind = 'events' and deleted_at is null
     ) < ${maxEndpoints}
     returning id`,
    [given.environmentId, given.url, given.description, given.types],
  );
  if (row === undefined) throw new AppError('too_many_endpoints');
  return row.id;
}

/**
 * Changes what is given. With another address, or enabled again, it has no past: breaker and pause are over, and what
 * waits is due at once.
 */
export async function updateEndpoint(
  tx: Tx,
  {
    at: { id, environmentId },
    change,
    now,
  }: {
    at: At;
    change: {
      url?: string | undefined;
      description?: string | undefined;
      types?: readonly string[] | undefined;
    };
    now: Date;
  },
): Promise<void> {
  await tx.query(
    `update endpoint
     set url = coalesce($3, url), description = coalesce($4, description), types = coalesce($5, types)
     where id = $1 and environment_id = $2 and deleted_at is null`,
    [id, environmentId, change.url ?? null, change.description ?? null, change.types ?? null],
  );
  if (change.url !== undefined) await resume(tx, { at: { id, environmentId }, now });
}

/** From now on it gets events again, those that wait for it first. */
export async function enableEndpoint(
  tx: Tx,
  { at: { id, environmentId }, now }: { at: At; now: Date },
): Promise<void> {
  await tx.query(
    `update endpoint
     set disabled_cause = null, disabled_at = null
     where id = $1 and environment_id = $2 and deleted_at is null`,
    [id, environmentId],
  );
  await resume(tx, { at: { id, environmentId }, now });
}

/**
 * Nothing is queued for it or sent to it until it is enabled; what waits goes on waiting, for its time. False where it was
 * disabled already.
 */
export async function disableEndpoint(
  tx: Tx,
  { at: { id, environmentId }, cause, now }: { at: At; cause: DisabledCause; now: Date },
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

/** It is gone for everybody at once. Its deliveries are removed by `sweep.ts`. */
export async function deleteEndpoint(
  tx: Tx,
  { at: { id, environmentId }, now }: { at: At; now: Date },
): Promise<void> {
  await tx.run(
    tables
      .updateTable('endpoint')
      .set({ deleted_at: now })
      .where('id', '=', id)
      .where('environment_id', '=', environmentId)
      .where('deleted_at', 'is', null),
  );
}

async function resume(tx: Tx, { at: { id, environmentId }, now }: { at: At; now: Date }): Promise<void> {
  await tx.query(
    `update endpoint
     set failures = 0, failing_since = null, openings = 0, open_until = null, paused_until = null
     where id = $1 and environment_id = $2`,
    [id, environmentId],
  );
  await tx.query(hastenFailing, [id, now]);
}

/**
 * The lanes of endpoint $1 that wait after a failure are due at $2. They are few, since a breaker opens soon; those that
 * somebody holds go on as they are.
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

function unknownEndpoint(id: number): AppError {
  return new AppError('not_found', `This environment has no endpoint ${id}.`);
}

function fromRow({ disabledCause, disabledAt, ...row }: Row): Endpoint {
  return {
    ...row,
    disabled:
      disabledCause === null || disabledAt === null ? undefined : { cause: disabledCause, at: disabledAt },
  };
}
