import { z } from 'zod';
import { proxyRule, proxyRules } from '../http/proxy-rule.ts';
import { text } from '../http/text.ts';
import type { Integration } from './store.ts';
import { usageWire } from './usage.ts';

/** An integration ID, and what official clients accept as one. */
export const integrationKey = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[a-zA-Z0-9~:.@ _-]+$/, 'may hold A-Z a-z 0-9 ~ : . @ _ - and spaces');

const webhookSecret = text({ min: 1, max: 1024 }).optional();

const ownClient = z.strictObject({
  type: z.literal('OAUTH2'),
  client_id: text({ min: 1, max: 1024 }).trim().min(1),
  client_secret: text({ min: 1, max: 1024 }).trim().min(1),
  /** Comma-separated; absent: the provider's default scopes. */
  scopes: text({ max: 8192 }).optional(),
  webhook_secret: webhookSecret,
});
/** The sandbox's own client, so that everything can be tried without an account at a provider. */
const testClient = z.strictObject({ type: z.literal('TEST'), scopes: text({ max: 8192 }).optional() });

/** What `credentials` may be when an integration is made. */
export const integrationCredentials = z.discriminatedUnion('type', [ownClient, testClient]);
/** And when it is changed: the stored secret stays where none is given, so that nobody must know it to change scopes. */
export const changedCredentials = z.discriminatedUnion('type', [
  ownClient.partial({ client_secret: true }),
  testClient,
]);

const configValue = text({ max: 8192 });
export const integrationSettings = {
  display_name: text({ min: 1, max: 255 }).optional(),
  forward_webhooks: z.boolean().optional(),
  /** What the provider signs its webhooks with; empty: none. */
  webhook_secret: text({ max: 1024 }).optional(),
  integration_config: z.record(text({ max: 255 }), configValue).optional(),
  custom: z.record(text({ max: 255 }), configValue).optional(),
  /** Takes the place of all that there were. */
  proxy_rules: proxyRules.optional(),
};

export const integrationWire = z.object({
  unique_key: z.string(),
  provider: z.string(),
  display_name: z.string(),
  logo: z.string(),
  test: z.boolean(),
  forward_webhooks: z.boolean(),
  integration_config: z.record(z.string(), z.string()),
  custom: z.record(z.string(), z.string()).nullable(),
  proxy_rules: z.array(proxyRule),
  /** Of its own OAuth client; null where there is none. */
  client_id: z.string().nullable(),
  /** What users are asked for: the scopes that were set, else the provider's. */
  scopes: z.array(z.string()),
  /** What ails the integration itself; null where nothing is known to. */
  fault: z
    .object({
      cause: z.string(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      since: z.string(),
      next_step: z.string(),
    })
    .nullable(),
  created_at: z.string(),
  updated_at: z.string(),
  webhook_url: z.string().optional(),
  /** With `include=usage`. */
  usage: usageWire.optional(),
  credentials: z
    .object({
      type: z.string(),
      client_id: z.string(),
      client_secret: z.string(),
      scopes: z.string(),
      webhook_secret: z.string().nullable(),
    })
    .nullable()
    .optional(),
});

/** An integration as callers see it; the secret only by `withCredentials`. */
export function toWire(
  integration: Integration,
  { baseUrl }: { baseUrl: string },
): z.input<typeof integrationWire> {
  return {
    unique_key: integration.key,
    provider: integration.provider.name,
    display_name: integration.displayName,
    logo: `${baseUrl}/providers/logos/${integration.provider.logo}`,
    test: integration.isTest,
    forward_webhooks: integration.forwardWebhooks,
    integration_config: integration.integrationConfig,
    custom: integration.custom ?? null,
    proxy_rules: [...integration.proxyRules],
    client_id: (!integration.isTest && integration.client?.clientId) || null,
    scopes: [...(integration.scopes ?? integration.provider.scopes.default)],
    fault: integration.fault ?? integration.partialFault ?? null,
    created_at: integration.createdAt.toISOString(),
    updated_at: integration.updatedAt.toISOString(),
  };
}

/** The credentials block, for callers who may see it. Test credentials have no secret to show. */
export function credentialsToWire(integration: Integration): z.input<typeof integrationWire>['credentials'] {
  if (integration.isTest || integration.client === undefined) return null;
  return {
    type: integration.provider.auth_mode,
    client_id: integration.client.clientId,
    client_secret: integration.client.clientSecret,
    scopes: (integration.scopes ?? integration.provider.scopes.default).join(','),
    webhook_secret: integration.webhookSecret ?? null,
  };
}

/** `a, b` as a list; undefined stays undefined (the provider's default). */
export function readScopes(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  const list = text.split(/[\s,]+/).filter((scope) => scope !== '');
  return list.length > 0 ? [...new Set(list)] : undefined;
}
