import { z } from 'zod';
import { count, eventType, evidence, exampleConnection, nextStep, ofConnection, time } from './event-type.ts';

/** Why a connection stopped working; docs/connections.md says what each means. */
const cause = z.enum([
  'grant_dead',
  'credentials_refused',
  'testing_expired',
  'access_time_ended',
  'session_policy',
  'no_refresh_token',
  'refresh_reply_lost',
  'security_event',
  'revoked_by_disconnect',
  'blocked_by_admin',
  'scopes_refused',
]);
/** Why refreshes bring no token, and end nothing. */
const delay = z.enum(['provider_not_answering', 'settings_refused']);
const reconnect = z
  .strictObject({
    method: z.literal('POST'),
    path: z.literal('/connect/sessions/reconnect'),
    body: z.strictObject({
      integration_id: z.string(),
      connection_id: z.string(),
      scopes: z.literal('missing').optional(),
    }),
  })
  .nullable()
  .describe('The call that makes a link by which the user connects again; null where that would not help');
const stopped = z.strictObject({
  ...ofConnection,
  cause: cause.describe('As in its health'),
  evidence,
  since: time,
  next_step: nextStep,
  reconnect,
});
const made = z.strictObject({
  ...ofConnection,
  missing_scopes: z
    .array(z.string())
    .optional()
    .describe('Asked for and not granted; not known where tokens were imported'),
});
const exampleReconnect = {
  method: 'POST',
  path: '/connect/sessions/reconnect',
  body: { integration_id: 'google-sheet', connection_id: 'ada-sheets' },
} as const;

/** What happens to a connection, from the day it is made until it is deleted. */
export const connectionTypes = {
  'connection.created': eventType({
    meaning: 'An account was connected, or its tokens were imported.',
    data: made,
    example: { ...exampleConnection, missing_scopes: [] },
  }),
  'connection.reconnected': eventType({
    meaning: 'A connection got new credentials, by a reconnect session or by an import under its ID.',
    data: made,
    example: { ...exampleConnection, missing_scopes: ['https://www.googleapis.com/auth/drive.file'] },
  }),
  'connection.deleted': eventType({
    meaning: 'A connection was deleted.',
    data: z.strictObject(ofConnection),
    example: exampleConnection,
  }),
  'connection.needs_reauth': eventType({
    meaning: 'A connection stopped working, and its user must connect again.',
    data: stopped,
    example: {
      ...exampleConnection,
      cause: 'grant_dead',
      evidence: { error: 'invalid_grant', http_status: 400 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        'The user revoked the access, or the provider ended it (unused for long, password changed, too many grants). Ask the user to connect again.',
      reconnect: exampleReconnect,
    },
  }),
  'connection.blocked': eventType({
    meaning:
      'An administrator of the account does not allow the application, or the client may no longer have a scope of the grant; told again where one cause follows the other.',
    data: stopped,
    example: {
      ...exampleConnection,
      cause: 'blocked_by_admin',
      evidence: { error: 'admin_policy_enforced', http_status: 400 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        "The account's administrator does not allow this application. Ask the administrator to trust it; it is tried again every day.",
      reconnect: null,
    },
  }),
  'connection.recovered': eventType({
    meaning: 'A connection works again without its user: it was blocked, or refreshes were delayed.',
    data: z.strictObject({
      ...ofConnection,
      cause: z
        .enum([...cause.options, ...delay.options])
        .nullable()
        .describe('Of what is over'),
      since: time.nullable().describe('When that began'),
      recovered_at: time,
    }),
    example: {
      ...exampleConnection,
      cause: 'provider_not_answering',
      since: '2026-11-21T10:15:17.686Z',
      recovered_at: '2026-11-21T11:02:40.120Z',
    },
  }),
  'connection.refresh_delayed': eventType({
    meaning:
      "Three refreshes in a row brought no token, and ended nothing: the provider gave no judgement, or refuses a setting to a client of the connection's own. Told once until one succeeds.",
    data: z.strictObject({
      ...ofConnection,
      cause: delay.describe('As in its health'),
      evidence,
      since: time,
      next_step: nextStep,
      attempts: count,
    }),
    example: {
      ...exampleConnection,
      cause: 'provider_not_answering',
      evidence: { http_status: 503 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        'The provider does not answer refreshes. Nothing needs to be done: it is tried again with growing pauses.',
      attempts: 3,
    },
  }),
  'connection.rate_limited': eventType({
    meaning: 'The provider throttles the calls of the account; told at most once a minute.',
    data: z.strictObject({
      ...ofConnection,
      limit: z.enum(['quota', 'abuse_guard']),
      evidence: evidence.describe('The quota, where the provider names it'),
    }),
    example: {
      ...exampleConnection,
      limit: 'quota',
      evidence: { quota_limit: 'ReadRequestsPerMinutePerUser', quota_limit_value: '60' },
    },
  }),
  'connection.scopes_reduced': eventType({
    meaning:
      'Less was granted than asked for when it was connected, a refresh granted less than before, or an API asked for a scope that the token lacks; told once for each scope.',
    data: z.strictObject({ ...ofConnection, lost_scopes: z.array(z.string()) }),
    example: { ...exampleConnection, lost_scopes: ['https://www.googleapis.com/auth/drive.file'] },
  }),
  'connection.expiring': eventType({
    meaning:
      'The grant ends by itself within 48 hours; told once for each end, and at once where it is connected later than that.',
    data: z.strictObject({
      ...ofConnection,
      cause: z
        .enum(['testing_expiry', 'time_based_expiry'])
        .describe('The provider counts the application as under test, or the user gave a time'),
      expires_at: time,
      next_step: nextStep,
    }),
    example: {
      ...exampleConnection,
      cause: 'time_based_expiry',
      expires_at: '2026-11-23T09:00:00.000Z',
      next_step: 'The user gave access for a time only. Ask the user to connect again before it is over.',
    },
  }),
  'connection.token_slots': eventType({
    meaning:
      'The account has taken 80 % of the live grants that the provider allows for an account and OAuth client, in all environments together; told once more for each connection that the next grant would end without notice.',
    data: z.strictObject({
      ...ofConnection,
      used: count,
      limit: count,
      is_next: z.boolean().describe('Whether the next grant ends this connection'),
      next_step: nextStep,
    }),
    example: {
      ...exampleConnection,
      used: 80,
      limit: 100,
      is_next: false,
      next_step:
        'The account has 80 of the 100 live grants that the provider allows for it and this OAuth client; beyond that the oldest ends without notice. Reconnect its oldest connections, or delete unused ones, instead of connecting it again.',
    },
  }),
};
