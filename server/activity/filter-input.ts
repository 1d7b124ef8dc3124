import { z } from 'zod';
import type { Caller } from '../http/caller.ts';
import { text } from '../http/text.ts';
import { type OperationFilter, operationStatuses, operationTypeNames } from './operations.ts';

/** Any time of ISO 8601 with an offset. */
export const timeInput = z.iso.datetime({ offset: true }).transform((given) => new Date(given));

/** What operations are chosen by, apart from their time. */
export const filterInput = {
  provider_config_key: text({ max: 255 }).optional(),
  connection_id: text({ max: 255 }).optional(),
  type: z.enum(operationTypeNames).optional(),
  status: z.enum(operationStatuses).optional(),
  text: text({ min: 1, max: 255 }).optional(),
};

type Given = { [Name in keyof typeof filterInput]?: z.output<(typeof filterInput)[Name]> };

/** A filter in the words of our own, for what the caller may see. */
export function filterOf(caller: Caller, given: Given): OperationFilter {
  const { provider_config_key: integration, connection_id: connection, type, status, text } = given;
  return { environmentId: caller.environmentId, integration, connection, type, status, text };
}
