/** Integrations: whether settings that this version refuses, or a provider's announced end, keep them from working. */
import { type Db, first } from '../db/pool.ts';
import type { Catalog } from '../providers/catalog.ts';
import { credentialHeaderFault } from '../providers/credential-header.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { type Check, fail, ok, skipped, type Verdict } from './check.ts';

type Row = { environment: string; key: string; provider: string; config: Record<string, string> };

export function integrationChecks(db: Db, { catalog }: { catalog: Catalog }): Check[] {
  return [{ name: 'credential-headers', run: () => judgeCredentialHeaders(db, catalog) }];
}

export async function judgeCredentialHeaders(db: Db, catalog: Catalog): Promise<Verdict> {
  const rows = await listRows(db);
  if (rows === undefined) return skipped('There are no integrations yet.');
  const refused = rows.flatMap((row) =>
    headerSettingsOf(catalog.find(row.provider)).flatMap((name) => {
      const fault = credentialHeaderFault(row.config[name] ?? '');
      return fault === undefined
        ? []
        : [`"${row.key}" in ${row.environment}: integration_config.${name} names a header that ${fault}`];
    }),
  );
  if (refused.length === 0) return ok('No integration sends credentials in a header that servers return.');
  return fail(
    `Calls of these integrations are refused. ${refused.join('; ')}.`,
    'Name another header that the API accepts: PATCH /integrations/{key}, with a key that may read credentials.',
  );
}

/** Settings of an integration that a provider's definition uses to name the header for credentials. */
function headerSettingsOf(provider: ProviderDefinition | undefined): string[] {
  const settings = Object.entries(provider?.integration_config ?? {});
  return settings.filter(([, { format }]) => format === 'header_name').map(([name]) => name);
}

/** Undefined before the first migration. */
async function listRows(db: Db): Promise<Row[] | undefined> {
  const found = first(
    await db.query<{ isThere: boolean }>(`select to_regclass('integration') is not null as "isThere"`),
  );
  if (found?.isThere !== true) return undefined;
  return db.query<Row>(
    `select environment.name as environment, integration.key, provider, integration_config as config
     from integration
     join environment on environment.id = integration.environment_id
     order by environment.name, integration.key`,
  );
}
