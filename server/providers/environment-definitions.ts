/**
 * Definitions that an environment adds at run time (`POST /providers`), for example of a generic OAuth 2 provider or of an
 * internal API.
 *
 * Their names begin with `own-`, which no shipped definition does, so most reads need no query. `text` is what
 * the user wrote; `content` is that text merged with its base at the time of saving, so that a later version of the base
 * changes nothing.
 *
 * Does not own: the checks (`catalog.ts`), the routes (`definition-routes.ts`).
 */
import { isViolationOf, type Queryable } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Catalog, definitionOf, getProvider } from './catalog.ts';
import type { ProviderDefinition } from './definition.ts';

const prefix = 'own-';
export const environmentName = /^own-[a-z0-9][a-z0-9-]{0,95}$/;
export const maxDefinitions = 200;
export const maxTextLength = 65_536;

type Stored = { name: string; content: string };
type At = { environmentId: number; name: string };
export type EnvironmentDefinition = { text: string; createdAt: Date; updatedAt: Date };

/**
 * The catalogue as an environment sees it: with all its own definitions, or only those with these names. A definition of
 * the operator's folder with the same name is hidden. Makes no query if no name begins with `own-`.
 */
export async function catalogOfEnvironment(
  db: Queryable,
  { catalog, environmentId, names }: { catalog: Catalog; environmentId: number; names?: readonly string[] },
): Promise<Catalog> {
  const wanted = names?.filter((name) => name.startsWith(prefix));
  if (wanted?.length === 0) return catalog;
  const stored = await db.query<Stored>(
    `select name, content
     from provider_definition
     where environment_id = $1
       and ($2::text[] is null or name = any($2))
     order by name`,
    [environmentId, wanted ?? null],
  );
  return withDefinitions(
    catalog,
    stored.map((one) => parse(one, catalog)),
  );
}

/**
 * As `catalogOfEnvironment`, for a new integration: until the transaction ends, the definition with this name can be neither
 * deleted nor changed.
 */
export async function catalogForIntegration(
  tx: Queryable,
  { catalog, environmentId, name }: { catalog: Catalog } & At,
): Promise<Catalog> {
  if (!name.startsWith(prefix)) return catalog;
  const stored = await tx.query<Stored>(
    `select name, content
     from provider_definition
     where environment_id = $1
       and name = $2
     for share`,
    [environmentId, name],
  );
  return withDefinitions(
    catalog,
    stored.map((one) => parse(one, catalog)),
  );
}

/** The definitions of all environments. Throws a CatalogError if this version refuses one. */
export async function listEnvironmentDefinitions(
  db: Queryable,
  catalog: Catalog,
): Promise<{ environmentId: number; definition: ProviderDefinition }[]> {
  const stored = await db.query<Stored & { environmentId: number }>(
    `select environment_id as "environmentId", name, content
     from provider_definition
     order by environment_id, name`,
  );
  return stored.map((one) => ({ environmentId: one.environmentId, definition: parse(one, catalog) }));
}

/** The definitions of an environment, as they are stored. */
export async function listStoredDefinitions(
  db: Queryable,
  environmentId: number,
): Promise<{ name: string; text: string; content: string }[]> {
  return db.query(
    `select name, text, content
     from provider_definition
     where environment_id = $1
     order by name`,
    [environmentId],
  );
}

/** The text of a definition and its times; undefined if the environment has none of this name. */
export async function findEnvironmentDefinition(
  db: Queryable,
  { environmentId, name }: At,
): Promise<EnvironmentDefinition | undefined> {
  if (!name.startsWith(prefix)) return undefined;
  const [stored] = await db.query<EnvironmentDefinition>(
    `select text, created_at as "createdAt", updated_at as "updatedAt"
     from provider_definition
     where environment_id = $1
       and name = $2`,
    [environmentId, name],
  );
  return stored;
}

/**
 * Throws `provider_exists`, also if the operator has a provider of this name or integrations use the name, and
 * `too_many_providers` if the environment has as many as it may have.
 */
export async function insertEnvironmentDefinition(
  tx: Queryable,
  {
    catalog,
    environmentId,
    name,
    text,
    content,
    at,
  }: At & { catalog: Catalog; text: string; content: object; at: Date },
): Promise<void> {
  // Otherwise the new definition would decide where the secrets of integrations of the operator's provider are sent.
  if (catalog.find(name) !== undefined)
    throw new AppError('provider_exists', `The operator has defined a provider "${name}".`);
  const uses = await usesOf(tx, { environmentId, name });
  if (uses !== undefined)
    throw new AppError('provider_exists', `The name is in use by ${uses}. Choose another one.`);
  const inserted = await tx
    .query(
      `insert into provider_definition (environment_id, name, text, content, created_at, updated_at)
       select $1, $2, $3, $4, $5, $5
       where (select count(*) from provider_definition where environment_id = $1) < $6
       returning name`,
      [environmentId, name, text, JSON.stringify(content), at, maxDefinitions],
    )
    .catch((error: unknown) => {
      if (!isViolationOf(error, 'provider_definition_pkey')) throw error;
      throw new AppError('provider_exists', `This environment has a provider "${name}" already.`);
    });
  if (inserted.length === 0) throw new AppError('too_many_providers');
}

/** Locks the definition and returns it: until the transaction ends, no integration can be created with it. */
export async function lockEnvironmentDefinition(
  tx: Queryable,
  { environmentId, name, catalog }: At & { catalog: Catalog },
): Promise<ProviderDefinition> {
  const [stored] = await tx.query<Stored>(
    `select name, content
     from provider_definition
     where environment_id = $1
       and name = $2
     for update`,
    [environmentId, name],
  );
  if (stored === undefined)
    throw new AppError('not_found', `This environment has no provider of its own called "${name}".`);
  return parse(stored, catalog);
}

export async function replaceEnvironmentDefinition(
  tx: Queryable,
  { environmentId, name, text, content, at }: At & { text: string; content: object; at: Date },
): Promise<void> {
  await tx.query(
    `update provider_definition
     set text = $3, content = $4, updated_at = $5
     where environment_id = $1
       and name = $2`,
    [environmentId, name, text, JSON.stringify(content), at],
  );
}

export async function deleteEnvironmentDefinition(tx: Queryable, { environmentId, name }: At): Promise<void> {
  await tx.query(
    `delete from provider_definition
     where environment_id = $1
       and name = $2`,
    [environmentId, name],
  );
}

/**
 * The IDs of the integrations that use the provider, and whether tokens wait for their revocation; undefined if there is
 * neither.
 */
export async function usesOf(tx: Queryable, { environmentId, name }: At): Promise<string | undefined> {
  const [found] = await tx.query<{ keys: string | null }>(
    `select string_agg(key, ', ' order by key) as keys
     from (
       select key
       from integration
       where environment_id = $1
         and provider = $2
       union all
       select 'tokens that wait for their revocation'
       where exists (
         select
         from revocation
         where environment_id = $1
           and about ->> 'provider' = $2
       )
     ) as uses`,
    [environmentId, name],
  );
  return found?.keys ?? undefined;
}

/** Whether both definitions send the same secrets to the same addresses, and show the same of responses. */
export function hasSameDestinations(one: ProviderDefinition, other: ProviderDefinition): boolean {
  return JSON.stringify(destinationsOf(one)) === JSON.stringify(destinationsOf(other));
}

/** What may determine the addresses of requests, which secrets these contain, and what is shown of responses. */
function destinationsOf(definition: ProviderDefinition): object {
  const { display_name, categories, docs, level, source, sunset, logo, setup, ...others } = definition;
  return others;
}

/** Parsed definitions, since parsing takes longer than a query. */
const parsed = new WeakMap<Catalog['modes'], Map<string, ProviderDefinition>>();
const maxParsed = 1000;

function parse({ name, content }: Stored, { modes }: Catalog): ProviderDefinition {
  const known = parsed.get(modes) ?? new Map<string, ProviderDefinition>();
  if (known.size >= maxParsed) known.clear();
  parsed.set(modes, known);
  const key = `${name} ${content}`;
  let definition = known.get(key);
  if (definition === undefined) {
    definition = definitionOf({ name, content: JSON.parse(content) as Record<string, unknown> }, modes);
    known.set(key, definition);
  }
  return definition;
}

function withDefinitions(catalog: Catalog, own: readonly ProviderDefinition[]): Catalog {
  if (own.length === 0) return catalog;
  const byName = new Map(own.map((definition) => [definition.name, definition]));
  const find = (name: string) => byName.get(name) ?? catalog.find(name);
  return {
    ...catalog,
    find,
    get: (name) => getProvider(name, find),
    list(search = '') {
      const wanted = search.toLowerCase();
      const matching = own.filter(
        ({ name, display_name }) => name.includes(wanted) || display_name.toLowerCase().includes(wanted),
      );
      const shipped = catalog.list(search).filter(({ name }) => !byName.has(name));
      return [...shipped, ...matching].sort((a, b) => (a.name < b.name ? -1 : 1));
    },
  };
}
