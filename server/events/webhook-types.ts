import { z } from 'zod';
import { eventType, exampleIntegration, ofIntegration } from './event-type.ts';

/** What providers send to integrations. */
export const webhookTypes = {
  'webhook.received': eventType({
    meaning:
      'A provider has sent a verified webhook to an integration with `forward_webhooks`. The event is raised once for each connection that the webhook names, or once if it names none.',
    data: z.strictObject({
      connection_id: z.string().nullable().describe('Null where it names no connection of the integration'),
      ...ofIntegration,
      type: z.string().nullable().describe('The kind that the provider says it is of'),
      payload: z
        .unknown()
        .optional()
        .describe(
          'What the provider sent. At endpoints alone: the feed tells that it came. Null where the connection was deleted before it could be sent',
        ),
    }),
    example: { connection_id: 'ada-sheets', ...exampleIntegration, type: 'order.created' },
  }),
};
