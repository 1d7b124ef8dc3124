import { sql } from 'kysely';
import { ConfigError } from '../config/config.ts';
import { type Queryable, tables } from '../db/pool.ts';
import { auditKey, hashOf, keyColumns, readKeyRow, settingName } from './keys.ts';

/** The key of TRELLIS_SECRET_KEY: each start applies the setting, whatever was done to the key meanwhile. */

/**
 * Makes this secret a key with all scopes, without a limit and an expiry, also if it was another key of the environment,
 * was narrowed or revoked. Revokes the setting's earlier key, which a new key replaces (`keys.ts`). Nodes have those keys
 * cached for another second. Each change is in the audit log. Nodes that start with different secrets do this one after
 * another, so only one secret is valid.
 *
 * Throws ConfigError for a secret of another environment's key, and for one that another secret has replaced in the
 * setting: a node with the old setting would otherwise revive a secret that may have leaked.
 */
export async function putSettingKey(
  tx: Queryable,
  { environment, secret, at }: { environment: { id: number; name: string }; secret: string; at: Date },
): Promise<void> {
  // Waits for a node that is storing another secret; the following statements read its result.
  await tx.query('select from environment where id = $1 for no key update', [environment.id]);
  const hash = hashOf(secret);
  await proveNotReplaced(tx, { hash, environment });
  const whole = {
    name: settingName,
    scopes: ['*'],
    proxy_rules: '[]',
    expires_at: null,
    rate_limit: null,
    revoked_at: null,
    is_setting: true,
  };
  const replaced = await tx.run(
    tables
      .selectFrom('api_key')
      .select(sql<number>`coalesce(first_key_id, id)`.as('first_key_id'))
      .where('environment_id', '=', environment.id)
      .where('is_setting', '=', true)
      .where('revoked_at', 'is', null),
  );
  const [inserted] = await tx.run(
    tables
      .insertInto('api_key')
      .values({ ...whole, ...replaced[0], environment_id: environment.id, hash, hint: secret.slice(-4) })
      .onConflict((conflict) => conflict.column('hash').doNothing())
      .returning(keyColumns),
  );
  const [changed] = await tx.run(
    tables
      .updateTable('api_key')
      .set(whole)
      .where('hash', '=', hash)
      .where('environment_id', '=', environment.id)
      .where(
        sql<boolean>`(name, scopes, proxy_rules, expires_at, rate_limit, revoked_at, is_setting)
          is distinct from (${settingName}, array['*'], '[]'::jsonb, null::timestamptz, null::int, null::timestamptz, true)`,
      )
      .returning(keyColumns),
  );
  const note = { environmentId: environment.id, actor: 'service' };
  if (inserted) await auditKey(tx, { ...note, action: 'key.created', key: readKeyRow(inserted) });
  else if (changed) await auditKey(tx, { ...note, action: 'key.changed', key: readKeyRow(changed) });
  else await proveOwn(tx, { hash, environment });
  const revoked = await tx.run(
    tables
      .updateTable('api_key')
      .set({ revoked_at: at })
      .where('environment_id', '=', environment.id)
      .where('is_setting', '=', true)
      .where('hash', '<>', hash)
      .where('revoked_at', 'is', null)
      .returning(keyColumns),
  );
  for (const row of revoked) await auditKey(tx, { ...note, action: 'key.revoked', key: readKeyRow(row) });
}

async function proveNotReplaced(
  tx: Queryable,
  { hash, environment }: { hash: Buffer; environment: { id: number; name: string } },
): Promise<void> {
  const [young] = await tx.query<{ id: number }>(
    `select young.id
     from api_key as old
     join api_key as young on young.environment_id = old.environment_id
     where old.hash = $1
       and old.environment_id = $2
       and old.is_setting and old.revoked_at is not null
       and young.is_setting and young.revoked_at is null`,
    [hash, environment.id],
  );
  if (young === undefined) return;
  throw new ConfigError([
    `${settingName}: this secret was replaced by a newer secret. Set the newer secret on this node too, or, to use this ` +
      `secret again, revoke the newer key: trellis key revoke ${young.id} --environment ${environment.name}`,
  ]);
}

async function proveOwn(
  tx: Queryable,
  { hash, environment }: { hash: Buffer; environment: { id: number; name: string } },
): Promise<void> {
  const [own] = await tx.run(
    tables
      .selectFrom('api_key')
      .select('id')
      .where('hash', '=', hash)
      .where('environment_id', '=', environment.id),
  );
  if (own === undefined)
    throw new ConfigError([`the configured key of ${environment.name} belongs to another environment`]);
}
