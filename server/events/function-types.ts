import { z } from 'zod';
import { eventType, ofIntegration } from './event-type.ts';

const fields = z.array(z.string()).describe('Names of fields at the top of a record');

/** What becomes of functions themselves. */
export const functionTypes = {
  'function.models_changed': eventType({
    meaning:
      'Another version of a sync runs, by a deploy or a roll back, whose models are not those of the version before: records ' +
      'have other fields from its next run on. Told once for each such change.',
    data: z.strictObject({
      provider_config_key: ofIntegration.provider_config_key,
      function: z.string().describe('The name of the sync'),
      version: z.int(),
      previous_version: z.int(),
      models: z
        .array(
          z.strictObject({
            model: z.string(),
            change: z.enum(['added', 'removed', 'changed']),
            added: fields,
            removed: fields,
            changed: fields.describe('Whose type, or whether they may be missing, is another'),
          }),
        )
        .describe('Those that differ; fields of those that changed'),
    }),
    example: {
      provider_config_key: 'google-sheet',
      function: 'rows',
      version: 4,
      previous_version: 3,
      models: [{ model: 'Row', change: 'changed', added: ['total'], removed: ['amount'], changed: [] }],
    },
  }),
};
