/** The sheets in a connection's metadata: one variant of the syncs for each spreadsheet and tab. */
import { z } from 'zod';

/**
 * How rows are identified. `key`: by the cell of a column. `metadata`: by developer metadata that the service adds to each
 * row, which needs write access. `content`: by content and position.
 */
export const identities = ['key', 'metadata', 'content'] as const;
export type Identity = (typeof identities)[number];

export const sheetSettings = z
  .object({
    spreadsheetId: z.string().regex(/^[A-Za-z0-9_-]{1,100}$/),
    /** The tab's `gid`. It stays the same when the tab is renamed. */
    sheetId: z.int().min(0),
    /** Counts from 1. */
    headerRow: z.int().min(1).max(1_000_000).default(1),
    identity: z.enum(identities).default('content'),
    /** The header of the column whose cells are keys. */
    keyColumn: z.string().min(1).optional(),
  })
  .refine(({ identity, keyColumn }) => identity !== 'key' || keyColumn !== undefined, {
    path: ['keyColumn'],
    error: 'is required if identity is key',
  });
export type SheetSettings = z.infer<typeof sheetSettings>;

/** All other properties of the metadata belong to the application. */
export const sheetMetadata = z.looseObject({ sheets: z.record(z.string(), z.unknown()).optional() });

/** The settings of a variant: undefined if there are none, a fault if they are invalid. */
export function readSettings(
  metadata: unknown,
  variant: string,
): { settings: SheetSettings } | { fault: string } | undefined {
  const sheets = sheetMetadata.safeParse(metadata ?? {}).data?.sheets;
  if (sheets === undefined || !Object.hasOwn(sheets, variant)) return undefined;
  const read = sheetSettings.safeParse(sheets[variant]);
  if (read.success) return { settings: read.data };
  const [issue] = read.error.issues;
  return { fault: `sheets.${variant}.${issue?.path.join('.')}: ${issue?.message}` };
}
