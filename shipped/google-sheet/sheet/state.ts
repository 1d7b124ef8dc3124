/** What a sync keeps from one run to the next: columns and rows as they were, without their values. */
import type { Column } from './columns.ts';
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
};

type Packed = {
  version: 1;
  sheet: string;
  columns: Column[];
  key?: SheetState['key'];
  rows: [id: string, digest: string, signatures: string, key?: string][];
};

export function packState({ sheet, columns, rows, key }: SheetState): string {
  const packed: Packed = {
    version: 1,
    sheet,
    columns,
    ...(key && { key }),
    rows: rows.map(({ id, digest, signatures, key: own }) =>
      own === undefined ? [id, digest, signatures.join('')] : [id, digest, signatures.join(''), own],
    ),
  };
  return JSON.stringify(packed);
}

/** An empty one where there is none, or one of another tab or version. */
export function unpackState(text: string | null, { spreadsheetId, sheetId }: SheetSettings): SheetState {
  const sheet = `${spreadsheetId}/${sheetId}`;
  const packed = text === null ? undefined : (JSON.parse(text) as Packed);
  if (packed?.version !== 1 || packed.sheet !== sheet) return { sheet, columns: [], rows: [] };
  const { columns, key, rows } = packed;
  return {
    sheet,
    columns,
    ...(key && { key }),
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
