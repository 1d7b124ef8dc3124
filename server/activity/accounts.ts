import type { Queryable } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import { type Caller, hasScope, type ProxyCaller } from '../http/auth/caller.ts';
import type { OperationFilter } from './operations.ts';

/** E-mail addresses of the connections that operations, events and deliveries name. */

/** A connection as operations name it: an ID is unique within its integration. */
export type ConnectionName = { readonly integration: string; readonly connection: string };

const emailForm = /^[^\s@]+@[^\s@]+$/;
/** The maximum number of connections of an address: a search runs one query for each. */
const maxAccounts = 20;

/** If the text of the filter is the e-mail address of connections, the filter has these connections instead of the text. */
export async function withAccounts(
  db: Queryable,
  { text, ...filter }: OperationFilter,
): Promise<OperationFilter> {
  if (text === undefined || !emailForm.test(text)) return { ...filter, text };
  const found = await db.query<ConnectionName>(
    `select integration.key as integration, connection.connection_id as connection
     from connection
     join integration on integration.id = connection.integration_id
     where
       connection.environment_id = $1
       and connection.deleted_at is null
       and lower($2) in (lower(connection.account_email), lower(connection.end_user ->> 'email'))
     limit $3`,
    [filter.environmentId, text, maxAccounts + 1],
  );
  if (found.length === 0) return { ...filter, text };
  if (found.length > maxAccounts)
    throw fieldError(
      'invalid_query_params',
      ['text'],
      `is the e-mail address of more than ${maxAccounts} connections: filter by \`connection_id\``,
    );
  const accounts = found.filter((account) => isIn(filter, account));
  const [only] = accounts;
  return accounts.length === 1 ? { ...filter, ...only } : { ...filter, accounts };
}

function isIn({ integration, connection }: OperationFilter, account: ConnectionName): boolean {
  return (
    (integration ?? account.integration) === account.integration &&
    (connection ?? account.connection) === account.connection
  );
}

type Named = { readonly integration: string | null; readonly connection: string | null };

/**
 * The e-mail address of each account or, if it has none, of its end user. It is null for a deleted connection, and for
 * each if the caller may not read connections.
 */
export async function emailsOf(
  db: Queryable,
  { caller, all }: { caller: Caller | ProxyCaller; all: readonly Named[] },
): Promise<(one: Named) => string | null> {
  if (!hasScope(caller, 'connections:read')) return () => null;
  const named = new Map(
    all
      .filter(({ integration, connection }) => integration !== null && connection !== null)
      .map((one) => [nameOf(one), one]),
  );
  if (named.size === 0) return () => null;
  const known = [...named.values()];
  const found = await db.query<ConnectionName & { email: string | null }>(
    `select
       named.integration,
       named.connection,
       coalesce(connection.account_email, connection.end_user ->> 'email') as email
     from unnest($2::text[], $3::text[]) as named (integration, connection)
     join integration on integration.environment_id = $1 and integration.key = named.integration
     join connection
       on connection.integration_id = integration.id
       and connection.connection_id = named.connection
       and connection.environment_id = $1
       and connection.deleted_at is null`,
    [
      caller.environmentId,
      known.map(({ integration }) => integration),
      known.map(({ connection }) => connection),
    ],
  );
  const emails = new Map(found.map((one) => [nameOf(one), one.email]));
  return (one) => emails.get(nameOf(one)) ?? null;
}

const nameOf = ({ integration, connection }: Named) => `${integration}\n${connection}`;
