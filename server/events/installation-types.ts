import { z } from 'zod';
import { eventType, evidence, exampleIntegration, nextStep, ofIntegration, time } from './event-type.ts';

const cause = z.enum([
  'client_refused',
  'client_deleted',
  'client_misconfigured',
  'client_not_allowed',
  'api_disabled',
]);

/** What concerns no single connection: integrations, and the endpoints that events are sent to. */
export const installationTypes = {
  'integration.misconfigured': eventType({
    meaning:
      'The provider refuses the client of an integration, or its API is switched off; told once until that is over or has another cause. With `client_not_allowed` it refuses the tokens of single connections: told once while there are any.',
    data: z.strictObject({ ...ofIntegration, cause, evidence, since: time, next_step: nextStep }),
    example: {
      ...exampleIntegration,
      cause: 'api_disabled',
      evidence: {
        api: 'https://sheets.googleapis.com/v4',
        service: 'sheets.googleapis.com',
        activation_url:
          'https://console.developers.google.com/apis/api/sheets.googleapis.com/overview?project=1',
      },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        "The API is not enabled in the client's project. Enable it in the provider's console, then wait a few minutes.",
    },
  }),
  'integration.recovered': eventType({
    meaning:
      'A refresh, or a call of the API, succeeded again, or no connection is left that shows the fault.',
    data: z.strictObject({
      ...ofIntegration,
      cause: cause.describe('Of what is over'),
      since: time.describe('When that began'),
      recovered_at: time,
    }),
    example: {
      ...exampleIntegration,
      cause: 'api_disabled',
      since: '2026-11-21T10:15:17.686Z',
      recovered_at: '2026-11-21T10:31:05.310Z',
    },
  }),
  'integration.rate_limited': eventType({
    meaning: 'The provider throttles all calls of an integration; told at most once a minute.',
    data: z.strictObject({
      ...ofIntegration,
      limit: z
        .enum(['quota', 'abuse_guard'])
        .describe('`abuse_guard`: a page against robots stood in place of an answer'),
      evidence: evidence.describe('The quota, where the provider names it'),
    }),
    example: { ...exampleIntegration, limit: 'abuse_guard', evidence: {} },
  }),
  'endpoint.disabled': eventType({
    meaning: 'Nothing is sent to an endpoint any more until somebody enables it again; told to all others.',
    data: z.strictObject({
      endpoint_id: z.int(),
      url: z.string().describe('Scheme, host and port: with many receivers the path is the secret'),
      cause: z
        .enum(['gone', 'failing'])
        .describe('It answered 410, or nothing has arrived there for five days'),
      evidence,
      next_step: nextStep,
    }),
    example: {
      endpoint_id: 7,
      url: 'https://app.example.com',
      cause: 'gone',
      evidence: { http_status: 410 },
      next_step: 'The endpoint says that it is gone for good. Delete it, or enable it again.',
    },
  }),
};
