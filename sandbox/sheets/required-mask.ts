/** The `fields` of update requests: required, and refused in Google's words. */
import { invalidArgument } from './errors.ts';
import { type Mask, MaskError, parseMask } from './field-mask.ts';

/** The mask in `fields`, checked against the schema called `schemaName`; `*` is everything. */
export function requireMask(fields: string | null | undefined, schemaName: string): Mask {
  if (!fields) {
    throw invalidArgument("At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)");
  }
  try {
    return parseMask(fields, schemaName);
  } catch (error) {
    if (error instanceof MaskError) throw invalidArgument(`Invalid field: ${error.path}`);
    throw error;
  }
}
