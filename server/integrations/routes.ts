import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { modeNamed } from '../auth-modes/modes.ts';
import { type Db, type Queryable, retryOnViolation, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { actorOf, type Caller, hasScope, requireScope } from '../http/auth/caller.ts';
import { success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { catalogOfEnvironment } from '../providers/environment-definitions.ts';
import { requireMayMove } from './destinations.ts';
import { readSettings } from './settings-input.ts';
import {
  clearIntegration,
  createIntegration,
  deleteIntegration,
  findIntegration,
  getIntegration,
  getIntegrationForUpdate,
  type Integration,
  type IntegrationReading,
  listIntegrations,
  throwTaken,
  unknownProvider,
  updateIntegration,
} from './store.ts';
import {
  changedCredentials,
  credentialsToWire,
  integrationCredentials,
  integrationKey,
  integrationSettings,
  integrationWire,
  toWire,
  type UsageOf,
  usageToWire,
} from './wire.ts';

type IntegrationRouteDeps = {
  db: Db;
  reading: IntegrationReading;
  baseUrl: string;
  /** The address under which providers reach the webhooks. */
  webhookBaseUrl: string;
  now: () => Date;
  usageOf: UsageOf;
  /** Called with the former ID of a changed or deleted integration, to drop its cache entries. */
  afterChange: (at: { environmentId: number; integrationKey: string }) => void;
};

const one = { 200: z.object({ data: integrationWire }) };
const include = z.enum(['credentials', 'webhook', 'usage']);
const params = z.object({ key: integrationKey });

/** CRUD of integrations; every change is in the audit log. */
export function integrationRoutes(
  app: App,
  { db, reading, baseUrl, webhookBaseUrl, now, usageOf, afterChange }: IntegrationRouteDeps,
): void {
  const wire = { baseUrl };
  /** Without the fields that an end user's browser must not see. */
  const wireFor = (caller: Caller, integration: Integration) => ({
    ...toWire(integration, wire),
    ...(caller.kind === 'session' && {
      integration_config: {},
      custom: null,
      proxy_rules: [],
      client_id: null,
      fault: null,
    }),
  });

  const lock = (tx: Tx, { environmentId }: Caller, key: string) =>
    getIntegrationForUpdate(tx, { ...reading, environmentId, key }).catch(asNotFound);

  app.get(
    '/integrations',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'listIntegrations',
        list: { items: 'data', by: 'whole' },
        summary: 'List integrations',
        description:
          '`include=usage` adds, for each integration, the number of connections in each state, and the usage of the ' +
          'limits that the provider counts for the client as a whole.',
        querystring: z.strictObject({ include: z.literal('usage').optional() }),
        response: { 200: z.object({ data: z.array(integrationWire) }) },
      },
    },
    async ({ query, caller }) => {
      const { environmentId } = caller;
      const all = await listIntegrations(db, { environmentId, ...reading });
      const integrations = all.filter(({ key }) => mayKnow(caller, key));
      const wanted = query.include === 'usage' && hasScope(caller, 'integrations:read');
      const usage = wanted ? await usageOf({ environmentId, integrations }) : undefined;
      return {
        data: integrations.map((found) => ({
          ...wireFor(caller, found),
          ...(usage && { usage: usageToWire(usage(found)) }),
        })),
      };
    },
  );

  app.post(
    '/integrations',
    {
      config: { access: { by: 'key', scope: 'integrations:write' }, idempotent: true },
      schema: {
        operationId: 'createIntegration',
        summary: 'Create an integration',
        description:
          'A provider with your OAuth client for it, or with test credentials (`credentials: {type: TEST}`).',
        errors: ['integration_exists', 'test_credentials_unavailable'],
        example: {
          body: { provider: 'google-sheet', integration_id: 'google-sheet', credentials: { type: 'TEST' } },
        },
        body: z.strictObject({
          provider: z.string().min(1).max(255),
          unique_key: integrationKey,
          credentials: integrationCredentials.optional(),
          ...integrationSettings,
        }),
        response: one,
      },
    },
    async ({ body, caller }) => {
      const provider = await providerOf(db, { reading, caller, name: body.provider });
      if (modeNamed(provider.auth_mode).client === 'required' && body.credentials === undefined) {
        const message = `Missing credentials: ${provider.display_name} needs a client ID and secret.`;
        throw new AppError('invalid_body', message, {
          errors: [{ code: 'custom', message: 'This provider needs credentials.', path: ['credentials'] }],
        });
      }
      const change = readSettings(body, { provider, reading, before: undefined });
      const about = { environmentId: caller.environmentId, key: body.unique_key, provider: body.provider };
      const created = await db
        .transaction((tx) => create(tx, caller, { ...reading, ...change, ...about }))
        .catch((error: unknown) => throwTaken(error, body.unique_key));
      return { data: toWire(created, wire) };
    },
  );

  app.post(
    '/integrations/quickstart',
    {
      config: { access: { by: 'key', scope: 'integrations:write' }, idempotent: true },
      schema: {
        operationId: 'quickstartIntegration',
        summary: 'Get or create an integration with test credentials',
        description: 'The integration is created unless it exists, so the call can be repeated.',
        errors: ['integration_exists', 'test_credentials_unavailable'],
        body: z.strictObject({
          provider: z.string().min(1).max(255),
          unique_key: integrationKey,
          ...integrationSettings,
        }),
        response: one,
      },
    },
    async ({ body, caller }) => {
      const provider = await providerOf(db, { reading, caller, name: body.provider });
      const change = readSettings(
        { ...body, ...(hasTestClient(provider) && { credentials: { type: 'TEST' } }) },
        { provider, reading, before: undefined },
      );
      const at = { ...reading, environmentId: caller.environmentId, key: body.unique_key };
      const make = () =>
        db.transaction(async (tx) => {
          const found = await findIntegration(tx, at);
          const isSame = found?.provider.name === body.provider && found.isTest === (change.isTest ?? false);
          return found && isSame ? found : create(tx, caller, { ...at, ...change, provider: body.provider });
        });
      const integration = await retryOnViolation('integration_key_unique', make).catch((error: unknown) =>
        throwTaken(error, body.unique_key),
      );
      return { data: toWire(integration, wire) };
    },
  );

  app.get(
    '/integrations/:key',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'getIntegration',
        summary: 'Get an integration',
        description:
          'The response has the client secret if `include=credentials` is set and the key has `integrations:secrets`.',
        errors: ['not_found', 'integration_not_allowed'],
        params,
        querystring: z.strictObject({ include: z.union([include, z.array(include)]).optional() }),
        response: one,
      },
    },
    async ({ params: { key }, query, caller }) => {
      const at = { ...reading, environmentId: caller.environmentId, key };
      const integration = await getIntegration(db, at).catch(asNotFound);
      if (!mayKnow(caller, key)) throw new AppError('integration_not_allowed');
      const wanted = [query.include ?? []].flat();
      if (wanted.includes('credentials')) requireScope(caller, 'integrations:secrets');
      const isCounted = wanted.includes('usage') && hasScope(caller, 'integrations:read');
      const { environmentId } = caller;
      const usage = isCounted ? await usageOf({ environmentId, integrations: [integration] }) : undefined;
      return {
        data: {
          ...wireFor(caller, integration),
          ...(wanted.includes('webhook') &&
            hasScope(caller, 'integrations:read') && {
              webhook_url: `${webhookBaseUrl}/webhook/${encodeURIComponent(caller.environment)}/${encodeURIComponent(key)}`,
            }),
          ...(usage && { usage: usageToWire(usage(integration)) }),
          ...(wanted.includes('credentials') && { credentials: credentialsToWire(integration) }),
        },
      };
    },
  );

  app.patch(
    '/integrations/:key',
    {
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'changeIntegration',
        summary: 'Change an integration',
        description:
          'Only keys that may read the secrets can change a setting that determines where these secrets are sent: see ' +
          '"Keys and tickets". Without `credentials.client_secret`, the stored secret stays. An empty value in ' +
          '`integration_config` removes that setting.',
        errors: ['not_found', 'integration_exists', 'test_credentials_unavailable'],
        params,
        example: { body: { display_name: 'Google Sheets' } },
        body: z.strictObject({
          unique_key: integrationKey.optional(),
          credentials: changedCredentials.optional(),
          ...integrationSettings,
        }),
        response: one,
      },
    },
    async ({ params: { key }, body, caller }) => {
      const changed = await db
        .transaction(async (tx) => {
          const current = await lock(tx, caller, key);
          const { name } = current.provider;
          const provider = await providerOf(tx, { reading, caller, name });
          const change = readSettings(body, { provider, reading, before: current });
          await requireMayMove(tx, caller, { current, provider, after: change.integrationConfig ?? {} });
          const integration = await updateIntegration(tx, {
            ...reading,
            current,
            change: { ...change, ...(body.unique_key !== undefined && { key: body.unique_key }) },
            at: now(),
          });
          await audit(tx, caller, {
            action: 'integration.updated',
            target: integration.key,
            details: {
              fields: Object.keys(body).join(','),
              ...(key !== integration.key && { renamed_from: key }),
            },
          });
          return integration;
        })
        .catch((error: unknown) => throwTaken(error, body.unique_key ?? key));
      afterChange({ environmentId: caller.environmentId, integrationKey: key });
      return { data: toWire(changed, wire) };
    },
  );

  app.delete(
    '/integrations/:key',
    {
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'deleteIntegration',
        summary: 'Delete an integration',
        description: 'Only an integration without connections can be deleted.',
        errors: ['not_found', 'integration_in_use'],
        params,
        response: { 200: success },
      },
    },
    async ({ params: { key }, caller }) => {
      await clearIntegration(db, await db.transaction((tx) => lock(tx, caller, key)));
      await db.transaction(async (tx) => {
        await deleteIntegration(tx, await lock(tx, caller, key));
        await audit(tx, caller, { action: 'integration.deleted', target: key });
      });
      afterChange({ environmentId: caller.environmentId, integrationKey: key });
      return { success: true as const };
    },
  );
}

async function create(
  tx: Tx,
  caller: Caller,
  given: Parameters<typeof createIntegration>[1],
): Promise<Integration> {
  const integration = await createIntegration(tx, given);
  await audit(tx, caller, {
    action: 'integration.created',
    target: integration.key,
    details: { provider: integration.provider.name, test: integration.isTest },
  });
  return integration;
}

function audit(
  tx: Tx,
  caller: Caller,
  entry: { action: string; target: string; details?: Record<string, string | boolean> },
): Promise<void> {
  return writeAudit(tx, { environmentId: caller.environmentId, actor: actorOf(caller), ...entry });
}

/** The routes of one integration return `not_found` for an unknown one, as official clients expect. */
function asNotFound(error: unknown): never {
  if (!(error instanceof AppError) || error.code !== 'unknown_provider_config') throw error;
  throw new AppError('not_found', error.message, { cause: error });
}

/** A session sees the integrations that it allows, a key all of its environment. */
function mayKnow(caller: Caller, key: string): boolean {
  return (
    caller.kind !== 'session' ||
    caller.allowedIntegrations === undefined ||
    caller.allowedIntegrations.includes(key)
  );
}

async function providerOf(
  db: Queryable,
  {
    reading: { catalog },
    caller: { environmentId },
    name,
  }: { reading: IntegrationReading; caller: Caller; name: string },
): Promise<ProviderDefinition> {
  const provider = (await catalogOfEnvironment(db, { catalog, environmentId, names: [name] })).find(name);
  if (provider === undefined) throw unknownProvider(name);
  return provider;
}

/** Whether a quickstart integration gets the sandbox's client. */
function hasTestClient({ auth_mode, sandbox }: ProviderDefinition): boolean {
  const { client } = modeNamed(auth_mode);
  return client === 'required' || (client === 'optional' && sandbox !== undefined);
}
