/**
 * Secret keys of an environment: how they are made, listed, changed, revoked and replaced, and which keys a key may make.
 *
 * Owns: the table `api_key`. Does not own: authentication by keys (`key-reader.ts`), the key of the setting
 * (`setting-key.ts`), tickets (`tickets.ts`).
 */
import { hash as digest, randomBytes } from 'node:crypto';
import type { Selectable } from 'kysely';
import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import { type Queryable, tables } from '../db/pool.ts';
import type { ApiKey } from '../db/tables.ts';
import { AppError, fieldError } from '../errors.ts';
import { holdsScope, type KeyCaller, type Scope, scopes, type UserCaller } from '../http/auth/caller.ts';
import { type ProxyRule, proxyRules, proxyRuleText } from '../http/auth/proxy-rule.ts';
import { text } from '../http/text.ts';

/** The name of the setting's key; other keys cannot have it. */
export const settingName = 'TRELLIS_SECRET_KEY';

export const keyName = text({ min: 1, max: 255 }).refine(
  (given) => given !== settingName,
  'is reserved for the key of the setting',
);
const scopeName = z.enum(['*', ...scopes]).meta({ title: 'Scope' });
export const scopeList = z
  .array(scopeName)
  .min(1)
  .refine((list) => new Set(list).size === list.length, 'names a scope twice');
/** With a zone; `readExpiry` checks it. The year has four digits in every zone. */
export const expiry = z.iso
  .datetime({ offset: true })
  .refine((given) => new Date(given).getUTCFullYear() <= 9999, 'must be before the year 10000');
/** Calls a minute. */
export const rateLimit = z.number().int().min(1).max(1_000_000);
/** The fields of a new key, for every entry point that creates one. */
export const newKey = z.strictObject({
  name: keyName,
  scopes: scopeList,
  proxy_rules: proxyRules.optional(),
  expires_at: expiry.optional(),
  rate_limit: rateLimit.optional(),
  replaces: z.number().int().min(1).max(Number.MAX_SAFE_INTEGER).optional(),
});

/** Undefined if it is not in the future. */
export function readExpiry(given: string, now: Date): Date | undefined {
  const at = new Date(given);
  return at > now ? at : undefined;
}

/** A key without its secret. */
export type Key = {
  id: number;
  name: string;
  /** The last four characters of the secret. */
  hint: string;
  scopes: readonly string[];
  proxyRules: readonly ProxyRule[];
  createdAt: Date;
  expiresAt: Date | undefined;
  /** Calls a minute; undefined: TRELLIS_RATE_LIMIT. */
  rateLimit: number | undefined;
  /** By the key or by one of its tickets; up to a minute old. */
  lastUsedAt: Date | undefined;
  /** It stands, or stood once, in TRELLIS_SECRET_KEY. */
  isSetting: boolean;
};

/** Creates a secret key of 256 random bits. The secret is returned once; the database has only its SHA-256. */
export async function createKey(
  db: Queryable,
  given: {
    environment: { id: number; name: string };
    name: string;
    scopes: readonly string[];
    proxyRules?: readonly ProxyRule[] | undefined;
    expiresAt?: Date | undefined;
    rateLimit?: number | undefined;
    /** Of the key that the new one replaces, as `requireReplaceable` returns it. */
    firstKeyId?: number | undefined;
  },
): Promise<{ key: Key; secret: string }> {
  const secret = `trs_${given.environment.name}_${randomBytes(32).toString('base64url')}`;
  const [row] = await db.run(
    tables
      .insertInto('api_key')
      .values({
        environment_id: given.environment.id,
        name: given.name,
        hash: hashOf(secret),
        hint: secret.slice(-4),
        scopes: [...given.scopes],
        proxy_rules: JSON.stringify(given.proxyRules ?? []),
        expires_at: given.expiresAt ?? null,
        rate_limit: given.rateLimit ?? null,
        first_key_id: given.firstKeyId ?? null,
      })
      .returning(keyColumns),
  );
  return { key: readKeyRow(row!), secret };
}

/** Keys that were not revoked, including expired ones, oldest first. */
export async function listKeys(db: Queryable, environmentId: number): Promise<Key[]> {
  const rows = await db.run(
    tables
      .selectFrom('api_key')
      .select(keyColumns)
      .where('environment_id', '=', environmentId)
      .where('revoked_at', 'is', null)
      .orderBy('id'),
  );
  return rows.map(readKeyRow);
}

/**
 * The keys that exist and are not revoked, by ID. They are locked until the transaction ends, in the order of their IDs, so that
 * two transactions cannot deadlock.
 */
export async function findKeysForUpdate(
  tx: Queryable,
  { ids, environmentId }: { ids: readonly number[]; environmentId: number },
): Promise<Map<number, Key>> {
  const rows = await tx.run(
    tables
      .selectFrom('api_key')
      .select(keyColumns)
      .where('id', 'in', ids)
      .where('environment_id', '=', environmentId)
      .where('revoked_at', 'is', null)
      .orderBy('id')
      .forUpdate(),
  );
  return new Map(rows.map((row) => [row.id, readKeyRow(row)]));
}

/** Updates a key. Other nodes use the earlier values for up to a second. */
export async function updateKey(
  tx: Queryable,
  { key, environmentId }: { key: Key; environmentId: number },
): Promise<void> {
  await tx.run(
    tables
      .updateTable('api_key')
      .set({
        name: key.name,
        scopes: [...key.scopes],
        proxy_rules: JSON.stringify(key.proxyRules),
        expires_at: key.expiresAt ?? null,
        rate_limit: key.rateLimit ?? null,
      })
      .where('id', '=', key.id)
      .where('environment_id', '=', environmentId),
  );
}

/**
 * Revokes a key, and with it every ticket that it made; returns the former key, undefined if there is no such key.
 * Other nodes have the key cached for another second.
 */
export async function revokeKey(
  tx: Queryable,
  { id, environmentId, at }: { id: number; environmentId: number; at: Date },
): Promise<Key | undefined> {
  const [row] = await tx.run(
    tables
      .updateTable('api_key')
      .set({ revoked_at: at })
      .where('id', '=', id)
      .where('environment_id', '=', environmentId)
      .where('revoked_at', 'is', null)
      .returning(keyColumns),
  );
  return row && readKeyRow(row);
}

/** Writes a change of a key into the audit log; call it inside the transaction of the change. */
export async function auditKey(
  tx: Queryable,
  given: {
    action: 'key.created' | 'key.changed' | 'key.revoked';
    key: Key;
    /** The key that a new one replaces. */
    replaces?: number | undefined;
    environmentId: number;
    actor: string;
  },
): Promise<void> {
  const { key, replaces, ...entry } = given;
  const details = { ...detailsOf(key), ...(replaces !== undefined && { replaces }) };
  await writeAudit(tx, { ...entry, target: key.name, details });
}

function detailsOf(key: Key): Record<string, string | number> {
  return {
    id: key.id,
    scopes: key.scopes.join(','),
    ...(key.proxyRules.length > 0 && { proxy_rules: key.proxyRules.map(proxyRuleText).join('; ') }),
    ...(key.expiresAt !== undefined && { expires_at: key.expiresAt.toISOString() }),
    ...(key.rateLimit !== undefined && { rate_limit: key.rateLimit }),
  };
}

/** The stored form of a secret. */
export function hashOf(secret: string): Buffer {
  return digest('sha256', secret, 'buffer');
}

/** The columns that `readKeyRow` reads. */
export const keyColumns = [
  'id',
  'name',
  'hint',
  'scopes',
  'proxy_rules',
  'created_at',
  'expires_at',
  'rate_limit',
  'last_used_at',
  'is_setting',
] as const;

export type KeyRow = Pick<Selectable<ApiKey>, (typeof keyColumns)[number]>;

/** Converts a row. */
export function readKeyRow(row: KeyRow): Key {
  return {
    id: row.id,
    name: row.name,
    hint: row.hint,
    scopes: row.scopes,
    proxyRules: row.proxy_rules as ProxyRule[],
    createdAt: row.created_at,
    expiresAt: row.expires_at ?? undefined,
    rateLimit: row.rate_limit ?? undefined,
    lastUsedAt: row.last_used_at ?? undefined,
    isSetting: row.is_setting,
  };
}

/** The rights of a key, and its expiry. */
export type Reach = Pick<Key, 'scopes' | 'proxyRules' | 'expiresAt'>;

/** The caller that makes or changes keys, and its rights. */
export type KeyMaker = Pick<KeyCaller | UserCaller, 'scopes' | 'proxyRules' | 'expiresAt'>;

/**
 * Throws `forbidden`, naming the excess, unless the maker has all rights of this key: scopes, proxy rules and expiry. So no
 * key can make, or turn another key into, one with more rights than its own. A maker has no rate limit (`key-routes.ts`).
 */
export function requireWithin(key: Reach, maker: KeyMaker): void {
  const beyond = key.scopes.filter((scope) => !holdsScope(maker.scopes, scope as Scope));
  if (beyond.length > 0) throw wider(`it lacks the scope ${beyond.join(', ')}`);
  const { proxyRules: makersRules = [] } = maker;
  if (!areRulesWithin(key.proxyRules, makersRules)) {
    throw wider(
      'its rules must be among the new rules: all rules that deny, and at least one rule that allows',
    );
  }
  const ends = maker.expiresAt?.getTime();
  if (ends !== undefined && (key.expiresAt === undefined || key.expiresAt.getTime() > ends))
    throw wider(`it ends itself at ${maker.expiresAt?.toISOString()}`);
}

/** Whether the others allow everything that the rules allow. Compares the rules' texts, so a yes is certain. */
function areRulesWithin(rules: readonly ProxyRule[], others: readonly ProxyRule[]): boolean {
  const textsOf = (list: readonly ProxyRule[], effect: ProxyRule['effect']) =>
    list.filter((rule) => rule.effect === effect).map(proxyRuleText);
  const denied = new Set(textsOf(rules, 'deny'));
  if (!textsOf(others, 'deny').every((text) => denied.has(text))) return false;
  const allowable = new Set(textsOf(others, 'allow'));
  const allowed = textsOf(rules, 'allow');
  return allowable.size === 0 || (allowed.length > 0 && allowed.every((text) => allowable.has(text)));
}

/** The rights that both have, by the rules' texts: `one` itself if the other one has all of its rights. */
export function commonReach(one: Reach, other: Reach): Reach {
  const ends = [one.expiresAt, other.expiresAt].filter((at) => at !== undefined);
  return {
    scopes: commonScopes(one.scopes, other.scopes),
    proxyRules: commonRules(one.proxyRules, other.proxyRules),
    expiresAt: ends.sort((a, b) => a.getTime() - b.getTime())[0],
  };
}

function commonScopes(one: readonly string[], other: readonly string[]): readonly string[] {
  if (other.includes('*')) return one;
  return one.includes('*') ? other : one.filter((scope) => other.includes(scope));
}

function commonRules(one: readonly ProxyRule[], other: readonly ProxyRule[]): readonly ProxyRule[] {
  const isAllowing = ({ effect }: ProxyRule) => effect === 'allow';
  const lacking = (rules: readonly ProxyRule[]) => {
    const texts = new Set(rules.map(proxyRuleText));
    return (rule: ProxyRule) => !texts.has(proxyRuleText(rule));
  };
  const added = other.filter(lacking(one));
  if (!one.some(isAllowing) || !other.some(isAllowing)) return [...one, ...added];
  const isForeign = lacking(other);
  const kept = one.filter((rule) => !isAllowing(rule) || !isForeign(rule));
  const denied = added.filter((rule) => !isAllowing(rule));
  if (kept.some(isAllowing)) return [...kept, ...denied];
  // Rules without an allowing one allow everything.
  const nothing: ProxyRule = { effect: 'deny', path: '/**' };
  return [...one, ...[...denied, nothing].filter(lacking(one))];
}

function wider(reason: string): AppError {
  return new AppError('forbidden', `A key cannot give more rights than it has: ${reason}.`);
}

/**
 * Keys that replace each other have the same first key, and its ID is the owner of their things. So an application changes
 * its key without an interruption, with both keys valid for a while, and the old key's things keep an owner after the old
 * key is revoked. This condition selects keys that are valid at the time $2.
 */
const isLiving = 'revoked_at is null and (expires_at is null or expires_at > $2)';

/**
 * The first key of the key `replaces`, which a new key with these scopes is to replace; it may be revoked or expired. The key
 * is locked, so that of several callers one replaces it. Throws `invalid_body`, which names the field, for an ID that is not of
 * a key of the environment, a key that another good key has replaced, and a new key that cannot use consumers.
 */
export async function requireReplaceable(
  tx: Queryable,
  by: { environmentId: number; replaces: number; scopes: readonly string[]; now: Date },
): Promise<number> {
  const { environmentId, replaces, now } = by;
  const refused = (message: string) => fieldError('invalid_body', ['replaces'], message);
  const scopes = new Set(by.scopes);
  if (!holdsScope(scopes, 'records:read') && !holdsScope(scopes, 'records:write'))
    throw refused('needs records:read or records:write among the scopes of the new key');
  const [found] = await tx.query<{ firstKeyId: number }>(
    `select coalesce(first_key_id, id) as "firstKeyId"
     from api_key
     where id = $1 and environment_id = $2
     for update`,
    [replaces, environmentId],
  );
  if (found === undefined) throw refused(`is not the ID of a key of this environment`);
  const [successor] = await tx.query<{ id: number }>(
    `select id
     from api_key
     where environment_id = $1 and ${isLiving} and first_key_id = $3 and id > $4
     order by id desc
     limit 1`,
    [environmentId, now, found.firstKeyId, replaces],
  );
  if (successor !== undefined) throw refused(`is a key that key ${successor.id} has replaced: name that key`);
  return found.firstKeyId;
}

/**
 * The first key of a key, and whether a valid key owns the thing of `ownerKeyId`. `keyId` is undefined for a caller that is
 * not a key.
 */
export async function readOwner(
  q: Queryable,
  by: { environmentId: number; keyId: number | undefined; ownerKeyId: number | null; now: Date },
): Promise<{ firstKeyId: number | undefined; isOwned: boolean }> {
  const [row] = await q.query<{ firstKeyId: number | null; isOwned: boolean }>(
    `select
       (select coalesce(first_key_id, id) from api_key where id = $3 and environment_id = $1) as "firstKeyId",
       exists (
         select from api_key where environment_id = $1 and ${isLiving} and coalesce(first_key_id, id) = $4
       ) as "isOwned"`,
    [by.environmentId, by.now, by.keyId ?? null, by.ownerKeyId],
  );
  const { firstKeyId = null, isOwned = false } = row ?? {};
  return { firstKeyId: firstKeyId ?? undefined, isOwned };
}

/** The newest valid key of each of these owners; none for an owner without one. */
export async function listOwningKeys(
  q: Queryable,
  by: { environmentId: number; owners: readonly number[]; now: Date },
): Promise<Map<number, number>> {
  if (by.owners.length === 0) return new Map();
  const rows = await q.query<{ owner: number; id: number }>(
    `select coalesce(first_key_id, id) as owner, max(id) as id
     from api_key
     where environment_id = $1 and ${isLiving} and coalesce(first_key_id, id) = any($3::bigint[])
     group by owner`,
    [by.environmentId, by.now, by.owners],
  );
  return new Map(rows.map(({ owner, id }) => [owner, id]));
}
