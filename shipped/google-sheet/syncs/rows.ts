import { createSync, type SyncContext } from 'trellis';
import { z } from 'zod';
import { rightsOf } from '../sheet/api.ts';
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
import { type At, type KnownTab, lookUpTab, type Taken, takeFormats, takeTagged } from '../sheet/take.ts';

const models = { Row: rowModel };
/** What the last run ended with. */
const checkpoint = z.object({
  /** Of the settings that it ran with. */
  settings: z.string(),
  /** Of all that it read. */
  digest: z.string(),
  title: z.string(),
  cellCount: z.number(),
  /** The file's version in Drive; empty where Drive does not tell. */
  version: z.string(),
  /** The number of runs since then that found nothing changed and read no further. The name is in stored checkpoints. */
  believed: z.number(),
  /** The sheet has changed while its version has not: it has formulas such as NOW or IMPORTRANGE. */
  volatile: z.boolean(),
});
type Checkpoint = z.infer<typeof checkpoint>;
type Sync = SyncContext<typeof models, Record<string, unknown>, Checkpoint>;

/** Counts up where records are made in another way from the same sheet. */
const edition = 1;
/**
 * The number of consecutive runs that rely on the file's version, or on unchanged values. The next run reads everything again:
 * formats change without values, and recalculated values without a version.
 */
const maxUnchangedRuns = 11;
const namedInLog = 5;
/** What the service takes of an event. */
const maxChanges = 1_000;
const maxNameCharacters = 1_000;
/** Of the texts of records that are sent at once; a message may have 16 MB. */
const maxCharacters = 2_000_000;

export default createSync({
  description:
    'The rows of a tab: one record a row, by the header. A variant for each spreadsheet and tab, set up in ' +
    '`sheets` of the connection metadata.',
  version: '1.0.0',
  frequency: 'every 5 minutes',
  models,
  metadata: sheetMetadata,
  checkpoint,
  exec: async (trellis) => {
    const chosen = readSettings(await trellis.getMetadata(), trellis.variant);
    if (chosen === undefined) return trellis.log(`No sheet is chosen for the variant ${trellis.variant}.`);
    if ('fault' in chosen) throw fault('invalid_settings', chosen.fault);
    const { settings } = chosen;
    const rights = await rightsOf(trellis);
    const last = await lastOf(trellis, settings);
    const isDue = last === undefined || last.believed >= maxUnchangedRuns;
    const unchangedRuns = isDue ? 0 : last.believed + 1;
    // Drive does not tell of every file that the Sheets API reads: where it did not, it is asked again when all is taken again.
    const asksDrive = rights.canSeeFiles && (isDue || (!last.volatile && last.version !== ''));
    const version = asksDrive ? ((await fileVersion(trellis, settings.spreadsheetId)) ?? '') : '';
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

/** Undefined where it was made with other settings. */
async function lastOf(trellis: Sync, settings: SheetSettings): Promise<Checkpoint | undefined> {
  const read = checkpoint.safeParse(await trellis.getCheckpoint());
  return read.success && read.data.settings === settingsDigest(settings) ? read.data : undefined;
}

/** What the tab holds; undefined where its digest is that of an unchanged one. */
async function take(
  trellis: Sync,
  { settings, rights, known, unchanged }: At & { known: KnownTab | undefined; unchanged: string | undefined },
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
  await tell(trellis, { settings, table });
  const identified = identifyRows(table, settings);
  if (identified.blankKeys > 0) {
    await warn(trellis, `${identified.blankKeys} rows have no key: they are told apart by their content.`);
  }
  if (identified.duplicateKeys.length > 0) {
    const { duplicateKeys: keys } = identified;
    const named = keys.slice(0, namedInLog).join(', ') + (keys.length > namedInLog ? ', …' : '');
    await warn(
      trellis,
      `${keys.length} keys stand in more than one row (${named}): the others are key~2, key~3.`,
    );
  }
  const rows = knownRows(table, identified);
  const { sheet } = state;
  const { columns, key } = table;
  const kept = { sheet, columns, headerRow: settings.headerRow, ...(key && { key }) };
  // Before the records: whatever ends the run now, the next one knows which id it gave to which row. And those that are
  // gone stay known until their deletion was not held.
  const all = merged({ before: table.gone, now: rows, from: identified.from });
  const unsaved = new Set([...(state.unsaved ?? []), ...changedIds(table, identified)]);
  await trellis.saveState(packState({ ...kept, rows: all, unsaved }));
  const { kinds, timeZone } = taken;
  const records = recordsOf(table, { ids: identified.ids, kinds, timeZone });
  await saveAll(trellis, records).catch(async (error: Error & { code?: string }) => {
    // All of them are saved; what is held is their end.
    if (error.code === 'mass_delete_held') {
      await trellis.saveState(packState({ ...kept, rows: all, unsaved: new Set() }));
    }
    throw error;
  });
  // A run that did not end has left a tracking which counts as seen what it saw, and what may be gone since.
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

/** Says how the columns have changed, before anything is deleted. */
async function tell(
  trellis: Sync,
  { settings, table }: { settings: SheetSettings; table: Table },
): Promise<void> {
  if (table.headerIndex !== settings.headerRow - 1) {
    await warn(trellis, `The header has moved to row ${table.headerIndex + 1}.`);
  }
  if (table.changes.length === 0) return;
  const changes = table.changes.slice(0, maxChanges).map(({ change, field, previous }) => ({
    ...{ change, field: field.slice(0, maxNameCharacters) },
    ...(previous !== undefined && { previous: previous.slice(0, maxNameCharacters) }),
  }));
  const words = changes.map(({ change, field, previous }) =>
    previous === undefined ? `"${field}" was ${change}` : `"${previous}" is called "${field}"`,
  );
  await warn(trellis, `The columns have changed: ${words.join(', ')}.`);
  await trellis.schemaChanged('Row', changes);
}

function warn(trellis: Sync, message: string): Promise<void> {
  return trellis.log(message, { level: 'warn' });
}
