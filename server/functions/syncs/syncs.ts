/** Operations on syncs: find, create, pause, start, reset. `functions/runs/schedule.ts` owns their times. */
import { first, isViolationOf, type Queryable, type Tx } from '../../db/pool.ts';
import { AppError, fieldError } from '../../errors.ts';
import { type DatasetName, findDataset, lockDataset } from '../../records/dataset.ts';
import { emptyDataset } from '../../records/write/delete.ts';
import { allowMassDelete, closeTracking } from '../../records/write/track-deletes.ts';
import { removeCheckpoint } from '../context/checkpoint.ts';
import { removeState } from '../context/state.ts';
import { endRuns } from '../runs/runs.ts';
import { setNextTime } from '../runs/schedule.ts';

export type SyncName = { name: string; variant: string };

export type SyncPlace = {
  environmentId: number;
  integrationKey: string;
  /** Undefined: all connections of the integration. */
  connectionId: string | undefined;
};

export type Sync = {
  id: number;
  functionId: number;
  connection: number;
  connectionId: string;
  name: string;
  variant: string;
  models: string[];
};

const maxVariants = 100;

/**
 * Tables of syncs of live connections, and the condition of a place: its environment, integration and connection are $1 to $3.
 * Names and variants are $4 and $5.
 */
export const fromSyncs = `
  from sync
  join function on function.id = sync.function_id
  join function_version version on version.id = function.version_id
  join integration on integration.id = function.integration_id
  join connection on connection.id = sync.connection_id and connection.deleted_at is null`;
export const ofPlace = `
  integration.environment_id = $1
  and integration.key = $2
  and ($3::text is null or connection.connection_id = $3)`;
export const isNamed = '(function.name, sync.variant) in (select * from unnest($4::text[], $5::text[]))';

/**
 * Throws `unknown_provider_config` (400), `unknown_connection` (404), and `no_syncs_found` if the integration has no sync, or
 * lacks one of `names`.
 */
export async function requirePlace(
  q: Queryable,
  { environmentId, integrationKey, connectionId, names }: SyncPlace & { names: readonly string[] },
): Promise<void> {
  const found = first(
    await q.query<{ hasConnection: boolean; syncs: string[] }>(
      `select
         exists (
           select from connection
           where integration_id = integration.id and connection_id = $3 and deleted_at is null
         ) as "hasConnection",
         array(
           select name from function where integration_id = integration.id and kind = 'sync'
         ) as syncs
       from integration
       where environment_id = $1 and key = $2`,
      [environmentId, integrationKey, connectionId ?? null],
    ),
  );
  if (found === undefined) throw new AppError('unknown_provider_config', undefined, { status: 400 });
  if (connectionId !== undefined && !found.hasConnection) {
    throw new AppError('unknown_connection', undefined, { status: 404 });
  }
  const missing = names.find((name) => !found.syncs.includes(name));
  if (missing !== undefined)
    throw new AppError('no_syncs_found', `The integration has no sync "${missing}".`);
  if (found.syncs.length === 0) throw new AppError('no_syncs_found');
}

/** Creates missing syncs of the variant `base`, paused. */
export async function makeBaseSyncs(
  tx: Tx,
  { environmentId, integrationKey, connectionId, names }: SyncPlace & { names: readonly string[] },
): Promise<void> {
  await tx.query(
    `insert into sync (function_id, connection_id, state)
     select function.id, connection.id, 'paused'
     from integration
     join function on function.integration_id = integration.id and function.kind = 'sync'
     join connection on connection.integration_id = integration.id and connection.deleted_at is null
     where integration.environment_id = $1
       and integration.key = $2
       and ($3::text is null or connection.connection_id = $3)
       and (cardinality($4::text[]) = 0 or function.name = any($4))
       and not exists (
         select from sync
         where function_id = function.id and connection_id = connection.id and variant = 'base'
       )
     -- A function that is removed meanwhile gets no sync.
     for key share of function
     on conflict on constraint sync_unique do nothing`,
    [environmentId, integrationKey, connectionId ?? null, names],
  );
}

/** Locks the syncs with these names, or all if `wanted` is empty, in the order of all lockers. */
export function lockSyncs(
  tx: Tx,
  { environmentId, integrationKey, connectionId, wanted }: SyncPlace & { wanted: readonly SyncName[] },
): Promise<Sync[]> {
  return tx.query<Sync>(
    `select
       sync.id,
       function.id as "functionId",
       connection.id as connection,
       connection.connection_id as "connectionId",
       function.name,
       sync.variant,
       array(select jsonb_array_elements_text(version.definition -> 'models')) as models
     ${fromSyncs}
     where ${ofPlace}
       and (cardinality($4::text[]) = 0 or ${isNamed})
     order by sync.id
     for no key update of sync`,
    [
      environmentId,
      integrationKey,
      connectionId ?? null,
      wanted.map(({ name }) => name),
      wanted.map(({ variant }) => variant),
    ],
  );
}

export async function pauseSyncs(tx: Tx, { syncIds }: { syncIds: readonly number[] }): Promise<void> {
  await tx.query(`update sync set state = 'paused', next_at = null where id = any($1)`, [syncIds]);
  // No run follows the current one.
  await tx.query('delete from sync_again where sync_id = any($1)', [syncIds]);
  // Runs that have not begun, except for triggered ones. Runs for a notification wait some seconds.
  await tx.query(
    `delete from run
     where sync_id = any($1)
       and kind = 'sync'
       and state in ('waiting', 'running')
       and owner is null
       and attempt = 0
       and trigger in ('schedule', 'webhook')`,
    [syncIds],
  );
}

/** The syncs run at their next time, not immediately. */
export async function startSyncs(
  tx: Tx,
  { syncIds, at }: { syncIds: readonly number[]; at: Date },
): Promise<void> {
  await tx.query(`update sync set state = 'active' where id = any($1)`, [syncIds]);
  await setNextTime(tx, { syncIds, at });
}

/**
 * Resets syncs: ends their runs, and deletes their checkpoints, their delete tracking and their last success. `removed` also
 * deletes their records, without tombstones.
 */
export async function resetSyncs(
  tx: Tx,
  { syncs, records, at }: { syncs: readonly Sync[]; records: 'kept' | 'removed'; at: Date },
): Promise<void> {
  const syncIds = syncs.map(({ id }) => id);
  // First: after this, no such run writes anything.
  await endRuns(tx, { syncIds, at });
  await tx.query('update sync set last_succeeded_at = null where id = any($1)', [syncIds]);
  const datasetIds: number[] = [];
  for (const { connection, functionId, variant, models } of syncs) {
    await removeCheckpoint(tx, { connectionId: connection, functionId, variant });
    if (records === 'removed') await removeState(tx, { connectionId: connection, functionId, variant });
    for (const model of models) {
      const dataset = await findDataset(tx, { connection, model, variant });
      if (dataset !== undefined) datasetIds.push(dataset.id);
    }
  }
  // In this order all transactions lock several datasets.
  for (const id of datasetIds.sort((a, b) => a - b)) {
    if (records === 'removed') await emptyDataset(tx, id);
    else if ((await lockDataset(tx, id)) !== undefined) await closeTracking(tx, id);
  }
}

/** Allows held deletions of a sync once, each up to its number. Throws `no_delete_tracking` if none is held. */
export async function allowMassDeletes(
  tx: Tx,
  {
    sync: { connection, variant, models, name: sync },
    allowed,
  }: { sync: Sync; allowed: Record<string, number> },
): Promise<void> {
  const held: (DatasetName & { datasetId: number; count: number })[] = [];
  for (const [model, count] of Object.entries(allowed)) {
    if (!models.includes(model)) {
      const message = `The sync "${sync}" has no model "${model}".`;
      throw fieldError('invalid_body', ['allow_mass_delete', model], message);
    }
    const name = { connection, model, variant };
    held.push({ ...name, datasetId: (await findDataset(tx, name))?.id ?? 0, count });
  }
  // In this order all transactions lock several datasets.
  for (const one of held.sort((a, b) => a.datasetId - b.datasetId)) await allowMassDelete(tx, one);
}

/** Throws `unknown_sync`, `sync_variant_already_exists`, `resource_capped`. */
export async function addVariant(
  tx: Tx,
  { place, name, variant, at }: { place: SyncPlace; name: string; variant: string; at: Date },
): Promise<number> {
  const [base] = await lockSyncs(tx, { ...place, wanted: [{ name, variant: 'base' }] });
  if (base === undefined) throw new AppError('unknown_sync');
  const there = await tx.query(
    'select from sync where connection_id = $1 and function_id = $2 and variant <> $3',
    [base.connection, base.functionId, 'base'],
  );
  if (there.length >= maxVariants) throw new AppError('resource_capped');
  const made = await tx
    .query<{ id: number }>(
      'insert into sync (function_id, connection_id, variant) values ($1, $2, $3) returning id',
      [base.functionId, base.connection, variant],
    )
    .catch((error: unknown) => {
      if (isViolationOf(error, 'sync_unique')) throw new AppError('sync_variant_already_exists');
      throw error;
    });
  const id = made[0]!.id;
  await setNextTime(tx, { syncIds: [id], at });
  return id;
}

/** Ends the runs of the variant. Its records stay. Throws `unknown_sync`. */
export async function removeVariant(
  tx: Tx,
  { place, name, variant, at }: { place: SyncPlace; name: string; variant: string; at: Date },
): Promise<void> {
  const [sync] = await lockSyncs(tx, { ...place, wanted: [{ name, variant }] });
  if (sync === undefined) throw new AppError('unknown_sync');
  await endRuns(tx, { syncIds: [sync.id], at });
  await removeCheckpoint(tx, { connectionId: sync.connection, functionId: sync.functionId, variant });
  await tx.query('delete from sync where id = $1', [sync.id]);
}

/** Replaces the function's frequency; null restores it. Throws `unknown_sync`. */
export async function setFrequency(
  tx: Tx,
  of: { place: SyncPlace; wanted: SyncName; frequencyS: number | null; at: Date },
): Promise<void> {
  const [sync] = await lockSyncs(tx, { ...of.place, wanted: [of.wanted] });
  if (sync === undefined) throw new AppError('unknown_sync');
  await tx.query('update sync set frequency_s = $2 where id = $1', [sync.id, of.frequencyS]);
  await setNextTime(tx, { syncIds: [sync.id], at: of.at });
}
