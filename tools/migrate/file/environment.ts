import { commandLine, writeCommandAudit } from '../../../server/activity/audit.ts';
import type { Db } from '../../../server/db/pool.ts';
import { disableEndpoint, insertEndpoint, listEndpoints } from '../../../server/deliveries/endpoints.ts';
import { readSettings, setAddress, writeSettings } from '../../../server/deliveries/settings.ts';
import { adoptSigningKeys } from '../../../server/deliveries/signing.ts';
import { connectInput, writeConnectSettings } from '../../../server/environments/connect-settings.ts';
import { auditKey, type KeyRow, readKeyRow } from '../../../server/environments/keys.ts';
import type { Environment } from '../../../server/environments/store.ts';
import { changeVariables, listVariables } from '../../../server/environments/variables.ts';
import { AppError } from '../../../server/errors.ts';
import { eventSwitches } from '../../../server/events/compat-types.ts';
import { listPolicies, setPolicy } from '../../../server/records/retention/policy.ts';
import type { Vault } from '../../../server/vault.ts';
import type { EntryOf } from './entries.ts';

/**
 * Settings of an environment, imported if none are here. Settings that are here stay; if they differ, a step of the report
 * says so.
 */
export type EnvironmentImport = { db: Db; vault: Vault; environment: Environment; now: Date };

/** This and the other imports return a step for the operator if a setting here stays and differs. */
export async function importSettings(
  { db, environment: { id, name }, now }: EnvironmentImport,
  given: EntryOf<'settings'>,
): Promise<string | undefined> {
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
      return isSame(await readSettings(tx, id), given)
        ? undefined
        : `The settings of ${name} were not changed.`;
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
    await writeCommandAudit(tx, { environmentId: id, action: 'settings.changed', target: name });
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

export async function importSigningKeys(
  { db, vault, environment: { id, name }, now }: EnvironmentImport,
  given: EntryOf<'signing_keys'>,
): Promise<string | undefined> {
  const keys = given.keys
    .map(({ secret, created_at: createdAt, retires_at: retiresAt }) => ({ secret, createdAt, retiresAt }))
    .filter(({ retiresAt }) => retiresAt === null || retiresAt > now);
  const isAdopted = await db.transaction(async (tx) => {
    if (!(await adoptSigningKeys(tx, { environmentId: id, vault, keys }))) return false;
    await writeCommandAudit(tx, { environmentId: id, action: 'signing_key.imported', target: name });
    return true;
  });
  if (isAdopted) return undefined;
  return `Events of ${name} are signed with the existing key of this installation. Give this key to the receivers.`;
}

export async function importVariable(
  { db, vault, environment: { id, name: environment } }: EnvironmentImport,
  { name, value }: EntryOf<'variable'>,
): Promise<string | undefined> {
  return db.transaction(async (tx) => {
    const known = (await listVariables(tx, { environmentId: id, vault })).find((one) => one.name === name);
    if (known !== undefined)
      return known.value === value
        ? undefined
        : `The variable ${name} of ${environment} already exists and was not changed.`;
    await changeVariables(tx, { environmentId: id, vault, set: [{ name, value }], remove: [], max: 500 });
    await writeCommandAudit(tx, {
      environmentId: id,
      action: 'variables.changed',
      target: environment,
      details: { set: name },
    });
    return undefined;
  });
}

export async function importEndpoint(
  { db, environment: { id, name }, now }: EnvironmentImport,
  given: EntryOf<'endpoint'>,
): Promise<string | undefined> {
  const { url, description, types, format = 'standard' } = given;
  return db.transaction(async (tx) => {
    await tx.query('select from environment where id = $1 for no key update', [id]);
    const known = await listEndpoints(tx, { environmentId: id, kinds: ['events'], limit: 1_000 });
    if (known.some((one) => one.url === url && one.types.join() === types.join())) return undefined;
    try {
      const made = await insertEndpoint(tx, { environmentId: id, url, description, types, format });
      if (given.is_disabled)
        await disableEndpoint(tx, { at: { id: made, environmentId: id }, cause: 'operator', now });
      await writeCommandAudit(tx, { environmentId: id, action: 'endpoint.created', target: String(made) });
      return undefined;
    } catch (error) {
      if (error instanceof AppError && error.code === 'too_many_endpoints')
        return `${name} has the maximum number of endpoints: ${url} was not added.`;
      throw error;
    }
  });
}

/**
 * A key whose hash is here is the same key, even if it is revoked: an installation has it once, in one environment.
 */
export async function importApiKey(
  { db, environment: { id, name } }: EnvironmentImport,
  given: EntryOf<'api_key'>,
): Promise<string | undefined> {
  return db.transaction(async (tx) => {
    const hash = Buffer.from(given.hash, 'base64');
    const [row] = await tx.query<KeyRow>(
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
      const state = known.isRevoked ? 'is revoked' : 'already exists';
      return `The API key "${given.name}" ${state} in the environment ${known.environment}, so it was not added to ${name}: create a new key.`;
    }
    const key = readKeyRow(row);
    await auditKey(tx, { environmentId: id, actor: commandLine, action: 'key.created', key });
    return undefined;
  });
}

export async function importRetention(
  { db, environment: { id, name } }: EnvironmentImport,
  given: EntryOf<'retention'>,
): Promise<string | undefined> {
  const integrationKey = given.unique_key ?? undefined;
  const policy = {
    pruneAfterDays: given.prune_after_days ?? null,
    removeTombstonesAfterDays: given.remove_tombstones_after_days ?? null,
    waitForConsumers: given.wait_for_consumers,
  };
  return db.transaction(async (tx) => {
    const known = (await listPolicies(tx, id)).find((one) => one.integrationKey === (integrationKey ?? null));
    const place = integrationKey ?? name;
    if (known !== undefined) {
      const isEqual =
        known.pruneAfterDays === policy.pruneAfterDays &&
        known.removeTombstonesAfterDays === policy.removeTombstonesAfterDays &&
        known.waitForConsumers === policy.waitForConsumers;
      return isEqual ? undefined : `The retention policy of ${place} already exists and was not changed.`;
    }
    await setPolicy(tx, { environmentId: id, integrationKey }, policy);
    await writeCommandAudit(tx, { environmentId: id, action: 'retention.set', target: place });
    return undefined;
  });
}
