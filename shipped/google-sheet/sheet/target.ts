/** The tab of a variant of the sync `rows`, for actions that write to it. */
import type { ActionContext } from 'trellis';
import { rightsOf, type SheetAccess } from './api.ts';
import { fault } from './faults.ts';
import type { Identified } from './identify.ts';
import { readValues } from './read.ts';
import { readSettings } from './settings.ts';
import { type SheetState, unpackState } from './state.ts';
import { identifyRows, readTable, type Table } from './table.ts';
import { lookUpTab, type Taken, takeFormats, takeTagged } from './take.ts';

export type Target = SheetAccess & { state: SheetState };

/** Throws `invalid_settings` if no sheet is chosen, `missing_scopes` if the connection has no write access. */
export async function targetOf(trellis: ActionContext, variant: string): Promise<Target> {
  const chosen = readSettings(await trellis.getMetadata(), variant);
  if (chosen === undefined) throw fault('invalid_settings', `No sheet is chosen for the variant ${variant}.`);
  if ('fault' in chosen) throw fault('invalid_settings', chosen.fault);
  const { settings } = chosen;
  const rights = await rightsOf(trellis);
  if (!rights.canWrite) {
    throw fault(
      'missing_scopes',
      'The connection has no write access to spreadsheets. Reconnect the account and grant it.',
    );
  }
  const state = unpackState(await trellis.getState({ sync: 'rows', variant }), settings);
  return { settings, rights, state };
}

export type Seen = {
  taken: Taken;
  table: Table;
  identified: Identified;
  /** The IDs of records that may be out of date. */
  unsaved: ReadonlySet<string>;
};

/** Reads the whole tab and identifies its rows. */
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
