import { type AuditEntry, writeAudit } from '../activity/audit.ts';
import { holdConnection } from '../connections/store.ts';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import { type DatasetName, ensureDataset, lockDataset } from './dataset.ts';
import { type DatasetView, getDataset } from './datasets.ts';

/** What stays as it is is undefined. */
export type DatasetSettings = {
  /** Names of fields that a save leaves out of its comparison unless it names others. */
  ignoreFields?: readonly string[] | undefined;
  /** Whether a change keeps the payload that stood before it. What was kept until now stays. */
  keepPrevious?: boolean | undefined;
  /** From 0 to 1: 1 never holds a deletion back. */
  massDeleteShare?: number | undefined;
  massDeleteNumber?: number | undefined;
};

/** Who changes them, in the words of the audit log. */
type Author = Pick<AuditEntry, 'environmentId' | 'actor' | 'target'>;

/**
 * Sets how a dataset compares records, what it keeps of their changes, and how it guards deletions; the dataset is made where nothing was saved yet. Stored
 * records stay as they are: each is compared by the new fields when it is saved next. Throws `unknown_connection` where
 * the connection was deleted meanwhile.
 */
export async function setDatasetSettings(
  db: Db,
  of: DatasetName,
  { by, ...settings }: DatasetSettings & { by?: Author },
): Promise<DatasetView> {
  const datasetId = await ensureDataset(db, of);
  return db.transaction(async (tx) => {
    await holdConnection(tx, of.connection);
    if ((await lockDataset(tx, datasetId)) === undefined) throw new AppError('unknown_connection');
    await tx.query(
      `update dataset
       set
         ignore_fields = coalesce($2::text[], ignore_fields),
         mass_delete_share = coalesce($3::double precision, mass_delete_share),
         mass_delete_number = coalesce($4::bigint, mass_delete_number),
         keep_previous = coalesce($5::boolean, keep_previous)
       where id = $1`,
      [
        datasetId,
        settings.ignoreFields === undefined ? null : [...new Set(settings.ignoreFields)].sort(),
        settings.massDeleteShare ?? null,
        settings.massDeleteNumber ?? null,
        settings.keepPrevious ?? null,
      ],
    );
    const dataset = await getDataset(tx, datasetId);
    if (by !== undefined) {
      await writeAudit(tx, {
        ...by,
        action: 'dataset.changed',
        details: {
          model: of.model,
          variant: of.variant,
          ignore_fields: dataset.ignoreFields.join(','),
          keep_previous: dataset.keepPrevious,
          mass_delete_share: dataset.massDeleteShare,
          mass_delete_number: dataset.massDeleteNumber,
        },
      });
    }
    return dataset;
  });
}
