/** Routes for deployed functions: read, list versions, enable and disable, roll back, remove. */
import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { actorOf, type Caller } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { integrationKey } from '../integrations/wire.ts';
import { functionName } from './deploys/definition.ts';
import { titleOf } from './deploys/examine.ts';
import { queueModelChangesEvent } from './deploys/model-changes.ts';
import {
  countFunctions,
  type DeployedFunction,
  getFunction,
  getVersionId,
  listFunctions,
  listVersions,
  lockFunctions,
  pointTo,
  removeFunction,
  setEnabled,
  sourceOf,
  wireKind,
} from './deploys/store.ts';
import { startNewSyncs } from './runs/schedule.ts';
import { functionPage, functionWire, kindOf, pagination, toWire, functionType as type } from './wire.ts';

/** `open` throws if functions are turned off. */
type FunctionRoutesDeps = { db: Db; now: () => Date; open: () => Promise<void> };

const typed = z.strictObject({ type: type.optional() });
const params = z.object({ key: integrationKey, name: functionName });
const one = { 200: z.object({ data: functionWire }) };
const versionWire = z.object({
  version: z.int(),
  version_label: z.string(),
  deployed_at: z.string(),
  deployed_by: z.string(),
  /** Whether it is the one that runs. */
  current: z.boolean(),
});
nameSchemas({ FunctionVersion: versionWire });
const path = '/integrations/:key/functions';
const ofOne = `${path}/:name`;
const ofOneErrors = ['functions_off', 'not_found', 'ambiguous_function'] as const;

export function functionRoutes(app: App, { db, now, open }: FunctionRoutesDeps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.get(
    path,
    {
      ...read,
      schema: {
        operationId: 'listFunctions',
        list: { items: 'data', by: 'page' },
        summary: 'List the functions of an integration',
        description: 'The deployed functions and the installed shipped functions, by kind and name.',
        errors: ['functions_off', 'not_found'],
        params: params.pick({ key: true }),
        querystring: typed.extend(functionPage),
        response: { 200: z.object({ data: z.array(functionWire), pagination }) },
      },
    },
    async ({ params: { key }, query, caller }) => {
      const { page, limit, search } = query;
      await requireIntegration(db, caller, key);
      const which = {
        environmentId: caller.environmentId,
        integrationKey: key,
        search,
        kind: query.type && kindOf(query.type),
      };
      const found = await listFunctions(db, { ...which, limit, offset: page * limit });
      return {
        data: found.map(toWire),
        pagination: { total: await countFunctions(db, which), page, limit },
      };
    },
  );

  app.get(
    ofOne,
    {
      ...read,
      schema: {
        operationId: 'getFunction',
        summary: 'Get a function',
        description: 'The active version, with its input and output as JSON Schema, and its schedule.',
        errors: ofOneErrors,
        params,
        querystring: typed,
        response: one,
      },
    },
    async ({ params, query, caller }) => ({ data: toWire(await get(db, { caller, params, query })) }),
  );

  app.get(
    `${ofOne}/code`,
    {
      ...read,
      schema: {
        operationId: 'getFunctionCode',
        summary: 'Get the source of a function',
        errors: ofOneErrors,
        description:
          'The source that was deployed, or the bundle if no source was deployed. Without `version`, the source of the ' +
          'active version.',
        params,
        querystring: typed.extend({ version: z.coerce.number().int().min(1).optional() }),
        response: { 200: z.object({ type, code: z.string() }) },
      },
    },
    async ({ params, query, caller }) => {
      const { id: functionId, kind, versionId: current } = await get(db, { caller, params, query });
      const { environmentId } = caller;
      const { version: number } = query;
      const versionId =
        number === undefined ? current : await getVersionId(db, { environmentId, functionId, number });
      return { type: wireKind(kind), code: await sourceOf(db, { environmentId, versionId }) };
    },
  );

  app.get(
    `${ofOne}/versions`,
    {
      ...read,
      schema: {
        operationId: 'listFunctionVersions',
        list: { items: 'data', by: 'whole' },
        summary: 'List the versions of a function',
        errors: ofOneErrors,
        description: 'Newest first, at most 1000.',
        params,
        querystring: typed,
        response: { 200: z.object({ data: z.array(versionWire) }) },
      },
    },
    async ({ params, query, caller }) => {
      const { id: functionId } = await get(db, { caller, params, query });
      const versions = await listVersions(db, { environmentId: caller.environmentId, functionId });
      return {
        data: versions.map(({ number, label, deployedAt, deployedBy, isCurrent }) => ({
          version: number,
          version_label: label,
          deployed_at: deployedAt.toISOString(),
          deployed_by: deployedBy,
          current: isCurrent,
        })),
      };
    },
  );

  app.post(
    `${ofOne}/rollback`,
    {
      ...write,
      schema: {
        operationId: 'rollBackFunction',
        summary: 'Activate another version',
        errors: ofOneErrors,
        description:
          'The version was deployed before. Runs that have started continue with the version with which they started.',
        params,
        querystring: typed,
        body: z.strictObject({ version: z.int().min(1) }),
        response: one,
      },
    },
    async ({ params, query, body, caller }) => {
      const { environmentId } = caller;
      return db.transaction(async (tx) => {
        await lockFunctions(tx, environmentId);
        const found = await get(tx, { caller, params, query });
        const versions = await listVersions(tx, { environmentId, functionId: found.id });
        const wanted = versions.find(({ number }) => number === body.version);
        if (wanted === undefined)
          throw fieldError('invalid_body', ['version'], 'is not a version of the function');
        if (!wanted.isCurrent) {
          await pointTo(tx, { environmentId, functionId: found.id, versionId: wanted.id, at: now() });
          await startNewSyncs(tx, { environmentId, at: now() });
          const after = await get(tx, { caller, params, query });
          await queueModelChangesEvent(tx, { ...after, environmentId, before: found, after });
          await audit(tx, caller, {
            action: 'function.rolled_back',
            found,
            details: { version: wanted.number, from: found.number },
          });
        }
        return { data: toWire(await get(tx, { caller, params, query })) };
      });
    },
  );

  app.patch(
    ofOne,
    {
      ...write,
      schema: {
        operationId: 'switchFunction',
        summary: 'Turn a function on or off',
        errors: ofOneErrors,
        description: 'A function that is off starts no runs. Runs that have started continue.',
        params,
        querystring: typed,
        body: z.strictObject({ enabled: z.boolean() }),
        response: one,
      },
    },
    async ({ params, query, body: { enabled }, caller }) => {
      const { environmentId } = caller;
      return db.transaction(async (tx) => {
        await lockFunctions(tx, environmentId);
        const found = await get(tx, { caller, params, query });
        if (found.isEnabled !== enabled) {
          await setEnabled(tx, { environmentId, functionId: found.id, isEnabled: enabled, at: now() });
          if (enabled) await startNewSyncs(tx, { environmentId, at: now() });
          await audit(tx, caller, { action: enabled ? 'function.enabled' : 'function.disabled', found });
        }
        return { data: toWire({ ...found, isEnabled: enabled }) };
      });
    },
  );

  app.delete(
    ofOne,
    {
      ...write,
      schema: {
        operationId: 'removeFunction',
        summary: 'Remove a function',
        errors: ofOneErrors,
        description: 'Also removes its versions, schedules and runs. Records that it saved stay.',
        params,
        querystring: z.strictObject({ type }),
        // `data` is what official clients read.
        response: { 200: z.object({ success: z.literal(true), data: success }) },
      },
    },
    async ({ params, query, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        await lockFunctions(tx, environmentId);
        const found = await get(tx, { caller, params, query });
        await removeFunction(tx, { environmentId, functionId: found.id });
        await audit(tx, caller, { action: 'function.removed', found, details: { version: found.number } });
      });
      return { success: true as const, data: { success: true as const } };
    },
  );
}

async function get(
  db: Db | Tx,
  {
    caller,
    params: { key, name },
    query,
  }: {
    caller: Caller;
    params: { key: string; name: string };
    query: { type?: 'sync' | 'action' | 'on-event' | undefined };
  },
): Promise<DeployedFunction> {
  await requireIntegration(db, caller, key);
  const { environmentId } = caller;
  return getFunction(db, {
    environmentId,
    integrationKey: key,
    name,
    kind: query.type && kindOf(query.type),
  });
}

async function requireIntegration(db: Db | Tx, { environmentId }: Caller, key: string): Promise<void> {
  const found = await db.query('select from integration where environment_id = $1 and key = $2', [
    environmentId,
    key,
  ]);
  if (found.length === 0) throw new AppError('not_found', `No integration has the ID "${key}".`);
}

function audit(
  tx: Tx,
  caller: Caller,
  { action, found, details }: { action: string; found: DeployedFunction; details?: Record<string, number> },
): Promise<void> {
  return writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action,
    target: titleOf(found),
    ...(details && { details }),
  });
}
