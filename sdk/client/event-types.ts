// Written by scripts/api-types.ts out of /openapi.json.

/** What the event of each type carries as its `data`. */
export type EventData = {
  /** An action that was called with `X-Async: true` has failed and is not tried again, or was cancelled. */
  "action.failed": { connection_id: string; provider_config_key: string; function: string; run: string; error: { code: string; message: string } };
  /** An action that was called with `X-Async: true` has answered; told once. */
  "action.succeeded": { connection_id: string; provider_config_key: string; function: string; run: string };
  /** An administrator of the account does not allow the application, or the client may no longer have a scope of the grant; told again where one cause follows the other. */
  "connection.blocked": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused"; evidence: Record<string, string | number>; since: string; next_step: string; reconnect: { method: "POST"; path: "/connect/sessions/reconnect"; body: { integration_id: string; connection_id: string; scopes?: "missing" } } | null };
  /** A session is over, and a user who went to the provider has not come back (`nothing_came_back`), or came back when the service was stopped (`cut_off`). */
  "connection.connect_abandoned": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; tags: Record<string, string>; end_user: { id: string } | null; cause: "access_denied" | "blocked_by_admin" | "client_refused" | "code_refused" | "credentials_refused" | "provider_not_answering" | "unexpected_answer" | "another_account" | "account_unknown" | "another_browser" | "not_completed" | "cut_off" | "nothing_came_back"; evidence: Record<string, string | number>; begun_at: string; next_step: string };
  /** A user came back from the provider without a connection: refused by the user, the administrator or the provider, with another account or in another browser (`not_completed`: `evidence.error` names why). */
  "connection.connect_failed": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; tags: Record<string, string>; end_user: { id: string } | null; cause: "access_denied" | "blocked_by_admin" | "client_refused" | "code_refused" | "credentials_refused" | "provider_not_answering" | "unexpected_answer" | "another_account" | "account_unknown" | "another_browser" | "not_completed" | "cut_off" | "nothing_came_back"; evidence: Record<string, string | number>; begun_at: string; next_step: string };
  /** An account was connected, or its tokens were imported. */
  "connection.created": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; missing_scopes?: (string)[] };
  /** A connection was deleted. */
  "connection.deleted": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null };
  /** The grant ends by itself within 48 hours; told once for each end, and at once where it is connected later than that. */
  "connection.expiring": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "testing_expiry" | "time_based_expiry"; expires_at: string; next_step: string };
  /** A connection stopped working, and its user must connect again. */
  "connection.needs_reauth": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused"; evidence: Record<string, string | number>; since: string; next_step: string; reconnect: { method: "POST"; path: "/connect/sessions/reconnect"; body: { integration_id: string; connection_id: string; scopes?: "missing" } } | null };
  /** The provider throttles the calls of the account; told at most once a minute. */
  "connection.rate_limited": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; limit: "quota" | "abuse_guard"; evidence: Record<string, string | number> };
  /** A connection got new credentials, by a reconnect session or by an import under its ID. */
  "connection.reconnected": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; missing_scopes?: (string)[] };
  /** A connection works again without its user: it was blocked, or refreshes were delayed. */
  "connection.recovered": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "grant_dead" | "credentials_refused" | "testing_expired" | "access_time_ended" | "session_policy" | "no_refresh_token" | "refresh_reply_lost" | "security_event" | "revoked_by_disconnect" | "blocked_by_admin" | "scopes_refused" | "provider_not_answering" | "settings_refused" | null; since: string | null; recovered_at: string };
  /** Three refreshes in a row brought no token, and ended nothing: the provider gave no judgement, or refuses a setting to a client of the connection's own. Told once until one succeeds. */
  "connection.refresh_delayed": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; cause: "provider_not_answering" | "settings_refused"; evidence: Record<string, string | number>; since: string; next_step: string; attempts: number };
  /** The revocation that a deleted connection had left was not sent: a living connection has come to need the grant, mostly because the account connected again. */
  "connection.revoke_dropped": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null };
  /** The grant of a deleted connection could not be revoked for three days and was given up; its user can withdraw it in the settings of the account. */
  "connection.revoke_failed": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; evidence: Record<string, string | number>; attempts: number };
  /** Less was granted than asked for when it was connected, a refresh granted less than before, or an API asked for a scope that the token lacks; told once for each scope. */
  "connection.scopes_reduced": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; lost_scopes: (string)[] };
  /** The account has taken 80 % of the live grants that the provider allows for an account and OAuth client, in all environments together; told once more for each connection that the next grant would end without notice. */
  "connection.token_slots": { connection_id: string; provider_config_key: string; provider: string; test: boolean; account: { id: string; email?: string } | null; tags: Record<string, string>; end_user: { id: string } | null; used: number; limit: number; is_next: boolean; next_step: string };
  /** A consumer has been silent for 30 days and changes wait for it; told once, until it acknowledges again. */
  "consumer.stale": { connection_id: string; provider_config_key: string; model: string; variant: string; consumer: string; cursor: string | null; acknowledged_at: string };
  /** Nothing is sent to an endpoint any more until somebody enables it again; told to all others. */
  "endpoint.disabled": { endpoint_id: number; url: string; cause: "gone" | "failing"; evidence: Record<string, string | number>; next_step: string };
  /** Another version of a sync runs, by a deploy or a roll back, whose models are not those of the version before: records have other fields from its next run on. Told once for each such change. */
  "function.models_changed": { provider_config_key: string; function: string; version: number; previous_version: number; models: ({ model: string; change: "added" | "removed" | "changed"; added: (string)[]; removed: (string)[]; changed: (string)[] })[] };
  /** The provider refuses the client of an integration, or its API is switched off; told once until that is over or has another cause. With `client_not_allowed` it refuses the tokens of single connections: told once while there are any. */
  "integration.misconfigured": { provider_config_key: string; provider: string; test: boolean; cause: "client_refused" | "client_deleted" | "client_misconfigured" | "client_not_allowed" | "api_disabled"; evidence: Record<string, string | number>; since: string; next_step: string };
  /** The provider throttles all calls of an integration; told at most once a minute. */
  "integration.rate_limited": { provider_config_key: string; provider: string; test: boolean; limit: "quota" | "abuse_guard"; evidence: Record<string, string | number> };
  /** A refresh, or a call of the API, succeeded again, or no connection is left that shows the fault. */
  "integration.recovered": { provider_config_key: string; provider: string; test: boolean; cause: "client_refused" | "client_deleted" | "client_misconfigured" | "client_not_allowed" | "api_disabled"; since: string; recovered_at: string };
  /** All records of a dataset were removed without tombstones. Its cursors stay valid, so a client that follows a cursor and holds a copy drops the copy and reads from the beginning. */
  "records.dataset_emptied": { connection_id: string; provider_config_key: string; model: string; variant: string; records: number; deleted: number };
  /** The end of delete tracking would delete so much that it was held back; told once, until the tracking is closed. */
  "records.mass_delete_held": { connection_id: string; provider_config_key: string; model: string; variant: string; would_delete: number; live: number };
  /** A run of retention has let something go in the environment. */
  "records.retention_done": { datasets: number; pruned: number; bytes: number; tombstones_removed: number };
  /** A run of a sync has ended well and changed records of a model; told for each model, once for the run. */
  "sync.changed": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; started_at: string; added: number; updated: number; deleted: number };
  /** A run of a sync has failed and is not tried again; the next one starts at its time. */
  "sync.failed": { connection_id: string; provider_config_key: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; error: { code: string; message: string }; failures: number; started_at: string; failed_at: string };
  /** The runs of a sync do not start any more, for a reason of its connection; told once, until one starts again. */
  "sync.held": { connection_id: string; provider_config_key: string; variant: string; function: string; error: { code: string; message: string }; since: string };
  /** The fields that a provider has for a model are others than at the last run of its sync; told before records are changed by it. */
  "sync.schema_changed": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; changes: ({ change: "added" | "removed" | "renamed" | "moved"; field: string; previous?: string })[] };
  /** A run of a sync has ended well and changed no record of a model; told for each model, once for the run. */
  "sync.unchanged": { connection_id: string; provider_config_key: string; model: string; variant: string; function: string; run: string; sync_type: "INITIAL" | "INCREMENTAL" | "WEBHOOK"; started_at: string };
  /** A provider has sent a verified webhook to an integration with `forward_webhooks`. The event is raised once for each connection that the webhook names, or once if it names none. */
  "webhook.received": { connection_id: string | null; provider_config_key: string; provider: string; test: boolean; type: string | null; payload?: unknown };
};
