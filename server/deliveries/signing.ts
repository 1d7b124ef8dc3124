/** Signatures of events, and the keys that make them: the table `signing_key`. */
import { createHash, createHmac, randomBytes } from 'node:crypto';
import type { Brand } from '../brand.ts';
import { type Queryable, type Tx, tables } from '../db/pool.ts';
import { environmentKey } from '../environments/store.ts';
import type { Vault } from '../vault.ts';

/** The prefix of a secret (Standard Webhooks, "Signature scheme"); 32 bytes in Base64 follow. */
const secretPrefix = 'whsec_';

/** The form of the body: the envelope, or the form that official clients read. */
type SignedFor = 'envelope' | 'compat';

/**
 * The headers that prove who sent a body and when.
 *
 * Standard Webhooks: `webhook-id`, `webhook-timestamp` and a `webhook-signature` for each secret, so that a receiver
 * may change from one to the next at any time. Also `X-<Brand>-Hmac-Sha256`: hex HMAC-SHA-256 of the body with the text of
 * the newest secret, which official clients verify. The older `X-<Brand>-Signature` (SHA-256 of secret and body) proves less,
 * since a hash can be extended; it is sent only in the form for official clients.
 */
export function signatureHeaders(of: {
  brand: Brand;
  eventId: string;
  nowMs: number;
  body: string;
  /** Newest first. */
  secrets: readonly [string, ...string[]];
  signedFor: SignedFor;
}): Record<string, string> {
  const { brand, eventId, body, secrets } = of;
  const timestamp = String(Math.floor(of.nowMs / 1000));
  const content = `${eventId}.${timestamp}.${body}`;
  const signatures = secrets.map((secret) => {
    const bytes = Buffer.from(secret.slice(secretPrefix.length), 'base64');
    return `v1,${createHmac('sha256', bytes).update(content).digest('base64')}`;
  });
  const [newest] = secrets;
  return {
    'webhook-id': eventId,
    'webhook-timestamp': timestamp,
    'webhook-signature': signatures.join(' '),
    [brand.header('Hmac-Sha256')]: createHmac('sha256', newest).update(body).digest('hex'),
    ...(of.signedFor === 'compat' && {
      [brand.header('Signature')]: createHash('sha256')
        .update(newest + body)
        .digest('hex'),
    }),
  };
}

/** A secret that signs the events of an environment. */
type SigningKey = {
  /** `whsec_...`, as receivers have it. */
  readonly secret: string;
  readonly createdAt: Date;
  /** When it stops signing; null for the newest key. */
  readonly retiresAt: Date | null;
};
export type SigningKeys = readonly [SigningKey, ...SigningKey[]];

type At = { environmentId: number; vault: Vault; now: Date };

/** More keys would make the header too long for receivers. */
const maxKeys = 5;

/** The keys that sign now, newest first. Creates the first one. Throws `not_found` if the environment does not exist. */
export async function signingKeys(db: Queryable, at: At): Promise<SigningKeys> {
  const found = await readKeys(db, at);
  if (isFilled(found)) return found;
  // Another node may create the first key at the same time: one of the two stays.
  await insertKey(db, at);
  const made = await readKeys(db, at);
  if (isFilled(made)) return made;
  throw new Error('A signing key was made and cannot be read.');
}

/**
 * Adds a new key. Earlier keys sign for `overlapMs` more, or until they retire anyway. Keys beyond the newest five are
 * deleted at once.
 */
export async function rotateSigningKey(tx: Tx, at: At & { overlapMs: number }): Promise<SigningKeys> {
  const { environmentId, now, overlapMs } = at;
  // Only one rotation of an environment at a time.
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
 * Adopts the keys of another installation, so that receivers keep theirs. False if the environment has a key already: it
 * keeps that alone.
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
