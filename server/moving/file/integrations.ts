import { isDeepStrictEqual } from 'node:util';
import { writeAudit } from '../../activity/audit.ts';
import type { Db, Queryable } from '../../db/pool.ts';
import {
  createIntegration,
  findIntegration,
  type Integration,
  type IntegrationReading,
} from '../../integrations/store.ts';
import type { ReportedIntegration } from '../report.ts';
import type { EntryOf } from './entries.ts';

/** Integrations of a file: used where one of the ID is here and fits, made where none is, or passed over with the reason. */
type At = { environmentId: number; reading: IntegrationReading };
type Verdict = { plan: 'make' | 'use' | 'skip'; reason: string | null; nextStep: string | null };

/** What an integration comes to here; nothing is changed. */
export async function planIntegration(
  db: Queryable,
  entry: EntryOf<'integration'>,
  { environmentId, reading }: At,
): Promise<ReportedIntegration> {
  const { plan, reason, nextStep } = await judge(db, entry, { environmentId, reading });
  const outcome = ({ make: 'to_make', use: 'used', skip: 'skipped' } as const)[plan];
  return { unique_key: entry.unique_key, provider: entry.provider, outcome, reason, next_step: nextStep };
}

async function judge(
  db: Queryable,
  entry: EntryOf<'integration'>,
  { environmentId, reading }: At,
): Promise<Verdict> {
  const { unique_key: key, provider } = entry;
  if (reading.catalog.find(provider) === undefined)
    return {
      plan: 'skip',
      reason: 'unknown_provider',
      nextStep: `The catalogue here has no provider "${provider}". Bring its definition along (docs/providers.md).`,
    };
  const found = await findIntegration(db, { ...reading, environmentId, key });
  if (found === undefined) return { plan: 'make', reason: null, nextStep: null };
  if (found.provider.name !== provider)
    return {
      plan: 'skip',
      reason: 'provider_differs',
      nextStep: `"${key}" is ${found.provider.name} here and ${provider} in the file.`,
    };
  // A test integration is opened without its client here, and the sandbox's is the same for all.
  const isSameClient =
    found.isTest === entry.is_test && (found.isTest || found.client?.clientId === entry.client?.client_id);
  if (!isSameClient)
    return {
      plan: 'skip',
      reason: 'client_differs',
      nextStep: `"${key}" has another OAuth client here than in the file, and tokens are renewed by the client that got them alone.`,
    };
  // They say where credentials go: those of the file were given to be sent there and nowhere else.
  if (!isDeepStrictEqual(found.integrationConfig, entry.integration_config))
    return {
      plan: 'skip',
      reason: 'settings_differ',
      nextStep:
        `"${key}" has another integration_config here than in the file, and its connections' credentials would go where that ` +
        'leads. Give the one here the same, or another ID.',
    };
  return { plan: 'use', reason: null, nextStep: stepFor(found, entry) };
}

/** What of it stays as it is here, for a person; null where all is the same. Names, never values. */
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
  return `"${entry.unique_key}" stays as it is here, and differs from the file in: ${differing.join(', ')}.`;
}

/** The integration as it stands here, made where it is missing; undefined where it is passed over. */
export async function takeIntegration(
  db: Db,
  entry: EntryOf<'integration'>,
  { environmentId, reading }: At,
): Promise<{ reported: ReportedIntegration; integration: Integration | undefined }> {
  return db.transaction(async (tx) => {
    const planned = await planIntegration(tx, entry, { environmentId, reading });
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
    await writeAudit(tx, {
      environmentId,
      actor: 'command line',
      action: 'integration.created',
      target: key,
      details: { provider: entry.provider, test: entry.is_test, from: 'file' },
    });
    return { reported: { ...planned, outcome: 'made' as const }, integration };
  });
}
