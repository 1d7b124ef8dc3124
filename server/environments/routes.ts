import { z } from 'zod';
import { writeUserAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import type { Vault } from '../vault.ts';
import {
  clearEnvironment,
  deleteEnvironment,
  ensureEnvironment,
  listEnvironments,
  renameEnvironment,
} from './store.ts';

const ofOwners = { access: { by: 'person', only: 'owner' } } as const;
const environmentName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'must be 1 to 64 of a-z 0-9 _ -, and begin with a letter or digit');
const environmentWire = z.object({ name: z.string(), created_at: z.string() });
nameSchemas({ Environment: environmentWire });
const params = z.object({ name: environmentName });
const one = z.object({ data: environmentWire });

/** Every start makes these two environments if they are missing. */
const lasting = new Set(['dev', 'prod']);

/** Environments, for owners: a key belongs to one environment, so keys cannot manage environments. */
export function environmentRoutes(
  app: App,
  given: {
    db: Db;
    vault: Vault;
    now: () => Date;
    /** Throws `forbidden` if the person is no longer an owner, in the transaction of the change. */
    requireOwner: (tx: Tx, person: { userId: string }) => Promise<void>;
    /** Called when the list or a name has changed, so that caches drop it. */
    afterChange: () => void;
  },
): void {
  const { db, vault, now, requireOwner, afterChange } = given;
  const toWire = ({ name, createdAt }: { name: string; createdAt: Date }) => ({
    name,
    created_at: createdAt.toISOString(),
  });

  app.get(
    '/environments',
    {
      config: ofOwners,
      schema: {
        operationId: 'listEnvironments',
        list: { items: 'data', by: 'whole' },
        summary: 'List environments',
        description: 'All environments of the installation, by name.',
        response: { 200: z.object({ data: z.array(environmentWire) }) },
      },
    },
    async () => ({ data: (await listEnvironments(db)).map(toWire) }),
  );

  app.post(
    '/environments',
    {
      config: ofOwners,
      schema: {
        operationId: 'createEnvironment',
        summary: 'Create an environment',
        description:
          'The new environment is empty: it gets no keys, integrations or settings of other environments.',
        errors: ['environment_exists'],
        body: z.strictObject({ name: environmentName }),
        response: { 201: one },
      },
    },
    async ({ body: { name }, person }, reply) => {
      await db.transaction(async (tx) => {
        await requireOwner(tx, person);
        const { created } = await ensureEnvironment(tx, { name, vault });
        if (!created) throw new AppError('environment_exists');
        await writeUserAudit(tx, { person, action: 'environment.created', target: name });
      });
      afterChange();
      reply.code(201);
      return { data: { name, created_at: now().toISOString() } };
    },
  );

  app.patch(
    '/environments/:name',
    {
      config: ofOwners,
      schema: {
        operationId: 'renameEnvironment',
        summary: 'Rename an environment',
        description:
          'Its keys stay valid. `dev` and `prod` cannot be renamed: a start creates them if they are missing.',
        errors: ['not_found', 'environment_exists'],
        params,
        body: z.strictObject({ name: environmentName }),
        response: { 200: one },
      },
    },
    async ({ params: { name }, body, person }) => {
      requirePassing(name);
      const renamed = await db.transaction(async (tx) => {
        await requireOwner(tx, person);
        const environment = await renameEnvironment(tx, { from: name, to: body.name });
        const details = { name: body.name };
        await writeUserAudit(tx, { person, action: 'environment.renamed', target: name, details });
        return environment;
      });
      afterChange();
      return { data: toWire(renamed) };
    },
  );

  app.delete(
    '/environments/:name',
    {
      config: ofOwners,
      schema: {
        operationId: 'deleteEnvironment',
        summary: 'Delete an environment',
        description:
          'Also deletes its keys, integrations and settings. Its connections must be deleted and their grants revoked ' +
          'first. The activity log keeps its operations for the retention period, and the audit log keeps its entries. ' +
          '`dev` and `prod` cannot be deleted.',
        errors: ['not_found', 'environment_in_use'],
        params,
        response: { 200: success },
      },
    },
    async ({ params: { name }, person }) => {
      requirePassing(name);
      await db.transaction((tx) => requireOwner(tx, person));
      await clearEnvironment(db, name);
      await db.transaction(async (tx) => {
        await requireOwner(tx, person);
        await deleteEnvironment(tx, name);
        await writeUserAudit(tx, { person, action: 'environment.deleted', target: name });
      });
      afterChange();
      return { success: true as const };
    },
  );
}

function requirePassing(name: string): void {
  if (lasting.has(name)) throw new AppError('forbidden', `"${name}" cannot be renamed or deleted.`);
}
