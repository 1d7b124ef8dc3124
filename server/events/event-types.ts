import { z } from 'zod';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import { connectionStates } from './connection-states.ts';

/**
 * All types of events: when each is raised, its data, and an example. docs/reference/event-types.md is generated from it.
 *
 * Schemas are strict, so that no other field is sent by mistake.
 */
export type DescribedType = {
  /** One sentence: what has happened when the event is raised, and how often it is raised. */
  meaning: string;
  /** `queueEvent` accepts only this data, and `GET /events/types` returns it as JSON Schema. */
  data: z.ZodObject;
  example: object;
};

/** Describes one type; the compiler compares the example with the schema. */
function eventType<S extends z.ZodObject>(described: {
  meaning: string;
  data: S;
  example: z.input<S>;
}): typeof described {
  return described;
}

const time = z.iso.datetime().describe('ISO 8601, UTC');
const count = z.int().min(0);
const nextStep = z.string().describe('What to do, as text for people');
/** Codes and numbers from the provider's response; never a token, and never a text. */
const evidence = z
  .record(z.string(), z.union([z.string(), z.number()]))
  .describe('Codes and numbers from the response of the provider');

export const ofIntegration = {
  provider_config_key: z.string().describe('The integration'),
  provider: z.string(),
  test: z.boolean().describe("Whether the integration is the sandbox's"),
};
const endUser = z
  .strictObject({ id: z.string() })
  .nullable()
  .describe('The user of the application; only the ID');
const tags = z.record(z.string(), z.string());
export const ofConnection = {
  connection_id: z.string(),
  ...ofIntegration,
  account: z
    .strictObject({ id: z.string(), email: z.string().optional() })
    .nullable()
    .describe('The account at the provider, if the provider names it'),
  tags,
  end_user: endUser,
};
const connectionName = {
  connection_id: z.string(),
  provider_config_key: ofIntegration.provider_config_key,
};
export const ofDataset = {
  ...connectionName,
  model: z.string(),
  variant: z.string(),
};

/** The fields of the connection in every event about a connection. */
export type ConnectionSubject = z.input<z.ZodObject<typeof ofConnection>>;
/** The fields of the integration in every event about an integration. */
export type IntegrationSubject = z.input<z.ZodObject<typeof ofIntegration>>;
/** The fields of the dataset in every event about a dataset. */
export type DatasetSubject = z.input<z.ZodObject<typeof ofDataset>>;

const exampleIntegration = {
  provider_config_key: 'google-sheet',
  provider: 'google-sheet',
  test: false,
};
export const exampleConnection = {
  connection_id: 'ada-sheets',
  ...exampleIntegration,
  account: { id: '17955', email: 'ada@acme.test' },
  tags: { team: 'sales' },
  end_user: { id: 'ada' },
};
const exampleName = { connection_id: 'ada-sheets', provider_config_key: 'google-sheet' };
const exampleDataset = { ...exampleName, model: 'Row', variant: 'base' };

/** Why a connection stopped working; docs/reference/connection-health.md says what each means. */
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
const state = z
  .enum(connectionStates)
  .optional()
  .describe('As in its health, after the event; absent in events of earlier versions');
/** Why refreshes return no token while the connection stays usable. */
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
  .describe('The call that creates a link with which the user reconnects; null if that would not help');
const stopped = z.strictObject({
  ...ofConnection,
  state,
  cause: cause.describe('As in its health'),
  evidence,
  since: time,
  next_step: nextStep,
  reconnect,
});
const connected = z.strictObject({
  ...ofConnection,
  state,
  missing_scopes: z
    .array(z.string())
    .optional()
    .describe('Requested and not granted; unknown if tokens were imported'),
});
const exampleReconnect = {
  method: 'POST',
  path: '/connect/sessions/reconnect',
  body: { integration_id: 'google-sheet', connection_id: 'ada-sheets' },
} as const;
/** An authorization flow that made no connection. */
const failedFlow = z.strictObject({
  connection_id: z.string().nullable().describe('Null unless a connection was to be renewed'),
  ...ofIntegration,
  tags: tags.describe('The tags of the session'),
  end_user: endUser.describe('The end user of the session; only the ID'),
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
const exampleFailedFlow = {
  connection_id: null,
  ...exampleIntegration,
  tags: { team: 'analysis' },
  end_user: { id: 'ada' },
  begun_at: '2026-11-21T10:10:02.004Z',
};

const integrationCause = z.enum([
  'client_refused',
  'client_deleted',
  'client_misconfigured',
  'client_not_allowed',
  'api_disabled',
]);

const syncName = { function: z.string().describe('The name of the sync') };
const ofSync = { ...connectionName, variant: z.string(), ...syncName };
const run = z.uuid().describe('As in `GET /functions/runs/{id}`');
const syncType = z
  .enum(['INITIAL', 'INCREMENTAL', 'WEBHOOK'])
  .describe('The first success, a later success, or a run by a webhook of the provider');
const error = z.strictObject({ code: z.string(), message: z.string() });

const exampleSync = { ...exampleName, variant: 'base', function: 'rows' };
const exampleRun = '0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b';
const ended = { ...ofDataset, ...syncName, run, sync_type: syncType, started_at: time };
const exampleEnded = {
  ...exampleDataset,
  function: 'rows',
  run: exampleRun,
  sync_type: 'INCREMENTAL' as const,
  started_at: '2026-11-21T10:15:00.000Z',
};
const ofAction = {
  ...connectionName,
  function: z.string().describe('The name of the action'),
  run: z
    .uuid()
    .describe(
      'The ID from `POST /functions/actions/trigger`; `GET /functions/actions/{id}` returns the result',
    ),
};
const exampleAction = { ...exampleName, function: 'append-row', run: exampleRun };
const fields = z.array(z.string()).describe('Names of fields at the top level of a record');

const failedSync = z.strictObject({
  ...ofSync,
  run,
  sync_type: syncType,
  error,
  failures: count.describe('Consecutive failures'),
  started_at: time,
  failed_at: time,
});

nameSchemas({
  ConnectFailure: failedFlow,
  ConnectedAccount: connected,
  FailedSync: failedSync,
  StoppedConnection: stopped,
});

/** All types by name. */
export const eventCatalogue = {
  // The events of connections: their state, failed authorization flows, and failed revocations.
  'connection.created': eventType({
    meaning: 'An account was connected, or its tokens were imported.',
    data: connected,
    example: { ...exampleConnection, state: 'healthy', missing_scopes: [] },
  }),
  'connection.reconnected': eventType({
    meaning: 'A connection got new credentials, by a reconnect session or by an import under its ID.',
    data: connected,
    example: {
      ...exampleConnection,
      state: 'scopes_missing',
      missing_scopes: ['https://www.googleapis.com/auth/drive.file'],
    },
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
      state: 'reconnect_needed',
      cause: 'grant_dead',
      evidence: { error: 'invalid_grant', http_status: 400 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        'The user revoked the access, or the provider revoked it (not used for a long time, password changed, too many grants). Ask the user to connect again.',
      reconnect: exampleReconnect,
    },
  }),
  'connection.blocked': eventType({
    meaning:
      'An administrator of the account does not allow the application, or the client is no longer allowed a scope of ' +
      'the grant. Raised again if the cause changes.',
    data: stopped,
    example: {
      ...exampleConnection,
      state: 'blocked',
      cause: 'blocked_by_admin',
      evidence: { error: 'admin_policy_enforced', http_status: 400 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        "The account's administrator does not allow this application. Ask the administrator to allow it. The refresh is retried every day.",
      reconnect: null,
    },
  }),
  'connection.recovered': eventType({
    meaning: 'A connection works again without its user: it was blocked, or refreshes were delayed.',
    data: z.strictObject({
      ...ofConnection,
      state,
      cause: z
        .enum([...cause.options, ...delay.options])
        .nullable()
        .describe('The cause that is over'),
      since: time.nullable().describe('When it began'),
      recovered_at: time,
    }),
    example: {
      ...exampleConnection,
      state: 'healthy',
      cause: 'provider_not_answering',
      since: '2026-11-21T10:15:17.686Z',
      recovered_at: '2026-11-21T11:02:40.120Z',
    },
  }),
  'connection.refresh_delayed': eventType({
    meaning:
      "Three refreshes in a row returned no token, but the grant was not refused: the provider did not answer, or it refuses a setting of the connection's own client. Raised once until a refresh succeeds.",
    data: z.strictObject({
      ...ofConnection,
      state,
      cause: delay.describe('As in its health'),
      evidence,
      since: time,
      next_step: nextStep,
      attempts: count,
    }),
    example: {
      ...exampleConnection,
      state: 'provider_unavailable',
      cause: 'provider_not_answering',
      evidence: { http_status: 503 },
      since: '2026-11-21T10:15:17.686Z',
      next_step:
        'The provider does not respond to token refreshes. No action is needed: the refresh is retried with increasing delays.',
      attempts: 3,
    },
  }),
  'connection.rate_limited': eventType({
    meaning: 'The provider throttles the calls of the account. Raised at most once a minute.',
    data: z.strictObject({
      ...ofConnection,
      limit: z.enum(['quota', 'abuse_guard']),
      evidence: evidence.describe('The quota, if the provider names it'),
    }),
    example: {
      ...exampleConnection,
      limit: 'quota',
      evidence: { quota_limit: 'ReadRequestsPerMinutePerUser', quota_limit_value: '60' },
    },
  }),
  'connection.scopes_reduced': eventType({
    meaning:
      'The user granted fewer scopes than requested, a refresh granted fewer scopes than before, or an API required a scope that the token lacks. Raised once for each scope.',
    data: z.strictObject({ ...ofConnection, state, lost_scopes: z.array(z.string()) }),
    example: {
      ...exampleConnection,
      state: 'scopes_missing',
      lost_scopes: ['https://www.googleapis.com/auth/drive.file'],
    },
  }),
  'connection.subscription_failed': eventType({
    meaning:
      'The provider does not notify of changes for a subscribed sync, or could not be asked to. The sync runs on its schedule. Raised once for each cause.',
    data: z.strictObject({
      ...ofConnection,
      target: z.string().nullable().describe('What is watched, such as a file; null for the whole account'),
      code: z.string().describe('As `push.error.code` of the status of a sync'),
      message: z.string(),
    }),
    example: {
      ...exampleConnection,
      target: 'me/messages',
      code: 'channel_refused',
      message: 'The provider refused the channel: status 403.',
    },
  }),
  'connection.expiring': eventType({
    meaning:
      'The grant ends automatically within 48 hours. Raised once for each end, and immediately if less time is left ' +
      'when the account is connected.',
    data: z.strictObject({
      ...ofConnection,
      cause: z
        .enum(['testing_expiry', 'time_based_expiry'])
        .describe(
          'The provider treats the application as under test, or the user granted access for a limited time',
        ),
      expires_at: time,
      next_step: nextStep,
    }),
    example: {
      ...exampleConnection,
      cause: 'time_based_expiry',
      expires_at: '2026-11-23T09:00:00.000Z',
      next_step:
        'The user allowed access for a limited time. Ask the user to connect again before it expires.',
    },
  }),
  'connection.token_slots': eventType({
    meaning:
      'The account uses 80 % of the live grants that the provider allows for an account and OAuth client, in all ' +
      'environments together. Raised again for each connection that the next grant would end without notice.',
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
        'The account has 80 of the 100 active grants that the provider allows for it and this OAuth client; beyond the limit, the provider revokes the oldest grant without notice. Reconnect the oldest connections of the account or delete unused connections, instead of creating new ones.',
    },
  }),
  'connection.connect_failed': eventType({
    meaning:
      'A user returned from the provider without a connection: the user, the administrator or the provider refused, or the user used another account or another browser (`not_completed`: `evidence.error` names the reason).',
    data: failedFlow,
    example: {
      ...exampleFailedFlow,
      cause: 'access_denied',
      evidence: { error: 'access_denied' },
      next_step:
        'The user did not allow access. Explain why the access is needed before you request it again.',
    },
  }),
  'connection.connect_abandoned': eventType({
    meaning:
      'A session has ended, and its user has not returned from the provider (`nothing_came_back`), or returned while the service was stopped (`cut_off`).',
    data: failedFlow,
    example: {
      ...exampleFailedFlow,
      cause: 'cut_off',
      evidence: {},
      next_step:
        'The user returned, but the service stopped before the connection was created. Send the user a new link.',
    },
  }),
  'connection.revoke_failed': eventType({
    meaning:
      'The grant of a deleted connection could not be revoked for three days, and there are no more attempts. Its user can withdraw it in the settings of the account.',
    data: z.strictObject({
      ...ofConnection,
      evidence: evidence.describe('`secrets_unreadable` if a master key is missing'),
      attempts: count,
    }),
    example: { ...exampleConnection, evidence: { error: 'server_error', http_status: 503 }, attempts: 17 },
  }),
  'connection.revoke_dropped': eventType({
    meaning:
      'The revocation of a deleted connection was not sent, because another connection uses the grant, usually because the account connected again.',
    data: z.strictObject(ofConnection),
    example: exampleConnection,
  }),

  // The events of integrations, and of the endpoints that events are sent to.
  'integration.misconfigured': eventType({
    meaning:
      'The provider refuses the client of an integration, or its API is not enabled. Raised once until the problem ' +
      'ends or its cause changes. With `client_not_allowed`, the provider refuses the tokens of single connections: ' +
      'raised once while such connections exist.',
    data: z.strictObject({
      ...ofIntegration,
      cause: integrationCause,
      evidence,
      since: time,
      next_step: nextStep,
    }),
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
    meaning: 'A refresh or a call of the API succeeded again, or no connection with the fault is left.',
    data: z.strictObject({
      ...ofIntegration,
      cause: integrationCause.describe('The cause that is over'),
      since: time.describe('When it began'),
      recovered_at: time,
    }),
    example: {
      ...exampleIntegration,
      cause: 'api_disabled',
      since: '2026-11-21T10:15:17.686Z',
      recovered_at: '2026-11-21T10:31:05.310Z',
    },
  }),
  'integration.sunset': eventType({
    meaning:
      'The provider has announced the end of a feature that connections of the integration need, at most 90 days ahead. ' +
      'Raised once for each announced end.',
    data: z.strictObject({
      ...ofIntegration,
      on: z.iso.date().describe('The day of the end'),
      announcement: z.string().describe("The address of the provider's announcement"),
      connections: count.describe('How many connections may stop working'),
      next_step: nextStep,
    }),
    example: {
      ...exampleIntegration,
      on: '2027-01-01',
      announcement: 'https://provider.example.com/announcement',
      connections: 12,
      next_step: 'Tokens without an end stop working. Ask the users to connect again before that day.',
    },
  }),
  'integration.rate_limited': eventType({
    meaning: 'The provider throttles all calls of an integration. Raised at most once a minute.',
    data: z.strictObject({
      ...ofIntegration,
      limit: z
        .enum(['quota', 'abuse_guard'])
        .describe('`abuse_guard`: the provider returned a bot protection page instead of an answer'),
      evidence: evidence.describe('The quota, if the provider names it'),
    }),
    example: { ...exampleIntegration, limit: 'abuse_guard', evidence: {} },
  }),
  'endpoint.disabled': eventType({
    meaning:
      'An endpoint was disabled: it receives no events until it is enabled again. Sent to the other subscribed endpoints.',
    data: z.strictObject({
      endpoint_id: z.int(),
      url: z.string().describe('Only scheme, host and port, or `mailto:@` and the domain'),
      cause: z
        .enum(['gone', 'failing'])
        .describe('The endpoint returned 410, or no delivery has succeeded for five days'),
      evidence,
      next_step: nextStep,
    }),
    example: {
      endpoint_id: 7,
      url: 'https://app.example.com',
      cause: 'gone',
      evidence: { http_status: 410 },
      next_step:
        'The endpoint responded with 410 (permanently gone). Delete it, or enable it again and replay the missed events.',
    },
  }),

  // The events of datasets, consumers and retention. Changes of single records have no events: a reader follows the cursor.
  'consumer.stale': eventType({
    meaning:
      'A consumer has not acknowledged for 30 days although there are changes after its cursor. Raised once until it ' +
      'acknowledges again.',
    data: z.strictObject({
      ...ofDataset,
      consumer: z.string().describe('The name of the consumer'),
      cursor: z.string().nullable().describe('Null if the consumer has acknowledged nothing yet'),
      acknowledged_at: time,
    }),
    example: {
      ...exampleDataset,
      consumer: 'warehouse',
      cursor: 'AQAAAAAAAAAHAAAAAAAAADCM0X9T',
      acknowledged_at: '2026-10-21T08:00:00.000Z',
    },
  }),
  'records.retention_done': eventType({
    meaning: 'A run of retention has removed payloads or tombstones in the environment.',
    data: z.strictObject({
      datasets: count,
      pruned: count.describe('Payloads; all counts are since the previous event'),
      bytes: count,
      tombstones_removed: count,
    }),
    example: { datasets: 2, pruned: 1840, bytes: 906_512, tombstones_removed: 12 },
  }),
  'records.mass_delete_held': eventType({
    meaning:
      'The end of delete tracking would delete too many records, so the deletion is held. Raised once until the tracking is closed.',
    data: z.strictObject({ ...ofDataset, would_delete: count, live: count }),
    example: { ...exampleDataset, would_delete: 980, live: 1000 },
  }),
  'records.dataset_emptied': eventType({
    meaning:
      'All records of a dataset were removed without tombstones. Its cursors stay valid, so a client that follows a cursor and ' +
      'holds a copy drops the copy and reads from the beginning.',
    data: z.strictObject({
      ...ofDataset,
      records: count.describe('Live records before'),
      deleted: count.describe('Tombstones before'),
    }),
    example: { ...exampleDataset, records: 1000, deleted: 3 },
  }),

  // The events of syncs, of asynchronous actions, and of deployed functions.
  'sync.changed': eventType({
    meaning:
      'A run of a sync has succeeded and changed records of a model. Raised once for each model of the run.',
    data: z.strictObject({ ...ended, added: count, updated: count, deleted: count }),
    example: { ...exampleEnded, added: 12, updated: 3, deleted: 0 },
  }),
  'sync.unchanged': eventType({
    meaning:
      'A run of a sync has succeeded and changed no record of a model. Raised once for each model of the run.',
    data: z.strictObject(ended),
    example: exampleEnded,
  }),
  'sync.failed': eventType({
    meaning: 'A run of a sync has failed and is not retried. The next run starts as scheduled.',
    data: failedSync,
    example: {
      ...exampleSync,
      run: exampleRun,
      sync_type: 'INCREMENTAL',
      error: { code: 'function_threw', message: 'Request failed with status code 500' },
      failures: 1,
      started_at: '2026-11-21T10:15:00.000Z',
      failed_at: '2026-11-21T10:15:02.512Z',
    },
  }),
  'sync.failing': eventType({
    meaning: 'A sync has failed three times in a row. Raised again only after a success or a reconnection.',
    data: failedSync,
    example: {
      ...exampleSync,
      run: exampleRun,
      sync_type: 'INCREMENTAL',
      error: { code: 'function_threw', message: 'Not found' },
      failures: 3,
      started_at: '2026-11-21T10:45:00.000Z',
      failed_at: '2026-11-21T10:45:02.512Z',
    },
  }),
  'sync.schema_changed': eventType({
    meaning:
      'The fields of a model at the provider have changed since the last run of its sync. Raised before the run changes records.',
    data: z.strictObject({
      ...ofDataset,
      ...syncName,
      changes: z
        .array(
          z.strictObject({
            change: z.enum(['added', 'removed', 'renamed', 'moved']),
            field: z.string(),
            previous: z.string().optional(),
          }),
        )
        .describe('Changes by field; `previous` is the former name of a renamed field'),
    }),
    example: {
      ...exampleDataset,
      function: 'rows',
      changes: [{ change: 'renamed', field: 'Total', previous: 'Amount' }],
    },
  }),
  'sync.held': eventType({
    meaning:
      'The runs of a sync no longer start, because of its connection. Raised once until a run starts again.',
    data: z.strictObject({ ...ofSync, error, since: time }),
    example: {
      ...exampleSync,
      error: {
        code: 'missing_scopes',
        message: 'The connection lacks scopes that the function needs: a scope.',
      },
      since: '2026-11-21T10:15:00.000Z',
    },
  }),
  'action.succeeded': eventType({
    meaning: 'An action that was called with `X-Async: true` has succeeded. Raised once.',
    data: z.strictObject(ofAction),
    example: exampleAction,
  }),
  'action.failed': eventType({
    meaning:
      'An action that was called with `X-Async: true` has failed and is not retried, or was cancelled.',
    data: z.strictObject({ ...ofAction, error }),
    example: { ...exampleAction, error: { code: 'action_error', message: 'None left.' } },
  }),
  'function.models_changed': eventType({
    meaning:
      'A deploy or a rollback has changed the models of a sync: records have other fields from its next run on. Raised once for ' +
      'each such change.',
    data: z.strictObject({
      provider_config_key: ofIntegration.provider_config_key,
      ...syncName,
      version: z.int(),
      previous_version: z.int(),
      models: z
        .array(
          z.strictObject({
            model: z.string(),
            change: z.enum(['added', 'removed', 'changed']),
            added: fields,
            removed: fields,
            changed: fields.describe('Fields with another type, or that became optional or required'),
          }),
        )
        .describe('The models that differ, with the fields of changed models'),
    }),
    example: {
      provider_config_key: 'google-sheet',
      function: 'rows',
      version: 4,
      previous_version: 3,
      models: [{ model: 'Row', change: 'changed', added: ['total'], removed: ['amount'], changed: [] }],
    },
  }),

  // The webhooks that providers send to integrations.
  'webhook.received': eventType({
    meaning:
      'A provider has sent a verified webhook to an integration with `forward_webhooks`. The event is raised once for ' +
      'each connection that the webhook names, or once if it names no connection.',
    data: z.strictObject({
      connection_id: z
        .string()
        .nullable()
        .describe('Null if the webhook names no connection of the integration'),
      ...ofIntegration,
      type: z.string().nullable().describe('The type that the provider gives'),
      payload: z
        .unknown()
        .optional()
        .describe(
          'The body from the provider, sent only to endpoints and not in the feed. Null if the connection was deleted ' +
            'before the event was sent',
        ),
    }),
    example: { connection_id: 'ada-sheets', ...exampleIntegration, type: 'order.created' },
  }),
};

export type EventType = keyof typeof eventCatalogue;
/** The data of an event, by type. */
export type EventData = { [T in EventType]: z.input<(typeof eventCatalogue)[T]['data']> };
export const eventTypes = Object.keys(eventCatalogue) as EventType[];

/** `sync.failing` and `connection.refresh_delayed` are raised at this number of consecutive failures, which their meanings name. */
export const failuresBeforeEvent = 3;
