/** The state of a sync between two runs: the columns and rows of the last run, without their values. */
import type { Column } from './columns.ts';
import { fault } from './faults.ts';
import { signatureLength } from './hash.ts';
import type { KnownRow } from './identify.ts';
import type { SheetSettings } from './settings.ts';

export type SheetState = {
  /** The spreadsheet and the tab, as `spreadsheetId/sheetId`. */
  sheet: string;
  columns: Column[];
  rows: KnownRow[];
  /** The key column in the settings, and its current name. */
  key?: { configured: string; name: string };
  /** The header row in the settings of the last run. */
  headerRow?: number;
  /** During a save, and after a run that was interrupted: the IDs of rows whose records may be out of date. */
  unsaved?: ReadonlySet<string>;
};

/** The size limit of a function's state. */
const maxCharacters = 64 * 1024 * 1024;

type Packed = {
  version: 1;
  sheet: string;
  columns: Column[];
  key?: SheetState['key'];
  headerRow?: number;
  unsaved?: string[];
  rows: [id: string, digest: string, signatures: string, key?: string][];
};

/** Throws `sheet_too_large`. */
export function packState({ sheet, columns, rows, key, headerRow, unsaved }: SheetState): string {
  const packed: Packed = {
    version: 1,
    sheet,
    columns,
    ...(key && { key }),
    ...(headerRow !== undefined && { headerRow }),
    ...(unsaved && { unsaved: [...unsaved] }),
    rows: rows.map(({ id, digest, signatures, key: own }) =>
      own === undefined ? [id, digest, signatures.join('')] : [id, digest, signatures.join(''), own],
    ),
  };
  const text = JSON.stringify(packed);
  if (text.length * 3 > maxCharacters && Buffer.byteLength(text) > maxCharacters) {
    throw fault(
      'sheet_too_large',
      'The tab has too many rows: their hashes do not fit into the 64 MB that a sync can store between runs.',
    );
  }
  return text;
}

/** The stored state; an empty state if there is none, or if it is of another tab or version. */
export function unpackState(text: string | null, { spreadsheetId, sheetId }: SheetSettings): SheetState {
  const sheet = `${spreadsheetId}/${sheetId}`;
  const packed = text === null ? undefined : (JSON.parse(text) as Packed);
  if (packed?.version !== 1 || packed.sheet !== sheet) {
    return { sheet, columns: [], rows: [], ...(packed?.unsaved && { unsaved: new Set() }) };
  }
  const { columns, key, rows, headerRow, unsaved } = packed;
  return {
    sheet,
    columns,
    ...(key && { key }),
    ...(headerRow !== undefined && { headerRow }),
    ...(unsaved && { unsaved: new Set(unsaved) }),
    rows: rows.map(([id, digest, signatures, own]) => ({
      ...{ id, digest, signatures: cut(signatures) },
      ...(own !== undefined && { key: own }),
    })),
  };
}

function cut(signatures: string): string[] {
  const parts: string[] = [];
  for (let at = 0; at < signatures.length; at += signatureLength) {
    parts.push(signatures.slice(at, at + signatureLength));
  }
  return parts;
}
