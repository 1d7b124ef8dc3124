/**
 * Secret keys of an environment: making, listing, changing and revoking them.
 *
 * Owns: the table `api_key`. Does not own: who a secret belongs to on hot paths (`key-reader.ts`), what one key may do
 * to another (`key-reach.ts`), keys that replace each other (`key-replacements.ts`), the key of the setting (`setting-key.ts`),
 * tickets (`tickets.ts`).
 */
import { hash as digest, randomBytes } from 'node:crypto';
import { writeAudit } from '../activity/audit.ts';
import { first, type Queryable, tables } from '../db/pool.ts';
import { type ProxyRule, proxyRuleText } from '../http/proxy-rule.ts';

/** What is known of a key; never the secret. */
export type Key = {
  id: number;
  name: string;
  /** The last four characters of the secret. */
  hint: string;
  scopes: readonly string[];
  proxyRules: readonly ProxyRule[];
  createdAt: Date;
  expiresAt: Date | undefined;
  /** Calls a minute; undefined: as many as TRELLIS_RATE_LIMIT says. */
  rateLimit: number | undefined;
  /** By the key itself or by a ticket made with it; behind by a minute at most. */
  lastUsedAt: Date | undefined;
  /** It stands, or stood once, in TRELLIS_SECRET_KEY. */
  isSetting: boolean;
};

/** Creates a secret key with 256 random bits. It is returned once; the database holds its sha-256 alone. */
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

/** Those that were not revoked, expired ones too, oldest first. */
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

/** Stores what may be changed of a key. Other nodes go by what was before for a second yet. */
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
  const row = first(
    await tx.run(
      tables
        .updateTable('api_key')
        .set({ revoked_at: at })
        .where('id', '=', id)
        .where('environment_id', '=', environmentId)
        .where('revoked_at', 'is', null)
        .returning(keyColumns),
    ),
  );
  return row && readKeyRow(row);
}

/** Writes a change of a key into the audit log; call it inside the transaction of the change. */
export async function noteKey(
  tx: Queryable,
  {
    key,
    replaces,
    ...entry
  }: {
    action: 'key.created' | 'key.changed' | 'key.revoked';
    key: Key;
    /** The key that a new one replaces. */
    replaces?: number | undefined;
    environmentId: number;
    actor: string;
  },
): Promise<void> {
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

/** What is stored of a secret. */
export function hashOf(secret: string): Buffer {
  return digest('sha256', secret, 'buffer');
}

/** What `readKeyRow` reads. */
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

/** A key out of its row. */
export function readKeyRow(row: {
  id: number;
  name: string;
  hint: string;
  scopes: string[];
  proxy_rules: unknown;
  created_at: Date;
  expires_at: Date | null;
  rate_limit: number | null;
  last_used_at: Date | null;
  is_setting: boolean;
}): Key {
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
