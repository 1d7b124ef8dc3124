import { z } from 'zod';
import { actorOf } from '../../activity/audit.ts';
import { AppError } from '../../errors.ts';
import type { App } from '../../http/server.ts';
import { text } from '../../http/text.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Catalog } from '../../providers/catalog.ts';
import { functionWire, kindOf, schemasOf, toWire } from '../wire.ts';
import { functionName } from './definition.ts';
import type { Examined } from './examine.ts';
import type { ShippedFunctions } from './shipped.ts';
import { wireKind } from './store.ts';

type Deps = {
  catalog: Catalog;
  shipped: ShippedFunctions;
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
};

const type = z.enum(['sync', 'action', 'on-event']);
const shippedWire = functionWire
  .pick({
    ...{ name: true, type: true, description: true, scopes: true, version_label: true },
    ...{ metadata_schema: true, input: true, returns: true, json_schema: true },
    ...{ runs: true, frequency_s: true, auto_start: true, track_deletes: true, read_only: true },
  })
  .extend({ provider: z.string() });

/** What ships with the service, and putting it on an integration. */
export function shippedRoutes(app: App, { catalog, shipped, open }: Deps): void {
  app.get(
    '/functions/shipped',
    {
      config: { access: { by: 'key', scope: 'functions:read' } },
      preParsing: open,
      schema: {
        operationId: 'listShippedFunctions',
        summary: 'Functions that ship with the service',
        description: 'Of a provider: what each does, needs and takes.',
        errors: ['functions_off'],
        querystring: z.strictObject({ provider: text({ min: 1, max: 255 }) }),
        response: { 200: z.object({ data: z.array(shippedWire) }) },
      },
    },
    async ({ query: { provider }, caller: { environmentId } }) => {
      const found = await shipped.list({ provider, environmentId });
      return { data: found.map((one) => ({ ...wireOf(one), provider })) };
    },
  );

  app.get(
    '/providers/:provider/templates',
    {
      config: { access: { by: 'key', scope: 'functions:read' } },
      preParsing: open,
      schema: {
        operationId: 'listProviderTemplates',
        summary: 'Syncs and actions that ship for a provider',
        description: 'What `GET /functions/shipped` lists, where official clients ask for it.',
        errors: ['functions_off', 'not_found'],
        params: z.object({ provider: z.string().max(255) }),
        response: { 200: z.object({ data: z.array(shippedWire) }) },
      },
    },
    async ({ params: { provider }, caller: { environmentId } }) => {
      if (catalog.find(provider) === undefined)
        throw new AppError('not_found', `No provider is called "${provider}".`);
      const found = (await shipped.list({ provider, environmentId })).filter(
        ({ kind }) => kind !== 'on_event',
      );
      return { data: found.map((one) => ({ ...wireOf(one), provider })) };
    },
  );

  app.put(
    '/integrations/:key/functions/:name/shipped',
    {
      config: { access: { by: 'key', scope: 'functions:write' } },
      preParsing: open,
      schema: {
        operationId: 'enableShippedFunction',
        summary: 'Put a function that ships on an integration',
        description:
          'Or bring it up to date. `functions:write` is enough, since the code is that of the service. 409 ' +
          '`function_exists` where the integration has another function of this name.',
        errors: [
          'functions_off',
          'not_found',
          'unknown_provider_config',
          'function_exists',
          'invalid_function',
        ],
        params: z.object({ key: integrationKey, name: functionName }),
        body: z.strictObject({ type }),
        response: { 200: z.object({ data: functionWire }) },
      },
    },
    async ({ params: { key, name }, body, caller }) => {
      const which = { environmentId: caller.environmentId, integrationKey: key, name };
      const kind = kindOf(body.type)!;
      return { data: toWire(await shipped.enable({ ...which, kind, actor: actorOf(caller) })) };
    },
  );
}

function wireOf(found: Examined) {
  const { kind, name, definition, label } = found;
  const { description, scopes, metadata: metadata_schema } = definition;
  const base = { name, type: wireKind(kind), description, scopes, version_label: label, metadata_schema };
  if (kind === 'on_event') return base;
  const schemas = schemasOf(found);
  if (kind === 'action') return { ...base, ...schemas, read_only: definition.read_only };
  return {
    ...{ ...base, ...schemas, runs: definition.frequency! },
    ...{ frequency_s: definition.frequency_s!, auto_start: definition.auto_start },
    track_deletes: definition.track_deletes,
  };
}
