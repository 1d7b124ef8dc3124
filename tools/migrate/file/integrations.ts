/**
 * Integrations of a file: the one with the key here is used if it fits, otherwise skipped with the reason; a missing one is
 * made.
 */
import { isDeepStrictEqual } from 'node:util';
import { writeCommandAudit } from '../../../server/activity/audit.ts';
import type { Db, Queryable } from '../../../server/db/pool.ts';
import {
  createIntegration,
  findIntegration,
  type Integration,
  type IntegrationReading,
} from '../../../server/integrations/store.ts';
import type { ProviderDefinition } from '../../../server/providers/definition.ts';
import {
  catalogOfEnvironment,
  hasSameDestinations,
} from '../../../server/providers/environment-definitions.ts';
import type { ReportedIntegration } from '../report.ts';
import type { EntryOf } from './entries.ts';

/** `definitions` are those of the file; undefined: it cannot be used here. */
type Target<EnvironmentId> = {
  environmentId: EnvironmentId;
  reading: IntegrationReading;
  definitions: ReadonlyMap<string, ProviderDefinition | undefined>;
};

/** Plans an integration; nothing is changed. `environmentId` is undefined if the environment is not here yet. */
export async function planIntegration(
  db: Queryable,
  entry: EntryOf<'integration'>,
  { environmentId, reading, definitions }: Target<number | undefined>,
): Promise<ReportedIntegration> {
  const { unique_key: key, provider } = entry;
  const planned = (
    outcome: ReportedIntegration['outcome'],
    reason: string | null = null,
    next_step: string | null = null,
  ) => ({ unique_key: key, provider, outcome, reason, next_step });
  const known =
    environmentId === undefined
      ? reading.catalog
      : await catalogOfEnvironment(db, { ...reading, environmentId, names: [provider] });
  const here = known.find(provider);
  const given = definitions.get(provider);
  if (here === undefined && given === undefined)
    return planned(
      'skipped',
      'unknown_provider',
      `This installation has no provider "${provider}". Copy its definition from the source (docs/guides/providers.md).`,
    );
  // As with other settings: credentials of the file may only be sent where its definition says.
  const isOfEnvironment = here !== reading.catalog.find(provider);
  if (here !== undefined && given === undefined && (isOfEnvironment || definitions.has(provider)))
    return planned(
      'skipped',
      'definition_differs',
      `The file has no definition of "${provider}" that can be used here, so credentials could be sent to another address. ` +
        'Make both definitions the same, or give one of them another name.',
    );
  if (here !== undefined && given !== undefined && !hasSameDestinations(here, given))
    return planned(
      'skipped',
      'definition_differs',
      `The definition of "${provider}" is another one in the file, so credentials could be sent to another address. ` +
        'Make both definitions the same, or give one of them another name.',
    );
  const found = environmentId && (await findIntegration(db, { ...reading, environmentId, key }));
  if (!found) return planned('to_make');
  if (found.provider.name !== provider)
    return planned(
      'skipped',
      'provider_differs',
      `The provider of "${key}" is ${found.provider.name} in this installation and ${provider} in the file.`,
    );
  // A test integration is read without its client here, and all test integrations use the sandbox's.
  const isSameClient =
    found.isTest === entry.is_test && (found.isTest || found.client?.clientId === entry.client?.client_id);
  if (!isSameClient)
    return planned(
      'skipped',
      'client_differs',
      `"${key}" has a different OAuth client in the file, and only the client that received a token can refresh it.`,
    );
  // The settings decide where credentials are sent: those of the file may only be sent where its settings say.
  if (!isDeepStrictEqual(found.integrationConfig, entry.integration_config))
    return planned(
      'skipped',
      'settings_differ',
      `"${key}" has a different integration_config in the file, so credentials would be sent to another address. ` +
        'Give the integration of this installation the same integration_config, or another ID.',
    );
  return planned('used', null, stepFor(found, entry));
}

/** The settings that differ and stay as they are here; null if there is none. Names, never values. */
function stepFor(found: Integration, entry: EntryOf<'integration'>): string | null {
  const differing = Object.entries({
    'client secret': found.isTest || found.client?.clientSecret === entry.client?.client_secret,
    'webhook secret': (found.webhookSecret ?? null) === entry.webhook_secret,
    scopes: isDeepStrictEqual(found.scopes ?? null, entry.scopes),
    custom: isDeepStrictEqual(found.custom ?? null, entry.custom),
    forward_webhooks: found.forwardWebhooks === entry.forward_webhooks,
    'proxy rules': isDeepStrictEqual(found.proxyRules, entry.proxy_rules),
  }).flatMap(([name, isSame]) => (isSame ? [] : [name]));
  if (differing.length === 0) return null;
  return `"${entry.unique_key}" was not changed. It differs from the file in: ${differing.join(', ')}.`;
}

/** The integration here, made if it is missing; undefined if it is skipped. */
export async function importIntegration(
  db: Db,
  entry: EntryOf<'integration'>,
  { environmentId, reading, definitions }: Target<number>,
): Promise<{ reported: ReportedIntegration; integration: Integration | undefined }> {
  return db.transaction(async (tx) => {
    const planned = await planIntegration(tx, entry, { environmentId, reading, definitions });
    if (planned.outcome === 'skipped') return { reported: planned, integration: undefined };
    const key = entry.unique_key;
    const found = await findIntegration(tx, { ...reading, environmentId, key });
    if (found !== undefined) return { reported: planned, integration: found };
    const integration = await createIntegration(tx, {
      ...reading,
      environmentId,
      key,
      provider: entry.provider,
      displayName: entry.display_name,
      isTest: entry.is_test,
      ...(entry.client && {
        client: { clientId: entry.client.client_id, clientSecret: entry.client.client_secret },
      }),
      ...(entry.webhook_secret !== null && { webhookSecret: entry.webhook_secret }),
      ...(entry.scopes && { scopes: entry.scopes }),
      integrationConfig: entry.integration_config,
      ...(entry.custom && { custom: entry.custom }),
      forwardWebhooks: entry.forward_webhooks,
      proxyRules: entry.proxy_rules,
    });
    await writeCommandAudit(tx, {
      environmentId,
      action: 'integration.created',
      target: key,
      details: { provider: entry.provider, test: entry.is_test, from: 'file' },
    });
    return { reported: { ...planned, outcome: 'made' as const }, integration };
  });
}
