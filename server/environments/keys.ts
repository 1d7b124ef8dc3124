/**
 * Secret keys of an environment: making, listing, changing and revoking them.
 *
 * Owns: the table `api_key`. Does not own: who a secret belongs to on hot paths (`key-reader.ts`), what one key may do
 * to another (`key-reach.ts`), tickets (`tickets.ts`).
 */
import { hash as digest, randomBytes } from 'node:crypto';
import { sql } from 'kysely';
import { ConfigError } from '../config.ts';
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
  /** By the key itself or by a ticket made with it; behind by a minute at most. */
  lastUsedAt: Date | undefined;
};

/**
 * Creates a secret key with 256 random bits. It is returned once; the database holds its sha-256 alone. A chosen
 * secret that is a key of another environment is a ConfigError.
 */
export async function createKey(
  db: Queryable,
  given: {
    environment: { id: number; name: string };
    name: string;
    scopes: readonly string[];
    proxyRules?: readonly ProxyRule[] | undefined;
    expiresAt?: Date | undefined;
    secret?: string;
  },
): Promise<{ key: Key; secret: string; isNew: boolean }> {
  const secret = given.secret ?? `trs_${given.environment.name}_${randomBytes(32).toString('base64url')}`;
  const inserted = await db.run(
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
      })
      // A key that the operator chose is the same key at every start, also after another was chosen in between.
      .onConflict((conflict) =>
        conflict
          .column('hash')
          .doUpdateSet({ revoked_at: null, expires_at: null })
          .where('api_key.environment_id', '=', given.environment.id),
      )
      .returning([...columns, sql<boolean>`xmax = 0`.as('is_new')]),
  );
  const [row] = inserted;
  if (row === undefined)
    throw new ConfigError([`the key chosen for ${given.environment.name} is a key of another environment`]);
  return { key: fromRow(row), secret, isNew: row.is_new };
}

/** Those that were not revoked, expired ones too, oldest first. */
export async function listKeys(db: Queryable, environmentId: number): Promise<Key[]> {
  const rows = await db.run(
    tables
      .selectFrom('api_key')
      .select(columns)
      .where('environment_id', '=', environmentId)
      .where('revoked_at', 'is', null)
      .orderBy('id'),
  );
  return rows.map(fromRow);
}

/** Undefined where the environment has no such key any more. Nobody changes it until the transaction ends. */
export async function findKeyForUpdate(
  tx: Queryable,
  { id, environmentId }: { id: number; environmentId: number },
): Promise<Key | undefined> {
  const row = first(
    await tx.run(
      tables
        .selectFrom('api_key')
        .select(columns)
        .where('id', '=', id)
        .where('environment_id', '=', environmentId)
        .where('revoked_at', 'is', null)
        .forUpdate(),
    ),
  );
  return row && fromRow(row);
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
      })
      .where('id', '=', key.id)
      .where('environment_id', '=', environmentId),
  );
}

/**
 * Revokes a key, and with it every ticket that it made; answers what it was, undefined where there is no such key.
 * Other nodes believe it for a second yet.
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
        .returning(columns),
    ),
  );
  return row && fromRow(row);
}

/** Revokes all keys of this name but one; tells how many. Other nodes believe them for a second yet. */
export async function revokeOthers(
  db: Queryable,
  { environmentId, name, keep }: { environmentId: number; name: string; keep: string },
): Promise<number> {
  const revoked = await db.run(
    tables
      .updateTable('api_key')
      .set({ revoked_at: new Date() })
      .where('environment_id', '=', environmentId)
      .where('name', '=', name)
      .where('hash', '<>', hashOf(keep))
      .where('revoked_at', 'is', null)
      .returning('id'),
  );
  return revoked.length;
}

/** What the audit log keeps of a key. */
export function keyDetails(key: Key): Record<string, string | number> {
  return {
    id: key.id,
    scopes: key.scopes.join(','),
    ...(key.proxyRules.length > 0 && { proxy_rules: key.proxyRules.map(proxyRuleText).join('; ') }),
    ...(key.expiresAt !== undefined && { expires_at: key.expiresAt.toISOString() }),
  };
}

/** What is stored of a secret. */
export function hashOf(secret: string): Buffer {
  return digest('sha256', secret, 'buffer');
}

const columns = [
  'id',
  'name',
  'hint',
  'scopes',
  'proxy_rules',
  'created_at',
  'expires_at',
  'last_used_at',
] as const;

function fromRow(row: {
  id: number;
  name: string;
  hint: string;
  scopes: string[];
  proxy_rules: unknown;
  created_at: Date;
  expires_at: Date | null;
  last_used_at: Date | null;
}): Key {
  return {
    id: row.id,
    name: row.name,
    hint: row.hint,
    scopes: row.scopes,
    proxyRules: row.proxy_rules as ProxyRule[],
    createdAt: row.created_at,
    expiresAt: row.expires_at ?? undefined,
    lastUsedAt: row.last_used_at ?? undefined,
  };
}
