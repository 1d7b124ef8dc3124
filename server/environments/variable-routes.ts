import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Db } from '../db/pool.ts';
import type { Caller } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import type { Vault } from '../vault.ts';
import { listNames, listVariables, replaceVariables } from './variables.ts';

const mostVariables = 500;
const name = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]{0,254}$/, 'must be up to 255 of A-Z a-z 0-9 _, and begin with no digit');
const wire = z.array(z.object({ name: z.string(), value: z.string().nullable() }));
const variables = z
  .array(z.strictObject({ name, value: text({ max: 65_536 }).nullish() }))
  .max(mostVariables)
  .superRefine((variables, context) => {
    const seen = new Set<string>();
    for (const [index, { name }] of variables.entries()) {
      if (seen.has(name))
        context.addIssue({ code: 'custom', message: 'stands twice', path: [index, 'name'] });
      seen.add(name);
    }
  });

/** Variables of an environment. What is answered is a bare list, as official clients read it. */
export function variableRoutes(app: App, { db, vault }: { db: Db; vault: Vault }): void {
  /** A page that is taken over must not carry them off: people set values, and keys read them. */
  async function shownTo({ kind, environmentId }: Caller): Promise<z.input<typeof wire>> {
    if (kind === 'key') return listVariables(db, { environmentId, vault });
    return (await listNames(db, environmentId)).map((name) => ({ name, value: null }));
  }

  app.get(
    '/environment-variables',
    {
      config: { access: { by: 'key', scope: 'environment:read' } },
      schema: {
        summary: 'Variables of the environment',
        description: 'Values are told to keys alone: with a cookie each is null.',
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
        summary: 'Replace the variables of the environment',
        description: 'All of them. One whose `value` is null or left out keeps the value it has.',
        body: z.strictObject({ variables }),
        response: { 200: wire },
      },
    },
    async ({ body, caller }) => {
      const { environmentId } = caller;
      await db.transaction(async (tx) => {
        const { set, removed } = await replaceVariables(tx, { environmentId, vault, given: body.variables });
        await writeAudit(tx, {
          environmentId,
          actor: actorOf(caller),
          action: 'variables.changed',
          target: caller.environment,
          details: { set: set.join(','), removed: removed.join(',') },
        });
      });
      return shownTo(caller);
    },
  );
}
