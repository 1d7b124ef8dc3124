import { z } from 'zod';
import type { Db, Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { actorOf, type Caller, holdsScope, lacking, type UserCaller } from '../http/auth/caller.ts';
import { proxyRule, proxyRules } from '../http/auth/proxy-rule.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import {
  auditKey,
  createKey,
  expiry,
  findKeysForUpdate,
  type Key,
  type KeyMaker,
  keyName,
  listKeys,
  newKey,
  rateLimit,
  readExpiry,
  requireReplaceable,
  requireWithin,
  revokeKey,
  scopeList,
  updateKey,
} from './keys.ts';

type KeyRouteParts = {
  db: Db;
  now: () => Date;
  /** Calls a minute of a key that has no limit of its own; undefined: no limit. */
  perKey: number | undefined;
  /** Throws `forbidden` unless the user has this role there still, in the transaction that makes a key. */
  requireRole: (tx: Tx, user: UserCaller) => Promise<void>;
  /** Called with a key that was changed or revoked, so that caches drop it. */
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
const newKeyWire = keyWire.extend({ secret: z.string() });
nameSchemas({ ApiKey: keyWire, NewApiKey: newKeyWire });
const params = z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) });

/** Keys of the caller's environment; changes are in the audit log. */
export function keyRoutes(app: App, parts: KeyRouteParts): void {
  const { db, now, afterChange } = parts;
  const config = { access: { by: 'key', scope: 'keys' } } as const;

  app.get(
    '/environment/api-keys',
    {
      config,
      schema: {
        operationId: 'listKeys',
        list: { items: 'data', by: 'whole' },
        summary: 'List the keys of the environment',
        description: 'The keys that are not revoked, without their secrets.',
        response: { 200: z.object({ data: z.array(keyWire) }) },
      },
    },
    async ({ caller }) => ({ data: (await listKeys(db, caller.environmentId)).map(keyToWire) }),
  );

  app.post(
    '/environment/api-keys',
    {
      config: { ...config, idempotent: true },
      schema: {
        operationId: 'createKey',
        summary: 'Create a key',
        description:
          'Only this response has the secret. The new key has at most the rights of the key that creates it: without rules ' +
          'or expiry in the body, it gets the rules and the expiry of that key. A key with a rate limit, its own or that ' +
          'of TRELLIS_RATE_LIMIT, cannot create keys. With `replaces`, the ID of a key, the new key owns the same ' +
          'consumers as that key.',
        body: newKey,
        response: { 201: z.object({ data: newKeyWire }) },
      },
    },
    async ({ body, caller }, reply) => {
      const { environmentId, environment: name } = caller;
      const { replaces, scopes } = body;
      const { key, secret } = await db.transaction(async (tx) => {
        const ids = replaces === undefined ? [] : [replaces];
        const { maker } = await findMaker(tx, parts, { caller, ids });
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
        await auditKey(tx, {
          environmentId,
          actor: actorOf(caller),
          action: 'key.created',
          key: created.key,
          replaces,
        });
        return created;
      });
      reply.code(201);
      return { data: { ...keyToWire(key), secret } };
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
          'Absent fields stay as they are. All nodes apply the change within a second. The key of TRELLIS_SECRET_KEY ' +
          'follows that setting: it cannot be changed, and its revocation lasts until the next start. A key with a rate ' +
          'limit, its own or that of TRELLIS_RATE_LIMIT, cannot change keys.',
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
        const { maker, keys } = await findMaker(tx, parts, { caller, ids: [id] });
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
        await auditChange(tx, caller, 'key.changed', key);
        return key;
      });
      afterChange(id);
      return { data: keyToWire(changed) };
    },
  );

  app.delete(
    '/environment/api-keys/:id',
    {
      config,
      schema: {
        operationId: 'revokeKey',
        summary: 'Revoke a key',
        description:
          'A key can also revoke itself. All nodes reject the key and its tickets within a second.',
        errors: ['not_found'],
        params,
        response: { 200: success },
      },
    },
    async ({ params: { id }, caller }) => {
      await db.transaction(async (tx) => {
        const revoked = await revokeKey(tx, { id, environmentId: caller.environmentId, at: now() });
        if (revoked === undefined) throw unknown(id);
        await auditChange(tx, caller, 'key.revoked', revoked);
      });
      afterChange(id);
      return { success: true as const };
    },
  );
}

/** The wire format of a key, also of `trellis key list --json`. */
export function keyToWire(key: Key): z.input<typeof keyWire> {
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

function expiryOf(given: string, now: Date): Date {
  const at = readExpiry(given, now);
  if (at !== undefined) return at;
  throw fieldError('invalid_body', ['expires_at'], 'must be in the future');
}

function unknown(id: number): AppError {
  return new AppError('not_found', `This environment has no key ${id}.`);
}

function ofSetting(): AppError {
  return new AppError(
    'forbidden',
    'This key belongs to the setting TRELLIS_SECRET_KEY, which restores it at each start. Create another key.',
  );
}

async function auditChange(
  tx: Tx,
  caller: Caller,
  action: 'key.changed' | 'key.revoked',
  key: Key,
): Promise<void> {
  await auditKey(tx, { environmentId: caller.environmentId, actor: actorOf(caller), action, key });
}

/**
 * The caller's current rights, and the existing keys among `ids`, all locked until the transaction ends. The cache of a node
 * is up to a second old, and a key must not grant rights that it has lost since. Throws `unknown_account` if the caller's
 * key was revoked or has expired, and `forbidden` if it may no longer manage keys or has a rate limit: with further keys it
 * could exceed that limit. For a user it throws as `requireRole`, and `forbidden` for a connect session.
 */
async function findMaker(
  tx: Tx,
  { perKey, requireRole, now }: KeyRouteParts,
  { caller, ids }: { caller: Caller; ids: readonly number[] },
): Promise<{ maker: KeyMaker; keys: ReadonlyMap<number, Key> }> {
  const { environmentId } = caller;
  if (caller.kind === 'session') throw new AppError('forbidden');
  if (caller.kind === 'user') {
    await requireRole(tx, caller);
    const keys = ids.length > 0 ? await findKeysForUpdate(tx, { ids, environmentId }) : new Map();
    return { maker: caller, keys };
  }
  const keys = await findKeysForUpdate(tx, { ids: [...ids, caller.keyId], environmentId });
  const key = keys.get(caller.keyId);
  if (key === undefined || (key.expiresAt !== undefined && key.expiresAt <= now()))
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
