import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Db } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { type Caller, type KeyCaller, scopes } from '../http/caller.ts';
import { proxyRule, proxyRules } from '../http/proxy-rule.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { requireWithin } from './key-reach.ts';
import { createKey, findKeyForUpdate, type Key, keyDetails, listKeys, revokeKey, updateKey } from './keys.ts';

type Deps = {
  db: Db;
  now: () => Date;
  /** Told of a key that was changed or revoked, so that nothing remembered of it is used. */
  afterChange: (keyId: number) => void;
};

// That of the setting's key: at a start all others of this name are revoked.
const isFree = (given: string) => given !== 'TRELLIS_SECRET_KEY';
const name = text({ min: 1, max: 255 }).refine(isFree, 'stands for the key of the setting');
const scopeList = z
  .array(z.enum(['*', ...scopes]))
  .min(1)
  .refine((list) => new Set(list).size === list.length, 'names a scope twice');
const keyWire = z.object({
  id: z.number().int(),
  name: z.string(),
  hint: z.string(),
  scopes: z.array(z.string()),
  proxy_rules: z.array(proxyRule),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  last_used_at: z.string().nullable(),
});
const params = z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) });
const expiry = z.iso.datetime({ offset: true });

/** Keys of the caller's environment; what changes is in the audit log. */
export function keyRoutes(app: App, { db, now, afterChange }: Deps): void {
  const config = { access: { by: 'key', scope: 'keys' } } as const;

  app.get(
    '/environment/api-keys',
    {
      config,
      schema: {
        summary: 'List the keys of the environment',
        description: 'Those that were not revoked, without their secrets.',
        response: { 200: z.object({ data: z.array(keyWire) }) },
      },
    },
    async ({ caller }) => ({ data: (await listKeys(db, caller.environmentId)).map(toWire) }),
  );

  app.post(
    '/environment/api-keys',
    {
      config,
      schema: {
        summary: 'Create a key',
        description:
          'The secret is told this once. The new key may do no more than the one that makes it: rules and expiry are ' +
          'taken over from it where none are given.',
        body: z.strictObject({
          name,
          scopes: scopeList,
          proxy_rules: proxyRules.optional(),
          expires_at: expiry.optional(),
        }),
        response: { 201: z.object({ data: keyWire.extend({ secret: z.string() }) }) },
      },
    },
    async ({ body, caller }, reply) => {
      const maker = keyOf(caller);
      const wanted = {
        scopes: body.scopes,
        proxyRules: body.proxy_rules ?? maker.proxyRules ?? [],
        expiresAt: body.expires_at === undefined ? maker.expiresAt : readExpiry(body.expires_at, now()),
      };
      requireWithin(wanted, maker);
      const { key, secret } = await db.transaction(async (tx) => {
        const created = await createKey(tx, {
          environment: { id: caller.environmentId, name: caller.environment },
          name: body.name,
          ...wanted,
        });
        await note(tx, caller, 'key.created', created.key);
        return created;
      });
      reply.code(201);
      return { data: { ...toWire(key), secret } };
    },
  );

  app.patch(
    '/environment/api-keys/:id',
    {
      config,
      schema: {
        summary: 'Change a key',
        description: 'What is left out stays. Nodes follow within a second.',
        params,
        body: z.strictObject({
          name: name.optional(),
          scopes: scopeList.optional(),
          proxy_rules: proxyRules.optional(),
          expires_at: expiry.nullable().optional(),
        }),
        response: { 200: z.object({ data: keyWire }) },
      },
    },
    async ({ params: { id }, body, caller }) => {
      const { environmentId } = caller;
      const changed = await db.transaction(async (tx) => {
        const before = await findKeyForUpdate(tx, { id, environmentId });
        if (before === undefined) throw unknown(id);
        const key: Key = {
          ...before,
          ...(body.name !== undefined && { name: body.name }),
          ...(body.scopes !== undefined && { scopes: body.scopes }),
          ...(body.proxy_rules !== undefined && { proxyRules: body.proxy_rules }),
          ...(body.expires_at !== undefined && {
            expiresAt: body.expires_at === null ? undefined : readExpiry(body.expires_at, now()),
          }),
        };
        requireWithin(key, keyOf(caller));
        await updateKey(tx, { key, environmentId });
        await note(tx, caller, 'key.changed', key);
        return key;
      });
      afterChange(id);
      return { data: toWire(changed) };
    },
  );

  app.delete(
    '/environment/api-keys/:id',
    {
      config,
      schema: {
        summary: 'Revoke a key',
        description: 'Also the one that calls. It and its tickets are refused on all nodes within a second.',
        params,
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params: { id }, caller }) => {
      await db.transaction(async (tx) => {
        const revoked = await revokeKey(tx, { id, environmentId: caller.environmentId, at: now() });
        if (revoked === undefined) throw unknown(id);
        await note(tx, caller, 'key.revoked', revoked);
      });
      afterChange(id);
      return { success: true as const };
    },
  );
}

function toWire(key: Key): z.input<typeof keyWire> {
  return {
    id: key.id,
    name: key.name,
    hint: key.hint,
    scopes: [...key.scopes],
    proxy_rules: [...key.proxyRules],
    created_at: key.createdAt.toISOString(),
    expires_at: key.expiresAt?.toISOString() ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
  };
}

function keyOf(caller: Caller): KeyCaller {
  if (caller.kind !== 'key') throw new AppError('forbidden');
  return caller;
}

function readExpiry(given: string, now: Date): Date {
  const at = new Date(given);
  if (at > now) return at;
  throw fieldError('invalid_body', ['expires_at'], 'must be a time to come');
}

function unknown(id: number): AppError {
  return new AppError('not_found', `This environment has no key ${id}.`);
}

async function note(
  tx: Parameters<typeof writeAudit>[0],
  caller: Caller,
  action: 'key.created' | 'key.changed' | 'key.revoked',
  key: Key,
): Promise<void> {
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action,
    target: key.name,
    details: keyDetails(key),
  });
}
