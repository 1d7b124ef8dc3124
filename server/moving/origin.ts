import type { Queryable } from '../db/pool.ts';
import type { Place, Stored } from './ledger.ts';

/**
 * Who put the credentials there that a connection has: `import`, the last one that stored there, with the time of the grant
 * where its source told it; `since`, somebody after that: a refresh, its user, the application; or `elsewhere`, as no import
 * ever stored there.
 */
export type Origin =
  | { kind: 'import'; toldGrantedAt: Date | undefined }
  | { kind: 'since' }
  | { kind: 'elsewhere' };

/** By all imports into the environment: each file is one, and each address of a peer. */
export async function readOrigin(
  tx: Queryable,
  { environmentId, place, stored }: { environmentId: number; place: Place; stored: Stored },
): Promise<Origin> {
  const [put] = await tx.query<{ isCurrent: boolean; grantedAt: Date | null }>(
    `with into_here as (
       select id from import where environment_id = $1
     ),
     put as (
       select stored_id, stored_version, granted_at
       from into_here
       join imported_connection on import_id = id
       where stored_id = $4
       union all
       -- In a row whose place this one has taken.
       select stored_id, stored_version, granted_at
       from into_here
       join imported_connection on import_id = id
       where integration = $2
         and connection = $3
         and stored_id <> $4
     )
     select
       (stored_id, stored_version) = ($4, $5) as "isCurrent",
       granted_at as "grantedAt"
     from put
     order by "isCurrent" desc
     limit 1`,
    [environmentId, place.integration, place.connection, stored.id, stored.credentialsVersion],
  );
  if (put === undefined) return { kind: 'elsewhere' };
  return put.isCurrent ? { kind: 'import', toldGrantedAt: put.grantedAt ?? undefined } : { kind: 'since' };
}
