import { z } from 'zod';
import {
  count,
  endUser,
  eventType,
  evidence,
  exampleConnection,
  exampleIntegration,
  nextStep,
  ofConnection,
  ofIntegration,
  tags,
  time,
} from './event-type.ts';

const trip = z.strictObject({
  connection_id: z.string().nullable().describe('Null unless a connection was to be renewed'),
  ...ofIntegration,
  tags: tags.describe("The session's"),
  end_user: endUser.describe("The session's; the ID alone"),
  cause: z.enum([
    'access_denied',
    'blocked_by_admin',
    'client_refused',
    'code_refused',
    'credentials_refused',
    'provider_not_answering',
    'unexpected_answer',
    'another_account',
    'account_unknown',
    'another_browser',
    'not_completed',
    'cut_off',
    'nothing_came_back',
  ]),
  evidence,
  begun_at: time,
  next_step: nextStep,
});
const exampleTrip = {
  connection_id: null,
  ...exampleIntegration,
  tags: { team: 'analysis' },
  end_user: { id: 'ada' },
  begun_at: '2026-11-21T10:10:02.004Z',
};

/** What did not come about at a provider: trips that made no connection, revocations that ended no grant. */
export const grantTypes = {
  'connection.connect_failed': eventType({
    meaning:
      'A user came back from the provider without a connection: refused by the user, the administrator or the provider, with another account or in another browser (`not_completed`: `evidence.error` names why).',
    data: trip,
    example: {
      ...exampleTrip,
      cause: 'access_denied',
      evidence: { error: 'access_denied' },
      next_step: 'The user did not allow access. Say what it is needed for before you ask again.',
    },
  }),
  'connection.connect_abandoned': eventType({
    meaning:
      'A session is over, and a user who went to the provider has not come back (`nothing_came_back`), or came back when the service was stopped (`cut_off`).',
    data: trip,
    example: {
      ...exampleTrip,
      cause: 'cut_off',
      evidence: {},
      next_step:
        'The user came back, and the service was stopped before the connection was made. A new link helps.',
    },
  }),
  'connection.revoke_failed': eventType({
    meaning:
      'The grant of a deleted connection could not be revoked for three days and was given up; its user can withdraw it in the settings of the account.',
    data: z.strictObject({
      ...ofConnection,
      evidence: evidence.describe('`secrets_unreadable` where a master key is missing'),
      attempts: count,
    }),
    example: { ...exampleConnection, evidence: { error: 'server_error', http_status: 503 }, attempts: 17 },
  }),
  'connection.revoke_dropped': eventType({
    meaning:
      'The revocation that a deleted connection had left was not sent: a living connection has come to need the grant, mostly because the account connected again.',
    data: z.strictObject(ofConnection),
    example: exampleConnection,
  }),
};
