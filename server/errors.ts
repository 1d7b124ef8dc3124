/**
 * The catalogue of all errors of the API.
 *
 * Owns: codes, their statuses and their default messages. Does not own: how an error is written to the wire
 * (`http/error-writer.ts`), longer explanations (docs/reference/errors.md, which a test compares with this list).
 */

/** The HTTP status of a code, or its usual status and others that official clients expect; the default message. */
type GivenEntry = readonly [status: number | readonly number[], message: string];

const entries = {
  // The request as such
  invalid_json: [400, 'The body is not valid JSON.'],
  invalid_body: [400, 'The body is not valid. See `errors` for the fields.'],
  invalid_query_params: [400, 'The query is not valid. See `errors` for the parameters.'],
  invalid_uri_params: [400, 'The path is not valid. See `errors` for the parts.'],
  invalid_headers: [400, 'A header is missing or not valid. See `errors`.'],
  invalid_content_type: [415, 'Send the body as `Content-Type: application/json`.'],
  body_too_large: [413, 'The body is larger than this route accepts.'],
  malformed_request: [400, 'The request is not valid HTTP/1.1. The connection is closed.'],
  request_timeout: [408, 'The request did not arrive completely in time.'],
  headers_too_large: [431, 'The headers are more than 1,000, or larger than 16 KB together.'],
  unsupported_transfer_coding: [
    501,
    'Send the body with a Content-Length, or with `Transfer-Encoding: chunked` and no other coding.',
  ],
  not_found: [404, 'No resource has this address.'],
  method_not_allowed: [405, 'This address does not support the method.'],
  idempotency_key_reused: [
    422,
    'The Idempotency-Key was sent before with another query, body or header. Send another key with another request.',
  ],
  request_in_progress: [
    409,
    'The first request with this Idempotency-Key still runs. Send the same request again after Retry-After.',
  ],
  outcome_unknown: [
    409,
    'The service stopped during the first request with this Idempotency-Key. Check whether it took effect; if not, send it ' +
      'with another key.',
  ],
  too_many_requests: [429, 'Too many requests. Wait for the time in Retry-After.'],
  overloaded: [503, 'The node is overloaded and did not start the request. Try again after Retry-After.'],
  internal: [500, 'Internal error. The log has the details under this request ID.'],
  unavailable: [503, 'The service cannot answer at the moment. Try again shortly.'],

  // Who is calling
  missing_auth_header: [401, 'Send the secret key of an environment as `Authorization: Bearer <key>`.'],
  malformed_auth_header: [401, 'The Authorization header must read `Bearer <key>`.'],
  invalid_secret_key_format: [401, 'The value is not a secret key: its format is wrong.'],
  unknown_account: [401, 'No environment has this secret key.'],
  invalid_connect_session_token_format: [401, 'This is not a connect session token.'],
  unknown_connect_session_token: [401, 'The connect session is unknown, used or expired. Create another.'],
  session_in_other_browser: [
    400,
    'Another browser uses the connect session, which works only in that browser. Create another session.',
  ],
  invalid_ticket: [401, 'The ticket is altered or expired, or its key is no longer valid. Request another.'],
  forbidden: [403, 'The key lacks the scope for this call.'],
  not_signed_in: [401, 'Sign in to the dashboard: there is no session, or it has ended.'],
  cross_site_request: [403, 'A cookie is accepted only from pages of this service.'],
  invalid_invitation: [404, 'The link is unknown, used or expired. Request another.'],
  user_exists: [409, 'A user has this e-mail address already.'],
  user_without_password: [409, 'This user signs in at the OpenID provider and has no password to reset.'],
  last_owner: [409, 'This is the last owner. Make another user an owner first.'],
  environment_exists: [409, 'An environment with this name exists already.'],
  environment_in_use: [409, 'The environment has connections: delete these first.'],

  // Providers and integrations
  unknown_provider_config: [[404, 400], 'No integration has this ID in this environment.'],
  provider_exists: [409, 'This environment has a provider of this name already.'],
  provider_in_use: [409, 'Integrations use the provider: delete these first.'],
  too_many_providers: [400, 'The environment has 200 providers of its own: delete one first.'],
  integration_exists: [400, 'An integration with this ID exists already.'],
  integration_in_use: [400, 'The integration has connections: delete these first.'],
  integration_not_allowed: [400, 'The connect session does not allow this integration.'],
  test_credentials_unavailable: [
    [400, 424],
    'Test credentials need the sandbox, which is off. Start the service with TRELLIS_SANDBOX=on.',
  ],
  invalid_auth_mode: [400, 'The provider has another authorization mode than this route.'],
  unsupported_provider: [400, 'The provider definition has no API address to call.'],
  integration_misconfigured: [
    [424, 400],
    'The provider refused the integration: check its client ID, secret and settings.',
  ],

  // Connections
  unknown_connection: [[400, 404], 'No connection has this ID in this environment.'],
  invalid_credentials: [
    [424, 400],
    'The connection has no usable credentials: its user needs to connect again.',
  ],
  connection_needs_reauth: [
    424,
    'The provider no longer accepts this connection: its user needs to connect again.',
  ],
  connection_blocked: [
    424,
    'The provider refuses this application for this connection; its user cannot change that.',
  ],
  connection_refresh_failed: [503, 'The provider issues no new access token at the moment. Try again.'],
  connection_test_failed: [400, 'The provider refused these credentials, or did not answer.'],
  connection_validation_failed: [400, 'The connection was refused.'],
  revocation_ends_others: [
    409,
    'The revocation would end other connections. Confirm their number, which is in `payload`.',
  ],
  another_account: [409, 'The chosen account differs from the account that was connected before.'],

  // Records
  invalid_cursor: [400, 'The cursor is malformed or belongs to another dataset.'],
  invalid_record: [400, 'A record is not valid. Nothing was saved.'],
  cursor_expired: [410, 'Changes after this cursor were removed. Start again without one.'],
  cursor_behind_consumer: [
    409,
    'The consumer has acknowledged a later cursor. Send `rewind` to go back on purpose.',
  ],
  consumer_without_owner: [
    409,
    'No valid key owns the consumer. To own it, acknowledge its current cursor, which is in `payload`; or use a key with records:write.',
  ],
  no_delete_tracking: [400, 'No delete tracking is open. Start one before the sync.'],
  mass_delete_held: [
    409,
    'The end of delete tracking would delete too many records, so it deleted none. See `payload`. If the records no ' +
      'longer exist at the provider, send the same POST /records/track-deletes/end with "override": true.',
  ],

  // Functions
  functions_off: [403, 'Functions are turned off: the service runs with TRELLIS_FUNCTIONS=off.'],
  invalid_function: [400, 'A function cannot be deployed. See `errors`. Nothing was deployed.'],
  ambiguous_function: [409, 'Functions of several kinds have this name: send `type`.'],
  disabled_resource: [404, 'The function is switched off.'],
  invalid_action_input: [400, 'The input does not match the schema of the action. See `errors`.'],
  invalid_action_output: [500, 'The output of the action does not match its schema. See `errors`.'],
  action_script_runtime_error: [500, 'The action threw an ActionError: see `payload`.'],
  script_internal_error: [500, 'The code of the function failed: see `payload`.'],
  script_http_error: [424, 'The provider refused a call of the function: see `upstream`.'],
  script_network_error: [500, 'A call of the function got no response.'],
  script_timeout: [504, 'The function exceeded its time limit and was stopped.'],
  action_is_read_only: [
    403,
    'The action is read-only: it can call only with GET and HEAD, and cannot change data.',
  ],
  script_cancelled: [409, 'The run was cancelled.'],
  run_lost: [409, 'The run has ended, or another node has taken it over. Nothing was written.'],
  checkpoint_conflict: [
    409,
    'Another run has changed the checkpoint since this one read it. Nothing was written.',
  ],
  missing_scopes: [
    424,
    'The connection lacks scopes that the function needs: its user needs to connect again.',
  ],
  missing_provider_config_key: [400, 'Send the ID of the integration as `integration_id`.'],
  no_syncs_found: [400, 'The integration has no sync of this name.'],
  unknown_sync: [400, 'The connection has no sync of this name and variant.'],
  invalid_variant: [400, 'The variant `base` always exists: it cannot be created or removed.'],
  function_exists: [
    409,
    'The integration has a deployed function of this name. Remove it first, or keep it.',
  ],
  setup_refused: [422, 'The chosen sheet cannot be read: the message has the reason.'],
  sync_variant_already_exists: [400, 'The sync has this variant already.'],
  resource_capped: [400, 'A sync has at most 100 variants for a connection.'],

  webhook_refused: [401, 'The webhook has no valid proof of the provider: the message has the reason.'],

  // Events
  too_many_endpoints: [400, 'The environment has 50 endpoints: delete one first.'],
  endpoint_of_setting: [
    409,
    'The endpoint belongs to a setting or to a connection: change its address there.',
  ],

  // Proxy
  invalid_proxy_path: [400, 'The path to the provider cannot be sent safely.'],
  base_url_override_not_allowed: [400, 'The integration does not allow this Base-Url-Override.'],
  proxy_rule_denied: [403, 'The rules of the key, of the ticket or of the integration refuse this call.'],
  ticket_bytes_exceeded: [[413, 502], 'The body has more bytes than the ticket allows.'],
  address_not_allowed: [
    [400, 424],
    'The address is private, loopback or reserved. TRELLIS_OUTBOUND_ALLOW can permit a range.',
  ],
  quota_exhausted: [429, "The provider's quota is used up for now. Wait for the time in Retry-After."],
  upstream_unreachable: [502, 'The provider could not be reached. Nothing was sent.'],
  upstream_unreadable: [
    502,
    'The response of the provider is not readable HTTP. The call may have taken effect.',
  ],
  upstream_unknown_outcome: [
    502,
    'The connection to the provider broke after the request was sent: its outcome is unknown.',
  ],
  upstream_timeout: [504, 'The provider did not answer in time.'],
} as const satisfies Record<string, GivenEntry>;

export type ErrorCode = keyof typeof entries;

type Entry = {
  /** The usual HTTP status. */
  readonly status: number;
  /** Further statuses under which official clients expect the same code. */
  readonly also: readonly number[];
  /** What happened and what to do, for a reader who sees nothing else. */
  readonly message: string;
};

export const errorCatalogue = Object.fromEntries(
  Object.entries<GivenEntry>(entries).map(([code, [given, message]]): [string, Entry] => {
    const [status = 500, ...also] = [given].flat();
    return [code, { status, also, message }];
  }),
) as Record<ErrorCode, Entry>;

/** A fault in a field; the elements of `path` are text, also array indexes. */
export type FieldError = { code: string; message: string; path: string[]; reason?: FieldReason | undefined };

/**
 * Why a value of a form is refused, for programs that show it in another language: `limit` is what is allowed, in a form
 * that is the same in each language, such as `A–Z 0–9 -`.
 */
export type FieldReason =
  | { code: 'too_long' | 'one_of' | 'characters' | 'length'; limit: string }
  | { code: 'control_characters' | 'not_ascii' | 'form' | 'address' };

type Details = {
  /** One of the statuses of the code in the catalogue; by default the usual one. */
  status?: number;
  errors?: FieldError[];
  /** Facts for the caller's program. Never a secret. */
  payload?: unknown;
  /** The response of the provider, if that is the error. */
  upstream?: unknown;
  /** Sent as Retry-After. */
  retryAfterS?: number;
  /** Header fields of the response, by names in lower case. */
  headers?: Readonly<Record<string, string>>;
  cause?: unknown;
};

/** An error that the caller receives. Any other error is written as `internal`, without its message. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly errors: FieldError[] | undefined;
  readonly payload: unknown;
  readonly upstream: unknown;
  readonly retryAfterS: number | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  /** The message has text that the code of a function threw: neither the service's log nor the activity log keeps it. */
  quotesCode = false;

  /** `message` replaces the catalogue's message with a more precise one. It never holds a secret. */
  constructor(code: ErrorCode, message?: string, details: Details = {}) {
    const entry: Entry = errorCatalogue[code];
    super(message ?? entry.message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = 'AppError';
    this.code = code;
    this.status = details.status ?? entry.status;
    this.errors = details.errors;
    this.payload = details.payload;
    this.upstream = details.upstream;
    this.retryAfterS = details.retryAfterS;
    this.headers = details.headers;
    if (this.status !== entry.status && !entry.also.includes(this.status)) {
      throw new RangeError(`${code} does not have the status ${this.status}`);
    }
  }
}

/** A 400 with the fault of one field, for rules that a schema cannot express. */
export function fieldError(
  code: 'invalid_body' | 'invalid_query_params' | 'invalid_headers' | 'invalid_uri_params',
  path: (string | number)[],
  message: string,
): AppError {
  return new AppError(code, undefined, { errors: [{ code: 'custom', message, path: path.map(String) }] });
}
