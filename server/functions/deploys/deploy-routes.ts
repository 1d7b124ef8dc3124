import { z } from 'zod';
import { actorOf } from '../../activity/audit.ts';
import type { Queryable } from '../../db/pool.ts';
import type { App } from '../../http/server.ts';
import { occasions } from './definition.ts';
import { type Deploys, deploy, type Plan, plan } from './deploy.ts';
import { deployBody, readDeployBody } from './deploy-body.ts';
import { wireKind } from './store.ts';

const maxBytes = 64 * 1024 * 1024;
const named = { providerConfigKey: z.string(), name: z.string() };
const syncs = z.array(z.object({ ...named, connections: z.number(), auto_start: z.boolean() }));
const actions = z.array(z.object(named));
const onEvents = z.array(z.object({ ...named, event: z.enum(occasions) }));

/** Deploying, as official command lines do it. `open` throws where functions are turned off. */
export function deployRoutes(app: App, { open, ...deps }: Deploys & { open: () => Promise<void> }): void {
  const access = { by: 'key', scope: 'functions:deploy', viewers: 'refused' } as const;

  app.post(
    '/sync/deploy/confirmation',
    {
      bodyLimit: maxBytes,
      config: { access },
      preParsing: open,
      schema: {
        operationId: 'planDeploy',
        summary: 'What a deploy would change',
        description:
          'The body of `POST /sync/deploy`. Refused where that would be; nothing is written. What `reconcile` would remove is ' +
          'told also where the body does not say it: official command lines say it only when they deploy.',
        errors: ['functions_off', 'invalid_function', 'unknown_provider_config'],
        body: deployBody,
        response: {
          200: z.object({
            ...{ newSyncs: syncs, updatedSyncs: syncs, deletedSyncs: syncs },
            ...{ newActions: actions, updatedActions: actions, deletedActions: actions },
            ...{
              newOnEventScripts: onEvents,
              updatedOnEventScripts: onEvents,
              deletedOnEventScripts: onEvents,
            },
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
    '/sync/deploy',
    {
      bodyLimit: maxBytes,
      config: { access },
      preParsing: open,
      schema: {
        operationId: 'deployFunctions',
        summary: 'Deploy functions',
        description:
          'All or nothing. `fileBody.js` is a CommonJS bundle that requires nothing but what functions may; `fileBody.ts` is its ' +
          'source, kept to be read. What the function is, such as its frequency, is read out of the bundle. A new version is ' +
          'made where something changed.',
        errors: ['functions_off', 'invalid_function', 'unknown_provider_config'],
        body: deployBody,
        response: {
          200: z.array(
            z.object({
              ...named,
              version: z.string(),
              type: z.enum(['sync', 'action', 'on-event']),
              models: z.array(z.string()),
            }),
          ),
        },
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
        answers: { 204: { description: 'Done; there is no body.' } },
        summary: 'Taken and not kept',
        description: 'Official command lines report their steps here.',
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

/** Of each integration, by its ID. */
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
