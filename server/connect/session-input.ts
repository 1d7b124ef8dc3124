import { z } from 'zod';
import type { Connection, EndUser } from '../connections/store.ts';
import { endUserInput, organizationInput, tagsInput, tagsOf } from '../connections/tags.ts';
import { connectionId } from '../connections/wire.ts';
import type { Queryable } from '../db/pool.ts';
import { AppError, type FieldError } from '../errors.ts';
import { text, webAddress } from '../http/text.ts';
import { findIntegrations, type Integration, type IntegrationReading } from '../integrations/store.ts';
import { integrationKey, readScopes } from '../integrations/wire.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { readFields } from '../providers/fields.ts';
import { leadsToOwnPages } from './own-pages.ts';
import type { ConnectDefaults, SessionSettings } from './sessions.ts';

/** As many integrations as a body may name in one place, and faults as an answer names. */
const maxItems = 100;

const texts = z.record(z.string(), text({ max: 8192 }));
const common = {
  end_user: endUserInput.optional(),
  organization: organizationInput.optional(),
  tags: tagsInput.optional(),
  integrations_config_defaults: perIntegration(
    z.strictObject({
      user_scopes: text({ max: 8192 }).optional(),
      authorization_params: texts.optional(),
      connection_config: texts.optional(),
    }),
  ).optional(),
  overrides: perIntegration(z.strictObject({ docs_connect: webAddress().optional() })).optional(),
  webhook_url_override: webAddress().optional(),
  require_same_account: z.boolean().optional(),
  /** What the end user is to choose on the connect page once the connection is made. */
  setup: z.literal('sheet').optional(),
  /** Where the connect page leads back to when it was the whole page. */
  return_url: webAddress().optional(),
};

/** Body of `POST /connect/sessions`. `end_user` may be left out only where there are `tags`, even empty ones. */
export const sessionInput = z
  .strictObject({ ...common, allowed_integrations: z.array(integrationKey).min(1).max(maxItems).optional() })
  .superRefine((body, context) => {
    if (body.end_user === undefined && body.tags === undefined) {
      context.addIssue({
        code: 'custom',
        message: 'is required where there are no tags',
        path: ['end_user'],
      });
    }
    if (body.require_same_account && !body.end_user?.email) {
      const message = 'needs end_user.email, which the account is compared with';
      context.addIssue({ code: 'custom', message, path: ['require_same_account'] });
    }
  });

/** Body of `POST /connect/sessions/reconnect`. */
export const reconnectInput = z.strictObject({
  ...common,
  connection_id: connectionId,
  integration_id: integrationKey,
  scopes: z
    .union([
      z.literal('missing'),
      z
        .array(text({ max: 8192 }))
        .min(1)
        .max(100),
    ])
    .optional(),
});

function perIntegration<T extends z.ZodType>(value: T) {
  return z
    .record(integrationKey, value)
    .refine((given) => Object.keys(given).length <= maxItems, `names more than ${maxItems} integrations`);
}

type Input = z.output<typeof sessionInput> | z.output<typeof reconnectInput>;

/**
 * The settings to store. Throws `invalid_body` naming each default that the provider's definition does not know, and each
 * link that leads to our own pages.
 */
export async function readSettings(
  db: Queryable,
  {
    body,
    environmentId,
    reading,
    baseUrl,
  }: { body: Input; environmentId: number; reading: IntegrationReading; baseUrl: string },
): Promise<SessionSettings> {
  const { end_user: given, organization, integrations_config_defaults: defaults } = body;
  const endUser: EndUser | undefined = given && { ...given, organization: organization ?? null };
  const faults: FieldError[] = linkFaults(body, baseUrl);
  const allowed = ('allowed_integrations' in body && body.allowed_integrations) || [];
  const overridden = Object.keys(body.overrides ?? {});
  const keys = [...new Set([...allowed, ...Object.keys(defaults ?? {}), ...overridden])];
  const found = keys.length > 0 ? await findIntegrations(db, { ...reading, environmentId, keys }) : [];
  const known = new Map(found.map((integration) => [integration.key, integration]));
  for (const [index, key] of allowed.entries()) {
    if (!known.has(key)) faults.push(unknown(key, ['allowed_integrations', String(index)]));
  }
  for (const [key, wanted] of Object.entries(defaults ?? {})) {
    const path = ['integrations_config_defaults', key];
    const integration = known.get(key);
    if (integration === undefined) faults.push(unknown(key, path));
    else faults.push(...defaultFaults(wanted, { integration, path }));
  }
  for (const key of overridden) {
    if (!known.has(key)) faults.push(unknown(key, ['overrides', key]));
  }
  if (faults.length > 0) throw new AppError('invalid_body', undefined, { errors: faults.slice(0, maxItems) });
  const isTagged = given !== undefined || organization !== undefined || body.tags !== undefined;
  return {
    end_user: endUser,
    ...(isTagged && { tags: tagsFor({ endUser, organization, tags: body.tags }) }),
    integrations_config_defaults: defaults,
    overrides: body.overrides,
    webhook_url_override: body.webhook_url_override,
    require_same_account: body.require_same_account,
    setup: body.setup,
    return_url: body.return_url,
  };
}

/**
 * The settings of a session that renews `connection`. Throws `invalid_body` where the scopes to add are none, or are
 * fixed in another place, too.
 */
export function reconnectSettings(
  settings: SessionSettings,
  { connection, integration, scopes }: ReconnectOf,
): SessionSettings {
  const { integrationKey: key, connectionId: id } = connection;
  if (scopes !== undefined) {
    const faults = addedScopeFaults(settings, { integration, scopes });
    if (faults.length > 0) throw new AppError('invalid_body', undefined, { errors: faults });
  }
  return { ...settings, scopes, reconnect: { integration: key, connection: id } };
}

type ReconnectOf = {
  connection: Connection;
  integration: Integration;
  scopes: 'missing' | string[] | undefined;
};

function addedScopeFaults(
  { integrations_config_defaults: defaults }: SessionSettings,
  { integration, scopes }: { integration: Integration; scopes: 'missing' | string[] },
): FieldError[] {
  const fault = (message: string, ...at: string[]) => ({
    code: 'custom',
    message,
    path: ['scopes', ...at],
  });
  if (integration.provider.auth_mode !== 'OAUTH2') return [fault('the provider has no scopes')];
  if (fixedScopes(defaults?.[integration.key]) !== undefined)
    return [fault('stands beside scopes in integrations_config_defaults')];
  if (scopes === 'missing') return [];
  return scopes.flatMap((scope, index) =>
    scopeToken.test(scope) ? [] : [fault('is no scope (RFC 6749 §3.3)', String(index))],
  );
}

function linkFaults({ return_url: returnUrl, overrides }: Input, baseUrl: string): FieldError[] {
  const links = Object.entries(overrides ?? {}).map(
    ([key, { docs_connect: link }]) => [link, ['overrides', key, 'docs_connect']] as const,
  );
  return [[returnUrl, ['return_url']] as const, ...links]
    .filter(([link]) => link !== undefined && leadsToOwnPages(link, baseUrl))
    .map(([, path]) => ({
      code: 'custom',
      message: 'leads to a page of this service that connects accounts',
      path: [...path],
    }));
}

/** The scopes that an application fixed for one integration; undefined where it fixed none. */
export function fixedScopes(defaults: ConnectDefaults | undefined): string[] | undefined {
  return readScopes(defaults?.connection_config?.[scopesOverride] ?? defaults?.user_scopes);
}

/** The fixed fields of `connection_config`, without what is none of the provider's. */
export function fixedConfig(defaults: ConnectDefaults | undefined): Record<string, string> {
  const { [scopesOverride]: _scopes, ...fields } = defaults?.connection_config ?? {};
  return fields;
}

/** Official clients put scopes that replace the integration's among the configuration. */
const scopesOverride = 'oauth_scopes_override';
const scopeToken = /^[\x21\x23-\x5b\x5d-\x7e]+$/;

function tagsFor(given: {
  endUser: EndUser | undefined;
  organization: z.output<typeof organizationInput> | undefined;
  tags: Record<string, string> | undefined;
}): Record<string, string> {
  const { endUser, organization, tags } = given;
  // An organization without an end user names itself by its tags alone.
  return tagsOf({ endUser: endUser ?? { id: '', organization: organization ?? null }, tags });
}

function unknown(key: string, path: string[]): FieldError {
  return { code: 'custom', message: `This environment has no integration with the ID "${key}".`, path };
}

function defaultFaults(
  wanted: ConnectDefaults,
  { integration, path }: { integration: Integration; path: string[] },
): FieldError[] {
  const { provider } = integration;
  const faults: FieldError[] = [];
  const report = (message: string, ...at: string[]) =>
    faults.push({ code: 'custom', message, path: [...path, ...at] });
  const scopes = fixedScopes(wanted);
  const scopesAt = wanted.connection_config?.[scopesOverride]
    ? ['connection_config', scopesOverride]
    : ['user_scopes'];
  if (scopes !== undefined && provider.auth_mode !== 'OAUTH2')
    report('the provider has no scopes', ...scopesAt);
  for (const scope of scopes ?? [])
    if (!scopeToken.test(scope)) report('holds what is no scope', ...scopesAt);
  for (const [name, value] of Object.entries(wanted.authorization_params ?? {})) {
    const fault = paramFault(provider, { name, value });
    if (fault !== undefined) report(fault, 'authorization_params', name);
  }
  const config = fixedConfig(wanted);
  const read = readFields(provider.connection_config, config);
  for (const { field, message } of read.ok ? [] : read.issues) {
    // What is required and not fixed is asked of the end user.
    if (Object.hasOwn(config, field)) report(message, 'connection_config', field);
  }
  return faults;
}

/** Why a parameter may not go to the authorization page, if so; one that only repeats what is always sent may. */
export function paramFault(
  { authorization }: ProviderDefinition,
  { name, value }: { name: string; value: string },
): string | undefined {
  if (authorization?.params[name] === value) return undefined;
  const rule =
    authorization && Object.hasOwn(authorization.browser_params, name) && authorization.browser_params[name];
  if (!rule) return 'is not a parameter that may be set for this provider';
  return new RegExp(`^(?:${rule.pattern})$`, 'u').test(value) ? undefined : 'does not fit the pattern';
}
