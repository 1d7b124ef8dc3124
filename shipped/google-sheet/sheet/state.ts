/** What a sync keeps from one run to the next: columns and rows as they were, without their values. */
import type { Column } from './columns.ts';
import { fault } from './faults.ts';
import { signatureLength } from './hash.ts';
import type { KnownRow } from './identify.ts';
import type { SheetSettings } from './settings.ts';

export type SheetState = {
  /** Which tab it is of. */
  sheet: string;
  columns: Column[];
  rows: KnownRow[];
  /** What the settings call the key column, and the header that it has by now. */
  key?: { configured: string; name: string };
  /** Which row the settings called the header. */
  headerRow?: number;
  /**
   * While a run saves records, and after one that did not end: the ids of rows whose records may not hold what the rows held.
   */
  unsaved?: ReadonlySet<string>;
};

/** As much as a function can keep. */
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
    throw fault('sheet_too_large', 'The tab has more rows than can be known from one run to the next.');
  }
  return text;
}

/** An empty one where there is none, or one of another tab or version. */
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
