/** The tab that a variant of the sync `rows` follows, as an action that writes to it sees it. */
import type { ActionContext } from 'trellis';
import { type Rights, rightsOf } from './api.ts';
import { fault } from './faults.ts';
import type { Identified } from './identify.ts';
import { readValues } from './read.ts';
import { readSettings, type SheetSettings } from './settings.ts';
import { type SheetState, unpackState } from './state.ts';
import { identifyRows, readTable, type Table } from './table.ts';
import { lookUpTab, type Taken, takeFormats, takeTagged } from './take.ts';

export type Target = { settings: SheetSettings; rights: Rights; state: SheetState };

/** Throws `invalid_settings` where no sheet is chosen, `missing_scopes` where it may not be written. */
export async function targetOf(trellis: ActionContext, variant: string): Promise<Target> {
  const chosen = readSettings(await trellis.getMetadata(), variant);
  if (chosen === undefined) throw fault('invalid_settings', `No sheet is chosen for the variant ${variant}.`);
  if ('fault' in chosen) throw fault('invalid_settings', chosen.fault);
  const { settings } = chosen;
  const rights = await rightsOf(trellis);
  if (!rights.canWrite) {
    throw fault('missing_scopes', 'The connection was not granted the right to write to spreadsheets.');
  }
  const state = unpackState(await trellis.getState({ sync: 'rows', variant }), settings);
  return { settings, rights, state };
}

export type Seen = {
  taken: Taken;
  table: Table;
  identified: Identified;
  /** Ids of records that may not hold what was read last. */
  unsaved: ReadonlySet<string>;
};

/** The whole tab now, and which record each of its rows is. */
export async function look(trellis: ActionContext, { settings, rights, state }: Target): Promise<Seen> {
  const taken = await take(trellis, { settings, rights, state });
  const { metadata } = taken;
  const table = readTable(taken.cells, { settings, state, ...(metadata && { metadata }) });
  const identified = identifyRows(table, settings);
  return { taken, table, identified, unsaved: state.unsaved ?? new Set() };
}

async function take(trellis: ActionContext, { state, ...at }: Target): Promise<Taken> {
  if (at.settings.identity === 'metadata') return takeTagged(trellis, { ...at, state, known: undefined });
  const values = await readValues(trellis, { ...at, ...(await lookUpTab(trellis, at)) });
  return takeFormats(trellis, { ...at, values });
}
