/** What scripts/catalogue.yaml says: which entries of the sources are imported, and what their sources do not tell. */
import { z } from 'zod';

const categories = z.array(z.string()).min(1);

export const selectionSchema = z.strictObject({
  /** By the name of the definition. */
  openapi: z.record(
    z.string(),
    z.strictObject({
      /** The file, below the directory. */
      file: z.string(),
      /** The scheme of `components.securitySchemes`. */
      scheme: z.string(),
      display_name: z.string(),
      categories,
      /** A definition with the flow, of which the file has only scopes and the address. */
      extends: z.string().optional(),
      default_scopes: z.array(z.string()).optional(),
      /** The provider's documentation, if the file does not link it. */
      docs: z.url({ protocol: /^https$/ }).optional(),
      /** Which of the file's `servers` is called; the first if absent. */
      server: z.int().min(0).default(0),
      /** A GET of the file's `paths` that every valid key may call: a 403 refuses the key, also one with few permissions. */
      verification: z.string().startsWith('/').optional(),
      /** As in a definition. */
      repeated_base_path: z.literal('cut').optional(),
    }),
  ),
  /** By the name of the definition. */
  open_connector: z.record(
    z.string(),
    z.strictObject({
      /** The folder below src/providers. */
      folder: z.string(),
      categories,
    }),
  ),
});

export type Selection = z.output<typeof selectionSchema>;

/** What an import found. */
export type Imported = {
  definitions: Map<string, Record<string, unknown>>;
  /** Selected entries without a definition, and why. */
  omitted: Map<string, string>;
};
