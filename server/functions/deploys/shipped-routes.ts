/** Routes for the functions that ship with the service: list them, and add one to an integration. */

import { z } from 'zod';
import { AppError } from '../../errors.ts';
import { actorOf } from '../../http/auth/caller.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { text } from '../../http/text.ts';
import { integrationKey } from '../../integrations/wire.ts';
import type { Catalog } from '../../providers/catalog.ts';
import { definedWire, functionType, functionWire, kindOf, toWire } from '../wire.ts';
import { functionName } from './definition.ts';
import type { ShippedFunctions } from './shipped.ts';

/** `open` throws if functions are turned off. */
type ShippedRoutesDeps = { catalog: Catalog; shipped: ShippedFunctions; open: () => Promise<void> };

const shippedWire = functionWire
  .pick({
    name: true,
    type: true,
    description: true,
    scopes: true,
    version_label: true,
    metadata_schema: true,
    input: true,
    returns: true,
    json_schema: true,
    runs: true,
    frequency_s: true,
    auto_start: true,
    track_deletes: true,
    read_only: true,
  })
  .extend({ provider: z.string() });
nameSchemas({ ShippedFunction: shippedWire });
const list = { 200: z.object({ data: z.array(shippedWire) }) };

export function shippedRoutes(app: App, { catalog, shipped, open }: ShippedRoutesDeps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const listOf = async (of: { provider: string; environmentId: number }) =>
    (await shipped.list(of)).map((one) => ({ ...definedWire(one), provider: of.provider }));

  app.get(
    '/functions/shipped',
    {
      ...read,
      schema: {
        operationId: 'listShippedFunctions',
        list: { items: 'data', by: 'whole' },
        summary: 'List the functions that ship with the service',
        description:
          'For a provider: each function with its description, the scopes that it needs, and its input.',
        errors: ['functions_off'],
        querystring: z.strictObject({ provider: text({ min: 1, max: 255 }) }),
        response: list,
      },
    },
    async ({ query: { provider }, caller: { environmentId } }) => ({
      data: await listOf({ provider, environmentId }),
    }),
  );

  app.get(
    '/providers/:provider/templates',
    {
      ...read,
      schema: {
        operationId: 'listProviderTemplates',
        list: { items: 'data', by: 'whole' },
        summary: 'List the syncs and actions that ship for a provider',
        description: 'The same list as `GET /functions/shipped`, at the path that official clients use.',
        errors: ['functions_off', 'not_found'],
        params: z.object({ provider: z.string().max(255) }),
        response: list,
      },
    },
    async ({ params: { provider }, caller: { environmentId } }) => {
      if (catalog.find(provider) === undefined)
        throw new AppError('not_found', `No provider is called "${provider}".`);
      const all = await listOf({ provider, environmentId });
      return { data: all.filter(({ type }) => type !== 'on-event') };
    },
  );

  app.put(
    '/integrations/:key/functions/:name/shipped',
    {
      config: { access: { by: 'key', scope: 'functions:write' } },
      preParsing: open,
      schema: {
        operationId: 'enableShippedFunction',
        summary: 'Install a shipped function on an integration',
        description:
          'Installs the function, or updates it. The scope `functions:write` is sufficient, because the code is part of ' +
          'the service. 409 `function_exists` if the integration has another function of this name.',
        errors: [
          'functions_off',
          'not_found',
          'unknown_provider_config',
          'function_exists',
          'invalid_function',
        ],
        params: z.object({ key: integrationKey, name: functionName }),
        body: z.strictObject({ type: functionType }),
        response: { 200: z.object({ data: functionWire }) },
      },
    },
    async ({ params: { key, name }, body, caller }) => {
      const which = { environmentId: caller.environmentId, integrationKey: key, name };
      const kind = kindOf(body.type);
      return { data: toWire(await shipped.enable({ ...which, kind, actor: actorOf(caller) })) };
    },
  );
}
