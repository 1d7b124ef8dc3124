// Written by scripts/api-types.ts out of /openapi.json.
import type { Schemas } from './routes.ts';

/** What the event of each type carries as its `data`. */
export type EventData = {
  /** An action that was called with `X-Async: true` has failed and is not retried, or was cancelled. */
  "action.failed": Schemas['ActionFailedEventData'];
  /** An action that was called with `X-Async: true` has succeeded. Raised once. */
  "action.succeeded": Schemas['ActionSucceededEventData'];
  /** An administrator of the account does not allow the application, or the client is no longer allowed a scope of the grant. Raised again if the cause changes. */
  "connection.blocked": Schemas['StoppedConnection'];
  /** A session has ended, and its user has not returned from the provider (`nothing_came_back`), or returned while the service was stopped (`cut_off`). */
  "connection.connect_abandoned": Schemas['ConnectFailure'];
  /** A user returned from the provider without a connection: the user, the administrator or the provider refused, or the user used another account or another browser (`not_completed`: `evidence.error` names the reason). */
  "connection.connect_failed": Schemas['ConnectFailure'];
  /** An account was connected, or its tokens were imported. */
  "connection.created": Schemas['ConnectedAccount'];
  /** A connection was deleted. */
  "connection.deleted": Schemas['ConnectionDeletedEventData'];
  /** The grant ends automatically within 48 hours. Raised once for each end, and immediately if less time is left when the account is connected. */
  "connection.expiring": Schemas['ConnectionExpiringEventData'];
  /** A connection stopped working, and its user must connect again. */
  "connection.needs_reauth": Schemas['StoppedConnection'];
  /** The provider throttles the calls of the account. Raised at most once a minute. */
  "connection.rate_limited": Schemas['ConnectionRateLimitedEventData'];
  /** A connection got new credentials, by a reconnect session or by an import under its ID. */
  "connection.reconnected": Schemas['ConnectedAccount'];
  /** A connection works again without its user: it was blocked, or refreshes were delayed. */
  "connection.recovered": Schemas['ConnectionRecoveredEventData'];
  /** Three refreshes in a row returned no token, but the grant was not refused: the provider did not answer, or it refuses a setting of the connection's own client. Raised once until a refresh succeeds. */
  "connection.refresh_delayed": Schemas['ConnectionRefreshDelayedEventData'];
  /** The revocation of a deleted connection was not sent, because another connection uses the grant, usually because the account connected again. */
  "connection.revoke_dropped": Schemas['ConnectionRevokeDroppedEventData'];
  /** The grant of a deleted connection could not be revoked for three days, and there are no more attempts. Its user can withdraw it in the settings of the account. */
  "connection.revoke_failed": Schemas['ConnectionRevokeFailedEventData'];
  /** The user granted fewer scopes than requested, a refresh granted fewer scopes than before, or an API required a scope that the token lacks. Raised once for each scope. */
  "connection.scopes_reduced": Schemas['ConnectionScopesReducedEventData'];
  /** The provider does not notify of changes for a subscribed sync, or could not be asked to. The sync runs on its schedule. Raised once for each cause. */
  "connection.subscription_failed": Schemas['ConnectionSubscriptionFailedEventData'];
  /** The account uses 80 % of the live grants that the provider allows for an account and OAuth client, in all environments together. Raised again for each connection that the next grant would end without notice. */
  "connection.token_slots": Schemas['ConnectionTokenSlotsEventData'];
  /** A consumer has not acknowledged for 30 days although there are changes after its cursor. Raised once until it acknowledges again. */
  "consumer.stale": Schemas['ConsumerStaleEventData'];
  /** An endpoint was disabled: it receives no events until it is enabled again. Sent to the other subscribed endpoints. */
  "endpoint.disabled": Schemas['EndpointDisabledEventData'];
  /** A deploy or a rollback has changed the models of a sync: records have other fields from its next run on. Raised once for each such change. */
  "function.models_changed": Schemas['FunctionModelsChangedEventData'];
  /** The provider refuses the client of an integration, or its API is not enabled. Raised once until the problem ends or its cause changes. With `client_not_allowed`, the provider refuses the tokens of single connections: raised once while such connections exist. */
  "integration.misconfigured": Schemas['IntegrationMisconfiguredEventData'];
  /** The provider throttles all calls of an integration. Raised at most once a minute. */
  "integration.rate_limited": Schemas['IntegrationRateLimitedEventData'];
  /** A refresh or a call of the API succeeded again, or no connection with the fault is left. */
  "integration.recovered": Schemas['IntegrationRecoveredEventData'];
  /** The provider has announced the end of a feature that connections of the integration need, at most 90 days ahead. Raised once for each announced end. */
  "integration.sunset": Schemas['IntegrationSunsetEventData'];
  /** All records of a dataset were removed without tombstones. Its cursors stay valid, so a client that follows a cursor and holds a copy drops the copy and reads from the beginning. */
  "records.dataset_emptied": Schemas['RecordsDatasetEmptiedEventData'];
  /** The end of delete tracking would delete too many records, so the deletion is held. Raised once until the tracking is closed. */
  "records.mass_delete_held": Schemas['RecordsMassDeleteHeldEventData'];
  /** A run of retention has removed payloads or tombstones in the environment. */
  "records.retention_done": Schemas['RecordsRetentionDoneEventData'];
  /** A run of a sync has succeeded and changed records of a model. Raised once for each model of the run. */
  "sync.changed": Schemas['SyncChangedEventData'];
  /** A run of a sync has failed and is not retried. The next run starts as scheduled. */
  "sync.failed": Schemas['FailedSync'];
  /** A sync has failed three times in a row. Raised again only after a success or a reconnection. */
  "sync.failing": Schemas['FailedSync'];
  /** The runs of a sync no longer start, because of its connection. Raised once until a run starts again. */
  "sync.held": Schemas['SyncHeldEventData'];
  /** The fields of a model at the provider have changed since the last run of its sync. Raised before the run changes records. */
  "sync.schema_changed": Schemas['SyncSchemaChangedEventData'];
  /** A run of a sync has succeeded and changed no record of a model. Raised once for each model of the run. */
  "sync.unchanged": Schemas['SyncUnchangedEventData'];
  /** A provider has sent a verified webhook to an integration with `forward_webhooks`. The event is raised once for each connection that the webhook names, or once if it names no connection. */
  "webhook.received": Schemas['WebhookReceivedEventData'];
};
