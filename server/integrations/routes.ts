import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import { type Db, retryOnViolation, type Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type Caller, hasScope, requireScope } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import type { ProviderDefinition } from '../providers/definition.ts';
import { requireMayMove } from './destinations.ts';
import { readSettings } from './settings-input.ts';
import {
  asTaken,
  createIntegration,
  deleteIntegration,
  findIntegration,
  getIntegration,
  getIntegrationForUpdate,
  type Integration,
  type IntegrationReading,
  listIntegrations,
  updateIntegration,
} from './store.ts';
import { type UsageOf, usageToWire } from './usage.ts';
import {
  changedCredentials,
  credentialsToWire,
  integrationCredentials,
  integrationKey,
  integrationSettings,
  integrationWire,
  toWire,
} from './wire.ts';

type Deps = {
  db: Db;
  reading: IntegrationReading;
  baseUrl: string;
  now: () => Date;
  usageOf: UsageOf;
  /** Told of the former ID of an integration that was changed or deleted, so that nothing remembered of it is used. */
  afterChange: (at: { environmentId: number; integrationKey: string }) => void;
};

const one = { 200: z.object({ data: integrationWire }) };
const include = z.enum(['credentials', 'webhook', 'usage']);
const params = z.object({ key: integrationKey });

/** CRUD of integrations; every change is in the audit log. */
export function integrationRoutes(app: App, { db, reading, baseUrl, now, usageOf, afterChange }: Deps): void {
  const wire = { baseUrl };
  /** An end user's browser is told nothing that the application keeps with the integration. */
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

  app.get(
    '/integrations',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'listIntegrations',
        summary: 'List integrations',
        description:
          '`include=usage` tells for each how many connections it has in which state, and what its client has used of the ' +
          'limits that the provider counts for it as a whole.',
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
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'createIntegration',
        summary: 'Create an integration',
        description:
          'A provider with your OAuth client for it, or with test credentials (`credentials: {type: TEST}`).',
        errors: ['integration_exists', 'test_credentials_unavailable'],
        example: {
          body: { provider: 'google-sheet', unique_key: 'google-sheet', credentials: { type: 'TEST' } },
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
      const provider = providerOf(reading, body.provider);
      if (provider.auth_mode === 'OAUTH2' && body.credentials === undefined) {
        throw new AppError(
          'invalid_body',
          `Missing credentials: ${provider.display_name} needs a client ID and secret.`,
          {
            errors: [{ code: 'custom', message: 'This provider needs credentials.', path: ['credentials'] }],
          },
        );
      }
      const change = readSettings(body, { provider, reading, before: undefined });
      const given = {
        ...reading,
        ...change,
        environmentId: caller.environmentId,
        key: body.unique_key,
        provider: body.provider,
      };
      const created = await db
        .transaction((tx) => create(tx, caller, given))
        .catch((error: unknown) => {
          throw asTaken(error, body.unique_key);
        });
      return { data: toWire(created, wire) };
    },
  );

  app.post(
    '/integrations/quickstart',
    {
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'quickstartIntegration',
        summary: 'An integration with test credentials',
        description: 'Made unless it exists already, so the call can be repeated.',
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
      const provider = providerOf(reading, body.provider);
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
      const integration = await retryOnViolation('integration_key_unique', make).catch((error: unknown) => {
        throw asTaken(error, body.unique_key);
      });
      return { data: toWire(integration, wire) };
    },
  );

  app.get(
    '/integrations/:key',
    {
      config: { access: { by: 'key or session', scope: 'integrations:read' } },
      schema: {
        operationId: 'getIntegration',
        summary: 'One integration',
        description:
          'The client secret is told with `include=credentials` to keys with `integrations:secrets`.',
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
              webhook_url: `${baseUrl}/webhook/${encodeURIComponent(caller.environment)}/${encodeURIComponent(key)}`,
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
          'Where its secrets are sent only keys change that may read them: see "Keys and tickets". Without ' +
          '`credentials.client_secret` the stored secret stays. An empty value in `integration_config` removes that setting.',
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
          const current = await getIntegrationForUpdate(tx, {
            ...reading,
            environmentId: caller.environmentId,
            key,
          }).catch(asNotFound);
          const provider = reading.catalog.get(current.provider.name);
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
        .catch((error: unknown) => {
          throw asTaken(error, body.unique_key ?? key);
        });
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
        description: 'Only one that has no connections.',
        errors: ['not_found', 'integration_in_use'],
        params,
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params: { key }, caller }) => {
      await db.transaction(async (tx) => {
        const integration = await getIntegrationForUpdate(tx, {
          ...reading,
          environmentId: caller.environmentId,
          key,
        }).catch(asNotFound);
        await deleteIntegration(tx, integration);
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

/** On the routes of one integration an unknown one is `not_found`, as official clients expect. */
function asNotFound(error: unknown): never {
  if (!(error instanceof AppError) || error.code !== 'unknown_provider_config') throw error;
  throw new AppError('not_found', error.message, { cause: error });
}

/** A session knows the integrations it allows; a key those of its environment. */
function mayKnow(caller: Caller, key: string): boolean {
  return (
    caller.kind !== 'session' ||
    caller.allowedIntegrations === undefined ||
    caller.allowedIntegrations.includes(key)
  );
}

function providerOf({ catalog }: IntegrationReading, name: string): ProviderDefinition {
  const provider = catalog.find(name);
  if (provider === undefined) {
    throw new AppError('invalid_body', `No provider is called "${name}". GET /providers lists them.`, {
      errors: [{ code: 'custom', message: 'There is no such provider.', path: ['provider'] }],
    });
  }
  return provider;
}

/** Whether an integration that is only to be tried out gets the sandbox's client. */
function hasTestClient({ auth_mode, sandbox }: ProviderDefinition): boolean {
  return auth_mode === 'OAUTH2' || (auth_mode === 'OAUTH2_CC' && sandbox !== undefined);
}
