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
  const filter = await withFrequency(db, await resolved(db, page.filter));
  const rows =
    page.sort === 'created' && isSearchAlone(filter)
      ? await listNamed(db, { ...page, filter })
      : await db.run(selectPage({ ...page, filter }));
  return rows.map(({ madeAtUs, ...row }) => ({
    ...listedFrom(row, vault),
    position: `${madeAtUs}-${row.id}`,
  }));
}

/** Larger counts of connections are not exact: to count all of them on each view of a list would read them all. */
const maxCounted = 10_000;

/** The number of connections on all pages, up to `maxCounted`. */
export async function countConnections(db: Queryable, given: ConnectionFilter): Promise<number> {
  const filter = await withFrequency(db, await resolved(db, given));
  const isByName = isSearchAlone(filter);
  if (!isByName || (filter.isRare && !isShort(filter))) {
    const [row] = await db.run(isByName ? countRare(filter) : selectCount(filter));
    return row?.count ?? 0;
  }
  let count = 0;
  for await (const step of countNames(db, { filter })) {
    count += step.count;
    if (count >= maxCounted) return maxCounted;
  }
  return count;
}

/** Has row IDs of integrations: the planner has statistics about them. */
type ResolvedFilter = Omit<ConnectionFilter, 'integrationKeys'> & {
  integrationIds?: number[] | undefined;
  /** Of these integrations, or of all, those with a fault. Read for a filter by state. */
  faultyIds?: number[] | undefined;
  /** Few connections have the text of the search. */
  isRare?: boolean | undefined;
  /** Only the rows whose IDs this statement selects. */
  named?: RawBuilder<unknown> | undefined;
};

/** Such a search reads names alone, which are in the order of the list. */
function isSearchAlone(filter: ResolvedFilter): boolean {
  return filter.search !== undefined && conditionsOf({ ...filter, search: undefined }).length === 1;
}

/** The newest names, in which a search looks first. A text that one of 50 of them has is frequent. */
const maxNearest = 1_000;
/** One statement reads no more names than these where an index of them does not help. */
const maxNames = 4_000;
const ofNames = sql`(created_at, connection_id)`;
const newestFirst = sql`order by created_at desc, connection_id desc`;

async function withFrequency(db: Queryable, filter: ResolvedFilter): Promise<ResolvedFilter> {
  if (filter.search === undefined) return filter;
  const query = sql<{ isRare: boolean }>`
    select count(*) < ${maxNearest / 50} as "isRare"
    from (${newestNames(filter, { limit: maxNearest })}) as listed
    where ${isNamed(filter)}`;
  const [found] = await db.run({ compile: () => query.compile(tables) });
  return { ...filter, isRare: found?.isRare };
}

type NamedPage = Omit<ConnectionPage, 'sort' | 'filter'> & { filter: ResolvedFilter };

/** A frequent text is found in the newest names, and a rare one by the index of trigrams, which a short text does not have. */
async function listNamed(db: Queryable, { filter, limit, page, before }: NamedPage) {
  const { environmentId, isRare } = filter;
  const list = (condition: RawBuilder<boolean>, of: { limit: number; skipped: number }) => {
    const named = sql`
      select connection_id
      from (
        select connection_id, created_at
        from connection_name
        where environment_id = ${environmentId} and ${condition} and ${isNamed(filter)}
        ${isRare ? sql`offset 0` : sql``}
      ) as found
      ${newestFirst}
      limit ${of.limit}
      offset ${of.skipped}`;
    return db.run(selectPage({ limit, page: 0, sort: 'created', filter: { environmentId, named } }));
  };
  let skipped = limit * page;
  if (!isRare) return list(isOlder(before), { limit, skipped });
  if (!isShort(filter)) return list(sql`${isOlder(before)} and ${hasTrigrams(filter)}`, { limit, skipped });
  const rows: Awaited<ReturnType<typeof list>> = [];
  for await (const { count, last, ...from } of countNames(db, { filter, before })) {
    const condition = sql<boolean>`${isOlder(from.before)} and ${last === null ? sql`true` : compare(ofNames, '>=', last)}`;
    if (count > skipped) rows.push(...(await list(condition, { limit: limit - rows.length, skipped })));
    if (rows.length >= limit) break;
    skipped = Math.max(0, skipped - count);
  }
  return rows;
}

/** Counts the names that have the text in steps, newest first: those after `before` to `last`, or to the end. */
async function* countNames(db: Queryable, { filter, ...page }: Pick<NamedPage, 'filter' | 'before'>) {
  let { before } = page;
  do {
    const query = sql<{ count: number; last: string | null }>`
      select count, (extract(epoch from ended_at) * 1000000)::bigint || '-' || ended_with as last
      from (
        select
          (count(*) filter (where ${isNamed(filter)}))::integer as count,
          (array_agg(created_at))[${maxNames}] as ended_at,
          (array_agg(connection_id))[${maxNames}] as ended_with
        from (${newestNames(filter, { before, limit: maxNames })}) as listed
      ) as counted`;
    const [row] = await db.run({ compile: () => query.compile(tables) });
    const { count, last } = row!;
    yield { count, before, last };
    before = last ?? undefined;
  } while (before !== undefined);
}

/** Of a text that has trigrams and that few names have. */
function countRare(filter: ConnectionFilter) {
  const query = sql<{ count: number }>`
    select count(*)::integer as count from (${selectWithText(filter)} limit ${maxCounted}) as found`;
  return { compile: () => query.compile(tables) };
}

function newestNames(
  { environmentId }: ConnectionFilter,
  { before, limit }: { before?: string | undefined; limit: number },
) {
  return sql`
    select connection_id, created_at, names
    from connection_name
    where environment_id = ${environmentId} and ${isOlder(before)}
    ${newestFirst}
    limit ${limit}`;
}

function isOlder(before: string | undefined): RawBuilder<boolean> {
  return before === undefined ? sql`true` : compare(ofNames, '<', before);
}

/** Has no trigrams. */
function isShort({ search = '' }: ConnectionFilter): boolean {
  return [...search].length < 3;
}

function selectWithText(filter: ConnectionFilter) {
  return sql<{ connection_id: number }>`
    select connection_id
    from connection_name
    where environment_id = ${filter.environmentId} and ${hasTrigrams(filter)} and ${isNamed(filter)}`;
}

function isNamed({ search = '' }: ConnectionFilter): RawBuilder<boolean> {
  return sql`names like lower(${`%${search.replace(/[\\%_]/g, '\\$&')}%`})`;
}

function hasTrigrams(filter: ConnectionFilter): RawBuilder<boolean> {
  return isShort(filter) ? sql`true` : sql`trigrams(names) @> trigrams(lower(${filter.search}))`;
}

function compare(of: RawBuilder<unknown>, how: '<' | '>=', position: string): RawBuilder<boolean> {
  const [, atUs, id] = positionForm.exec(position) ?? [];
  return sql`${of} ${sql.raw(how)} (timestamptz 'epoch' + ${atUs}::bigint * interval '1 microsecond', ${id}::bigint)`;
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

export function selectPage(given: Omit<ConnectionPage, 'filter'> & { filter: ResolvedFilter }) {
  const { filter, sort, limit, page, before } = given;
  const conditions = conditionsOf(filter);
  if (before !== undefined)
    conditions.push(compare(sql`(connection.created_at, connection.id)`, '<', before));
  const inOrder =
    sort === 'created'
      ? sql`connection.created_at desc, connection.id desc`
      : sql`connection.last_used_at desc nulls last, connection.id desc`;
  // The other tables are joined to the page alone. The keys are read at once: a join reads their index again for each row.
  const withPage = tables
    .with('connection', (by) =>
      by
        .selectFrom('connection')
        .selectAll()
        .where('deleted_at', 'is', null)
        .where(({ and }) => and(conditions))
        .orderBy(inOrder)
        .limit(limit)
        .offset(limit * page),
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
    .orderBy(inOrder);
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

function conditionsOf(filter: ResolvedFilter): RawBuilder<boolean>[] {
  const { connectionId, search, endUserId, endUserOrganizationId, integrationIds, tags } = filter;
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
  if (tags && Object.keys(tags).length > 0) and(sql`tags <> '{}' and tags @> ${JSON.stringify(tags)}::jsonb`);
  if (filter.named) and(sql`connection.id = any(array(${filter.named}))`);
  if (search !== undefined) {
    const found = selectWithText(filter);
    // An index scan for an array reads a block once.
    and(filter.isRare ? sql`connection.id = any(array(${found}))` : sql`connection.id in (${found})`);
  }
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
  const isOfFaulty = hasFaulty
    ? sql<boolean>`not connection.has_own_client and connection.integration_id = any(${faultyIds})`
    : sql<boolean>`false`;
  const isIntegrationError = sql<boolean>`(${hasRefusedClient} or (${isOfFaulty}))`;
  const conditions = {
    integration_error: hasFaulty ? isIntegrationError : sql<boolean>`${isOfNote} and ${hasRefusedClient}`,
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
