import { z } from 'zod';
import { modeNamed } from '../auth-modes/modes.ts';
import { connectionId } from '../connections/routes/wire.ts';
import type { Connection, EndUser } from '../connections/store/store.ts';
import { endUserInput, organizationInput, tagsInput, tagsOf } from '../connections/store/tags.ts';
import type { Queryable } from '../db/pool.ts';
import { readConnectSettings } from '../environments/connect-settings.ts';
import { AppError, type FieldError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { anyAddress, text, webAddress } from '../http/text.ts';
import { type Integration, type IntegrationReading, listIntegrations } from '../integrations/store.ts';
import { integrationKey, readScopes } from '../integrations/wire.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { allowedBy, readFields } from '../providers/fields.ts';
import { patternExpression } from '../providers/template.ts';
import type { ConnectDefaults, SessionSettings } from './sessions.ts';

/** The limit of integrations that a body may name in one place, and of errors in a response. */
const maxItems = 100;

const texts = z.record(z.string(), text({ max: 8192 }));
const sessionDefaults = z.strictObject({
  user_scopes: text({ max: 8192 }).optional(),
  authorization_params: texts.optional(),
  connection_config: texts.optional(),
});
const sessionOverrides = z.strictObject({ docs_connect: webAddress().optional() });
nameSchemas({ SessionDefaults: sessionDefaults, SessionOverrides: sessionOverrides });
const common = {
  end_user: endUserInput.optional(),
  organization: organizationInput.optional(),
  tags: tagsInput.optional(),
  integrations_config_defaults: perIntegration(sessionDefaults).optional(),
  overrides: perIntegration(sessionOverrides).optional(),
  webhook_url_override: webAddress().optional(),
  require_same_account: z.boolean().optional(),
  /** The choice of the end user on the connect page after the connection is made. */
  setup: z.literal('sheet').optional(),
  /**
   * The address to return to, for a connect page that was opened as a whole page; also of another scheme if the
   * environment allows it.
   */
  return_url: anyAddress().optional(),
};

/** Body of `POST /connect/sessions`. `end_user` is optional only if there are `tags`, even empty ones. */
export const sessionInput = z
  .strictObject({ ...common, allowed_integrations: z.array(integrationKey).min(1).max(maxItems).optional() })
  .superRefine((body, context) => {
    if (body.end_user === undefined && body.tags === undefined) {
      const message = 'is required if there are no tags';
      context.addIssue({ code: 'custom', message, path: ['end_user'] });
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
 * The settings to store. Throws `invalid_body` naming each default that the provider's definition does not allow, and
 * each link to our own pages.
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
  const faults: FieldError[] = [
    ...linkFaults(body, baseUrl),
    ...(await schemeFaults(db, { body, environmentId })),
  ];
  const allowed = ('allowed_integrations' in body && body.allowed_integrations) || [];
  const overridden = Object.keys(body.overrides ?? {});
  const keys = [...new Set([...allowed, ...Object.keys(defaults ?? {}), ...overridden])];
  const found = keys.length > 0 ? await listIntegrations(db, { ...reading, environmentId, keys }) : [];
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
  // An organization without an end user is only in the tags.
  const tagged = endUser ?? { id: '', organization: organization ?? null };
  return {
    end_user: endUser,
    ...(isTagged && { tags: tagsOf({ endUser: tagged, tags: body.tags }) }),
    integrations_config_defaults: defaults,
    overrides: body.overrides,
    webhook_url_override: body.webhook_url_override,
    require_same_account: body.require_same_account,
    setup: body.setup,
    return_url: body.return_url,
  };
}

/**
 * The settings of a session that renews `connection`. Throws `invalid_body` if the scopes to add are invalid or also
 * fixed elsewhere.
 */
export function reconnectSettings(
  settings: SessionSettings,
  given: { connection: Connection; integration: Integration; scopes: SessionSettings['scopes'] },
): SessionSettings {
  const { connection, integration, scopes } = given;
  const { integrationKey: key, connectionId: id } = connection;
  const faults = scopes === undefined ? [] : addedScopeFaults(settings, { integration, scopes });
  if (faults.length > 0) throw new AppError('invalid_body', undefined, { errors: faults });
  return { ...settings, scopes, reconnect: { integration: key, connection: id } };
}

function addedScopeFaults(
  { integrations_config_defaults: defaults }: SessionSettings,
  { integration, scopes }: { integration: Integration; scopes: 'missing' | string[] },
): FieldError[] {
  const fault = (message: string, ...at: string[]) => ({ code: 'custom', message, path: ['scopes', ...at] });
  if (modeNamed(integration.provider.auth_mode).form !== undefined)
    return [fault('the provider has no scopes')];
  if (fixedScopes(defaults?.[integration.key]) !== undefined)
    return [fault('conflicts with the scopes in integrations_config_defaults')];
  if (scopes === 'missing') return [];
  return scopes.flatMap((scope, index) =>
    scopeToken.test(scope) ? [] : [fault('is not a scope (RFC 6749 §3.3)', String(index))],
  );
}

function linkFaults({ return_url: returnUrl, overrides }: Input, baseUrl: string): FieldError[] {
  const links = Object.entries(overrides ?? {}).map(
    ([key, { docs_connect: link }]) => [link, ['overrides', key, 'docs_connect']] as const,
  );
  const message = 'leads to a page of this service that connects accounts';
  return [[returnUrl, ['return_url']] as const, ...links]
    .filter(([link]) => link !== undefined && leadsToOwnPages(link, baseUrl))
    .map(([, path]) => ({ code: 'custom', message, path: [...path] }));
}

async function schemeFaults(
  db: Queryable,
  { body, environmentId }: { body: Input; environmentId: number },
): Promise<FieldError[]> {
  if (body.return_url === undefined || (await mayReturnTo(db, { address: body.return_url, environmentId })))
    return [];
  const message =
    'must begin with http:// or https://, or with a scheme of connect.return_schemes in the settings';
  return [{ code: 'custom', message, path: ['return_url'] }];
}

/** Whether a `return_url` has the scheme http or https, or one that the environment allows. */
export async function mayReturnTo(
  db: Queryable,
  { address, environmentId }: { address: string; environmentId: number },
): Promise<boolean> {
  const scheme = new URL(address).protocol.slice(0, -1);
  if (scheme === 'http' || scheme === 'https') return true;
  return (await readConnectSettings(db, environmentId)).returnSchemes.includes(scheme);
}

/** The scopes that the application fixed for one integration, if any. */
export function fixedScopes(defaults: ConnectDefaults | undefined): string[] | undefined {
  return readScopes(defaults?.connection_config?.[scopesOverride] ?? defaults?.user_scopes);
}

/** The fixed fields of `connection_config`, without the entry that is not the provider's. */
export function fixedConfig(defaults: ConnectDefaults | undefined): Record<string, string> {
  const { [scopesOverride]: _scopes, ...fields } = defaults?.connection_config ?? {};
  return fields;
}

/** Official clients send scopes that replace the integration's in the configuration. */
const scopesOverride = 'oauth_scopes_override';
const scopeToken = /^[\x21\x23-\x5b\x5d-\x7e]+$/;

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
  if (scopes !== undefined && modeNamed(provider.auth_mode).form !== undefined)
    report('the provider has no scopes', ...scopesAt);
  for (const scope of scopes ?? [])
    if (!scopeToken.test(scope)) report('contains a text that is not a scope (RFC 6749 §3.3)', ...scopesAt);
  for (const [name, value] of Object.entries(wanted.authorization_params ?? {})) {
    const fault = paramFault(provider, { name, value });
    if (fault !== undefined) report(fault, 'authorization_params', name);
  }
  const config = fixedConfig(wanted);
  const read = readFields(provider.connection_config, config);
  for (const { field, message } of read.ok ? [] : read.issues) {
    // The end user enters the other required fields.
    if (Object.hasOwn(config, field)) report(message, 'connection_config', field);
  }
  return faults;
}

/** Why a parameter may not be sent to the authorization page; undefined if it may, or if it repeats a fixed one. */
export function paramFault(
  { authorization }: ProviderDefinition,
  { name, value }: { name: string; value: string },
): string | undefined {
  if (authorization?.params[name] === value) return undefined;
  const rule =
    authorization && Object.hasOwn(authorization.browser_params, name) && authorization.browser_params[name];
  if (!rule) return 'is not a parameter that may be set for this provider';
  return patternExpression(rule.pattern).test(value) ? undefined : allowedBy(rule.pattern);
}

/**
 * Whether an address leads to the pages of this service that connect accounts. Throws if `address` is not a URL.
 *
 * A link of the connect page must not lead there: an authorization that begins from one of our pages shows no page
 * that asks (`page-routes.ts`), so an application could make a victim begin with a session of the application's own.
 * Other paths of the same origin are allowed: the application may be there.
 */
export function leadsToOwnPages(address: string, baseUrl: string): boolean {
  const [url, base] = [new URL(address), new URL(baseUrl)];
  // For a host with HSTS, a browser sends no request over http, and has one origin (RFC 6797 §8.3).
  if (base.protocol === 'https:') url.protocol = base.protocol;
  if (url.origin !== base.origin) return false;
  const [path, own] = [routedPath(url), routedPath(base).replace(/\/$/, '')];
  return path.startsWith(`${own}/`) && /^\/(oauth|connect)(\/|$)/.test(path.slice(own.length));
}

/** The exit address of a connect page; null if it leads to a page of this service, or is not set. */
export function exitAddress(address: string | undefined, baseUrl: string): string | null {
  return address === undefined || leadsToOwnPages(address, baseUrl) ? null : address;
}

/**
 * The path as a router or a proxy may read it: percent-encoded ASCII decoded until nothing changes, slashes merged, no
 * `.` and `..`.
 */
function routedPath({ pathname }: URL): string {
  const routed = new URL('http://routed');
  let path = pathname;
  for (;;) {
    const decoded = path.replaceAll(/%([0-7][0-9a-f])/gi, (_, hex) =>
      String.fromCharCode(Number.parseInt(hex, 16)),
    );
    routed.pathname = decoded.replaceAll(/[/\\]+/g, '/');
    if (routed.pathname === path) return path;
    path = routed.pathname;
  }
}
