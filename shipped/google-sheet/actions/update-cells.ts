import { type ActionContext, createAction } from 'trellis';
import { z } from 'zod';
import { anchorRows, dropAnchors, type Line, readAnchored, writeAnchored } from '../sheet/anchored.ts';
import { fault, withActionErrors } from '../sheet/faults.ts';
import { cellValue } from '../sheet/models.ts';
import { compared, recordsOf } from '../sheet/table.ts';
import { look, type Seen, type Target, targetOf } from '../sheet/target.ts';
import { lineOf } from '../sheet/write.ts';

const writable = z.union([z.string().max(50_000), z.number(), z.boolean(), z.null()]);
const Update = z.object({
  id: z.string().min(1).describe('The ID of the record'),
  values: z.record(z.string(), writable).describe('Values by field name; null clears a cell'),
  last_modified_at: z
    .string()
    .optional()
    .describe('From the record as it was read; the update is refused if the record has changed since'),
  cursor: z.string().optional().describe('From the record as it was read; checked like last_modified_at'),
});
const Input = z.object({
  variant: z.string().default('base'),
  updates: z.array(Update).min(1).max(100),
  force: z.boolean().default(false).describe('Also write to rows that have changed since'),
  input: z.enum(['RAW', 'USER_ENTERED']).default('RAW').describe('USER_ENTERED: parsed like typed text'),
});
const Output = z.object({
  updated: z.array(
    z.object({ id: z.string(), row: z.int().describe('Counts from 1, at the time of writing') }),
  ),
});
type Update = z.infer<typeof Update>;

const maxTries = 3;

export default createAction({
  description:
    'Writes cells of rows, by the IDs of their records. Refused if a row has changed since its record was read.',
  version: '1.0.0',
  input: Input,
  output: Output,
  once: true,
  exec: (trellis, { variant, updates, force, input: entering }) =>
    withActionErrors(trellis, async () => {
      const target = await targetOf(trellis, variant);
      requireOnce(updates);
      if (!force) await requireAsRead(trellis, { variant, updates });
      for (let left = maxTries; ; left--) {
        const seen = await look(trellis, target);
        const rows = updates.map((update) => findRow(update, { seen, force }));
        const { columns } = seen.table;
        const { kinds, timeZone } = seen.taken;
        const lines = updates.map(({ values }) => lineOf(values, { columns, kinds, timeZone, entering }));
        const anchors = await anchorsOf(trellis, { target, seen, rows });
        try {
          if (await isAnchoredAsRead(trellis, { target, seen, rows, anchors })) {
            const sent: Line[] = lines.map((line, at) => ({ line, anchor: anchors[at]! }));
            await writeAnchored(trellis, { ...target, lines: sent, entering });
            return {
              updated: updates.map(({ id }, at) => ({ id, row: seen.table.rows[rows[at]!]!.index + 1 })),
            };
          }
        } finally {
          if (seen.taken.metadata === undefined) await dropAnchors(trellis, { ...target, anchors });
        }
        if (left === 1) {
          throw fault(
            'sheet_moving',
            'The rows were moved during the update. Nothing was written. Try again.',
          );
        }
      }
    }),
});

function requireOnce(updates: readonly Update[]): void {
  const ids = updates.map(({ id }) => id);
  const twice = ids.find((id, at) => ids.indexOf(id) !== at);
  if (twice !== undefined)
    throw fault('refused', `The updates contain the record ${twice} twice. Nothing was written.`);
}

/** The stored records must be those that the caller read. */
async function requireAsRead(
  trellis: ActionContext,
  { variant, updates }: { variant: string; updates: readonly Update[] },
): Promise<void> {
  const ids = updates.map(({ id }) => id);
  const stored = await trellis.getStoredRecords<{ id: string }>({ model: 'Row', variant, ids });
  const byId = new Map(stored.map(({ record, metadata }) => [record.id, metadata]));
  for (const { id, last_modified_at, cursor } of updates) {
    const known = byId.get(id);
    if (known === undefined)
      throw fault('unknown_row', `The record ${id} does not exist. Nothing was written.`, { id });
    const isOther =
      (last_modified_at !== undefined &&
        Date.parse(last_modified_at) !== Date.parse(known.last_modified_at)) ||
      (cursor !== undefined && cursor !== known.cursor);
    if (known.last_action !== 'DELETED' && !isOther) continue;
    throw fault('row_changed', `The record ${id} has changed since it was read. Nothing was written.`, {
      ...{ id, last_modified_at: known.last_modified_at, cursor: known.cursor },
    });
  }
}

/** The index of the row in the table. Throws `unknown_row`, and `row_changed` with the current values. */
function findRow({ id }: Update, { seen, force }: { seen: Seen; force: boolean }): number {
  const { table, identified, taken, unsaved } = seen;
  const at = identified.ids.indexOf(id);
  if (at === -1)
    throw fault('unknown_row', `The sheet no longer has a row for the record ${id}. Nothing was written.`, {
      id,
    });
  const of = identified.from[at]!;
  const isChanged = of === -1 || unsaved.has(id) || table.now[at]!.digest !== table.before[of]!.digest;
  if (!isChanged || force) return at;
  const { kinds, timeZone } = taken;
  const [record] = recordsOf(
    { columns: table.columns, rows: [table.rows[at]!] },
    { ids: [id], kinds, timeZone },
  );
  const current = z.record(z.string(), cellValue).parse(record?.fields);
  throw fault(
    'row_changed',
    `The row of the record ${id} has changed in the sheet since it was synced. Nothing was written.`,
    { id, current },
  );
}

/** The record metadata of the rows if they have it, else new anchors. */
async function anchorsOf(
  trellis: ActionContext,
  { target, seen, rows }: { target: Target; seen: Seen; rows: readonly number[] },
): Promise<number[]> {
  const places = rows.map((at) => seen.table.rows[at]!.index);
  const { metadata } = seen.taken;
  if (metadata !== undefined) return places.map((index) => metadata.get(index)!);
  return anchorRows(trellis, { ...target, rows: places });
}

/** Whether the anchors are on the intended rows: rows may move between reading and anchoring. */
async function isAnchoredAsRead(
  trellis: ActionContext,
  of: { target: Target; seen: Seen; rows: readonly number[]; anchors: readonly number[] },
): Promise<boolean> {
  const { columns, rows } = of.seen.table;
  const found = await readAnchored(trellis, { ...of.target, anchors: of.anchors });
  return of.rows.every((at, place) => {
    const cells = found[place];
    return cells !== undefined && compared(cells, columns).digest === rows[at]!.digest;
  });
}
