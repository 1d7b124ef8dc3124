import { revocationUnit } from '../auth-modes/revocation.ts';
import type { Queryable } from '../db/pool.ts';
import type { IntegrationReading } from '../integrations/store.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { withSandbox } from '../providers/sandbox.ts';

/**
 * Who would lose access with a grant.
 *
 * Owns: which living connections are of a unit, in whatever environment: those that have no OAuth client of their own by
 * that of their integration, the others by their own. One whose own client is not known may be of any unit of its
 * provider's. Does not own: what a unit is (`revocation-lock.ts`).
 */

/**
 * Whose access is looked for: the account's whose grant may end, where it is known. `exceptId` is the connection that
 * asks.
 */
type Asked = {
  unit: string;
  accountId: string | undefined;
  exceptId?: number | undefined;
  reading: IntegrationReading;
};

/** Living; what needs its user anyway loses nothing. */
const living = `integration_id = any($1) and deleted_at is null and status <> 'needs_reauth'`;
const plain = `${living} and not has_own_client`;

/**
 * Whether a living connection of the unit, in any environment, would lose access with the account's grant: one of the
 * account, or where an account is not known, one that may be of it. Ends at the first that it finds.
 */
export async function isGrantShared(q: Queryable, asked: Asked): Promise<boolean> {
  const { accountId, exceptId } = asked;
  const others = `select from connection where ${plain} and id is distinct from $2`;
  const integrations = await integrationsOf(q, asked);
  // An account has an index, which one condition with `or` would not use.
  const [row] = await (accountId === undefined
    ? q.query<{ found: boolean }>(`select exists (${others}) as found`, [integrations, exceptId ?? null])
    : q.query<{ found: boolean }>(
        `select exists (${others} and account_id = $3) or exists (${others} and account_id is null) as found`,
        [integrations, exceptId ?? null, accountId],
      ));
  return row?.found === true || (await listWithOwnClient(q, asked)).length > 0;
}

/** How many `isGrantShared` looks for, and which of them are known to be of the account and the unit, by ID. */
export async function countSharedGrants(
  q: Queryable,
  asked: Asked,
): Promise<{ count: number; certain: { id: number; environmentId: number }[] }> {
  const { accountId, exceptId } = asked;
  const given = [await integrationsOf(q, asked), exceptId ?? null];
  const own = await listWithOwnClient(q, asked);
  const count = async (condition: string) => {
    const [row] = await q.query<{ count: number }>(
      `select count(*) as count from connection where ${plain} and id is distinct from $2 ${condition}`,
      given,
    );
    return row?.count ?? 0;
  };
  if (accountId === undefined) return { count: (await count('')) + own.length, certain: [] };
  const certain = await q.query<{ id: number; environmentId: number }>(
    `select id, environment_id as "environmentId"
     from connection
     where ${plain} and id is distinct from $2 and account_id = $3
     order by id`,
    [...given, accountId],
  );
  const known = own.filter((one) => one.accountId === accountId && one.clientId !== null);
  return {
    count: certain.length + own.length + (await count('and account_id is null')),
    certain: [...certain, ...known.map(({ id, environmentId }) => ({ id, environmentId }))],
  };
}

/** Whether a living connection of the account in the unit has a grant that was given after `since`. */
export async function isGrantSharedSince(
  q: Queryable,
  { since, ...asked }: { unit: string; accountId: string; since: Date; reading: IntegrationReading },
): Promise<boolean> {
  const { accountId } = asked;
  const [row] = await q.query<{ found: boolean }>(
    `select exists (
       select from connection where ${plain} and account_id = $2 and granted_at > $3
     ) as found`,
    [await integrationsOf(q, asked), accountId, since],
  );
  if (row?.found === true) return true;
  const own = await listWithOwnClient(q, asked);
  return own.some((one) => one.accountId === accountId && one.grantedAt > since);
}

/**
 * The integrations of all environments whose grants end together. Real ones are found by the index on their client, test
 * ones by their provider.
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
  const testProviders = catalog.list().filter((definition) => ofTestClient(sandboxed(definition, reading)));
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
  /** Null: not known. */
  clientId: string | null;
  accountId: string | null;
  grantedAt: Date;
};

/**
 * The living ones whose own client is of the unit, or may be, by ID. Few have one, and few of these are of one project:
 * they are looked for by their account.
 */
async function listWithOwnClient(
  q: Queryable,
  { unit, accountId, exceptId, reading }: Asked,
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
  const given = [await relativesOf(q, { unit, reading }), exceptId ?? null, ...clientsFromTo(unit)];
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

/** The integrations of all environments where a client may be of the unit: those that revoke at the same address. */
async function relativesOf(
  q: Queryable,
  { unit, reading }: { unit: string; reading: IntegrationReading },
): Promise<number[]> {
  const url = unit.slice(0, unit.lastIndexOf(' '));
  const revokesThere = (definition: ProviderDefinition | undefined) =>
    definition?.revocation?.url === url && definition.revocation.unit !== 'token';
  const all = reading.catalog.list();
  const rows = await q.query<{ id: number }>(
    `select id
     from integration
     where (not is_test and provider = any($1)) or (is_test and provider = any($2))`,
    [
      all.filter(revokesThere).map(({ name }) => name),
      all.filter((one) => revokesThere(sandboxed(one, reading))).map(({ name }) => name),
    ],
  );
  return rows.map(({ id }) => id);
}

/** As test integrations have it; undefined while there is no sandbox for them. */
function sandboxed(
  definition: ProviderDefinition,
  { testClient }: IntegrationReading,
): ProviderDefinition | undefined {
  if (testClient === undefined || definition.sandbox === undefined) return undefined;
  return withSandbox(definition, testClient.url);
}

/** A unit ends in the client ID or, for a project, in its beginning: all others are outside of these bounds. */
function clientsFromTo(unit: string): [from: string, to: string] {
  const beginning = unit.slice(unit.lastIndexOf(' ') + 1);
  return [beginning, `${beginning}\u{10ffff}`];
}
