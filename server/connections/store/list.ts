import { type RawBuilder, sql } from 'kysely';
import { type Queryable, tables } from '../../db/pool.ts';
import type { ConnectionState } from '../../events/connection-states.ts';
import type { Vault } from '../../vault.ts';
import {
  type ConnectionStatus,
  connectionStatuses,
  type ListedConnection,
  listedFrom,
  selectListed,
} from './store.ts';

/** Lists and counts of connections. Reads no credentials. */

export type ConnectionFilter = {
  environmentId: number;
  connectionId?: string | undefined;
  /** Part of the ID, of the account's ID or e-mail address, or of the end user's ID, name or e-mail address. */
  search?: string | undefined;
  endUserId?: string | undefined;
  endUserOrganizationId?: string | undefined;
  integrationKeys?: string[] | undefined;
  statuses?: readonly ConnectionStatus[] | undefined;
  state?: ConnectionState | undefined;
  /** Only connections with a sync whose last run failed, and which runs again. */
  hasFailingSync?: boolean | undefined;
  /** A connection must have all of these tags. */
  tags?: Record<string, string> | undefined;
};

export const sorts = ['created', 'last_used'] as const;
export type ConnectionPage = {
  filter: ConnectionFilter;
  /** Latest first; connections that were never used come last. */
  sort: (typeof sorts)[number];
  limit: number;
  /** Counted from 0. */
  page: number;
  /** Only connections after this position, of the order by creation. */
  before?: string | undefined;
};

/** The position of a connection in the order by creation: microseconds since 1970, and the row. */
export const positionForm = /^(\d{1,17})-(\d{1,15})$/;

export async function listConnections(
  db: Queryable,
  { vault, ...page }: ConnectionPage & { vault: Vault },
): Promise<(ListedConnection & { position: string })[]> {
  const given = { ...page, filter: await resolved(db, page.filter) };
  const rows = await (page.filter.search === undefined ? db.run(selectPage(given)) : listNamed(db, given));
  return rows.map(({ madeAtUs, ...row }) => ({
    ...listedFrom(row, vault),
    position: `${madeAtUs}-${row.id}`,
  }));
}

/** Larger counts of connections are not exact: to count all of them on each view of a list would read them all. */
const maxCounted = 10_000;

/** The number of connections on all pages, up to `maxCounted`. */
export async function countConnections(db: Queryable, given: ConnectionFilter): Promise<number> {
  const filter = await resolved(db, given);
  if (filter.search === undefined) {
    const [row] = await db.run(selectCount(filter));
    return row?.count ?? 0;
  }
  let count = 0;
  for await (const ids of findNamed(db, { filter })) {
    count += ids.length;
    if (count >= maxCounted) return maxCounted;
  }
  return count;
}

/** Has row IDs of integrations: the planner has statistics about them. */
type ResolvedFilter = Omit<ConnectionFilter, 'integrationKeys'> & {
  integrationIds?: number[] | undefined;
  /** Of these integrations, or of all, those with a fault. Read for a filter by state. */
  faultyIds?: number[] | undefined;
  /** Only these rows. */
  ids?: number[] | undefined;
};

type ResolvedPage = Omit<ConnectionPage, 'filter'> & { filter: ResolvedFilter };

/** A row that is deleted after its name was found is replaced by the next one, so that no page has a gap. */
async function listNamed(db: Queryable, { filter, sort, limit, page, before }: ResolvedPage) {
  const { environmentId } = filter;
  const list = (of: Pick<ResolvedPage, 'limit' | 'page'> & { ids: number[] }) =>
    db.run(selectPage({ ...of, sort, filter: { environmentId, ids: of.ids } }));
  if (sort === 'last_used') {
    const ids: number[] = [];
    for await (const found of findNamed(db, { filter })) ids.push(...found);
    return list({ ids, limit, page });
  }
  const rows: Awaited<ReturnType<typeof list>> = [];
  let skipped = limit * page;
  for await (const found of findNamed(db, { filter, before })) {
    let ids = found.slice(skipped);
    skipped -= found.length - ids.length;
    while (ids.length > 0 && rows.length < limit) {
      const wanted = limit - rows.length;
      rows.push(...(await list({ ids: ids.slice(0, wanted), limit: wanted, page: 0 })));
      ids = ids.slice(wanted);
    }
    if (rows.length === limit) break;
  }
  return rows;
}

/** The newest names, in which a search looks first. A text that one of 50 of them has is frequent. */
const maxNearest = 1_000;
/** One statement reads no more names than these where an index of them does not help. */
const maxNames = 3_000;
/** One statement reads no more rows than these where each can be in a block of its own. */
const maxFew = 50;

/**
 * The rows of a search, newest first, in steps of the newest names. Where few connections match the other conditions, or few
 * of the first names have the text, an index finds the rest: that of trigrams, which one or two characters do not have.
 */
async function* findNamed(
  db: Queryable,
  { filter, before }: Pick<ResolvedPage, 'filter' | 'before'>,
): AsyncGenerator<number[]> {
  const { search = '', ...others } = filter;
  const run = async <Row>(query: RawBuilder<Row>) => db.run({ compile: () => query.compile(tables) });
  if (conditionsOf(others).length > 1) {
    const found = await run(
      selectIds({ filter: others, sort: 'created', limit: maxFew + 1, page: 0, before }),
    );
    if (found.length <= maxFew) {
      const few = { environmentId: filter.environmentId, search, ids: found.map(({ id }) => id) };
      const [step] = await run(selectNamed(few, {}));
      yield step!.ids;
      return;
    }
  }
  let reach: Reach = { before, limit: maxNearest };
  for (;;) {
    const [step] = await run(selectNamed(filter, reach));
    const { ids, count, last } = step!;
    yield ids;
    if (last === null) return;
    const isRare = reach.before === before && count < maxNearest / 50 && [...search].length > 2;
    reach = { before: last, ...(!isRare && { limit: hasTags(filter) ? maxNearest : maxNames }) };
  }
}

/** The names before a position: the newest ones up to `limit`, or all. */
type Reach = { before?: string | undefined; limit?: number };

/** `count` is that of the names that have the text. `last` is the position of the last name, if there can be more. */
function selectNamed({ search = '', ids, ...filter }: ResolvedFilter, { before, limit }: Reach) {
  const conditions = conditionsOf(filter);
  const hasText = sql`names like lower(${`%${search.replace(/[\\%_]/g, '\\$&')}%`})`;
  const newestFirst = sql`order by created_at desc, connection_id desc`;
  const read = ids
    ? sql`connection_id = any(${ids})`
    : limit === undefined
      ? sql`trigrams(names) @> trigrams(lower(${search})) and ${hasText}`
      : sql`true ${newestFirst} limit ${limit}`;
  // Without tags, an index alone has the columns of rows of a span of time. Otherwise each block of rows is read once.
  const isNamed =
    limit === undefined || hasTags(filter)
      ? sql`connection.id = any((select ids from step)::bigint[])`
      : sql`
        connection.created_at >= (select begins_at from step)
        and connection.created_at <= (select ends_at from step)
        and ${hashed(sql`connection.id in (select unnest(ids) from step)`)}`;
  const matching =
    conditions.length === 1
      ? sql`ids`
      : sql`array(
        select id
        from connection
        where deleted_at is null and ${sql.join(conditions, sql` and `)} and ${isNamed}
        order by created_at desc, id desc
      )`;
  return sql<{ count: number; ids: number[]; last: string | null }>`
    with step as materialized (
      select
        coalesce(array_agg(connection_id ${newestFirst}) filter (where ${hasText}), '{}') as ids,
        min(created_at) as begins_at,
        max(created_at) as ends_at,
        (array_agg(connection_id))[${limit ?? null}::integer] as last
      from (
        select connection_id, created_at, names
        from connection_name
        where
          environment_id = ${filter.environmentId}
          and ${before === undefined ? sql`true` : isBefore(sql`(created_at, connection_id)`, before)}
          and ${read}
      ) as listed
    )
    select
      cardinality(ids) as count,
      to_json(${matching}) as ids,
      (extract(epoch from begins_at) * 1000000)::bigint || '-' || last as last
    from step`;
}

/** The planner makes no join of the condition, for which it would estimate wrong numbers of rows, and reads its list once. */
function hashed(isIn: RawBuilder<unknown>): RawBuilder<boolean> {
  return sql`coalesce(${isIn}, false)`;
}

function isBefore(of: RawBuilder<unknown>, position: string): RawBuilder<boolean> {
  const [, atUs, id] = positionForm.exec(position) ?? [];
  return sql`${of} < (timestamptz 'epoch' + ${atUs}::bigint * interval '1 microsecond', ${id}::bigint)`;
}

export async function resolved(
  db: Queryable,
  { integrationKeys, ...filter }: ConnectionFilter,
): Promise<ResolvedFilter> {
  // An ID of a connection is unique, and indexed, within its integration.
  const isByIntegration = integrationKeys !== undefined || filter.connectionId !== undefined;
  if (!isByIntegration && filter.state === undefined) return filter;
  const found = await db.query<{ id: number; isFaulty: boolean }>(
    `select id, fault is not null as "isFaulty"
     from integration
     where environment_id = $1 and ($2::text[] is null or key = any($2))`,
    [filter.environmentId, integrationKeys ?? null],
  );
  return {
    ...filter,
    integrationIds: isByIntegration ? found.map(({ id }) => id) : undefined,
    faultyIds: found.flatMap(({ id, isFaulty }) => (isFaulty ? [id] : [])),
  };
}

/** From an index alone, if one has the order and all columns of the conditions. */
function selectIds({ filter, sort, limit, page, before }: ResolvedPage) {
  const conditions = conditionsOf(filter);
  if (before !== undefined) conditions.push(isBefore(sql`(connection.created_at, connection.id)`, before));
  return sql<{ id: number }>`
    select id
    from connection
    where deleted_at is null and ${sql.join(conditions, sql` and `)}
    order by ${orderOf(sort)}
    limit ${limit}
    offset ${limit * page}`;
}

function orderOf(sort: ConnectionPage['sort']) {
  return sort === 'created'
    ? sql`connection.created_at desc, connection.id desc`
    : sql`connection.last_used_at desc nulls last, connection.id desc`;
}

export function selectPage(given: ResolvedPage) {
  // Whole rows are read for the page alone, and the other tables are joined to it. The keys are read at once: a join reads
  // their index again for each row.
  const withPage = tables
    .with('connection', (by) =>
      by
        .selectFrom('connection')
        .selectAll()
        .where(sql<boolean>`id = any(array(${selectIds(given)}))`),
    )
    .with(
      (cte) => cte('data_key').materialized(),
      (by) =>
        by
          .selectFrom('data_key')
          .selectAll()
          .where(sql<boolean>`id = any(array(select data_key from connection where metadata is not null))`),
    );
  return selectListed(withPage)
    .select(sql<string>`(extract(epoch from connection.created_at) * 1000000)::bigint::text`.as('madeAtUs'))
    .orderBy(orderOf(given.sort));
}

export function selectCount(filter: ResolvedFilter) {
  const found = tables
    .selectFrom('connection')
    .select(sql`1`.as('one'))
    .where('connection.deleted_at', 'is', null)
    .where(({ and }) => and(conditionsOf(filter)))
    .limit(maxCounted)
    .as('found');
  return tables.selectFrom(found).select(sql<number>`count(*)::integer`.as('count'));
}

function hasTags({ tags = {} }: ConnectionFilter): boolean {
  return Object.keys(tags).length > 0;
}

function conditionsOf(filter: ResolvedFilter): RawBuilder<boolean>[] {
  const { connectionId, endUserId, endUserOrganizationId, integrationIds, tags, ids } = filter;
  const conditions = [sql<boolean>`connection.environment_id = ${filter.environmentId}`];
  const and = (condition: RawBuilder<boolean>) => conditions.push(condition);
  if (connectionId !== undefined) and(sql`connection.connection_id = ${connectionId}`);
  // With one integration an equality lets an index return the order.
  if (integrationIds?.length === 1) and(sql`connection.integration_id = ${integrationIds[0]}`);
  else if (integrationIds) and(sql`connection.integration_id = any(${integrationIds})`);
  const statuses = [...new Set(filter.statuses)];
  // With one status an equality lets an index return the order; with all of them no condition is needed.
  if (statuses.length === 1) and(sql`connection.status = ${statuses[0]}`);
  else if (statuses.length > 0 && statuses.length < connectionStatuses.length)
    and(sql`connection.status = any(${statuses})`);
  if (filter.state !== undefined) and(stateCondition(filter.state, filter));
  if (filter.hasFailingSync)
    and(sql`connection.id in (
      select sync.connection_id
      from sync
      join function on function.id = sync.function_id
      where
        function.environment_id = ${filter.environmentId}
        and function.is_enabled
        and sync.state = 'active'
        and sync.held is null
        and sync.failures > 0
    )`);
  // As an array, since the planner overestimates how many connections match and would read the newest until some do.
  const ofUser = (condition: RawBuilder<boolean>) =>
    and(sql`connection.id = any(array(
      select id
      from connection as own
      where environment_id = ${filter.environmentId} and deleted_at is null and ${condition}
    ))`);
  if (endUserId !== undefined) ofUser(sql`end_user->>'id' = ${endUserId}`);
  if (endUserOrganizationId !== undefined)
    ofUser(sql`end_user->'organization'->>'id' = ${endUserOrganizationId}`);
  // The index has only connections with tags.
  if (hasTags(filter)) and(sql`tags <> '{}' and tags @> ${JSON.stringify(tags)}::jsonb`);
  if (ids)
    and(ids.length > maxFew ? hashed(sql`connection.id = any(${ids})`) : sql`connection.id = any(${ids})`);
  return conditions;
}

/** The provider does not allow the client to refresh this connection. */
const hasRefusedClient = sql<boolean>`(
    connection.withheld is not null
    or connection.outage->>'cause' is not distinct from 'settings_refused'
  )`;

/**
 * Active connections that are not healthy, whatever the state of their integration. They are few, and the index
 * `connection_of_note` has them.
 */
const isOfNote = sql<boolean>`(
    (is_unverified or lacks_scopes or outage is not null or withheld is not null)
    and status = 'active'
    and deleted_at is null
  )`;

/** The condition of a state, as `health/health.ts` computes it for one connection. */
function stateCondition(
  state: ConnectionState,
  { environmentId, faultyIds = [] }: ResolvedFilter,
): RawBuilder<boolean> {
  if (state === 'blocked') return sql`connection.status = 'blocked'`;
  if (state === 'reconnect_needed') return sql`connection.status = 'needs_reauth'`;
  const hasFaulty = faultyIds.length > 0;
  // The columns are in the indexes of lists: rows that do not match are not read.
  const isOfFaulty = hasFaulty
    ? sql<boolean>`(
      connection.integration_id = any(${faultyIds})
      and connection.id not in (
        select id from connection as own
        where own.integration_id = any(${faultyIds}) and own.has_own_client and own.deleted_at is null
      )
    )`
    : sql<boolean>`false`;
  const isIntegrationError = sql<boolean>`(${hasRefusedClient} or (${isOfFaulty}))`;
  const conditions = {
    integration_error: hasFaulty
      ? sql<boolean>`(${isOfFaulty} or connection.id in (
        select id from connection where environment_id = ${environmentId} and ${isOfNote} and ${hasRefusedClient}
      ))`
      : sql<boolean>`${isOfNote} and ${hasRefusedClient}`,
    provider_unavailable: sql<boolean>`connection.outage is not null and not ${isIntegrationError}`,
    scopes_missing: sql<boolean>`connection.lacks_scopes and connection.outage is null and not ${isIntegrationError}`,
    unverified: sql<boolean>`connection.is_unverified and not connection.lacks_scopes and connection.outage is null
      and not ${isIntegrationError}`,
    // Their count reads indexes alone.
    healthy: sql<boolean>`not (${isOfFaulty}) and connection.id not in (
      select id from connection as other where environment_id = ${environmentId} and ${isOfNote}
    )`,
  };
  return sql`(connection.status = 'active' and ${conditions[state]})`;
}

type ConnectionCounts = Record<'total' | ConnectionStatus, number>;

/** Counts of connections by the row ID of their integration, each up to `maxCounted`. */
export async function countByIntegration(
  db: Queryable,
  environmentId: number,
): Promise<Map<number, ConnectionCounts>> {
  const rows = await db.run({ compile: () => selectIntegrationCounts(environmentId) });
  return new Map(
    rows.map(({ integrationId, ...counts }) => [
      integrationId,
      { ...counts, total: counts.active + counts.needs_reauth + counts.blocked },
    ]),
  );
}

/** Each status has its own index. Those other than `active` are few, so they are counted for all integrations at once. */
export function selectIntegrationCounts(environmentId: number) {
  return sql<{ integrationId: number } & Record<ConnectionStatus, number>>`
    select
      integration.id as "integrationId",
      (
        select count(*)::integer
        from (
          select
          from connection
          where integration_id = integration.id and status = 'active' and deleted_at is null
          limit ${maxCounted}
        ) as found
      ) as active,
      coalesce(others.needs_reauth, 0) as needs_reauth,
      coalesce(others.blocked, 0) as blocked
    from integration
    left join (
      select
        integration_id,
        count(*) filter (where status = 'needs_reauth')::integer as needs_reauth,
        count(*) filter (where status = 'blocked')::integer as blocked
      from (
        select integration_id, status
        from connection
        where environment_id = ${environmentId} and status in ('needs_reauth', 'blocked') and deleted_at is null
        limit ${maxCounted}
      ) as found
      group by integration_id
    ) as others on others.integration_id = integration.id
    where integration.environment_id = ${environmentId}`.compile(tables);
}

export function noConnections(): ConnectionCounts {
  return { total: 0, active: 0, needs_reauth: 0, blocked: 0 };
}

/** Counts of connections by status, each up to `maxCounted`. */
export function selectStatusCounts(environmentId: number) {
  return sql<{ status: ConnectionStatus; count: number }>`
    select
      named.status,
      (
        select count(*)::integer
        from (
          select
          from connection
          where environment_id = ${environmentId} and status = named.status and deleted_at is null
          limit ${maxCounted}
        ) as found
      ) as count
    from unnest(${[...connectionStatuses]}::text[]) as named (status)`.compile(tables);
}

/** Of active connections that are not healthy, those whose state is read for `selectStateCounts`. */
const maxExamined = 10_000;

/**
 * Connections of the installation that are active and not healthy, by state. `other`: beyond `maxExamined`, so that the
 * statement reads few rows after an import of many. All other counts are read from indexes alone.
 */
export function selectStateCounts() {
  const isFaulty = sql`integration_id = any(array(select id from integration where fault is not null))`;
  const ofFaulty = sql`from connection where ${isFaulty} and status = 'active' and deleted_at is null`;
  return sql<{ state: ConnectionState | 'other'; count: number }>`
    with examined as (
      select
        case
          when ${hasRefusedClient} then 'integration_error'
          when outage is not null then 'provider_unavailable'
          when lacks_scopes then 'scopes_missing'
          else 'unverified'
        end as state,
        ${isFaulty} and not has_own_client as is_of_faulty
      from connection
      where ${isOfNote}
      limit ${maxExamined}
    )
    select state, count(*)::integer as count from examined where not is_of_faulty group by state
    union all
    select
      'integration_error',
      ((select count(*) ${ofFaulty}) - (select count(*) ${ofFaulty} and has_own_client))::integer
    union all
    select 'other', greatest(count(*) - ${maxExamined}, 0)::integer from connection where ${isOfNote}`.compile(
    tables,
  );
}

export async function countByStatus(
  db: Queryable,
  environmentId: number,
): Promise<Record<ConnectionStatus, number>> {
  const rows = await db.run({ compile: () => selectStatusCounts(environmentId) });
  return Object.fromEntries(rows.map(({ status, count }) => [status, count])) as Record<
    ConnectionStatus,
    number
  >;
}
