import { first, type Queryable, type Tx, tables } from '../db/pool.ts';
import { type EventSwitch, eventSwitches } from '../events/compat-types.ts';
import { deleteEndpoint, enableEndpoint, updateEndpoint } from './endpoints.ts';

/** An environment's settings for its events. */
export type EventSettings = {
  readonly addresses: Readonly<Record<AddressKind, string | undefined>>;
  readonly switches: Readonly<Record<EventSwitch, boolean>>;
  /** How long the earlier keys sign after a rotation. */
  readonly overlapHours: number;
};
type AddressKind = 'primary' | 'secondary';
type SettingsChange = {
  readonly switches: { readonly [S in EventSwitch]?: boolean | undefined };
  readonly overlapHours: number | undefined;
};

/** The settings of an environment without a row, as the defaults of the columns. */
const defaults = {
  ...(Object.fromEntries(eventSwitches.map((name) => [name, true])) as Record<EventSwitch, boolean>),
  signing_key_overlap_hours: 24,
};

/** The settings, or their defaults. */
export async function readSettings(db: Queryable, environmentId: number): Promise<EventSettings> {
  const row = first(
    await db.run(
      tables
        .selectFrom('event_settings')
        .select([...eventSwitches, 'signing_key_overlap_hours'])
        .where('environment_id', '=', environmentId),
    ),
  );
  const addresses = await db.query<{ kind: AddressKind; url: string }>(
    `select kind, url
     from endpoint
     where environment_id = $1 and kind in ('primary', 'secondary') and deleted_at is null`,
    [environmentId],
  );
  const urlOf = (kind: AddressKind) => addresses.find((address) => address.kind === kind)?.url;
  const { signing_key_overlap_hours: overlapHours, ...switches } = row ?? defaults;
  return { addresses: { primary: urlOf('primary'), secondary: urlOf('secondary') }, switches, overlapHours };
}

/** Undefined settings stay as they are. */
export async function writeSettings(
  tx: Tx,
  { environmentId, change }: { environmentId: number; change: SettingsChange },
): Promise<void> {
  const given = Object.entries(change.switches).filter(([, isOn]) => isOn !== undefined);
  const values = {
    ...(Object.fromEntries(given) as Partial<Record<EventSwitch, boolean>>),
    ...(change.overlapHours !== undefined && { signing_key_overlap_hours: change.overlapHours }),
  };
  if (Object.keys(values).length === 0) return;
  await tx.run(
    tables
      .insertInto('event_settings')
      .values({ environment_id: environmentId, ...values })
      .onConflict((conflict) => conflict.column('environment_id').doUpdateSet(values)),
  );
}

/**
 * Sets an address, which is an endpoint of its own kind. Without `url` the endpoint is deleted, with its waiting deliveries.
 * Setting the same address again enables a disabled endpoint.
 */
export async function setAddress(
  tx: Tx,
  by: { environmentId: number; kind: AddressKind; url: string | undefined; now: Date },
): Promise<void> {
  const { environmentId, kind, url, now } = by;
  const known = first(
    await tx.query<{ id: number; url: string }>(
      `select id, url
       from endpoint
       where environment_id = $1 and kind = $2 and deleted_at is null
       for no key update`,
      [environmentId, kind],
    ),
  );
  if (known === undefined) {
    if (url === undefined) return;
    await tx.query(
      `insert into endpoint (environment_id, kind, url)
       values ($1, $2, $3)
       on conflict (environment_id, kind) where kind in ('primary', 'secondary') and deleted_at is null
       do update set url = excluded.url`,
      [environmentId, kind, url],
    );
    return;
  }
  const at = { id: known.id, environmentId };
  if (url === undefined) return deleteEndpoint(tx, { at, now });
  if (url !== known.url) await updateEndpoint(tx, { at, change: { url }, now });
  await enableEndpoint(tx, { at, now });
}
