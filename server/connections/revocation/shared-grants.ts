/**
 * The connections that would lose access if a grant ended.
 *
 * Owns: which living connections belong to a unit, in all environments: by their own OAuth client, else by the client
 * of their integration. A connection whose own client is unknown may belong to any unit of its provider. Does not
 * own: the definition of a unit (`revocation-lock.ts`).
 */
import { revocationUnit } from '../../auth-modes/revocation.ts';
import type { Queryable } from '../../db/pool.ts';
import type { IntegrationReading } from '../../integrations/store.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { withSandbox } from '../../providers/sandbox.ts';

/** `accountId`: the account whose grant may end, if known. `exceptId`: a connection that does not count. */
type GrantQuery = {
  unit: string;
  accountId: string | undefined;
  exceptId?: number | undefined;
  reading: IntegrationReading;
};

/** A connection that needs its user anyway loses nothing. */
const living = `integration_id = any($1) and deleted_at is null and status <> 'needs_reauth'`;
const withSharedClient = `${living} and not has_own_client`;

/**
 * Whether a living connection of the unit, in any environment, would lose access with the account's grant: a
 * connection of the account, or one that may belong to it because an account is unknown. Stops at the first match.
 */
export async function isGrantShared(q: Queryable, query: GrantQuery): Promise<boolean> {
  const { accountId, exceptId } = query;
  const others = `select from connection where ${withSharedClient} and id is distinct from $2`;
  const integrations = await integrationsOf(q, query);
  // The account has an index, which a single condition with `or` would not use.
  const [row] = await (accountId === undefined
    ? q.query<{ found: boolean }>(`select exists (${others}) as found`, [integrations, exceptId ?? null])
    : q.query<{ found: boolean }>(
        `select exists (${others} and account_id = $3) or exists (${others} and account_id is null) as found`,
        [integrations, exceptId ?? null, accountId],
      ));
  return row?.found === true || (await listWithOwnClient(q, query)).length > 0;
}

/**
 * Counts the connections that `isGrantShared` looks for. `certain` has those known to belong to the account and the
 * unit, by ID.
 */
export async function countSharedGrants(
  q: Queryable,
  query: GrantQuery,
): Promise<{ count: number; certain: { id: number; environmentId: number }[] }> {
  const { accountId, exceptId } = query;
  const given = [await integrationsOf(q, query), exceptId ?? null];
  const own = await listWithOwnClient(q, query);
  const count = async (condition: string) => {
    const [row] = await q.query<{ count: number }>(
      `select count(*) as count from connection where ${withSharedClient} and id is distinct from $2 ${condition}`,
      given,
    );
    return row?.count ?? 0;
  };
  if (accountId === undefined) return { count: (await count('')) + own.length, certain: [] };
  const certain = await q.query<{ id: number; environmentId: number }>(
    `select id, environment_id as "environmentId"
     from connection
     where ${withSharedClient} and id is distinct from $2 and account_id = $3
     order by id`,
    [...given, accountId],
  );
  const known = own.filter((one) => one.accountId === accountId && one.clientId !== null);
  return {
    count: certain.length + own.length + (await count('and account_id is null')),
    certain: [...certain, ...known.map(({ id, environmentId }) => ({ id, environmentId }))],
  };
}

/** Whether a living connection of the account in the unit has a grant newer than `since`. */
export async function isGrantSharedSince(
  q: Queryable,
  { since, ...query }: { unit: string; accountId: string; since: Date; reading: IntegrationReading },
): Promise<boolean> {
  const { accountId } = query;
  const [row] = await q.query<{ found: boolean }>(
    `select exists (
       select from connection where ${withSharedClient} and account_id = $2 and granted_at > $3
     ) as found`,
    [await integrationsOf(q, query), accountId, since],
  );
  if (row?.found === true) return true;
  const own = await listWithOwnClient(q, query);
  return own.some((one) => one.accountId === accountId && one.grantedAt > since);
}

/**
 * The integrations of all environments whose grants end together. Finds real integrations by the index on their
 * client, and test integrations by their provider.
 */
async function integrationsOf(
  q: Queryable,
  { unit, reading }: { unit: string; reading: IntegrationReading },
): Promise<number[]> {
  const { catalog, testClient } = reading;
  const ofTestClient = (definition: ProviderDefinition | undefined) =>
    definition !== undefined &&
    testClient !== undefined &&
    revocationUnit(definition, testClient.clientId) === unit;
  const testProviders = catalog
    .listWith('sandbox')
    .filter((definition) => ofTestClient(sandboxed(definition, reading)));
  const rows = await q.query<{ id: number; provider: string; clientId: string | null }>(
    `select id, provider, client_id as "clientId"
     from integration
     where not is_test and client_id collate "C" >= $1 and client_id collate "C" < $2
     union all
     select id, provider, null
     from integration
     where is_test and provider = any($3)`,
    [...clientsFromTo(unit), testProviders.map(({ name }) => name)],
  );
  return rows
    .filter(({ provider, clientId }) => {
      const definition = catalog.find(provider);
      return clientId === null || (definition && revocationUnit(definition, clientId) === unit);
    })
    .map(({ id }) => id);
}

type WithOwnClient = {
  id: number;
  environmentId: number;
  provider: string;
  isTest: boolean;
  /** Null: unknown. */
  clientId: string | null;
  accountId: string | null;
  grantedAt: Date;
};

/**
 * The living connections whose own client belongs to the unit, or may belong to it, by ID. The search uses the
 * account, because few connections have their own client.
 */
async function listWithOwnClient(
  q: Queryable,
  { unit, accountId, exceptId, reading }: GrantQuery,
): Promise<WithOwnClient[]> {
  const ofAccount = `
    select
      connection.id, connection.environment_id as "environmentId", provider, is_test as "isTest",
      own_client_id as "clientId", account_id as "accountId", granted_at as "grantedAt"
    from connection
    join integration on integration.id = integration_id
    where ${living}
      and has_own_client
      and connection.id is distinct from $2
      and (own_client_id is null or (own_client_id collate "C" >= $3 and own_client_id collate "C" < $4))`;
  const given = [await relatedIntegrationsOf(q, { unit, reading }), exceptId ?? null, ...clientsFromTo(unit)];
  const found = await (accountId === undefined
    ? q.query<WithOwnClient>(`${ofAccount} order by id`, given)
    : q.query<WithOwnClient>(
        `${ofAccount} and account_id = $5 union all ${ofAccount} and account_id is null order by id`,
        [...given, accountId],
      ));
  return found.filter(({ provider, isTest, clientId }) => {
    const known = reading.catalog.find(provider);
    const definition = isTest ? known && sandboxed(known, reading) : known;
    return clientId === null || (definition && revocationUnit(definition, clientId) === unit);
  });
}

/** The integrations of all environments that revoke at the unit's URL, so that a client may belong to the unit. */
async function relatedIntegrationsOf(
  q: Queryable,
  { unit, reading }: { unit: string; reading: IntegrationReading },
): Promise<number[]> {
  const url = unit.slice(0, unit.lastIndexOf(' '));
  const revokesAtUrl = (definition: ProviderDefinition | undefined) =>
    definition?.revocation?.url === url && definition.revocation.unit !== 'token';
  const all = reading.catalog.listWith('revocation');
  const rows = await q.query<{ id: number }>(
    `select id
     from integration
     where (not is_test and provider = any($1)) or (is_test and provider = any($2))`,
    [
      all.filter(revokesAtUrl).map(({ name }) => name),
      all.filter((one) => revokesAtUrl(sandboxed(one, reading))).map(({ name }) => name),
    ],
  );
  return rows.map(({ id }) => id);
}

/** The definition that test integrations use; undefined without a sandbox. */
function sandboxed(
  definition: ProviderDefinition,
  { testClient }: IntegrationReading,
): ProviderDefinition | undefined {
  if (testClient === undefined || definition.sandbox === undefined) return undefined;
  return withSandbox(definition, testClient.url);
}

/**
 * The bounds of the client IDs of a unit, which ends with a client ID or with the common beginning of a project's.
 */
function clientsFromTo(unit: string): [from: string, to: string] {
  const beginning = unit.slice(unit.lastIndexOf(' ') + 1);
  return [beginning, `${beginning}\u{10ffff}`];
}
