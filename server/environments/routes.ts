import { z } from 'zod';
import { userActor, writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { App } from '../http/server.ts';
import type { Vault } from '../vault.ts';
import { deleteEnvironment, ensureEnvironment, listEnvironments, renameEnvironment } from './store.ts';

const ofOwners = { access: { by: 'person', only: 'owner' } } as const;
const environmentName = z
  .string()
  .regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, 'must be 1 to 64 of a-z 0-9 _ -, and begin with a letter or digit');
const environmentWire = z.object({ name: z.string(), created_at: z.string() });
const params = z.object({ name: environmentName });
const one = z.object({ data: environmentWire });

/** The two that every start makes where they are missing. */
const lasting = new Set(['dev', 'prod']);

/** Environments, for owners: a key belongs to one, and so may manage none. */
export function environmentRoutes(
  app: App,
  {
    db,
    vault,
    now,
    requireOwner,
    afterChange,
  }: {
    db: Db;
    vault: Vault;
    now: () => Date;
    /** Throws `forbidden` unless the person is an owner still, in the transaction that changes something. */
    requireOwner: (tx: Tx, person: { userId: string }) => Promise<void>;
    /** Told when the list or a name changed, so that nothing remembered of it is used. */
    afterChange: () => void;
  },
): void {
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
        summary: 'List environments',
        description: 'All of the installation, in the order of their names.',
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
        description: 'With nothing in it: keys, integrations and settings of others are not taken over.',
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
        await writeAudit(tx, {
          ...{
            environmentId: undefined,
            actor: userActor(person),
            action: 'environment.created',
            target: name,
          },
        });
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
          'Its keys stay good. `dev` and `prod` keep their names: a start makes them where they are missing.',
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
        await writeAudit(tx, {
          ...{
            environmentId: undefined,
            actor: userActor(person),
            action: 'environment.renamed',
            target: name,
          },
          details,
        });
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
          'With its keys, integrations and settings. Its connections must be deleted before and their grants revoked. The ' +
          'activity log keeps its operations for their days, and the audit log its entries. `dev` and `prod` stay.',
        errors: ['not_found', 'environment_in_use'],
        params,
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params: { name }, person }) => {
      requirePassing(name);
      await db.transaction(async (tx) => {
        await requireOwner(tx, person);
        await deleteEnvironment(tx, name);
        await writeAudit(tx, {
          ...{
            environmentId: undefined,
            actor: userActor(person),
            action: 'environment.deleted',
            target: name,
          },
        });
      });
      afterChange();
      return { success: true as const };
    },
  );
}

function requirePassing(name: string): void {
  if (lasting.has(name)) throw new AppError('forbidden', `"${name}" stays, and keeps its name.`);
}
