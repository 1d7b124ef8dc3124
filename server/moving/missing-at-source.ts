import type { Queryable } from '../db/pool.ts';
import { type Import, note, type Only, type OpenImport, type Place } from './ledger.ts';

/**
 * Connections that the source has no more: those of the ledger that a list of all that it has does not name. Those that an
 * import has brought and that are here stay: whether they are to go is for a person to say.
 */
type Missing = Place & { isHere: boolean };
type Listing = { only: Only; isListed: (place: Place) => boolean };

/** Why one is named though the source has it no more. */
export const reasonOfMissing = ({ isHere }: Missing): string | undefined =>
  isHere ? 'still_here' : undefined;

/** `here`: how many of the page an import has brought that are here, gone or not. */
type MissingPage = { gone: Missing[]; here: number };

/** In pages, some of them empty. */
export async function* pagesOfMissing(
  db: Queryable,
  { id, environmentId }: Import,
  { only, isListed }: Listing,
): AsyncGenerator<MissingPage> {
  for (let after: Place = { integration: '', connection: '' }; ; ) {
    const rows = await db.query<Missing>(
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
    yield { gone: rows.filter((row) => !isListed(row)), here: rows.filter(({ isHere }) => isHere).length };
  }
}

/** Those that are here still, and how many are here that an import has brought, these among them. */
export type Remaining = { stillHere: Place[]; here: number };

/** Notes them. Throws `unavailable` where another run has begun. */
export async function recordMissing(db: Queryable, from: OpenImport, listing: Listing): Promise<Remaining> {
  const remaining: Remaining = { stillHere: [], here: 0 };
  for await (const { gone, here } of pagesOfMissing(db, from, listing)) {
    await note(
      db,
      from,
      gone.map((one) => ({
        integration: one.integration,
        connection: one.connection,
        outcome: 'gone',
        reason: reasonOfMissing(one),
      })),
    );
    remaining.stillHere.push(...gone.filter(({ isHere }) => isHere));
    remaining.here += here;
  }
  return remaining;
}

/**
 * What is said of them to a person. Where they are all of what is here, or more than half of it and more than a few, the list is
 * doubted rather than they: a key of another environment, or something that answers in the source's place, makes all of them
 * vanish at once. They are here no more once somebody has deleted them, and so is the doubt.
 */
export function adviceOnMissing({ stillHere, here }: Remaining): { steps: string[]; doubts: string[] } {
  if (stillHere.length === 0) return { steps: [], doubts: [] };
  if (stillHere.length === here || (stillHere.length > fewGone && stillHere.length > here / 2))
    return {
      steps: [],
      doubts: [
        `The source lists ${stillHere.length} of the ${here} connections no more that were imported and are here. Look there ` +
          'whether that is true, with the same key and address, before anything is deleted here. Where it is, delete them ' +
          'here, too: then this is not said again.',
      ],
    };
  const names = stillHere
    .slice(0, maxNamed)
    .map(({ integration, connection }) => `${integration}/${connection}`);
  const others = stillHere.length - names.length;
  const step =
    `Gone at the source, and still here: ${names.join(', ')}${others === 0 ? '' : ` and ${others} others`}. ` +
    'Delete here what is to be gone here, too.';
  return { steps: [step], doubts: [] };
}
const maxNamed = 20;
/** So many may go from a small installation at once, and most of it with them. */
const fewGone = 5;
