import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { integrationKey } from '../integrations/wire.ts';
import { functionName } from './deploys/definition.ts';
import { titleOf } from './deploys/examine.ts';
import { tellModelChanges } from './deploys/model-changes.ts';
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
import { functionWire, kindOf, toWire } from './wire.ts';

type Deps = {
  db: Db;
  now: () => Date;
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
};

const type = z.enum(['sync', 'action', 'on-event']);
const typed = z.strictObject({ type: type.optional() });
const params = z.object({ key: integrationKey, name: functionName });
const one = { 200: z.object({ data: functionWire }) };
const success = z.object({ success: z.literal(true) });
const path = '/integrations/:key/functions';
const ofOne = `${path}/:name`;
const ofOneErrors = ['functions_off', 'not_found', 'ambiguous_function'] as const;

/** What is deployed: reading it, its versions, turning it on and off, roll back, removal. */
export function functionRoutes(app: App, { db, now, open }: Deps): void {
  const read = { config: { access: { by: 'key', scope: 'functions:read' } }, preParsing: open } as const;
  const write = { config: { access: { by: 'key', scope: 'functions:write' } }, preParsing: open } as const;

  app.get(
    path,
    {
      ...read,
      schema: {
        operationId: 'listFunctions',
        summary: 'Functions of an integration',
        description: 'Those that were deployed, and those that ship and were put on it, by kind and name.',
        errors: ['functions_off', 'not_found'],
        params: params.pick({ key: true }),
        querystring: z.strictObject({
          type: type.optional(),
          search: text({ max: 255 }).optional(),
          page: z.coerce.number().int().min(0).max(1_000_000).default(0),
          limit: z.coerce.number().int().min(1).max(100).default(20),
        }),
        response: {
          200: z.object({
            data: z.array(functionWire),
            pagination: z.object({ total: z.int(), page: z.int(), limit: z.int() }),
          }),
        },
      },
    },
    async ({ params: { key }, query, caller }) => {
      const { page, limit, search } = query;
      await requireIntegration(db, caller, key);
      const which = {
        ...{ environmentId: caller.environmentId, integrationKey: key, search },
        kind: kindOf(query.type),
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
        summary: 'One function',
        description: 'The version that runs: what it takes and gives, as JSON Schema, and when it runs.',
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
        summary: 'The source of a function',
        errors: ofOneErrors,
        description:
          'As it was deployed with; the bundle where it was deployed without. Of the version that runs unless another is named.',
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
        summary: 'Versions of a function',
        errors: ofOneErrors,
        description: 'Newest first, at most 1000.',
        params,
        querystring: typed,
        response: {
          200: z.object({
            data: z.array(
              z.object({
                version: z.int(),
                version_label: z.string(),
                deployed_at: z.string(),
                deployed_by: z.string(),
                /** Whether it is the one that runs. */
                current: z.boolean(),
              }),
            ),
          }),
        },
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
        summary: 'Let another version run',
        errors: ofOneErrors,
        description: 'One that was deployed before. Runs under way end with the version they began with.',
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
          throw fieldError('invalid_body', ['version'], 'is no version of the function');
        if (!wanted.isCurrent) {
          await pointTo(tx, { environmentId, functionId: found.id, versionId: wanted.id, at: now() });
          await startNewSyncs(tx, { environmentId, at: now() });
          const after = await get(tx, { caller, params, query });
          await tellModelChanges(tx, { ...after, environmentId, before: found, after });
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
        description: 'One that is off starts no run. What runs already goes on.',
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
        description: 'With its versions, schedules and runs. Records that it saved stay.',
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
  return getFunction(db, { environmentId, integrationKey: key, name, kind: kindOf(query.type) });
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
