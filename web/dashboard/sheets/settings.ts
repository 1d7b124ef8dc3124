/** The sheets in the metadata of a connection, as the shipped functions read them (`shipped/google-sheet`). */

/** The provider whose functions read sheets. */
export const sheetProvider = 'google-sheet';
export const rowsSync = 'rows';
export const rowModel = 'Row';

const identities = ['key', 'metadata', 'content'] as const;
export type Identity = (typeof identities)[number];

/** One variant of the sync: a tab of a spreadsheet. */
export type SheetSettings = {
  spreadsheetId: string;
  /** The ID of the tab. */
  sheetId: number;
  /** Starts at 1. */
  headerRow: number;
  identity: Identity;
  keyColumn?: string;
  /** The titles of the spreadsheet and the tab when they were chosen, for display only. */
  title?: string;
  tab?: string;
};
export type ChosenSheet = SheetSettings & { variant: string };

/** The sheets of a connection by variant, without invalid entries. */
export function chosenOf(metadata: Record<string, unknown>): ChosenSheet[] {
  const { sheets } = metadata;
  if (!isObject(sheets)) return [];
  return Object.entries(sheets)
    .flatMap(([variant, entry]) => (isSettings(entry) ? [{ ...withDefaults(entry), variant }] : []))
    .sort((a, b) => Number(b.variant === 'base') - Number(a.variant === 'base') || compare(a, b));
}

const compare = (a: ChosenSheet, b: ChosenSheet) => a.variant.localeCompare(b.variant);

type Stored = Pick<SheetSettings, 'spreadsheetId' | 'sheetId'> & Partial<SheetSettings>;

function isSettings(entry: unknown): entry is Stored {
  return isObject(entry) && typeof entry.spreadsheetId === 'string' && typeof entry.sheetId === 'number';
}

function withDefaults(entry: Stored): SheetSettings {
  return { ...entry, headerRow: entry.headerRow ?? 1, identity: entry.identity ?? 'content' };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The name of a sheet on a page. */
export function nameOf({ title, tab, spreadsheetId }: SheetSettings): string {
  return [title || spreadsheetId, tab].filter(Boolean).join(' · ');
}

/** The valid names of a variant. */
export const variantPattern = /^[A-Za-z0-9_-]{1,255}$/;

/**
 * An unused name for a sheet's variant: `base` for the first sheet, so that a reader of the records needs no variant,
 * and the tab's name for the others.
 */
export function freeVariant(
  { title, tab }: { title: string; tab: string },
  taken: ReadonlySet<string>,
): string {
  if (!taken.has('base')) return 'base';
  const stem = plain(tab) || plain(title) || 'sheet';
  for (let number = 1; ; number += 1) {
    const name = number === 1 ? stem : `${stem}-${number}`;
    if (!taken.has(name)) return name;
  }
}

function plain(text: string): string {
  const ascii = text.normalize('NFKD').replace(/\p{M}/gu, '').toLowerCase();
  return ascii
    .replace(/[^a-z0-9]+/g, '-')
    .replace(/^-+|-+$/g, '')
    .slice(0, 60);
}

/** Whether the records keep their IDs, which depend on the identification of rows. */
export function keepsIds(before: SheetSettings, after: SheetSettings): boolean {
  return before.identity === after.identity && before.keyColumn === after.keyColumn;
}
