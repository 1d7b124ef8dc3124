/**
 * API keys in the file of keys that goes with backups of the data: the rights of each at that moment, so that a restored
 * database does not revive a key that was revoked since, or rights that a key has lost.
 */
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';
import type { Queryable } from '../db/pool.ts';
import { proxyRule } from '../http/auth/proxy-rule.ts';
import { commonReach, type Key, type KeyRow, type Reach, readKeyRow, revokeKey, updateKey } from './keys.ts';

export type BackedUpKey = z.output<typeof backedUpKey>;
/** A key in the file; with the SHA-256 of the secret, never the secret. */
export const backedUpKey = z.strictObject({
  hash: z.base64(),
  environment: z.string(),
  name: z.string(),
  scopes: z.array(z.string()),
  // A restore may leave one more rule than a request may have.
  proxy_rules: z.array(proxyRule),
  expires_at: z.iso.datetime().nullable(),
});

/** All keys of all environments that were not revoked. */
export async function listBackedUpKeys(db: Queryable): Promise<BackedUpKey[]> {
  const rows = await db.query<
    Omit<BackedUpKey, 'hash' | 'expires_at'> & { hash: Buffer; expires_at: Date | null }
  >(
    `select
       api_key.hash, environment.name as environment, api_key.name, api_key.scopes, api_key.proxy_rules,
       api_key.expires_at
     from api_key
     join environment on environment.id = api_key.environment_id
     where api_key.revoked_at is null
     order by api_key.id`,
  );
  return rows.map(({ hash, expires_at, ...rest }) => ({
    hash: hash.toString('base64'),
    ...rest,
    expires_at: expires_at?.toISOString() ?? null,
  }));
}

export type KeyOf = { key: Key; environmentId: number; environment: string };

/**
 * Takes from the keys of a restored database what they lacked when the file was made: revokes keys that are not in the
 * file, and leaves the others the rights that both the file and the data give them. Nothing is ever given back, so an
 * incomplete file does no harm. `lost` are keys that were made after the backup: their secrets exist only with their
 * holders, so they are not recreated.
 */
export async function restoreBackedUpKeys(
  tx: Queryable,
  { filed, madeAt, at }: { filed: readonly BackedUpKey[]; madeAt: Date; at: Date },
): Promise<{ revoked: KeyOf[]; changed: KeyOf[]; lost: BackedUpKey[] }> {
  const left = new Map(filed.map((key) => [key.hash, key]));
  const revoked: KeyOf[] = [];
  const changed: KeyOf[] = [];
  for (const { isOlder, hash, environment, ...row } of await listForUpdate(tx, madeAt)) {
    const { environment_id: environmentId } = row;
    const key = readKeyRow(row);
    const filedAs = left.get(hash.toString('base64'));
    left.delete(hash.toString('base64'));
    if (filedAs === undefined) {
      if (!isOlder) continue;
      await revokeKey(tx, { id: key.id, environmentId, at });
      revoked.push({ key, environmentId, environment });
      continue;
    }
    const narrowed = { ...key, ...commonReach(key, reachOf(filedAs)) };
    if (isDeepStrictEqual(narrowed, key)) continue;
    await updateKey(tx, { key: narrowed, environmentId });
    changed.push({ key: narrowed, environmentId, environment });
  }
  return { revoked, changed, lost: [...left.values()] };
}

function reachOf({ scopes, proxy_rules, expires_at }: BackedUpKey): Reach {
  return {
    scopes,
    proxyRules: proxy_rules,
    expiresAt: expires_at === null ? undefined : new Date(expires_at),
  };
}

type BackedUpRow = KeyRow & {
  hash: Buffer;
  environment_id: number;
  environment: string;
  /** Whether the key is older than the file. */
  isOlder: boolean;
};

async function listForUpdate(tx: Queryable, madeAt: Date): Promise<BackedUpRow[]> {
  return tx.query<BackedUpRow>(
    `select api_key.*, environment.name as environment, api_key.created_at <= $1 as "isOlder"
     from api_key
     join environment on environment.id = api_key.environment_id
     where api_key.revoked_at is null
     order by api_key.id
     for update of api_key`,
    [madeAt],
  );
}
