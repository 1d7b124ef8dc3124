import { z } from 'zod';
import { actorOf } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { type Caller, holdsScope, type KeyCaller, lacking, type UserCaller } from '../http/caller.ts';
import { proxyRule, proxyRules } from '../http/proxy-rule.ts';
import type { App } from '../http/server.ts';
import { expiry, keyName, newKey, rateLimit, readExpiry, scopeList } from './key-input.ts';
import { requireWithin } from './key-reach.ts';
import { requireReplaceable } from './key-replacements.ts';
import { createKey, findKeysForUpdate, type Key, listKeys, noteKey, revokeKey, updateKey } from './keys.ts';

type Deps = {
  db: Db;
  now: () => Date;
  /** Calls a minute of a key that has no limit of its own; undefined: no limit. */
  perKey: number | undefined;
  /** Throws `forbidden` unless the user has this role there still, in the transaction that makes a key. */
  requireRole: (tx: Tx, user: UserCaller) => Promise<void>;
  /** Told of a key that was changed or revoked, so that nothing remembered of it is used. */
  afterChange: (keyId: number) => void;
};

const keyWire = z.object({
  id: z.number().int(),
  name: z.string(),
  hint: z.string(),
  scopes: z.array(z.string()),
  proxy_rules: z.array(proxyRule),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  rate_limit: z.number().int().nullable(),
  last_used_at: z.string().nullable(),
});
const params = z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) });

/** Keys of the caller's environment; what changes is in the audit log. */
export function keyRoutes(app: App, { db, now, perKey, requireRole, afterChange }: Deps): void {
  const config = { access: { by: 'key', scope: 'keys' } } as const;

  app.get(
    '/environment/api-keys',
    {
      config,
      schema: {
        operationId: 'listKeys',
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
        operationId: 'createKey',
        summary: 'Create a key',
        description:
          'The secret is told this once. The new key may do no more than the one that makes it: rules and expiry are ' +
          'taken over from it where none are given. A key with a rate limit, its own or that of TRELLIS_RATE_LIMIT, ' +
          'cannot create keys. With `replaces`, the ID of a key, the new key owns the same consumers as that key.',
        body: newKey,
        response: { 201: z.object({ data: keyWire.extend({ secret: z.string() }) }) },
      },
    },
    async ({ body, caller }, reply) => {
      const { environmentId, environment: name } = caller;
      const { replaces, scopes } = body;
      const { key, secret } = await db.transaction(async (tx) => {
        const ids = replaces === undefined ? [] : [replaces];
        const { maker } = await findMaker(tx, {
          caller: keyOf(caller),
          ids,
          now: now(),
          perKey,
          requireRole,
        });
        const wanted = {
          scopes,
          proxyRules: body.proxy_rules ?? maker.proxyRules ?? [],
          expiresAt: body.expires_at === undefined ? maker.expiresAt : expiryOf(body.expires_at, now()),
          rateLimit: body.rate_limit,
        };
        requireWithin(wanted, maker);
        const environment = { id: environmentId, name };
        const firstKeyId =
          replaces && (await requireReplaceable(tx, { environmentId, replaces, scopes, now: now() }));
        const created = await createKey(tx, { environment, name: body.name, ...wanted, firstKeyId });
        await noteKey(tx, {
          ...{ environmentId, actor: actorOf(caller), action: 'key.created', key: created.key, replaces },
        });
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
        operationId: 'changeKey',
        summary: 'Change a key',
        description:
          'What is left out stays. Nodes follow within a second. The key of TRELLIS_SECRET_KEY is as the setting has it: ' +
          'it cannot be changed, only revoked until the next start. A key with a rate limit, its own or that of ' +
          'TRELLIS_RATE_LIMIT, cannot change keys.',
        errors: ['not_found'],
        params,
        example: { body: { name: 'reporting', scopes: ['records:read'] } },
        body: z.strictObject({
          name: keyName.optional(),
          scopes: scopeList.optional(),
          proxy_rules: proxyRules.optional(),
          expires_at: expiry.nullable().optional(),
          rate_limit: rateLimit.nullable().optional(),
        }),
        response: { 200: z.object({ data: keyWire }) },
      },
    },
    async ({ params: { id }, body, caller }) => {
      const { environmentId } = caller;
      const changed = await db.transaction(async (tx) => {
        const { maker, keys } = await findMaker(tx, {
          ...{ caller: keyOf(caller), ids: [id], now: now(), perKey, requireRole },
        });
        const before = keys.get(id);
        if (before === undefined) throw unknown(id);
        if (before.isSetting) throw ofSetting();
        const key: Key = {
          ...before,
          ...(body.name !== undefined && { name: body.name }),
          ...(body.scopes !== undefined && { scopes: body.scopes }),
          ...(body.proxy_rules !== undefined && { proxyRules: body.proxy_rules }),
          ...(body.expires_at !== undefined && {
            expiresAt: body.expires_at === null ? undefined : expiryOf(body.expires_at, now()),
          }),
          ...(body.rate_limit !== undefined && { rateLimit: body.rate_limit ?? undefined }),
        };
        requireWithin(key, maker);
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
        operationId: 'revokeKey',
        summary: 'Revoke a key',
        description: 'Also the one that calls. It and its tickets are refused on all nodes within a second.',
        errors: ['not_found'],
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
    rate_limit: key.rateLimit ?? null,
    last_used_at: key.lastUsedAt?.toISOString() ?? null,
  };
}

function keyOf(caller: Caller): KeyCaller | UserCaller {
  if (caller.kind === 'session') throw new AppError('forbidden');
  return caller;
}

function expiryOf(given: string, now: Date): Date {
  const at = readExpiry(given, now);
  if (at !== undefined) return at;
  throw fieldError('invalid_body', ['expires_at'], 'must be a time to come');
}

function unknown(id: number): AppError {
  return new AppError('not_found', `This environment has no key ${id}.`);
}

function ofSetting(): AppError {
  return new AppError(
    'forbidden',
    'This key stands for the setting TRELLIS_SECRET_KEY, which makes it whole again at each start. Make another key.',
  );
}

async function note(tx: Tx, caller: Caller, action: 'key.changed' | 'key.revoked', key: Key): Promise<void> {
  await noteKey(tx, { environmentId: caller.environmentId, actor: actorOf(caller), action, key });
}

/** Who makes keys, or changes them, and what that one may do. */
type Maker = Pick<KeyCaller | UserCaller, 'scopes' | 'proxyRules' | 'expiresAt'>;

/**
 * Who is calling, as of this moment, and those of the keys `ids` that there are: nobody changes one of them until the
 * transaction ends. What a node remembers of a key is up to a second old, and what the key has lost since it cannot
 * give. Throws `unknown_account` where the caller's key was revoked or has expired, and `forbidden` where it may
 * not manage keys any more or has a rate limit: with further keys it could call more often than that limit. Throws what
 * `requireRole` throws of a person.
 */
async function findMaker(
  tx: Tx,
  {
    caller,
    ids = [],
    now,
    perKey,
    requireRole,
  }: {
    caller: KeyCaller | UserCaller;
    ids?: readonly number[];
    now: Date;
    /** Calls a minute of a key that has no limit of its own; undefined: no limit. */
    perKey: number | undefined;
    requireRole: (tx: Tx, user: UserCaller) => Promise<void>;
  },
): Promise<{ maker: Maker; keys: ReadonlyMap<number, Key> }> {
  const { environmentId } = caller;
  if (caller.kind === 'user') {
    await requireRole(tx, caller);
    const keys = ids.length > 0 ? await findKeysForUpdate(tx, { ids, environmentId }) : new Map();
    return { maker: caller, keys };
  }
  const keys = await findKeysForUpdate(tx, { ids: [...ids, caller.keyId], environmentId });
  const key = keys.get(caller.keyId);
  if (key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now))
    throw new AppError('unknown_account');
  const scopes = new Set(key.scopes);
  if (!holdsScope(scopes, 'keys')) throw lacking('keys');
  if ((key.rateLimit ?? perKey) !== undefined)
    throw new AppError(
      'forbidden',
      'A key with a rate limit cannot create or change keys. Use a key without one, the dashboard, or `trellis key create`.',
    );
  return { maker: { scopes, proxyRules: key.proxyRules, expiresAt: key.expiresAt }, keys };
}
