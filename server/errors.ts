/**
 * Every error a caller of our interface can meet, in one catalogue.
 *
 * Owns: codes, their statuses and their default sentences. Does not own: how an error is written to the wire
 * (`http/error-writer.ts`) or the longer explanations (docs/errors.md, which a test compares with this list).
 */

type Entry = {
  /** The usual HTTP status. */
  readonly status: number;
  /** Further statuses under which official clients expect the same code. */
  readonly also?: readonly number[];
  /** What happened and what to do, for a reader who sees nothing else. */
  readonly message: string;
};

export const errorCatalogue = {
  // The request as such
  invalid_json: { status: 400, message: 'The body is not valid JSON.' },
  invalid_body: { status: 400, message: 'The body does not fit. See `errors` for the fields.' },
  invalid_query_params: { status: 400, message: 'The query does not fit. See `errors` for the parameters.' },
  invalid_uri_params: { status: 400, message: 'The path does not fit. See `errors` for the parts.' },
  invalid_headers: { status: 400, message: 'A header is missing or does not fit. See `errors`.' },
  invalid_content_type: { status: 415, message: 'Send the body as `Content-Type: application/json`.' },
  body_too_large: { status: 413, message: 'The body is larger than this route accepts.' },
  malformed_request: { status: 400, message: 'This is not a request of HTTP/1.1. The connection is closed.' },
  request_timeout: { status: 408, message: 'The request did not come whole in time.' },
  headers_too_large: {
    status: 431,
    message: 'The headers are more than 1,000, or larger than 16 KB together.',
  },
  unsupported_transfer_coding: {
    status: 501,
    message: 'Send the body with a Content-Length, or with `Transfer-Encoding: chunked` and no other coding.',
  },
  not_found: { status: 404, message: 'There is nothing at this address.' },
  method_not_allowed: { status: 405, message: 'This method is not served here.' },
  too_many_requests: { status: 429, message: 'Too many requests. Wait as long as Retry-After says.' },
  overloaded: {
    status: 503,
    message:
      'More is asked of this node than it can do, and this was not begun. Try again after Retry-After.',
  },
  internal: { status: 500, message: 'Something went wrong here. The log names this request id.' },
  unavailable: { status: 503, message: 'The service cannot answer at the moment. Try again shortly.' },

  // Who is calling
  missing_auth_header: {
    status: 401,
    message: 'Send the secret key of an environment as `Authorization: Bearer <key>`.',
  },
  malformed_auth_header: { status: 401, message: 'The Authorization header must read `Bearer <key>`.' },
  invalid_secret_key_format: { status: 401, message: 'This is not a secret key: its form is wrong.' },
  unknown_account: { status: 401, message: 'No environment has this secret key.' },
  invalid_connect_session_token_format: { status: 401, message: 'This is not a connect session token.' },
  unknown_connect_session_token: {
    status: 401,
    message: 'The connect session is unknown, used or expired. Create another.',
  },
  session_in_other_browser: {
    status: 400,
    message: 'The connect session is in use in another browser, and works in that one alone.',
  },
  invalid_ticket: {
    status: 401,
    message: 'The ticket is altered, expired, or its key is no longer good. Ask for another.',
  },
  forbidden: { status: 403, message: 'The key lacks the scope for this call.' },
  not_signed_in: { status: 401, message: 'Sign in to the dashboard: there is no session, or it has ended.' },
  cross_site_request: { status: 403, message: 'A cookie counts only for pages of this service.' },
  invalid_invitation: { status: 404, message: 'The link is unknown, used or expired. Ask for another.' },
  user_exists: { status: 409, message: 'Somebody signs in with this e-mail address already.' },
  user_without_password: {
    status: 409,
    message: 'This user signs in at the OpenID provider and has no password that could be reset.',
  },
  last_owner: { status: 409, message: 'This is the last owner. Make somebody else an owner first.' },
  environment_exists: { status: 409, message: 'An environment of this name exists already.' },
  environment_in_use: { status: 409, message: 'The environment has connections: delete these first.' },

  // Providers and integrations
  unknown_provider_config: {
    status: 404,
    also: [400],
    message: 'No integration has this ID in this environment.',
  },
  integration_exists: { status: 400, message: 'An integration with this ID exists already.' },
  integration_in_use: { status: 400, message: 'The integration has connections: delete these first.' },
  integration_not_allowed: { status: 400, message: 'The connect session does not allow this integration.' },
  test_credentials_unavailable: {
    status: 400,
    also: [424],
    message: 'Test credentials need the sandbox, which is off. Start the service with TRELLIS_SANDBOX=on.',
  },
  invalid_auth_mode: { status: 400, message: 'The provider authorizes in another way than this route.' },
  unsupported_provider: { status: 400, message: 'The provider definition has no API address to call.' },
  integration_misconfigured: {
    status: 424,
    also: [400],
    message: 'The provider refused the integration itself: check its client ID, secret and settings.',
  },

  // Connections
  unknown_connection: { status: 400, also: [404], message: 'No connection has this ID in this environment.' },
  invalid_credentials: {
    status: 424,
    also: [400],
    message: 'The connection has no usable credentials: its user needs to connect again.',
  },
  connection_needs_reauth: {
    status: 424,
    message: 'The provider no longer accepts this connection: its user needs to connect again.',
  },
  connection_blocked: {
    status: 424,
    message: 'The provider refuses this application for this connection; its user cannot change that.',
  },
  connection_refresh_failed: {
    status: 503,
    message: 'The provider gives no new access token at the moment. Try again.',
  },
  connection_test_failed: { status: 400, message: 'The provider refused these credentials.' },
  connection_validation_failed: { status: 400, message: 'The connection was refused.' },
  revocation_ends_others: {
    status: 409,
    message: 'The revocation would end other connections. Confirm their number, which `payload` says.',
  },
  another_account: { status: 409, message: 'Another account was chosen than the one connected before.' },

  // Records
  invalid_cursor: { status: 400, message: 'The cursor is malformed or belongs to another dataset.' },
  invalid_record: { status: 400, message: 'A record does not fit. Nothing was saved.' },
  cursor_expired: {
    status: 410,
    message: 'Changes after this cursor were removed. Start again without one.',
  },
  cursor_behind_consumer: {
    status: 409,
    message: 'The consumer has acknowledged a later cursor. Send `rewind` to go back on purpose.',
  },
  consumer_without_owner: {
    status: 409,
    message:
      'No valid key owns the consumer. Acknowledge its present cursor, which `payload` holds, to own it, or use a key with records:write.',
  },
  no_delete_tracking: { status: 400, message: 'No delete tracking is open. Start one before the sync.' },
  mass_delete_held: {
    status: 409,
    message:
      'So many records would be deleted that none was. See `payload`. If they are gone at the provider, send the same ' +
      'POST /records/track-deletes/end with "override": true.',
  },

  // Functions
  functions_off: {
    status: 403,
    message: 'Functions are turned off: the service runs with TRELLIS_FUNCTIONS=off.',
  },
  invalid_function: {
    status: 400,
    message: 'A function cannot be deployed. See `errors`. Nothing was deployed.',
  },
  ambiguous_function: {
    status: 409,
    message: 'Functions of several kinds have this name: say which with `type`.',
  },
  disabled_resource: { status: 404, message: 'The function is switched off.' },
  invalid_action_input: { status: 400, message: 'The input does not fit the action. See `errors`.' },
  invalid_action_output: {
    status: 500,
    message: "The action's output does not fit what it declares. See `errors`.",
  },
  action_script_runtime_error: { status: 500, message: 'The action failed on purpose: see `payload`.' },
  script_internal_error: { status: 500, message: 'The code of the function failed: see `payload`.' },
  script_http_error: { status: 424, message: 'The provider refused a call of the function: see `upstream`.' },
  script_network_error: { status: 500, message: 'A call of the function got no answer.' },
  script_timeout: { status: 504, message: 'The function took longer than it may, and was stopped.' },
  action_is_read_only: {
    status: 403,
    message: 'The action is read-only: it calls with GET and HEAD alone, and changes nothing.',
  },
  script_cancelled: { status: 409, message: 'The run was cancelled.' },
  run_lost: {
    status: 409,
    message:
      'The run is no longer this one: it was ended, or another node has taken it over. Nothing was written.',
  },
  checkpoint_conflict: {
    status: 409,
    message: 'Another run has changed the checkpoint since this one read it. Nothing was written.',
  },
  missing_scopes: {
    status: 424,
    message: 'The connection lacks scopes that the function needs: its user needs to connect again.',
  },
  missing_provider_config_key: { status: 400, message: 'Name the integration as `provider_config_key`.' },
  no_syncs_found: { status: 400, message: 'The integration has no sync of this name.' },
  unknown_sync: { status: 400, message: 'The connection has no sync of this name and variant.' },
  invalid_variant: { status: 400, message: '`base` is the variant that every sync has.' },
  function_exists: {
    status: 409,
    message: 'The integration has a function of this name that was deployed. Remove it first, or keep it.',
  },
  setup_refused: { status: 422, message: 'What was to be set up cannot be read: see the message for why.' },
  sync_variant_already_exists: { status: 400, message: 'The sync has this variant already.' },
  resource_capped: { status: 400, message: 'A sync has 100 variants for a connection at most.' },

  webhook_refused: {
    status: 401,
    message: 'The webhook is not proved to be of the provider: see the message for why.',
  },

  // Events
  too_many_endpoints: { status: 400, message: 'The environment has 50 endpoints: delete one first.' },
  endpoint_of_setting: {
    status: 409,
    message: 'The endpoint stands for an address of the settings or of a connection: change it there.',
  },

  // Proxy
  invalid_proxy_path: {
    status: 400,
    message: 'The path to the provider is not one that can be sent safely.',
  },
  base_url_override_not_allowed: {
    status: 400,
    message: 'The integration does not allow this Base-Url-Override.',
  },
  proxy_rule_denied: {
    status: 403,
    message: 'The rules of the key, of the ticket or of the integration refuse this call.',
  },
  ticket_bytes_exceeded: {
    status: 413,
    also: [502],
    message: 'The ticket allows a body of fewer bytes.',
  },
  address_not_allowed: {
    status: 400,
    also: [424],
    message: 'The address is private, loopback or reserved. TRELLIS_OUTBOUND_ALLOW can permit a range.',
  },
  quota_exhausted: {
    status: 429,
    message: "The provider's quota is used up for now. Wait as long as Retry-After says.",
  },
  upstream_unreachable: { status: 502, message: 'The provider could not be reached. Nothing was sent.' },
  upstream_unreadable: {
    status: 502,
    message: 'The provider answered in no HTTP that can be read. What the call does may be done.',
  },
  upstream_unknown_outcome: {
    status: 502,
    message: 'The connection to the provider broke after the request was sent: its outcome is unknown.',
  },
  upstream_timeout: { status: 504, message: 'The provider did not answer in time.' },
} as const satisfies Record<string, Entry>;

export type ErrorCode = keyof typeof errorCatalogue;

/** One fault in one field; `path` elements are always text, array indexes too. */
export type FieldError = { code: string; message: string; path: string[] };

type Details = {
  /** One of the statuses the catalogue lists for the code; its first when absent. */
  status?: number;
  errors?: FieldError[];
  /** Facts for the caller's program. Never a secret. */
  payload?: unknown;
  /** What a provider answered, where that is the error. */
  upstream?: unknown;
  /** Sent as Retry-After. */
  retryAfterS?: number;
  /** Header fields that go along, by names in lower case. */
  headers?: Readonly<Record<string, string>>;
  cause?: unknown;
};

/** An error that a caller may see. Whatever else is thrown is written as a bare `internal`. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly errors: FieldError[] | undefined;
  readonly payload: unknown;
  readonly upstream: unknown;
  readonly retryAfterS: number | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  /** The message is text of a function's code, which the log of the service does not keep. */
  quotesCode = false;

  /** `message` replaces the catalogue's sentence where the place knows more. It never holds a secret. */
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
    if (this.status !== entry.status && !entry.also?.includes(this.status)) {
      throw new RangeError(`${code} does not stand with status ${this.status}`);
    }
  }
}

/** One field's fault as the matching 400, for what a schema cannot say. */
export function fieldError(
  code: 'invalid_body' | 'invalid_query_params' | 'invalid_headers' | 'invalid_uri_params',
  path: (string | number)[],
  message: string,
): AppError {
  return new AppError(code, undefined, { errors: [{ code: 'custom', message, path: path.map(String) }] });
}
