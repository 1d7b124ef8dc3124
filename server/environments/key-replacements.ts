import { first, type Queryable } from '../db/pool.ts';
import { fieldError } from '../errors.ts';
import { holdsScope } from '../http/caller.ts';

/**
 * Keys that replace each other. What belongs to a key belongs to every key that replaces it: all of them have the same first
 * key, and its ID stands for the owner. So an application changes its key without an interruption, both keys being good for a
 * while, and what the old key owned has an owner after the old key is revoked.
 */

/** Which keys are good at the time $2. */
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
  const found = first(
    await tx.query<{ firstKeyId: number }>(
      `select coalesce(first_key_id, id) as "firstKeyId"
       from api_key
       where id = $1 and environment_id = $2
       for update`,
      [replaces, environmentId],
    ),
  );
  if (found === undefined) throw refused(`is not the ID of a key of this environment`);
  const successor = first(
    await tx.query<{ id: number }>(
      `select id
       from api_key
       where environment_id = $1 and ${isLiving} and first_key_id = $3 and id > $4
       order by id desc
       limit 1`,
      [environmentId, now, found.firstKeyId, replaces],
    ),
  );
  if (successor !== undefined) throw refused(`is a key that key ${successor.id} has replaced: name that key`);
  return found.firstKeyId;
}

/** Whose a thing of this owner is, for a key: `keyId` is undefined for a caller that is not a key. */
export async function readOwner(
  q: Queryable,
  by: { environmentId: number; keyId: number | undefined; ownerKeyId: number | null; now: Date },
): Promise<{ firstKeyId: number | undefined; isOwned: boolean }> {
  const rows = await q.query<{ firstKeyId: number | null; isOwned: boolean }>(
    `select
       (select coalesce(first_key_id, id) from api_key where id = $3 and environment_id = $1) as "firstKeyId",
       exists (
         select from api_key where environment_id = $1 and ${isLiving} and coalesce(first_key_id, id) = $4
       ) as "isOwned"`,
    [by.environmentId, by.now, by.keyId ?? null, by.ownerKeyId],
  );
  const { firstKeyId = null, isOwned = false } = first(rows) ?? {};
  return { firstKeyId: firstKeyId ?? undefined, isOwned };
}

/** The newest good key of each of these owners; nothing for an owner without one. */
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
