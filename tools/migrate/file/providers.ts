/**
 * The definitions that an environment added to the catalogue. A definition that is here stays, and a missing one is made.
 */
import { isDeepStrictEqual } from 'node:util';
import { writeCommandAudit } from '../../../server/activity/audit.ts';
import type { Queryable } from '../../../server/db/pool.ts';
import { AppError } from '../../../server/errors.ts';
import type { IntegrationReading } from '../../../server/integrations/store.ts';
import { CatalogError } from '../../../server/providers/catalog.ts';
import type { ProviderDefinition } from '../../../server/providers/definition.ts';
import {
  catalogOfEnvironment,
  insertEnvironmentDefinition,
} from '../../../server/providers/environment-definitions.ts';
import type { EntryOf } from './entries.ts';
import type { EnvironmentImport } from './environment.ts';

/** `read` is undefined if the definition cannot be used here. `step` is for the operator. */
type PlannedProvider = {
  read: { definition: ProviderDefinition; content: object } | undefined;
  isHere: boolean;
  step: string | undefined;
};

/** Plans a definition; nothing is changed. `environmentId` is undefined if the environment is not here yet. */
export async function planProvider(
  db: Queryable,
  { name, content }: EntryOf<'provider'>,
  { environmentId, reading }: { environmentId: number | undefined; reading: IntegrationReading },
): Promise<PlannedProvider> {
  const { catalog } = reading;
  let read: PlannedProvider['read'];
  try {
    // The content includes its bases, which another version may define differently.
    read = catalog.read({ name, text: JSON.stringify(content) });
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    const faults = error.faults.map(({ message }) => message).join('; ');
    return { read, isHere: false, step: `The provider "${name}" is not valid in this version: ${faults}` };
  }
  if (environmentId === undefined) return { read, isHere: false, step: undefined };
  const known = await catalogOfEnvironment(db, { catalog, environmentId, names: [name] });
  const here = known.find(name);
  const isSame = here === undefined || isDeepStrictEqual(here, read.definition);
  return {
    read,
    isHere: here !== undefined,
    step: isSame ? undefined : `The provider "${name}" already exists and was not changed.`,
  };
}

export async function importProvider(
  { db, environment: { id }, now }: Pick<EnvironmentImport, 'db' | 'environment' | 'now'>,
  entry: EntryOf<'provider'>,
  reading: IntegrationReading,
): Promise<PlannedProvider> {
  return db.transaction(async (tx) => {
    const planned = await planProvider(tx, entry, { environmentId: id, reading });
    if (planned.isHere || planned.read === undefined) return planned;
    const { name, definition: text } = entry;
    const { content } = planned.read;
    try {
      const { catalog } = reading;
      await insertEnvironmentDefinition(tx, { catalog, environmentId: id, name, text, content, at: now });
    } catch (error) {
      if (!(error instanceof AppError)) throw error;
      return {
        read: undefined,
        isHere: false,
        step: `The provider "${name}" was not created. ${error.message}`,
      };
    }
    await writeCommandAudit(tx, {
      environmentId: id,
      action: 'provider.created',
      target: name,
      details: { from: 'file' },
    });
    return planned;
  });
}
