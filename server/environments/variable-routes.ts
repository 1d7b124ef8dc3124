import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { actorOf, type Caller, hasScope } from '../http/auth/caller.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import type { Vault } from '../vault.ts';
import { changeVariables, listNames, listVariables, replaceVariables } from './variables.ts';

const maxVariables = 500;
const name = z
  .string()
  .regex(
    /^[A-Za-z_][A-Za-z0-9_]{0,254}$/,
    'must be up to 255 of A-Z a-z 0-9 _, and must not begin with a digit',
  );
const variableWire = z.object({ name: z.string(), value: z.string().nullable() });
nameSchemas({ Variable: variableWire });
const wire = z.array(variableWire);
const value = text({ max: 65_536 });
const variables = z
  .array(z.strictObject({ name, value: value.nullish() }))
  .max(maxVariables)
  .superRefine(refuseTwice);
const changes = z
  .strictObject({
    set: z.array(z.strictObject({ name, value })).max(maxVariables).default([]).superRefine(refuseTwice),
    remove: z.array(name).max(maxVariables).default([]),
  })
  .superRefine(({ set, remove }, context) => {
    for (const [index, { name }] of set.entries()) {
      if (remove.includes(name))
        context.addIssue({ code: 'custom', message: 'is also removed', path: ['set', index, 'name'] });
    }
  });

function refuseTwice(variables: { name: string }[], context: z.RefinementCtx): void {
  const seen = new Set<string>();
  for (const [index, { name }] of variables.entries()) {
    if (seen.has(name)) context.addIssue({ code: 'custom', message: 'appears twice', path: [index, 'name'] });
    seen.add(name);
  }
}

/** Variables of an environment. The response is a bare list, as official clients require. */
export function variableRoutes(app: App, { db, vault }: { db: Db; vault: Vault }): void {
  /** Users set values, and keys read them: no role has the scope. */
  async function shownTo(caller: Caller): Promise<z.input<typeof wire>> {
    const { environmentId } = caller;
    if (hasScope(caller, 'environment:secrets')) return listVariables(db, { environmentId, vault });
    return (await listNames(db, environmentId)).map((name) => ({ name, value: null }));
  }

  app.get(
    '/environment-variables',
    {
      config: { access: { by: 'key', scope: 'environment:read' } },
      schema: {
        operationId: 'listVariables',
        summary: 'List the variables of the environment',
        description:
          'Only keys with `environment:secrets` receive the values; for other keys, each value is null.',
        response: { 200: wire },
      },
    },
    ({ caller }) => shownTo(caller),
  );

  app.put(
    '/environment-variables',
    {
      config: { access: { by: 'key', scope: 'environment:write' } },
      schema: {
        operationId: 'replaceVariables',
        summary: 'Replace the variables of the environment',
        description:
          'Replaces all variables. If the `value` of a variable is null or absent, the stored value stays.',
        body: z.strictObject({ variables }),
        response: { 200: wire },
      },
    },
    async ({ body, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        const { set, removed } = await replaceVariables(tx, { environmentId, vault, given: body.variables });
        await audit(tx, caller, { set, removed });
      });
      return shownTo(caller);
    },
  );

  app.patch(
    '/environment-variables',
    {
      config: { access: { by: 'key', scope: 'environment:write' } },
      schema: {
        operationId: 'changeVariables',
        summary: 'Set and remove single variables of the environment',
        description:
          'All other variables stay as they are, so two callers that change different variables keep both changes.',
        example: {
          body: { set: [{ name: 'API_BASE', value: 'https://api.example.com' }], remove: ['OLD_BASE'] },
        },
        body: changes,
        response: { 200: wire },
      },
    },
    async ({ body: { set, remove }, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        const { removed } = await changeVariables(tx, {
          environmentId,
          vault,
          set,
          remove,
          max: maxVariables,
        });
        await audit(tx, caller, { set: set.map(({ name }) => name), removed });
      });
      return shownTo(caller);
    },
  );
}

async function audit(
  tx: Tx,
  caller: Caller,
  { set, removed }: Record<'set' | 'removed', string[]>,
): Promise<void> {
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action: 'variables.changed',
    target: caller.environment,
    details: { set: set.join(','), removed: removed.join(',') },
  });
}
