import { z } from 'zod';
import { proxyRule, proxyRules } from '../http/auth/proxy-rule.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { text } from '../http/text.ts';
import type { Integration } from './store.ts';

/** An integration ID, as official clients accept it. */
export const integrationKey = z
  .string()
  .min(1)
  .max(255)
  .regex(/^[a-zA-Z0-9~:.@ _-]+$/, 'may contain A-Z a-z 0-9 ~ : . @ _ - and spaces');
nameSchemas({ IntegrationId: integrationKey });

const webhookSecret = text({ min: 1, max: 1024 }).optional();

const ownClient = z.strictObject({
  /** `OAUTH1` for a provider of this mode, `OAUTH2` for all others. */
  type: z.enum(['OAUTH2', 'OAUTH1']),
  client_id: text({ min: 1, max: 1024 }).trim().min(1),
  /** For a provider of the mode JWT, the private key. */
  client_secret: text({ min: 1, max: 16_384 }).trim().min(1),
  /** Comma-separated; absent: the provider's default scopes. */
  scopes: text({ max: 8192 }).optional(),
  webhook_secret: webhookSecret,
});
/** The sandbox's own client, to try everything without an account at a provider. */
const testClient = z.strictObject({ type: z.literal('TEST'), scopes: text({ max: 8192 }).optional() });

/** `credentials` of a new integration. */
export const integrationCredentials = z.discriminatedUnion('type', [ownClient, testClient]);
/**
 * `credentials` of a change. The stored secret stays if the body has none, so that a change of scopes does not need
 * it.
 */
export const changedCredentials = z.discriminatedUnion('type', [
  ownClient.partial({ client_secret: true }),
  testClient,
]);

const configValues = z.record(text({ max: 255 }), text({ max: 8192 }));
nameSchemas({ ConfigValues: configValues });
export const integrationSettings = {
  display_name: text({ min: 1, max: 255 }).optional(),
  forward_webhooks: z.boolean().optional(),
  /** The secret with which the provider signs its webhooks; empty: none. */
  webhook_secret: text({ max: 1024 }).optional(),
  integration_config: configValues.optional(),
  custom: configValues.optional(),
  /** Replaces all existing rules. */
  proxy_rules: proxyRules.optional(),
};

/** The usage of an integration. `app.ts` passes in the function that counts, which is of a higher layer. */
type IntegrationUsage = {
  connections: { total: number; active: number; needs_reauth: number; blocked: number };
  quota: readonly {
    name: string;
    counts: 'read' | 'write' | 'all';
    limit: number;
    windowS: number;
    used: number;
    closedUntil: Date | undefined;
  }[];
  /** The ends that the provider has announced for the next 90 days, if they affect connections. */
  sunsets: readonly { on: string; ends: string; page: string; count: number }[];
};

/** For integrations of one environment. */
export type UsageOf = (given: {
  environmentId: number;
  integrations: readonly Integration[];
}) => Promise<(integration: Integration) => IntegrationUsage>;

const usageWire = z.object({
  /** Each is counted up to 10,000. */
  connections: z.object({
    total: z.number(),
    active: z.number(),
    needs_reauth: z.number(),
    blocked: z.number(),
  }),
  /** The limits of the client as a whole, over all nodes and environments; empty if the quota is off. */
  quota: z.array(
    z.object({
      name: z.string(),
      counts: z.enum(['read', 'write', 'all']),
      limit: z.number(),
      window_s: z.number(),
      /** In the last window. */
      used: z.number(),
      /** No call is sent before. */
      closed_until: z.string().nullable(),
    }),
  ),
  /** The ends that the provider has announced, from 90 days before, while connections may stop working. */
  sunsets: z.array(
    z.object({
      /** ISO 8601 date. */
      on: z.string(),
      ends: z.string(),
      /** Address of the provider's announcement. */
      announcement: z.string(),
      /** The number of connections that may stop working. */
      connections: z.number(),
    }),
  ),
});

export function usageToWire({ connections, quota, sunsets }: IntegrationUsage): z.input<typeof usageWire> {
  return {
    connections,
    quota: quota.map(({ windowS, closedUntil, ...use }) => ({
      ...use,
      window_s: windowS,
      closed_until: closedUntil?.toISOString() ?? null,
    })),
    sunsets: sunsets.map(({ on, ends, page, count }) => ({
      on,
      ends,
      announcement: page,
      connections: count,
    })),
  };
}

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
  /** Of its own OAuth client; null if there is none. */
  client_id: z.string().nullable(),
  /** The scopes that end users are asked for: those of the integration, else the provider's. */
  scopes: z.array(z.string()),
  /** The fault of the integration itself; null if none is known. */
  fault: z
    .object({
      cause: z.string(),
      evidence: z.record(z.string(), z.union([z.string(), z.number()])),
      since: z.string(),
      next_step: z.string(),
      /** When the client is tried next without a call. */
      next_check_at: z.string().nullable(),
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
nameSchemas({
  Integration: integrationWire,
  IntegrationCredentials: integrationCredentials,
  IntegrationCredentialsChange: changedCredentials,
  IntegrationUsage: usageWire,
});

/** An integration as callers see it, without secrets. */
export function toWire(
  integration: Integration,
  { baseUrl }: { baseUrl: string },
): z.input<typeof integrationWire> {
  const { fault = integration.partialFault, probeAt } = integration;
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
    fault: fault ? { ...fault, next_check_at: probeAt?.toISOString() ?? null } : null,
    created_at: integration.createdAt.toISOString(),
    updated_at: integration.updatedAt.toISOString(),
  };
}

/** The credentials, for callers with the scope to read them. Test credentials have no secret to show. */
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

/** `a, b` as a list; undefined means the provider's default. */
export function readScopes(text: string | undefined): string[] | undefined {
  if (text === undefined) return undefined;
  const list = text.split(/[\s,]+/).filter((scope) => scope !== '');
  return list.length > 0 ? [...new Set(list)] : undefined;
}
