/** Integrations: settings that this version refuses, and announced ends of provider features. */
import { findSunsets, warningDays } from '../../connections/health/warnings.ts';
import type { Db } from '../../db/pool.ts';
import type { Catalog } from '../../providers/catalog.ts';
import { credentialHeaderFault } from '../../providers/credential-header.ts';
import type { ProviderDefinition } from '../../providers/definition.ts';
import { listEnvironmentDefinitions } from '../../providers/environment-definitions.ts';
import { type Check, type CheckResult, fail, ok, skipped, warn } from './check.ts';
import { isThere } from './database.ts';

type IntegrationRow = {
  id: number;
  environmentId: number;
  environment: string;
  key: string;
  provider: string;
  isTest: boolean;
  config: Record<string, string>;
};

export function integrationChecks(db: Db, { catalog, at }: { catalog: Catalog; at: Date }): Check[] {
  return [
    { name: 'credential-headers', run: () => checkCredentialHeaders(db, catalog) },
    { name: 'provider-sunsets', run: () => checkSunsets(db, { catalog, at }) },
  ];
}

export async function checkSunsets(
  db: Db,
  { catalog, at }: { catalog: Catalog; at: Date },
): Promise<CheckResult> {
  const rows = await listRows(db);
  if (rows === undefined) return skipped('There are no integrations yet.');
  const find = await finderOf(db, catalog);
  const integrations = rows.flatMap((row) => {
    const provider = find(row);
    return provider === undefined ? [] : [{ ...row, provider }];
  });
  const sunsets = await findSunsets(db, { integrations, at });
  const found = integrations.flatMap(({ id, key, environment }) =>
    (sunsets.get(id) ?? []).map(
      ({ on, ends, count, page }) =>
        `"${key}" in ${environment}: ${count} ${count === 1 ? 'connection' : 'connections'} may stop working on ${on}. ${ends} (${page})`,
    ),
  );
  if (found.length === 0)
    return ok(
      `No provider has announced the end of a feature that a connection needs within ${warningDays} days.`,
    );
  return warn(
    found.join(' '),
    'Ask the users of these accounts to connect again before that day, or follow the instructions on the page.',
  );
}

export async function checkCredentialHeaders(db: Db, catalog: Catalog): Promise<CheckResult> {
  const rows = await listRows(db);
  if (rows === undefined) return skipped('There are no integrations yet.');
  const find = await finderOf(db, catalog);
  const refused = rows.flatMap((row) =>
    headerSettingsOf(find(row)).flatMap((name) => {
      const fault = credentialHeaderFault(row.config[name] ?? '');
      return fault === undefined
        ? []
        : [`"${row.key}" in ${row.environment}: integration_config.${name} names a header that ${fault}`];
    }),
  );
  if (refused.length === 0) return ok('No integration sends credentials in a header that servers return.');
  return fail(
    `Calls of these integrations are refused. ${refused.join('; ')}.`,
    'Set another header that the API accepts: PATCH /integrations/{key}, with a key that may read credentials.',
  );
}

/** Settings of an integration that a provider's definition uses to name the header for credentials. */
function headerSettingsOf(provider: ProviderDefinition | undefined): string[] {
  const settings = Object.entries(provider?.integration_config ?? {});
  return settings.filter(([, { format }]) => format === 'header_name').map(([name]) => name);
}

/** The definition of an integration, which may be its environment's own. */
async function finderOf(
  db: Db,
  catalog: Catalog,
): Promise<(of: { environmentId: number; provider: string }) => ProviderDefinition | undefined> {
  const isMigrated = await isThere(db, 'provider_definition');
  const own = isMigrated ? await listEnvironmentDefinitions(db, catalog) : [];
  const byName = new Map(own.map((one) => [`${one.environmentId} ${one.definition.name}`, one.definition]));
  return ({ environmentId, provider }) =>
    byName.get(`${environmentId} ${provider}`) ?? catalog.find(provider);
}

/** Undefined before the first migration. */
async function listRows(db: Db): Promise<IntegrationRow[] | undefined> {
  if (!(await isThere(db, 'integration'))) return undefined;
  return db.query<IntegrationRow>(
    `select integration.id, environment.id as "environmentId", environment.name as environment, integration.key, provider, is_test as "isTest",
       integration_config as config
     from integration
     join environment on environment.id = integration.environment_id
     order by environment.name, integration.key`,
  );
}
