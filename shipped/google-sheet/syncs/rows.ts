import { createSync, type SyncContext } from 'trellis';
import { z } from 'zod';
import { rightsOf, type SheetAccess } from '../sheet/api.ts';
import { fileVersion } from '../sheet/drive.ts';
import { fault } from '../sheet/faults.ts';
import { digestOf } from '../sheet/hash.ts';
import { merged } from '../sheet/identify.ts';
import { rowModel } from '../sheet/models.ts';
import { readValues } from '../sheet/read.ts';
import { readSettings, type SheetSettings, sheetMetadata } from '../sheet/settings.ts';
import { packState, type SheetState, unpackState } from '../sheet/state.ts';
import {
  changedIds,
  identifyRows,
  knownRows,
  type RowRecord,
  readTable,
  recordsOf,
  type Table,
} from '../sheet/table.ts';
import { type KnownTab, lookUpTab, type Taken, takeFormats, takeTagged } from '../sheet/take.ts';

const models = { Row: rowModel };
/** The result of the last run. */
const checkpoint = z.object({
  /** The digest of the settings. */
  settings: z.string(),
  /** The digest of everything that was read. */
  digest: z.string(),
  title: z.string(),
  cellCount: z.number(),
  /** The file's version in Drive; empty if Drive does not return it. */
  version: z.string(),
  /** The number of runs since then that found nothing changed and read no further. The name is in stored checkpoints. */
  believed: z.number(),
  /** The sheet has changed while its version has not: it has formulas such as NOW or IMPORTRANGE. */
  volatile: z.boolean(),
});
type Checkpoint = z.infer<typeof checkpoint>;
type Sync = SyncContext<typeof models, Record<string, unknown>, Checkpoint>;

/** Incremented when a release makes other records from the same sheet. */
const edition = 1;
/**
 * The number of consecutive runs that rely on the file's version, or on unchanged values. The next run reads everything again:
 * formats change without values, and recalculated values without a version.
 */
const maxUnchangedRuns = 11;
const namedInLog = 5;
/** The service's limits for an event. */
const maxChanges = 1_000;
const maxNameCharacters = 1_000;
/** The limit for the texts of one batch of records; a message may have 16 MB. */
const maxCharacters = 2_000_000;

export default createSync({
  description:
    'The rows of a tab: one record a row, with the header as field names. One variant for each spreadsheet and tab, ' +
    'configured in `sheets` of the connection metadata.',
  version: '1.0.0',
  frequency: 'every 5 minutes',
  // A connection without a sheet has nothing to sync.
  autoStart: false,
  models,
  metadata: sheetMetadata,
  checkpoint,
  exec: async (trellis) => {
    const chosen = readSettings(await trellis.getMetadata(), trellis.variant);
    if (chosen === undefined)
      return trellis.log(`No sheet is chosen for the variant ${trellis.variant}. Nothing is synced.`);
    if ('fault' in chosen) throw fault('invalid_settings', chosen.fault);
    const { settings } = chosen;
    const rights = await rightsOf(trellis);
    const last = await lastOf(trellis, settings);
    const isDue = last === undefined || last.believed >= maxUnchangedRuns;
    const unchangedRuns = isDue ? 0 : last.believed + 1;
    // Drive returns no version for some files that the Sheets API can read. It is requested again with the next full reading.
    const checksVersion = rights.canSeeFiles && (isDue || (!last.volatile && last.version !== ''));
    const version = checksVersion ? ((await fileVersion(trellis, settings.spreadsheetId)) ?? '') : '';
    const isSameVersion = version !== '' && version === last?.version;
    if (!isDue && isSameVersion) return trellis.saveCheckpoint({ ...last, believed: unchangedRuns });
    const unchanged = isDue ? undefined : last.digest;
    const taken = await take(trellis, { settings, rights, known: last, unchanged });
    if (taken === undefined) return trellis.saveCheckpoint({ ...last!, version, believed: unchangedRuns });
    await save(trellis, { settings, taken });
    const { title, cellCount, digest } = taken;
    const volatile = last !== undefined && (last.volatile || (isSameVersion && digest !== last.digest));
    const now = { settings: settingsDigest(settings), version, believed: 0 };
    await trellis.saveCheckpoint({ ...now, title, cellCount, digest, volatile });
  },
});

function settingsDigest(settings: SheetSettings): string {
  return digestOf(JSON.stringify([edition, settings]));
}

/** The checkpoint of the last run; undefined if the settings have changed since. */
async function lastOf(trellis: Sync, settings: SheetSettings): Promise<Checkpoint | undefined> {
  const read = checkpoint.safeParse(await trellis.getCheckpoint());
  return read.success && read.data.settings === settingsDigest(settings) ? read.data : undefined;
}

/** Reads the tab; undefined if its digest is `unchanged`. */
async function take(
  trellis: Sync,
  {
    settings,
    rights,
    known,
    unchanged,
  }: SheetAccess & { known: KnownTab | undefined; unchanged: string | undefined },
): Promise<Taken | undefined> {
  if (settings.identity === 'metadata') {
    const state = await stateOf(trellis, settings);
    const taken = await takeTagged(trellis, { settings, rights, known, state });
    const digest = digestOf(taken.digest);
    return digest === unchanged ? undefined : { ...taken, digest };
  }
  const { title, cellCount } = known ?? (await lookUpTab(trellis, { settings, rights }));
  const values = await readValues(trellis, { settings, rights, title, cellCount });
  return values.digest === unchanged ? undefined : takeFormats(trellis, { settings, rights, values });
}

async function stateOf(trellis: Sync, settings: SheetSettings): Promise<SheetState> {
  return unpackState(await trellis.getState(), settings);
}

async function save(
  trellis: Sync,
  { settings, taken }: { settings: SheetSettings; taken: Taken },
): Promise<void> {
  const state = await stateOf(trellis, settings);
  const { metadata } = taken;
  const table = readTable(taken.cells, { settings, state, ...(metadata && { metadata }) });
  await reportColumns(trellis, { settings, table });
  const identified = identifyRows(table, settings);
  if (identified.blankKeys > 0) {
    await warn(trellis, `${identified.blankKeys} rows have no key and are identified by their content.`);
  }
  if (identified.duplicateKeys.length > 0) {
    const { duplicateKeys: keys } = identified;
    const named = keys.slice(0, namedInLog).join(', ') + (keys.length > namedInLog ? ', …' : '');
    await warn(
      trellis,
      `${keys.length} keys are in more than one row (${named}). The IDs of the further rows are key~2, key~3.`,
    );
  }
  const rows = knownRows(table, identified);
  const { sheet } = state;
  const { columns, key } = table;
  const kept = { sheet, columns, headerRow: settings.headerRow, ...(key && { key }) };
  // Saved before the records, so that the next run has the ID of each row even if this run is interrupted. Removed rows stay
  // in the state until their deletion is done.
  const all = merged({ before: table.gone, now: rows, from: identified.from });
  const unsaved = new Set([...(state.unsaved ?? []), ...changedIds(table, identified)]);
  await trellis.saveState(packState({ ...kept, rows: all, unsaved }));
  const { kinds, timeZone } = taken;
  const records = recordsOf(table, { ids: identified.ids, kinds, timeZone });
  await saveAll(trellis, records).catch(async (error: Error & { code?: string }) => {
    // All records are saved; only the deletion of the others is held.
    if (error.code === 'mass_delete_held') {
      await trellis.saveState(packState({ ...kept, rows: all, unsaved: new Set() }));
    }
    throw error;
  });
  // An interrupted run has left a deletion tracking that counts its records as present, even if they were removed since.
  if (state.unsaved !== undefined) await saveAll(trellis, records);
  await trellis.saveState(packState({ ...kept, rows }));
}

/** Saves these records, and deletes all others. */
async function saveAll(trellis: Sync, records: readonly RowRecord[]): Promise<void> {
  await trellis.trackDeletesStart('Row');
  for (const portion of portionsOf(records)) await trellis.batchSave(portion, 'Row');
  await trellis.trackDeletesEnd('Row');
}

function* portionsOf(records: readonly RowRecord[]): Generator<RowRecord[]> {
  let portion: RowRecord[] = [];
  let characters = 0;
  for (const record of records) {
    let size = 0;
    for (const name in record.fields) {
      const value = record.fields[name];
      size += name.length + (typeof value === 'string' ? value.length : 20);
    }
    if (portion.length > 0 && (characters + size > maxCharacters || portion.length === 1_000)) {
      yield portion;
      [portion, characters] = [[], 0];
    }
    portion.push(record);
    characters += size;
  }
  if (portion.length > 0) yield portion;
}

/** Reports changes of the columns, before anything is deleted. */
async function reportColumns(
  trellis: Sync,
  { settings, table }: { settings: SheetSettings; table: Table },
): Promise<void> {
  if (table.headerIndex !== settings.headerRow - 1) {
    await warn(trellis, `The header row has moved to row ${table.headerIndex + 1}.`);
  }
  if (table.changes.length === 0) return;
  const changes = table.changes.slice(0, maxChanges).map(({ change, field, previous }) => ({
    ...{ change, field: field.slice(0, maxNameCharacters) },
    ...(previous !== undefined && { previous: previous.slice(0, maxNameCharacters) }),
  }));
  const texts = changes.map(({ change, field, previous }) =>
    previous === undefined ? `"${field}" was ${change}` : `"${previous}" was renamed to "${field}"`,
  );
  await warn(trellis, `The columns have changed: ${texts.join(', ')}.`);
  await trellis.schemaChanged('Row', changes);
}

function warn(trellis: Sync, message: string): Promise<void> {
  return trellis.log(message, { level: 'warn' });
}
