/** The route that returns all functions of an environment, for official clients and for OpenAI models. */
import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { type DeployedFunction, listFunctions } from './deploys/store.ts';
import { functionType, schemasOf, toWire } from './wire.ts';

const flow = z.object({
  id: z.int(),
  name: z.string(),
  type: functionType,
  description: z.string(),
  scopes: z.array(z.string()),
  metadata: z.object({ description: z.string(), scopes: z.array(z.string()) }),
  runs: z.string().nullable(),
  auto_start: z.boolean(),
  track_deletes: z.boolean(),
  returns: z.array(z.string()),
  input: z.string().optional(),
  json_schema: z.object({ definitions: z.record(z.string(), z.record(z.string(), z.unknown())) }),
  endpoints: z.array(z.unknown()),
  webhookSubscriptions: z.array(z.string()),
  enabled: z.boolean(),
  version: z.string(),
  sdk_version: z.string().nullable(),
  last_deployed: z.string(),
  features: z.array(z.string()),
});
const flows = z.array(flow);
const ofIntegration = z.object({
  providerConfigKey: z.string(),
  provider: z.string(),
  syncs: flows,
  actions: flows,
  'on-events': flows,
});
const openai = z.object({
  name: z.string(),
  description: z.string(),
  parameters: z.record(z.string(), z.unknown()),
});
nameSchemas({ FunctionConfig: flow, IntegrationFunctions: ofIntegration, OpenAiTool: openai });

export function configRoutes(app: App, { db, open }: { db: Db; open: () => Promise<void> }): void {
  app.get(
    '/scripts/config',
    {
      config: { access: { by: 'key', scope: 'functions:read' } },
      preParsing: open,
      schema: {
        operationId: 'getFunctionsConfig',
        summary: 'List all functions of the environment',
        description:
          'By integration. With `format=openai`, the response lists the enabled actions as tools; `parameters` is the JSON ' +
          'Schema of the input.',
        errors: ['functions_off'],
        querystring: z.strictObject({ format: z.enum(['nango', 'openai']).default('nango') }),
        example: {
          answers: {
            200: [
              {
                integration_id: 'google-sheet',
                providerConfigKey: 'google-sheet',
                provider: 'google-sheet',
                syncs: [],
                actions: [],
                'on-events': [],
              },
            ],
          },
        },
        response: { 200: z.union([z.array(ofIntegration), z.object({ data: z.array(openai) })]) },
      },
    },
    async ({ query: { format }, caller }) => {
      const all = await listFunctions(db, { environmentId: caller.environmentId });
      if (format === 'openai') {
        return { data: all.filter(({ kind, isEnabled }) => kind === 'action' && isEnabled).map(toOpenAi) };
      }
      const byIntegration = Map.groupBy(all, ({ integrationKey }) => integrationKey);
      return [...byIntegration].map(([providerConfigKey, functions]) => {
        const of = (kind: string) => functions.filter((one) => one.kind === kind).map(toFlow);
        return {
          providerConfigKey,
          provider: functions[0]!.provider,
          syncs: of('sync'),
          actions: of('action'),
          'on-events': of('on_event'),
        };
      });
    },
  );
}

function toFlow(found: DeployedFunction): z.input<typeof flow> {
  const { id, name, type, description, scopes, enabled, last_deployed } = toWire(found);
  const { definition, number } = found;
  return {
    id,
    name,
    type,
    description,
    scopes,
    enabled,
    last_deployed,
    metadata: { description, scopes },
    runs: definition.frequency,
    auto_start: definition.auto_start,
    track_deletes: definition.track_deletes,
    ...schemasOf(found),
    endpoints: [],
    webhookSubscriptions: definition.webhook_subscriptions,
    version: String(number),
    sdk_version: definition.sdk_version,
    features: definition.features,
  };
}

function toOpenAi({ name, definition }: DeployedFunction): z.input<typeof openai> {
  const { input, description } = definition;
  // The parameters of a tool are an object. Any other input becomes a field of one.
  const isObject = input?.type === 'object';
  const parameters =
    input === null || isObject ? input : { type: 'object', properties: { input }, required: ['input'] };
  return { name, description, parameters: parameters ?? { type: 'object', properties: {}, required: [] } };
}
