/** `POST`, `PUT` and `DELETE /providers`: the definitions of one environment. `routes.ts` lists them with those that ship. */
import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { actorOf, type Caller, hasScope, type Scope } from '../http/auth/caller.ts';
import { success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { type Catalog, CatalogError } from './catalog.ts';
import type { ProviderDefinition } from './definition.ts';
import {
  deleteEnvironmentDefinition,
  environmentName,
  hasSameDestinations,
  insertEnvironmentDefinition,
  lockEnvironmentDefinition,
  maxTextLength,
  replaceEnvironmentDefinition,
  usesOf,
} from './environment-definitions.ts';
import { providerWire, toWire, wireOf } from './routes.ts';

const one = { 200: z.object({ data: providerWire }) };
const definition = z.string().min(1).max(maxTextLength);
const params = z.object({ provider: z.string().max(255) });
/** The scopes to read the secrets that a definition sends to its addresses. */
const secretScopes: readonly Scope[] = [
  'integrations:secrets',
  'connections:credentials',
  'connections:refresh_tokens',
];

export function definitionRoutes(
  app: App,
  {
    db,
    catalog,
    now,
    ...urls
  }: { db: Db; catalog: Catalog; baseUrl: string; callbackBaseUrl: string; now: () => Date },
): void {
  const wire = wireOf({ catalog, ...urls });
  const shown = ({ definition: read, text }: { definition: ProviderDefinition; text: string }) => ({
    data: { ...toWire(read, wire), origin: 'environment' as const, definition: text },
  });

  app.post(
    '/providers',
    {
      config: { access: { by: 'key', scope: 'integrations:write' }, idempotent: true },
      schema: {
        operationId: 'createProvider',
        summary: 'Create a provider of the environment',
        description:
          'A definition in YAML or JSON, checked like those that ship. Only this environment has it. The name begins ' +
          'with `own-`. See the guide "Providers".',
        errors: ['provider_exists', 'too_many_providers'],
        example: {
          body: { name: 'own-crm', definition: 'extends: private-api-key\ndisplay_name: Our CRM\n' },
        },
        body: z.strictObject({
          name: z
            .string()
            .regex(
              environmentName,
              'must be own- and 1 to 96 of a-z 0-9 -, so that no shipped provider has it',
            ),
          definition,
        }),
        response: one,
      },
    },
    async ({ body: { name, definition: text }, caller }) => {
      const read = readOrRefuse(catalog, { name, text });
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        const { content } = read;
        await insertEnvironmentDefinition(tx, { catalog, environmentId, name, text, content, at: now() });
        await audit(tx, caller, { action: 'provider.created', target: name });
      });
      return shown({ ...read, text });
    },
  );

  app.put(
    '/providers/:provider',
    {
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'replaceProvider',
        summary: 'Replace the definition of a provider of the environment',
        description:
          'Integrations use the new definition within a second. While integrations use the provider, its `auth_mode` ' +
          'stays, and only a key that may read all their secrets can change more than the texts that people read.',
        errors: ['not_found', 'provider_in_use'],
        example: { body: { definition: 'extends: private-api-key\ndisplay_name: Our CRM\n' } },
        params,
        body: z.strictObject({ definition }),
        response: one,
      },
    },
    async ({ params: { provider: name }, body: { definition: text }, caller }) => {
      const read = readOrRefuse(catalog, { name, text });
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        const before = await lockEnvironmentDefinition(tx, { environmentId, name, catalog });
        const uses = await usesOf(tx, { environmentId, name });
        if (uses !== undefined) requireMayReplace(caller, { before, after: read.definition, uses });
        await replaceEnvironmentDefinition(tx, { ...read, environmentId, name, text, at: now() });
        await audit(tx, caller, { action: 'provider.updated', target: name });
      });
      return shown({ ...read, text });
    },
  );

  app.delete(
    '/providers/:provider',
    {
      config: { access: { by: 'key', scope: 'integrations:write' } },
      schema: {
        operationId: 'deleteProvider',
        summary: 'Delete a provider of the environment',
        description: 'Only a provider that no integration uses can be deleted.',
        errors: ['not_found', 'provider_in_use'],
        params,
        response: { 200: success },
      },
    },
    async ({ params: { provider: name }, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        await lockEnvironmentDefinition(tx, { environmentId, name, catalog });
        const uses = await usesOf(tx, { environmentId, name });
        if (uses !== undefined)
          throw new AppError('provider_in_use', `The provider is in use by ${uses}. Delete these first.`);
        await deleteEnvironmentDefinition(tx, { environmentId, name });
        await audit(tx, caller, { action: 'provider.deleted', target: name });
      });
      return { success: true as const };
    },
  );
}

/** The maximum length of a definition merged with its bases, as JSON: YAML aliases can expand a short text. */
const maxContentLength = 262_144;

/** Throws `invalid_body` with the lines of the text. */
function readOrRefuse(catalog: Catalog, given: { name: string; text: string }): ReturnType<Catalog['read']> {
  try {
    const read = catalog.read(given);
    if (JSON.stringify(read.content).length <= maxContentLength) return read;
    const message = `The definition is too large: its aliases and bases make more than ${maxContentLength} characters.`;
    throw new AppError('invalid_body', undefined, {
      errors: [{ code: 'custom', message, path: ['definition'] }],
    });
  } catch (error) {
    if (!(error instanceof CatalogError)) throw error;
    throw new AppError('invalid_body', undefined, {
      errors: error.faults.map(({ line, message }) => ({
        code: 'custom',
        message: `Line ${line}: ${message}`,
        path: ['definition'],
      })),
    });
  }
}

function requireMayReplace(
  caller: Caller,
  { before, after, uses }: { before: ProviderDefinition; after: ProviderDefinition; uses: string },
): void {
  if (before.auth_mode !== after.auth_mode)
    throw new AppError(
      'provider_in_use',
      `The provider is in use by ${uses}, so its auth_mode must stay ${before.auth_mode}.`,
    );
  if (hasSameDestinations(before, after)) return;
  const missing = secretScopes.filter((scope) => !hasScope(caller, scope));
  if (missing.length === 0) return;
  throw new AppError(
    'forbidden',
    `The change decides where secrets of integrations are sent (${uses}). Only a key that may read these secrets can make the change: ` +
      `the key lacks ${missing.join(' and ')}.`,
  );
}

function audit(tx: Tx, caller: Caller, entry: { action: string; target: string }): Promise<void> {
  return writeAudit(tx, { environmentId: caller.environmentId, actor: actorOf(caller), ...entry });
}
