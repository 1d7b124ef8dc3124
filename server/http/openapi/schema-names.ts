import { z } from 'zod';

/**
 * Names schemas in the document, by their names in it. Two different schemas must not have the same name, except that the
 * schema of a request may differ from that of a response: it is then called `<name>Input`.
 */
export function nameSchemas(schemas: Readonly<Record<string, z.ZodType>>): void {
  for (const [title, schema] of Object.entries(schemas))
    z.globalRegistry.add(schema, { ...z.globalRegistry.get(schema), title });
}

/** The response of a call that has nothing else to return. */
export const success = z.object({ success: z.literal(true) }).meta({ title: 'Success' });
