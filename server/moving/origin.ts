import type { Queryable } from '../db/pool.ts';
import type { Import, Place, Stored } from './ledger.ts';

/**
 * Who put the credentials there that a connection has: `import`, the last one that stored there, with the time of the grant
 * where its source told it; `since`, somebody after that: a refresh, its user, the application; or `elsewhere`, as no import
 * ever stored there.
 */
type Origin = { kind: 'import'; toldGrantedAt: Date | undefined } | { kind: 'since' } | { kind: 'elsewhere' };

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

/**
 * Whether this import has put the connection there that has this row, or was told to overwrite it and kept the newer
 * credentials alone. Else it is somebody else's, who has given his own the same ID: nothing of the source belongs to it.
 */
export async function isOfImport(
  db: Queryable,
  { id }: Import,
  { place, storedId }: { place: Place; storedId: number },
): Promise<boolean> {
  const [row] = await db.query<{ isOf: boolean }>(
    `select
       exists (select from imported_connection where import_id = $1 and stored_id = $2)
       or exists (
         select
         from imported_connection
         join connection on connection.id = $2
         where import_id = $1
           and integration = $3
           and connection = $4
           and outcome = 'overwritten'
           and reason = 'credentials_kept'
           and connection.created_at <= at
       ) as "isOf"`,
    [id, storedId, place.integration, place.connection],
  );
  return row!.isOf;
}

/** Whether the connection has the very credentials that this import has put there. */
export async function isAsStored(tx: Queryable, { id }: Import, stored: Stored): Promise<boolean> {
  const rows = await tx.query(
    'select from imported_connection where import_id = $1 and (stored_id, stored_version) = ($2, $3)',
    [id, stored.id, stored.credentialsVersion],
  );
  return rows.length > 0;
}
