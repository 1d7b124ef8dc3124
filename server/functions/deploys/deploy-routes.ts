/** Routes that deploy functions, as official command lines call them. */

import { z } from 'zod';
import type { Queryable } from '../../db/pool.ts';
import { actorOf } from '../../http/auth/caller.ts';
import { nameSchemas } from '../../http/openapi/schema-names.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { functionType, kindOf } from '../wire.ts';
import { functionName, occasions } from './definition.ts';
import { type Deploys, deploy, type Plan, plan, type Reconcile } from './deploy.ts';
import type { Given } from './examine.ts';
import { wireKind } from './store.ts';

const maxBytes = 64 * 1024 * 1024;
const named = { providerConfigKey: z.string(), name: z.string() };
const plannedSync = z.object({ ...named, connections: z.number(), auto_start: z.boolean() });
const plannedAction = z.object(named);
const plannedEventFunction = z.object({ ...named, event: z.enum(occasions) });
const deployedWire = z.object({
  ...named,
  version: z.string(),
  type: functionType,
  models: z.array(z.string()),
});
nameSchemas({
  DeployedVersion: deployedWire,
  PlannedAction: plannedAction,
  PlannedEventFunction: plannedEventFunction,
  PlannedSync: plannedSync,
});
const syncs = z.array(plannedSync);
const actions = z.array(plannedAction);
const onEvents = z.array(plannedEventFunction);

/** `open` throws if functions are turned off. */
export function deployRoutes(app: App, { open, ...deps }: Deploys & { open: () => Promise<void> }): void {
  const access = { by: 'key', scope: 'functions:deploy', viewers: 'refused' } as const;

  app.post(
    '/functions/deploys/plan',
    {
      bodyLimit: maxBytes,
      config: { access },
      preParsing: open,
      schema: {
        operationId: 'planDeploy',
        summary: 'Preview a deploy',
        description:
          'The body is that of `POST /functions/deploys`. The preview fails if the deploy would fail, and writes nothing. The ' +
          'response includes the functions that `reconcile` would remove, even if the body does not set it: official ' +
          'command lines set it only when they deploy.',
        errors: ['functions_off', 'invalid_function', 'unknown_provider_config'],
        body: deployBody,
        response: {
          200: z.object({
            newSyncs: syncs,
            updatedSyncs: syncs,
            deletedSyncs: syncs,
            newActions: actions,
            updatedActions: actions,
            deletedActions: actions,
            newOnEventScripts: onEvents,
            updatedOnEventScripts: onEvents,
            deletedOnEventScripts: onEvents,
            deletedModels: z.array(z.string()),
          }),
        },
      },
    },
    async ({ body, caller }) => {
      const { environmentId } = caller;
      const order = readDeployBody({ ...body, reconcile: true });
      const changes = await plan(deps, { environmentId, origin: 'deploy', ...order });
      return confirmation(changes, await connectionCounts(deps.db, environmentId));
    },
  );

  app.post(
    '/functions/deploys',
    {
      bodyLimit: maxBytes,
      config: { access },
      preParsing: open,
      schema: {
        operationId: 'deployFunctions',
        summary: 'Deploy functions',
        description:
          'Deploys all functions, or no function if one cannot be deployed. `fileBody.js` is a CommonJS bundle that ' +
          'requires only the modules that functions may use; `fileBody.ts` is its source, stored for display. The ' +
          'properties of a function, such as its frequency, are read from the bundle. A changed function gets a new ' +
          'version.',
        errors: ['functions_off', 'invalid_function', 'unknown_provider_config'],
        body: deployBody,
        response: { 200: z.array(deployedWire) },
      },
    },
    async ({ body, caller }) => {
      const { environmentId } = caller;
      const order = { environmentId, origin: 'deploy' as const, ...readDeployBody(body) };
      const deployed = await deploy(deps, { ...order, actor: actorOf(caller) });
      return deployed.map(({ integrationKey, kind, name, number, models }) => ({
        providerConfigKey: integrationKey,
        name,
        version: String(number),
        type: wireKind(kind),
        models,
      }));
    },
  );

  app.post(
    '/cli/telemetry',
    {
      config: { access: { by: 'anyone' } },
      schema: {
        operationId: 'reportCliStep',
        answers: { 204: { description: 'Done. The response has no body.' } },
        summary: 'Accept reports of official command lines',
        description:
          'Official command lines report their steps here. The service does not store the reports.',
        body: z.looseObject({}),
      },
    },
    async (_, reply) => {
      reply.code(204);
    },
  );
}

type Change = {
  integrationKey: string;
  name: string;
  kind: string;
  definition: Plan['added'][number]['definition'];
};

function confirmation({ added, changed, removed, deletedModels }: Plan, connections: Map<string, number>) {
  const sync = ({ integrationKey, name, definition }: Change) => ({
    providerConfigKey: integrationKey,
    name,
    connections: connections.get(integrationKey) ?? 0,
    auto_start: definition.auto_start,
  });
  const action = ({ integrationKey, name }: Change) => ({ providerConfigKey: integrationKey, name });
  const onEvent = (one: Change) => ({ ...action(one), event: one.definition.event! });
  const of = (kind: string, all: readonly Change[]) => all.filter((one) => one.kind === kind);
  const updated = changed.map(({ after }) => after);
  return {
    newSyncs: of('sync', added).map(sync),
    updatedSyncs: of('sync', updated).map(sync),
    deletedSyncs: of('sync', removed).map(sync),
    newActions: of('action', added).map(action),
    updatedActions: of('action', updated).map(action),
    deletedActions: of('action', removed).map(action),
    newOnEventScripts: of('on_event', added).map(onEvent),
    updatedOnEventScripts: of('on_event', updated).map(onEvent),
    deletedOnEventScripts: of('on_event', removed).map(onEvent),
    deletedModels,
  };
}

/** The number of connections of each integration, by the integration's ID. */
async function connectionCounts(db: Queryable, environmentId: number): Promise<Map<string, number>> {
  const rows = await db.query<{ key: string; count: number }>(
    `select integration.key, count(*) as count
     from connection
     join integration on integration.id = connection.integration_id
     where connection.environment_id = $1 and connection.deleted_at is null
     group by integration.key`,
    [environmentId],
  );
  return new Map(rows.map(({ key, count }) => [key, count]));
}

// The body of a deploy. Versions of the official command line send different fields; unknown fields are ignored.

const maxFunctions = 5_000;
/** `ts` is the source, which is stored for readers. */
const fileBody = z.looseObject({ js: z.string().min(1), ts: z.string().optional() });

const deployBody = z.looseObject({
  flowConfigs: z
    .array(
      z.looseObject({
        syncName: functionName,
        providerConfigKey: integrationKey,
        type: functionType,
        fileBody,
        features: z.array(z.string().max(100)).max(100).optional(),
      }),
    )
    .max(maxFunctions),
  onEventScriptsByProvider: z
    .array(
      z.looseObject({
        providerConfigKey: integrationKey,
        scripts: z
          .array(z.looseObject({ name: functionName, fileBody, event: z.enum(occasions).optional() }))
          .max(maxFunctions),
      }),
    )
    .max(maxFunctions)
    .optional(),
  /** Whether functions that are not named are removed: all of the environment, or with `integration` those of the integrations named. */
  reconcile: z.boolean().default(false),
  deployMode: z.enum(['all', 'single', 'integration']).default('all'),
  debug: z.boolean().optional(),
  sdkVersion: z.string().max(100).optional(),
});
nameSchemas({ Deploy: deployBody, FunctionCode: fileBody });
type DeployBody = z.infer<typeof deployBody>;

/** The functions of a body, and which of the functions that it does not name are removed. */
function readDeployBody(body: DeployBody): { given: Given[]; reconcile: Reconcile } {
  const { flowConfigs, onEventScriptsByProvider = [], sdkVersion = null } = body;
  const flows = flowConfigs.map(
    ({ syncName, providerConfigKey, type, fileBody: { js, ts }, features = [] }, at) => ({
      integrationKey: providerConfigKey,
      kind: kindOf(type),
      name: syncName,
      code: js,
      source: ts ?? null,
      features,
      sdkVersion,
      path: ['flowConfigs', at, 'fileBody', 'js'],
    }),
  );
  const events = onEventScriptsByProvider.flatMap(({ providerConfigKey, scripts }, at) =>
    scripts.map(({ name, fileBody: { js, ts } }, script) => ({
      integrationKey: providerConfigKey,
      kind: 'on_event' as const,
      name,
      code: js,
      source: ts ?? null,
      features: [],
      sdkVersion,
      path: ['onEventScriptsByProvider', at, 'scripts', script, 'fileBody', 'js'],
    })),
  );
  return { given: [...flows, ...events], reconcile: reconcileOf(body) };
}

function reconcileOf({ reconcile, deployMode }: DeployBody): Reconcile {
  if (!reconcile || deployMode === 'single') return 'none';
  return deployMode === 'all' ? 'all' : 'integrations';
}
