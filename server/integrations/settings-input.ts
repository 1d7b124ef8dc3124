import type { z } from 'zod';
import { modeNamed } from '../auth-modes/modes.ts';
import { AppError, fieldError } from '../errors.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { readFields } from '../providers/fields.ts';
import { quotaWith } from '../providers/quota-setting.ts';
import { isUsableSecret } from '../providers/webhook-secret.ts';
import type { Integration, IntegrationChange, IntegrationReading, OAuthClient } from './store.ts';
import { type changedCredentials, type integrationSettings, readScopes } from './wire.ts';

type Settings = z.output<z.ZodObject<typeof integrationSettings>> & {
  credentials?: z.output<typeof changedCredentials> | undefined;
};

/** The change in a body, checked by the definition of its provider. Throws `invalid_body` by field. */
export function readSettings(
  body: Settings,
  given: { provider: ProviderDefinition; reading: IntegrationReading; before: Integration | undefined },
): IntegrationChange {
  const { provider, reading, before } = given;
  const { credentials } = body;
  if (credentials && modeNamed(provider.auth_mode).client === 'none') {
    const message = `${provider.display_name} accepts no client credentials.`;
    throw fieldError('invalid_body', ['credentials'], message);
  }
  const isTest = credentials?.type === 'TEST';
  if (isTest && reading.testClient === undefined) throw new AppError('test_credentials_unavailable');
  if (isTest && provider.sandbox === undefined) {
    const message = `The sandbox does not simulate ${provider.display_name}.`;
    throw fieldError('invalid_body', ['credentials', 'type'], message);
  }
  const clientType = provider.auth_mode === 'OAUTH1' ? 'OAUTH1' : 'OAUTH2';
  if (credentials && !isTest && credentials.type !== clientType)
    throw fieldError('invalid_body', ['credentials', 'type'], `must be ${clientType} or TEST.`);
  const scopes = readScopes(credentials?.scopes);
  requireUsableSecret(provider, { secret: body.webhook_secret, path: ['webhook_secret'] });
  if (credentials && credentials.type !== 'TEST') {
    const { webhook_secret: secret } = credentials;
    requireUsableSecret(provider, { secret, path: ['credentials', 'webhook_secret'] });
  }
  return {
    ...(body.display_name !== undefined && { displayName: body.display_name }),
    ...(body.forward_webhooks !== undefined && { forwardWebhooks: body.forward_webhooks }),
    ...(body.webhook_secret !== undefined && { webhookSecret: body.webhook_secret }),
    ...(body.custom && { custom: body.custom }),
    ...(body.proxy_rules && { proxyRules: body.proxy_rules }),
    integrationConfig: readIntegrationConfig(provider, {
      ...before?.integrationConfig,
      ...body.integration_config,
    }),
    ...(isTest && { isTest: true }),
    ...(scopes && { scopes }),
    ...(credentials &&
      credentials.type !== 'TEST' && {
        client: clientOf(credentials, { provider, before }),
        ...(credentials.webhook_secret !== undefined && { webhookSecret: credentials.webhook_secret }),
      }),
  };
}

const secretForms: Partial<Record<string, string>> = {
  standard: 'must be base64 of 16 bytes or more, with or without `whsec_`.',
  hmac: 'must be a key of 16 bytes or more, in the encoding in which the provider shows it (hex or base64).',
  public_key: "must be the provider's public key: 64 hexadecimal digits (Ed25519), or base64 (ECDSA).",
};

/** Refuses a secret that cannot authenticate a sender. An empty one means none. */
function requireUsableSecret(
  { webhook }: ProviderDefinition,
  { secret, path }: { secret: string | undefined; path: string[] },
): void {
  const proof = webhook?.proof;
  if (!secret || proof === undefined || proof.key !== 'webhook_secret' || isUsableSecret(secret, proof))
    return;
  throw fieldError('invalid_body', path, secretForms[proof.scheme] ?? 'is not a valid webhook secret.');
}

/** The client in a body, with the stored secret if the body has none. */
function clientOf(
  given: { client_id: string; client_secret?: string | undefined },
  { provider, before }: { provider: ProviderDefinition; before: Integration | undefined },
): OAuthClient {
  const clientSecret = given.client_secret ?? (before?.isTest ? undefined : before?.client?.clientSecret);
  if (clientSecret === undefined) {
    throw fieldError('invalid_body', ['credentials', 'client_secret'], 'No secret is stored yet.');
  }
  const fault = modeNamed(provider.auth_mode).clientSecretFault?.(clientSecret, provider);
  if (fault !== undefined) throw fieldError('invalid_body', ['credentials', 'client_secret'], fault);
  return { clientId: given.client_id, clientSecret };
}

/**
 * The definition's own fields, and `allowed_base_urls` and `quota`, which every provider has. An empty one means none.
 */
function readIntegrationConfig(
  provider: ProviderDefinition,
  given: Record<string, string>,
): Record<string, string> {
  const { allowed_base_urls: allowed, quota, ...others } = given;
  const read = readFields(provider.integration_config, others);
  if (!read.ok) {
    throw new AppError('invalid_body', undefined, {
      errors: read.issues.map(({ field, message }) => ({
        code: 'custom',
        message,
        path: ['integration_config', field],
      })),
    });
  }
  for (const origin of allowed ? allowed.split(',') : []) {
    const url = URL.parse(origin.trim());
    if (url === null || !/^https?:$/.test(url.protocol)) {
      const message = 'must be a comma-separated list of origins such as https://api.example.com';
      throw fieldError('invalid_body', ['integration_config', 'allowed_base_urls'], message);
    }
  }
  try {
    quotaWith(provider.api.quota, { setting: quota || undefined, isTest: false });
  } catch (error) {
    throw fieldError('invalid_body', ['integration_config', 'quota'], (error as RangeError).message);
  }
  return {
    ...read.values,
    ...(allowed && { allowed_base_urls: allowed }),
    ...(quota && { quota }),
  };
}
