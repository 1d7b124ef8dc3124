import { hash as digest, randomBytes, timingSafeEqual } from 'node:crypto';
import { sql } from 'kysely';
import { ConfigError, isSecretKey } from '../config.ts';
import { first, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { Caller } from '../http/caller.ts';
import type { ProxyRule } from '../http/proxy-rule.ts';

/** How long a node may go on believing a key that another node revoked. */
const beliefMs = 1_000;

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
    proxyRules?: readonly ProxyRule[];
    secret?: string;
  },
): Promise<{ secret: string; isNew: boolean }> {
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
      })
      // A key that the operator chose is the same key at every start, also after another was chosen in between.
      .onConflict((conflict) =>
        conflict
          .column('hash')
          .doUpdateSet({ revoked_at: null })
          .where('api_key.environment_id', '=', given.environment.id),
      )
      .returning(sql<boolean>`xmax = 0`.as('is_new')),
  );
  const [key] = inserted;
  if (key === undefined)
    throw new ConfigError([`the key chosen for ${given.environment.name} is a key of another environment`]);
  return { secret, isNew: key.is_new };
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

/**
 * Who a secret key belongs to; throws `invalid_secret_key_format` or `unknown_account`. Answers are believed for
 * a second, so a revoked key is refused everywhere within that.
 */
export function createKeyReader(
  db: Queryable,
  now: () => number = Date.now,
): (secret: string) => Promise<Caller> {
  const believed = new Map<string, { caller: Caller; until: number }>();
  return async (secret) => {
    if (!isSecretKey(secret)) throw new AppError('invalid_secret_key_format');
    const cacheKey = digest('sha256', secret, 'base64');
    const known = believed.get(cacheKey);
    if (known !== undefined && known.until > now()) return known.caller;
    believed.delete(cacheKey);
    const caller = await findCaller(db, hashOf(secret));
    if (caller === undefined) throw new AppError('unknown_account');
    if (believed.size >= 10_000) believed.clear();
    believed.set(cacheKey, { caller, until: now() + beliefMs });
    return caller;
  };
}

async function findCaller(db: Queryable, hash: Buffer): Promise<Caller | undefined> {
  const row = first(
    await db.run(
      tables
        .selectFrom('api_key')
        .innerJoin('environment', 'environment.id', 'api_key.environment_id')
        .select([
          'api_key.id',
          'api_key.hash',
          'api_key.scopes',
          'api_key.proxy_rules',
          'environment.id as environment_id',
          'environment.name',
        ])
        .where('api_key.hash', '=', hash)
        .where('api_key.revoked_at', 'is', null),
    ),
  );
  if (row === undefined || !timingSafeEqual(row.hash, hash)) return undefined;
  return {
    kind: 'key',
    environmentId: row.environment_id,
    environment: row.name,
    keyId: row.id,
    scopes: new Set(row.scopes),
    proxyRules: row.proxy_rules as unknown as ProxyRule[],
  };
}

function hashOf(secret: string): Buffer {
  return digest('sha256', secret, 'buffer');
}
