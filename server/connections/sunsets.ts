/** What providers have announced to end, and how many connections it concerns. */
import type { Queryable } from '../db/pool.ts';
import type { ProviderDefinition } from '../providers/definition.ts';

type Sunset = ProviderDefinition['sunset'][number];
/** `count`: connections that may stop working then. */
type ConcerningSunset = Sunset & { count: number };

/** How long before its date a sunset is warned of. */
export const warningDays = 90;

/**
 * The sunsets that concern connections of these integrations at `at`, by the integration's ID: from `warningDays` before
 * their date on. Connections that have to connect again anyway do not count, and test credentials have no sunset.
 */
export async function findSunsets(
  db: Queryable,
  {
    integrations,
    at,
  }: {
    integrations: readonly { id: number; isTest: boolean; provider: Pick<ProviderDefinition, 'sunset'> }[];
    at: Date;
  },
): Promise<Map<number, ConcerningSunset[]>> {
  const near = integrations
    .filter(({ isTest }) => !isTest)
    .map(({ id, provider }) => ({ id, sunsets: provider.sunset.filter((sunset) => isNear(sunset, at)) }))
    .filter(({ sunsets }) => sunsets.length > 0);
  if (near.length === 0) return new Map();
  const rows = await db.query<{ id: number; all: number; without_expiry: number }>(
    `select integration_id as id, count(*)::integer as all,
       (count(*) filter (where access_expires_at is null and refresh_token_digest is null))::integer as without_expiry
     from connection
     where integration_id = any($1::bigint[])
       and deleted_at is null
       and status <> 'needs_reauth'
     group by integration_id`,
    [near.map(({ id }) => id)],
  );
  const counts = new Map(rows.map((row) => [row.id, row]));
  return new Map(
    near.map(({ id, sunsets }) => [
      id,
      sunsets
        .map((sunset) => ({ ...sunset, count: counts.get(id)?.[sunset.connections] ?? 0 }))
        .filter(({ count }) => count > 0),
    ]),
  );
}

function isNear({ on }: Sunset, at: Date): boolean {
  return at.getTime() >= Date.parse(on) - warningDays * 86_400_000;
}
