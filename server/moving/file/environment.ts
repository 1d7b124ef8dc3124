import { writeAudit } from '../../activity/audit.ts';
import type { Db, Tx } from '../../db/pool.ts';
import { disableEndpoint, insertEndpoint, listEndpoints } from '../../deliveries/endpoints.ts';
import { readSettings, setAddress, writeSettings } from '../../deliveries/settings.ts';
import { adoptSigningKeys } from '../../deliveries/signing-keys.ts';
import { connectInput, writeConnectSettings } from '../../environments/connect-settings.ts';
import { type Key, noteKey, readKeyRow } from '../../environments/keys.ts';
import type { Environment } from '../../environments/store.ts';
import { changeVariables, listVariables } from '../../environments/variables.ts';
import { AppError } from '../../errors.ts';
import { eventSwitches } from '../../events/compat-types.ts';
import { listPolicies, setPolicy } from '../../records/policy.ts';
import type { Vault } from '../../vault.ts';
import type { EntryOf } from './entries.ts';

/**
 * What belongs to an environment as a whole, taken over where nothing of it is here. What is here stays as it is, and is told
 * where it differs.
 */
export type Taking = { db: Db; vault: Vault; environment: Environment; now: Date };

/** Undefined: taken over, or the same as here. Else what stays as it is here, for a person. */
type Left = string | undefined;

export async function takeSettings(
  { db, environment: { id, name }, now }: Taking,
  given: EntryOf<'settings'>,
): Promise<Left> {
  return db.transaction(async (tx) => {
    const [known] = await tx.query<{ isSet: boolean }>(
      `select
         exists (select from event_settings where environment_id = $1)
         or exists (select from connect_settings where environment_id = $1)
         or exists (
           select from endpoint
           where environment_id = $1 and kind in ('primary', 'secondary') and deleted_at is null
         ) as "isSet"`,
      [id],
    );
    if (known?.isSet)
      return isSame(await readSettings(tx, id), given) ? undefined : `The settings of ${name} stay.`;
    const switches = Object.fromEntries(
      eventSwitches.flatMap((one) => (given.switches[one] === undefined ? [] : [[one, given.switches[one]]])),
    );
    await writeSettings(tx, { environmentId: id, change: { switches, overlapHours: given.overlap_hours } });
    for (const [kind, url] of [
      ['primary', given.webhook_url] as const,
      ['secondary', given.webhook_url_secondary] as const,
    ])
      if (url !== null) await setAddress(tx, { environmentId: id, kind, url, now });
    await writeConnectSettings(tx, { environmentId: id, change: connectInput.parse(given.connect) });
    await note(tx, { id, action: 'settings.changed', target: name });
    return undefined;
  });
}

function isSame(known: Awaited<ReturnType<typeof readSettings>>, given: EntryOf<'settings'>): boolean {
  const { addresses, switches, overlapHours } = known;
  return (
    (addresses.primary ?? null) === given.webhook_url &&
    (addresses.secondary ?? null) === given.webhook_url_secondary &&
    overlapHours === given.overlap_hours &&
    eventSwitches.every((one) => switches[one] === given.switches[one])
  );
}

export async function takeSigningKeys(
  { db, vault, environment: { id, name }, now }: Taking,
  given: EntryOf<'signing_keys'>,
): Promise<Left> {
  const keys = given.keys
    .map(({ secret, created_at: createdAt, retires_at: retiresAt }) => ({ secret, createdAt, retiresAt }))
    .filter(({ retiresAt }) => retiresAt === null || retiresAt > now);
  const isTaken = await db.transaction(async (tx) => {
    if (!(await adoptSigningKeys(tx, { environmentId: id, vault, keys }))) return false;
    await note(tx, { id, action: 'signing_key.imported', target: name });
    return true;
  });
  if (isTaken) return undefined;
  return `Events of ${name} are signed with the key that is here, which its receivers must have.`;
}

export async function takeVariable(
  { db, vault, environment: { id, name: environment } }: Taking,
  { name, value }: EntryOf<'variable'>,
): Promise<Left> {
  return db.transaction(async (tx) => {
    const known = (await listVariables(tx, { environmentId: id, vault })).find((one) => one.name === name);
    if (known !== undefined)
      return known.value === value
        ? undefined
        : `The variable ${name} of ${environment} stays as it is here.`;
    await changeVariables(tx, { environmentId: id, vault, set: [{ name, value }], remove: [], max: 500 });
    await note(tx, { id, action: 'variables.changed', target: environment, details: { set: name } });
    return undefined;
  });
}

export async function takeEndpoint(
  { db, environment: { id, name }, now }: Taking,
  given: EntryOf<'endpoint'>,
): Promise<Left> {
  const { url, description, types } = given;
  return db.transaction(async (tx) => {
    await tx.query('select from environment where id = $1 for no key update', [id]);
    const known = await listEndpoints(tx, { environmentId: id, kinds: ['events'], limit: 1_000 });
    if (known.some((one) => one.url === url && one.types.join() === types.join())) return undefined;
    try {
      const made = await insertEndpoint(tx, { environmentId: id, url, description, types });
      if (given.is_disabled)
        await disableEndpoint(tx, { at: { id: made, environmentId: id }, cause: 'operator', now });
      await note(tx, { id, action: 'endpoint.created', target: String(made) });
      return undefined;
    } catch (error) {
      if (error instanceof AppError && error.code === 'too_many_endpoints')
        return `${name} has as many endpoints as it may: ${url} is not among them.`;
      throw error;
    }
  });
}

/**
 * A key whose hash is here already is that key, whatever became of it here: an installation has it once, in one environment.
 */
export async function takeApiKey(
  { db, environment: { id, name } }: Taking,
  given: EntryOf<'api_key'>,
): Promise<Left> {
  return db.transaction(async (tx) => {
    const hash = Buffer.from(given.hash, 'base64');
    const [row] = await tx.query<Parameters<typeof readKeyRow>[0]>(
      `insert into api_key (environment_id, name, hash, hint, scopes, proxy_rules, expires_at, rate_limit)
       values ($1, $2, $3, $4, $5, $6, $7, $8)
       on conflict on constraint api_key_hash_unique do nothing
       returning *`,
      [
        id,
        given.name,
        hash,
        given.hint,
        given.scopes,
        JSON.stringify(given.proxy_rules),
        given.expires_at,
        given.rate_limit,
      ],
    );
    if (row === undefined) {
      const [known] = await tx.query<{ environment: string; isRevoked: boolean }>(
        `select environment.name as environment, api_key.revoked_at is not null as "isRevoked"
         from api_key
         join environment on environment.id = api_key.environment_id
         where api_key.hash = $1`,
        [hash],
      );
      if (known === undefined || (known.environment === name && !known.isRevoked)) return undefined;
      const standing = `is ${known.isRevoked ? 'revoked here' : 'here'}, in the environment ${known.environment}`;
      return `The API key "${given.name}" ${standing}, so it does not open ${name}: make another one for that.`;
    }
    const key: Key = readKeyRow(row);
    await noteKey(tx, { environmentId: id, actor: 'command line', action: 'key.created', key });
    return undefined;
  });
}

export async function takeRetention(
  { db, environment: { id, name } }: Taking,
  given: EntryOf<'retention'>,
): Promise<Left> {
  const integrationKey = given.unique_key ?? undefined;
  const policy = {
    pruneAfterDays: given.prune_after_days ?? undefined,
    removeTombstonesAfterDays: given.remove_tombstones_after_days ?? undefined,
    waitForConsumers: given.wait_for_consumers,
  };
  return db.transaction(async (tx) => {
    const known = (await listPolicies(tx, id)).find((one) => one.integrationKey === integrationKey);
    const place = integrationKey ?? name;
    if (known !== undefined) {
      const isEqual =
        known.pruneAfterDays === policy.pruneAfterDays &&
        known.removeTombstonesAfterDays === policy.removeTombstonesAfterDays &&
        known.waitForConsumers === policy.waitForConsumers;
      return isEqual ? undefined : `The retention of ${place} stays as it is here.`;
    }
    await setPolicy(tx, { environmentId: id, integrationKey }, policy);
    await note(tx, { id, action: 'retention.set', target: place });
    return undefined;
  });
}

function note(
  tx: Tx,
  { id, ...entry }: { id: number; action: string; target: string; details?: Record<string, string> },
): Promise<void> {
  return writeAudit(tx, { environmentId: id, actor: 'command line', ...entry });
}
