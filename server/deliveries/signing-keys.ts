import { randomBytes } from 'node:crypto';
import { type Queryable, type Tx, tables } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import type { Vault } from '../vault.ts';
import { secretPrefix } from './signing.ts';

/** A secret that events of an environment are signed with. */
type SigningKey = {
  /** `whsec_...`: what its receivers hold. */
  readonly secret: string;
  readonly createdAt: Date;
  /** When it no longer signs; null for the newest. */
  readonly retiresAt: Date | null;
};
export type SigningKeys = readonly [SigningKey, ...SigningKey[]];

type At = { environmentId: number; vault: Vault; now: Date };

/** More would make the header longer than receivers take. */
const maxKeys = 5;

/** Those that sign now, newest first; the first one is made where there is none. Throws `not_found` without environment. */
export async function signingKeys(db: Queryable, at: At): Promise<SigningKeys> {
  const found = await readKeys(db, at);
  if (isFilled(found)) return found;
  // Another node may be making the first one too: one of them stays.
  await insertKey(db, at);
  const made = await readKeys(db, at);
  if (isFilled(made)) return made;
  throw new Error('A signing key was made and cannot be read.');
}

/**
 * A new key signs from now on; those before it sign beside it for `overlapMs` more, or for as long as they had. Keys
 * beyond the newest five go at once.
 */
export async function rotateSigningKey(tx: Tx, at: At & { overlapMs: number }): Promise<SigningKeys> {
  const { environmentId, now, overlapMs } = at;
  // Rotations of an environment come one after the other.
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
  await tx.query(
    `update signing_key
     set retires_at = least(retires_at, $2)
     where environment_id = $1`,
    [environmentId, new Date(now.getTime() + overlapMs)],
  );
  await insertKey(tx, at);
  await tx.query(
    `delete from signing_key
     where environment_id = $1
       and (
         retires_at <= $2
         or id in (
           select id
           from signing_key
           where environment_id = $1
           order by retires_at desc nulls first, created_at desc
           offset $3
         )
       )`,
    [environmentId, now, maxKeys],
  );
  return signingKeys(tx, at);
}

/**
 * Takes keys that sign elsewhere, so that receivers need none of their own. False where the environment has one already: it
 * keeps its own alone.
 */
export async function adoptSigningKeys(
  tx: Tx,
  { environmentId, vault, keys }: Pick<At, 'environmentId' | 'vault'> & { keys: readonly SigningKey[] },
): Promise<boolean> {
  await tx.query('select from environment where id = $1 for no key update', [environmentId]);
  const known = await tx.query('select from signing_key where environment_id = $1 limit 1', [environmentId]);
  if (known.length > 0) return false;
  const key = await environmentKey(tx, { environmentId, vault });
  for (const { secret, createdAt, retiresAt } of keys.slice(0, maxKeys)) {
    const id = crypto.randomUUID();
    await tx.query(
      `insert into signing_key (id, environment_id, secret, created_at, retires_at)
       values ($1, $2, $3, $4, $5)`,
      [id, environmentId, key.seal(secret, contextOf(id)), createdAt, retiresAt],
    );
  }
  return true;
}

async function insertKey(db: Queryable, { environmentId, vault, now }: At): Promise<void> {
  const id = crypto.randomUUID();
  const key = await environmentKey(db, { environmentId, vault });
  const secret = secretPrefix + randomBytes(32).toString('base64');
  await db.query(
    `insert into signing_key (id, environment_id, secret, created_at)
     values ($1, $2, $3, $4)
     on conflict (environment_id) where retires_at is null do nothing`,
    [id, environmentId, key.seal(secret, contextOf(id)), now],
  );
}

async function readKeys(db: Queryable, { environmentId, vault, now }: At): Promise<SigningKey[]> {
  const rows = await db.run(
    tables
      .selectFrom('signing_key')
      .select(['id', 'secret', 'created_at', 'retires_at'])
      .where('environment_id', '=', environmentId)
      .where(({ eb, or }) => or([eb('retires_at', 'is', null), eb('retires_at', '>', now)]))
      .orderBy('retires_at', (order) => order.desc().nullsFirst())
      .orderBy('created_at', 'desc'),
  );
  if (rows.length === 0) return [];
  const key = await environmentKey(db, { environmentId, vault });
  return rows.map((row) => ({
    secret: key.open(row.secret, contextOf(row.id)).toString('utf8'),
    createdAt: row.created_at,
    retiresAt: row.retires_at,
  }));
}

const contextOf = (id: string) => `signing key ${id}`;

function isFilled(keys: SigningKey[]): keys is [SigningKey, ...SigningKey[]] {
  return keys.length > 0;
}
