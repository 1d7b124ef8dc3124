/** Reading the provider definitions again while the service runs. Does not own: the definitions (`providers/`). */
import { limitConcurrency } from '../concurrency.ts';
import type { Queryable } from '../db/pool.ts';
import { listUsedProviders } from '../integrations/store.ts';
import type { Logger } from '../log.ts';
import type { Catalog, LiveCatalog } from '../providers/catalog.ts';
import { listEnvironmentDefinitions } from '../providers/environment-definitions.ts';

/** Throws if there are `definitionFaults`. */
export async function requireDefinitions(db: Queryable, of: Definitions): Promise<void> {
  const faults = await definitionFaults(db, of);
  if (faults.length > 0)
    throw new Error(
      `${faults.join('\n')}\nTRELLIS_PROVIDERS_DIR must hold the definitions of your own that integrations use.`,
    );
}

type Definitions = { catalog: Catalog; previous?: Catalog };

/**
 * The providers that integrations use and the catalogue lacks, and, with `previous`, those that have another auth mode
 * there: the stored clients and the credentials of connections would not fit. Throws a CatalogError if this version refuses a
 * definition of an environment.
 */
export async function definitionFaults(db: Queryable, { catalog, previous }: Definitions): Promise<string[]> {
  await listEnvironmentDefinitions(db, catalog);
  return (await listUsedProviders(db)).flatMap(({ provider, integrations }) => {
    const [before, after] = [previous?.find(provider), catalog.find(provider)];
    if (after === undefined)
      return [`"${provider}" has no definition, but integrations use it: ${integrations}`];
    return before === undefined || before.auth_mode === after.auth_mode
      ? []
      : [`"${provider}" has integrations (${integrations}), so its auth_mode must stay ${before.auth_mode}`];
  });
}

/**
 * Reads the definitions again, once at a time. Never rejects: if a file is wrong, all previous definitions stay, and the
 * fault is logged and returned.
 */
export function createReload({
  db,
  catalog,
  log,
}: {
  db: Queryable;
  catalog: LiveCatalog;
  log: Logger;
}): () => Promise<string | undefined> {
  const oneAtATime = limitConcurrency(1);
  const logOwn = (message: string) => {
    const { count, replaced, updated } = catalog.own();
    log.info({ own: count, replaced, updated }, message);
  };
  if (catalog.own().count + catalog.own().updated > 0)
    logOwn('provider definitions of the operator are in use');
  return () =>
    oneAtATime(async () => {
      try {
        await catalog.reload((next) => requireDefinitions(db, { catalog: next, previous: catalog }));
      } catch (error) {
        log.error({ err: error }, 'the provider definitions were not read again: the previous ones stay');
        return error instanceof Error ? error.message : String(error);
      }
      logOwn('the provider definitions were read again');
      return undefined;
    });
}
