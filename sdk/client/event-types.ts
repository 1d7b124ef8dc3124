// Written by scripts/api-types.ts out of /openapi.json.

/** What the event of each type carries as its `data`. */
export type EventData = {
  /** An action that was called with `X-Async: true` has failed and is not retried, or was cancelled. */
  "action.failed": { connection_id: string; provider_config_key: string; function: string; run: string; error: { code: string; message: string } };
  /** An action that was called with `X-Async: true` has succeeded. Raised once. */
  "action.succeeded": { connection_id: string; provider_config_key: string; function: string; run: string };
  /** An administrator of the account does not allow the application, or the client is no longer allowed a scope of the grant. Raised again if the cause changes. */
  "connection.blocked": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused"; evidence: Record<string, string | number>; since: string; next_step: string; reconnect: { method: "POST"; path: "/connect/sessions/reconnect"; body: { integration_id: string; connection_id: string; scopes?: "missing" } } | null };
  /** A session has ended, and its user has not returned from the provider (`nothing_came_back`), or returned while the service was stopped (`cut_off`). */
  "connection.connect_abandoned": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; tags: Record<string, string>; end_user: { id: string } | null; cause: "access_denied" | "blocked_by_admin" | "client_refused" | "code_refused" | "credentials_refused" | "provider_not_answering" | "unexpected_answer" | "another_account" | "account_unknown" | "another_browser" | "not_completed" | "cut_off" | "nothing_came_back"; evidence: Record<string, string | number>; begun_at: string; next_step: string };
  /** A user returned from the provider without a connection: the user, the administrator or the provider refused, or the user used another account or another browser (`not_completed`: `evidence.error` names the reason). */
  "connection.connect_failed": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; tags: Record<string, string>; end_user: { id: string } | null; cause: "access_denied" | "blocked_by_admin" | "client_refused" | "code_refused" | "credentials_refused" | "provider_not_answering" | "unexpected_answer" | "another_account" | "account_unknown" | "another_browser" | "not_completed" | "cut_off" | "nothing_came_back"; evidence: Record<string, string | number>; begun_at: string; next_step: string };
  /** An account was connected, or its tokens were imported. */
  "connection.created": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; missing_scopes?: (string)[] };
  /** A connection was deleted. */
  "connection.deleted": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null };
  /** The grant ends automatically within 48 hours. Raised once for each end, and immediately if less time is left when the account is connected. */
  "connection.expiring": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "testing_expiry" | "time_based_expiry"; expires_at: string; next_step: string };
  /** A connection stopped working, and its user must connect again. */
  "connection.needs_reauth": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused"; evidence: Record<string, string | number>; since: string; next_step: string; reconnect: { method: "POST"; path: "/connect/sessions/reconnect"; body: { integration_id: string; connection_id: string; scopes?: "missing" } } | null };
  /** The provider throttles the calls of the account. Raised at most once a minute. */
  "connection.rate_limited": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; limit: "quota" | "abuse_guard"; evidence: Record<string, string | number> };
  /** A connection got new credentials, by a reconnect session or by an import under its ID. */
  "connection.reconnected": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; missing_scopes?: (string)[] };
  /** A connection works again without its user: it was blocked, or refreshes were delayed. */
  "connection.recovered": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused" | "provider_not_answering" | "settings_refused" | null; since: string | null; recovered_at: string };
  /** Three refreshes in a row returned no token, but the grant was not refused: the provider did not answer, or it refuses a setting of the connection's own client. Raised once until a refresh succeeds. */
  "connection.refresh_delayed": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "provider_not_answering" | "settings_refused"; evidence: Record<string, string | number>; since: string; next_step: string; attempts: number };
  /** The revocation of a deleted connection was not sent, because another connection uses the grant, usually because the account connected again. */
  "connection.revoke_dropped": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null };
  /** The grant of a deleted connection could not be revoked for three days, and there are no more attempts. Its user can withdraw it in the settings of the account. */
  "connection.revoke_failed": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; evidence: Record<string, string | number>; attempts: number };
  /** The user granted fewer scopes than requested, a refresh granted fewer scopes than before, or an API required a scope that the token lacks. Raised once for each scope. */
  "connection.scopes_reduced": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; lost_scopes: (string)[] };
  /** The account uses 80 % of the live grants that the provider allows for an account and OAuth client, in all environments together. Raised again for each connection that the next grant would end without notice. */
  "connection.token_slots": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; used: number; limit: number; is_next: boolean; next_step: string };
  /** A consumer has not acknowledged for 30 days although there are changes after its cursor. Raised once until it acknowledges again. */
  "consumer.stale": { connection_id: string; provider_config_key: string; model: string; variant: string; consumer: string; cursor: string | null; acknowledged_at: string };
  /** An endpoint was disabled, and no events are sent to it until it is enabled again. Sent to all other endpoints. */
  "endpoint.disabled": { endpoint_id: number; url: string; cause: "gone" | "failing"; evidence: Record<string, string | number>; next_step: string };
  /** A deploy or a rollback has changed the models of a sync: records have other fields from its next run on. Raised once for each such change. */
  "function.models_changed": { provider_config_key: string; function: string; version: number; previous_version: number; models: ({ model: string; change: "added" | "removed" | "changed"; added: (string)[]; removed: (string)[]; changed: (string)[] })[] };
  /** The provider refuses the client of an integration, or its API is not enabled. Raised once until the problem ends or its cause changes. With `client_not_allowed`, the provider refuses the tokens of single connections: raised once while such connections exist. */
  "integration.misconfigured": { provider_config_key: string; provider: string; test: boolean; cause: "client_refused" | "client_deleted" | "client_misconfigured" | "client_not_allowed" | "api_disabled"; evidence: Record<string, string | number>; since: string; next_step: string };
  /** The provider throttles all calls of an integration. Raised at most once a minute. */
  "integration.rate_limited": { provider_config_key: string; provider: string; test: boolean; limit: "quota" | "abuse_guard"; evidence: Record<string, string | number> };
  /** A refresh or a call of the API succeeded again, or no connection with the fault is left. */
  "integration.recovered": { provider_config_key: string; provider: string; test: boolean; cause: "client_refused" | "client_deleted" | "client_misconfigured" | "client_not_allowed" | "api_disabled"; since: string; recovered_at: string };
  /** All records of a dataset were removed without tombstones. Its cursors stay valid, so a client that follows a cursor and holds a copy drops the copy and reads from the beginning. */
  "records.dataset_emptied": { connection_id: string; provider_config_key: string; model: string; variant: string; records: number; deleted: number };
  /** The end of delete tracking would delete too many records, so the deletion is held. Raised once until the tracking is closed. */
  "records.mass_delete_held": { connection_id: string; provider_config_key: string; model: string; variant: string; would_delete: number; live: number };
  /** A run of retention has removed payloads or tombstones in the environment. */
  "records.retention_done": { datasets: number; pruned: number; bytes: number; tombstones_removed: number };
  /** A run of a sync has succeeded and changed records of a model. Raised once for each model of the run. */
  "sync.changed": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; started_at: string; added: number; updated: number; deleted: number };
  /** A run of a sync has failed and is not retried. The next run starts as scheduled. */
  "sync.failed": { connection_id: string; provider_config_key: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; error: { code: string; message: string }; failures: number; started_at: string; failed_at: string };
  /** The runs of a sync no longer start, because of its connection. Raised once until a run starts again. */
  "sync.held": { connection_id: string; provider_config_key: string; variant: string; function: string; error: { code: string; message: string }; since: string };
  /** The fields of a model at the provider have changed since the last run of its sync. Raised before the run changes records. */
  "sync.schema_changed": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; changes: ({ change: "added" | "removed" | "renamed" | "moved"; field: string; previous?: string })[] };
  /** A run of a sync has succeeded and changed no record of a model. Raised once for each model of the run. */
  "sync.unchanged": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; started_at: string };
  /** A provider has sent a verified webhook to an integration with `forward_webhooks`. The event is raised once for each connection that the webhook names, or once if it names no connection. */
  "webhook.received": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; type: string | null; payload?: unknown };
};
