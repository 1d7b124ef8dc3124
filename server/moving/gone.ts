import type { Queryable } from '../db/pool.ts';
import { type Import, note, type Only, type OpenImport, type Place } from './ledger.ts';

/**
 * Connections that the source has no more: those of the ledger that a list of all that it has does not name. Those that an
 * import has brought and that are here stay: whether they are to go is for a person to say.
 */
export type Gone = Place & { isHere: boolean };
type Listing = { only: Only; isListed: (place: Place) => boolean };

/** Why one is named though the source has it no more. */
export const reasonOfGone = ({ isHere }: Gone): string | undefined => (isHere ? 'still_here' : undefined);

/** In pages, some of them empty. */
export async function* pagesOfGone(
  db: Queryable,
  { id, environmentId }: Import,
  { only, isListed }: Listing,
): AsyncGenerator<Gone[]> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Gone>(
      `select noted.integration, noted.connection, connection.id is not null as "isHere"
       from imported_connection as noted
       left join connection
         on connection.id = noted.stored_id
         and connection.environment_id = $2
         and connection.connection_id = noted.connection
         and connection.deleted_at is null
       where noted.import_id = $1
         and ($3::text[] is null or noted.integration = any($3))
         and (noted.integration, noted.connection) > ($4, $5)
       order by noted.integration, noted.connection
       limit 500`,
      [id, environmentId, only && [...only], after.integration, after.connection],
    );
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last;
    yield rows.filter((row) => !isListed(row));
  }
}

/** Notes them. Answers those that are here still. Throws `unavailable` where another run has begun. */
export async function noteGone(db: Queryable, from: OpenImport, listing: Listing): Promise<Place[]> {
  const stillHere: Place[] = [];
  for await (const page of pagesOfGone(db, from, listing)) {
    await note(
      db,
      from,
      page.map((one) => ({
        integration: one.integration,
        connection: one.connection,
        outcome: 'gone',
        reason: reasonOfGone(one),
      })),
    );
    stillHere.push(...page.filter(({ isHere }) => isHere));
  }
  return stillHere;
}

/** For a person; none where there are none. */
export function stepForGone(stillHere: readonly Place[]): string[] {
  if (stillHere.length === 0) return [];
  const names = stillHere
    .slice(0, mostNamed)
    .map(({ integration, connection }) => `${integration}/${connection}`);
  const others = stillHere.length - names.length;
  return [
    `Gone at the source, and still here: ${names.join(', ')}${others === 0 ? '' : ` and ${others} others`}. ` +
      'Delete here what is to be gone here, too.',
  ];
}
const mostNamed = 20;
