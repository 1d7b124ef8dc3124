/** Assigns a record ID to each row of a sheet, stable from one run to the next. Pure. */
import { digestOf } from './hash.ts';
import { type MatchRow, matchRows } from './match-rows.ts';
import type { Identity } from './settings.ts';

/** A row of the last run, or a removed row whose deletion is held. `key` if it differs from the ID. */
export type KnownRow = MatchRow & { id: string; key?: string };
/**
 * A row of this run. `whole` is the digest of all its cells. `key` and `metadataId` if the identity uses them; an empty key
 * is ''.
 */
export type SheetRow = MatchRow & { whole: string; key?: string; metadataId?: number };

export type Identified = {
  /** The ID of each row, without duplicates. */
  ids: string[];
  /** For each row its index among the previous rows; -1 for a new row. */
  from: Int32Array;
  /** Keys of more than one row. */
  duplicateKeys: string[];
  /** The number of rows without a key. */
  blankKeys: number;
};

const maxIdCharacters = 255;

export function identify(
  identity: Identity,
  { before, now }: { before: readonly KnownRow[]; now: readonly SheetRow[] },
): Identified {
  if (identity === 'key') return byKey(before, now);
  return identity === 'metadata' ? byMetadata(before, now) : byContent(before, now);
}

function byContent(before: readonly KnownRow[], now: readonly SheetRow[]): Identified {
  const from = matchRows(before, now);
  const taken = new Set(before.map(({ id }) => id));
  const ids = now.map((row, at) => before[from[at]!]?.id ?? freeId(row.whole, taken));
  return { ids, from, duplicateKeys: [], blankKeys: 0 };
}

function byMetadata(before: readonly KnownRow[], now: readonly SheetRow[]): Identified {
  const places = new Map(before.map(({ id }, of) => [id, of]));
  const ids = now.map(({ metadataId }) => String(metadataId));
  const from = Int32Array.from(ids, (id) => places.get(id) ?? -1);
  return { ids, from, duplicateKeys: [], blankKeys: 0 };
}

/**
 * The ID of the first row with a key is the key. Further rows get `key~2`, `key~3`; their content decides which is which, so
 * that sorting changes no ID. Rows without a key are identified by content.
 */
function byKey(before: readonly KnownRow[], now: readonly SheetRow[]): Identified {
  const groups = Map.groupBy(now.keys(), (at) => keyOf(now[at]!.key ?? ''));
  const known = Map.groupBy(before.keys(), (of) => before[of]!.key ?? before[of]!.id);
  const ids: string[] = Array.from({ length: now.length });
  const from = new Int32Array(now.length).fill(-1);
  const taken = new Set<string>();
  const late: number[] = [];
  for (const [key, rows] of groups) {
    const there = known.get(key) ?? [];
    pairGroup({ rows, there, isKey: key !== '' }, { before, now, from });
    for (const at of rows) {
      const id = before[from[at]!]?.id;
      // An ID that is also a key belongs to the row with this key.
      const isUsable = id !== undefined && !taken.has(id) && (id === key || !groups.has(id));
      if (!isUsable) late.push(at);
      else {
        ids[at] = id;
        taken.add(id);
      }
    }
  }
  const isFree = (id: string, key: string) => !taken.has(id) && (id === key || !groups.has(id));
  const old = new Set(before.map(({ id }) => id));
  for (const at of late) {
    const key = keyOf(now[at]!.key ?? '');
    const stem = key === '' ? `~${now[at]!.whole}` : key;
    let id = stem;
    for (let count = 2; !isFree(id, key) || (id !== key && old.has(id)); count++) id = `${stem}~${count}`;
    ids[at] = id;
    taken.add(id);
  }
  const duplicateKeys = [...groups].flatMap(([key, rows]) => (key !== '' && rows.length > 1 ? [key] : []));
  return { ids, from, duplicateKeys, blankKeys: groups.get('')?.length ?? 0 };
}

/** Pairs rows that share a key: by equal or similar content first, then by order. */
function pairGroup(
  { rows, there, isKey }: { rows: readonly number[]; there: readonly number[]; isKey: boolean },
  { before, now, from }: { before: readonly KnownRow[]; now: readonly SheetRow[]; from: Int32Array },
): void {
  if (there.length === 0) return;
  if (isKey && rows.length === 1 && there.length === 1) {
    from[rows[0]!] = there[0]!;
    return;
  }
  const matched = matchRows(
    there.map((of) => before[of]!),
    rows.map((at) => now[at]!),
  );
  const left = new Set(there);
  for (const [place, of] of matched.entries()) {
    if (of === -1) continue;
    from[rows[place]!] = there[of]!;
    left.delete(there[of]!);
  }
  if (!isKey) return;
  const rest = [...left];
  for (const at of rows) if (from[at] === -1) from[at] = rest.shift() ?? -1;
}

/** The key in the form of an ID. A key that is too long is cut and gets its digest as a suffix. */
export function keyOf(text: string): string {
  const key = text.replaceAll('\0', '').toWellFormed();
  const characters = [...key];
  // Leaves space for the number of a duplicate.
  if (characters.length <= maxIdCharacters - 10) return key;
  return `${characters.slice(0, 200).join('')}~${digestOf(key)}`;
}

/** An unused ID derived from the content, so that a repeated first run gives the same IDs. */
function freeId(whole: string, taken: Set<string>): string {
  let id = `~${whole}`;
  for (let count = 2; taken.has(id); count++) id = `~${whole}~${count}`;
  taken.add(id);
  return id;
}

/** The rows to store for the next run: the current rows, with the removed rows at their previous places. */
export function merged<Row>({
  before,
  now,
  from,
}: {
  before: readonly Row[];
  now: readonly Row[];
  from: Int32Array;
}): Row[] {
  const present = new Set(from);
  const behind = new Map<number, Row[]>();
  let last = -1;
  for (const [of, row] of before.entries()) {
    if (present.has(of)) last = of;
    else {
      const there = behind.get(last);
      if (there === undefined) behind.set(last, [row]);
      else there.push(row);
    }
  }
  const rows: Row[] = [];
  const add = (gone: readonly Row[] = []) => {
    for (const row of gone) rows.push(row);
  };
  add(behind.get(-1));
  for (const [at, row] of now.entries()) {
    rows.push(row);
    if (from[at] !== -1) add(behind.get(from[at]!));
  }
  return rows;
}
