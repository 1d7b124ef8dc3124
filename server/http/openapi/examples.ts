/**
 * Examples for the OpenAPI document, made from the JSON Schemas of the routes, and the description and the example values
 * of each field name.
 *
 * A field name has the same meaning in all modules, so that examples agree with each other: the connection that one call
 * creates is the connection that the next call names. A name may be longer (`operations.status`, `account.id`) if its end
 * alone is ambiguous; its first part may be the tag of the route. A schema's own description has precedence over `description`.
 */
type Field = { description?: string; examples: readonly unknown[] };

const described = (description: string, ...examples: unknown[]): Field => ({ description, examples });
const example = (...examples: unknown[]): Field => ({ examples });

const time = '2026-11-21T10:15:17.733Z';
const uuid = 'f8cd4a51-e8fb-4f1a-8fbd-2872b2aa1b09';
const cursor = 'AQIAAAAAAAAAKwAAAAAAAAGQd0fmXw';
const readScope = 'https://www.googleapis.com/auth/spreadsheets.readonly';
const spreadsheet = '1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms';
const integrationId = described('ID of the integration.', 'google-sheet');
const connectionId = described('ID of the connection.', 'ada-sheets');
const position = (description: string) => described(description, '1042', 1042, 'own.5');
const from = described('Only entries of this time or later: ISO 8601.', time);
const page = described('The number of the page, from 0.', 0);
const secret = 'secret-of-the-provider';

const fieldsByName: Record<string, Field> = {
  // IDs and names
  'providers.data.definition': described(
    'The definition, in YAML or JSON.',
    'extends: private-api-key\ndisplay_name: Our CRM\n',
  ),
  id: described('The ID, as in the list.', 12, uuid, 'k7Qm2xVb'),
  key: integrationId,
  unique_key: integrationId,
  integration: integrationId,
  integration_id: integrationId,
  integrationId: described('Only entries of these integrations, separated by commas.', 'google-sheet'),
  provider_config_key: integrationId,
  providerConfigKey: integrationId,
  'provider-config-key': integrationId,
  'integration-id': integrationId,
  connection_id: connectionId,
  connectionId,
  'connection-id': connectionId,
  'connections.id': described('ID of the connection.', 'ada-sheets', 7),
  provider: described('Name of the provider, as GET /providers lists it.', 'google-sheet'),
  environment: described('Name of the environment.', 'dev'),
  'environment.name': described('Name of the environment.', 'staging'),
  'environment-variables.name': example('API_BASE'),
  'variables.name': example('API_BASE'),
  'set.name': example('API_BASE'),
  'api_keys.name': example('reporting'),
  brand: example('trellis'),
  display_name: example('Google Sheets'),
  provider_display_name: example('Google Sheets'),
  'end_user.display_name': example('Ada Lovelace'),
  'organization.display_name': example('Customer Ltd'),
  auth_mode: example('OAUTH2'),
  email: example('ada@customer.example'),
  account: example('ada@customer.example', { id: '179550736925643251058', email: 'ada@customer.example' }),
  'account.id': example('179550736925643251058'),
  'end_user.id': example('ada'),
  'organization.id': example('customer-1'),
  end_user: example({ id: 'ada', email: 'ada@customer.example' }),
  tags: example({ team: 'analysis' }),
  metadata: example({ spreadsheet_id: spreadsheet }, { description: 'Rows of a sheet', scopes: [readScope] }),
  connection_config: example({}),
  integration_config: example({}),
  custom: example({}),
  name: example('rows', 'Ada Lovelace', 'API_BASE'),
  'connection.id': described('ID of the connection.', 'ada-sheets', 7),
  'users.id': described('ID of the user.', 'k7Qm2xVb', 12),
  'users.name': example('Ada Lovelace'),
  'environments.name': described('Name of the environment.', 'staging'),
  'oidc.name': example('Company sign-in'),
  link: example('https://trellis.example/invitation#...'),
  created_by: example('k7Qm2xVb'),
  actor: described('The actor: `key:12`, `user:...`, `session:7`, `command line`, `service`.', 'key:12'),
  action: described('The action.', 'connection.deleted'),
  target: described('The object of the action.', 'google-sheet/ada-sheets'),
  entity: example('connection'),

  // Credentials: none of them is real
  token: example('trellis_connect_session_...', 'token-of-the-link-0000000000000000000000000'),
  password: example('a long sentence that nobody guesses'),
  username: example('ada'),
  apiKey: example('key-of-the-account'),
  client_id: example('407408718192.apps.googleusercontent.com'),
  client_secret: example(secret),
  webhook_secret: example(secret),
  secret: example('trs_dev_...'),
  hint: example('trs_dev_...4kQz'),
  ticket: example('trt_...'),
  webhook_signing_key: example('whsec_...'),
  credentials: example(
    { type: 'OAUTH2', access_token: 'token-of-the-account', expires_at: time },
    { type: 'OAUTH2', client_id: '407408718192.apps.googleusercontent.com', client_secret: secret },
    { type: 'TEST' },
  ),
  connect_link: example('https://trellis.example/connect/?session_token=...'),
  scope: example(readScope),
  scopes: example([readScope], readScope, ['records:read']),
  'environment.scopes': example(['records:read', 'proxy:read']),
  requested: example([readScope]),
  granted: example([readScope]),
  missing_scopes: example([], [{ scope: readScope, description: 'See your spreadsheets' }]),
  path: example('/v4/spreadsheets/**', '/v4/spreadsheets/none'),
  'reconnect.path': example('/connect/sessions/reconnect'),
  paths: example(['/v4/spreadsheets/**']),
  methods: example(['GET']),
  max_bytes: example(1_048_576),
  'tickets.actions': example(['read-range']),

  // Health
  cause: example('grant_dead', 'gone'),
  evidence: example({ error: 'invalid_grant', http_status: 400 }),
  next_check_at: example('2026-11-21T12:01:00.000Z'),
  next_step: example('Ask the user to connect again.'),
  kind: described('Only entries of this kind.', 'connection', 'events', 'GRID', 'sheet', 'sync'),
  code: example('limit_near', "import { createSync } from 'trellis';"),
  log_id: example(''),
  'health.warnings': example([]),
  warnings: example([]),
  errors: example([]),
  message: example('The provider refused the call.'),
  type: described('The kind.', 'google_sheets', 'connection.created', 'sync', 'proxy', 'OAUTH2', 'string'),
  field: example('name'),
  logo: example('https://trellis.example/providers/logos/google-sheet.svg'),
  primary: example('#2563eb'),
  background: example('#ffffff'),
  'light.text': example('#16191d'),
  'dark.text': example('#eceff2'),
  font: example('Inter'),
  radius: example(8),
  texts: example({ en: { continueTo: 'Go to {provider}' } }),
  return_schemes: example(['myapp']),
  contrast: example(2.8),
  needed: example(4.5),
  app_name: example('Customer Reports'),
  url: example('https://app.customer.example/hooks/trellis'),
  redirect_uri: described(
    'The redirect URI to register at the provider; absent if there is no authorization at it.',
    'https://trellis.example.com/oauth/callback',
  ),
  webhook_url: example('https://app.customer.example/hooks/trellis'),
  webhook_url_secondary: example('https://app.customer.example/hooks/second'),
  webhook_url_override: example('https://app.customer.example/hooks/ada'),
  docs_connect: example('https://app.customer.example/help'),
  return_url: example('https://app.customer.example/connected'),

  // Pages and filters
  limit: described('Maximum number of entries.', 100, 20, '100'),
  page,
  cursor: described('The `next_cursor` of the previous page.', cursor, uuid, 1042),
  'records.cursor': described(
    'Only changes after this position: a cursor of a record, or `next_cursor`.',
    cursor,
  ),
  next_cursor: example(cursor, uuid, null),
  first_cursor: example(cursor),
  last_cursor: example(cursor),
  until_cursor: example(cursor),
  after: position('The `next_after` of the previous page.'),
  'functions.after': described('The `next_after` of the previous page, or the position of a line.', 1042),
  before: position('The `next_before` of the previous page.'),
  next_after: position('The `after` of the next call.'),
  next_before: position('The `before` of the next call; null if there are no more entries.'),
  has_more: example(false),
  from,
  to: described('Only entries before this time: ISO 8601.', time),
  search: described('A part of the name, regardless of case.', 'sheet'),
  text: described(
    'A part of the path, the connection, the error code or a message, or the e-mail address of an account.',
    'spreadsheets',
  ),
  sort: described('The order: newest first, or last used first.', 'created'),
  count: described('The number.', 3, 'false'),
  'connections.count': described(
    '`true`: the response has the number of entries on all pages in `total`.',
    'false',
  ),
  total: example(3),
  status: described('Only entries in this state.', 'active', 'success', 'delivered'),
  'connections.status': described(
    'Only connections in one of these states, separated by commas.',
    'active',
    'needs_reauth',
  ),
  'connections.syncs': described(
    '`failing`: only connections with an active sync whose last run failed.',
    'failing',
  ),
  'connections.before': described('A position in the list, as its cursors have it.', '1764374400000000-42'),
  'operations.status': described('Only operations with this outcome.', 'success'),
  state: described('Only entries in this state.', 'succeeded', 'waiting', 'ok'),
  on: example('2027-01-01'),
  announcement: example('https://api.example.com/announcements/1'),
  ends: example('Access tokens that never expire are refused. Connect these accounts again.'),
  include: described('Additional parts: `usage`, `webhook`, `credentials`; may be repeated.', 'usage'),
  settings: described('`true`: the response has the settings of the page.', 'false'),
  'operations.type': described('Only operations of this type.', 'proxy'),
  'events.type': described('Only events of this type.', 'connection.created'),
  endpoint: described('Only entries of this endpoint.', 5),
  types: described(
    'Only these types, separated by commas; `connection.*` matches all with this prefix.',
    'connection.*',
    ['connection.*'],
  ),
  wait: described('Seconds to wait for the next event if there is none.', 0),
  seconds: described('Seconds that the stream lasts; 0: only existing entries.', 0),
  by: described('The field that groups operations: one of the values in the schema.', 'endpoint'),
  sync: described('Only the runs of the sync of this name.', 'contacts'),
  step_s: described('Seconds of a step: one of the values in the schema.', 300),
  'audit.scope': described(
    'The log of the environment, or (for signed-in owners) of the whole installation.',
    'environment',
  ),
  allowed_integrations: example(['google-sheet']),
  environments: example(['dev']),
  examples: example(['row-1']),
  endUserId: described('Only connections of this end user.', 'ada'),
  end_user_id: described('Only connections of this end user.', 'ada'),
  endUserOrganizationId: described('Only connections of end users of this organization.', 'customer-1'),
  end_user_organization_id: described('Only connections of end users of this organization.', 'customer-1'),
  force_refresh: described(
    '`true`: the credentials are renewed first, even if they have not expired.',
    'false',
  ),
  refresh_token: described(
    '`true`: with the refresh token, for keys with `connections:refresh_tokens`.',
    'false',
  ),
  refresh_github_app_jwt_token: described('Accepted from official clients, without effect.', 'false'),
  revoke: described('Whether the grant is revoked at the provider: `auto`, `always` or `never`.', 'auto'),
  confirm_others: described('With `revoke=always`: the number of other connections that may lose access.', 0),
  format: described('`openai`: enabled actions as tools.', 'nango'),
  enabled: described('`true`: only enabled entries. `false`: only disabled entries.', 'true', true),
  last_event_id: described('The `id` of the last event that was read.', uuid),
  'last-event-id': described('The `id` of the last event that was read.', uuid),
  'x-async': described('`true`: the action runs in the background, and the response is 202.', 'false'),
  'x-max-retries': described('The number of retries after temporary failures, 0 to 5.', '0'),
  file: described('Name of the file.', 'google-sheet.svg'),
  connect_session_token: described('Token of the connect session.', 'trellis_connect_session_...'),

  // Records
  model: described('Kind of the records.', 'Row'),
  variant: described('Partition of the model; default: `base`.', 'base'),
  allow_mass_delete: described(
    'By model: the number of records that a held deletion may delete once, as in the error `mass_delete_held`.',
    { Row: 2997 },
  ),
  would_delete: described('The number of records that the end of delete tracking would have deleted.', 2997),
  live: described('The number of live records in the dataset.', 4997),
  allowed: described('The number of these records that the next run may delete; null: no allowance.', 2997),
  'sync.variant': described('Variant of the sync.', 'mine', 'base'),
  'records.name': described('Name of the consumer.', 'billing'),
  filter: described(
    'Only records whose last change is one of `added`, `updated`, `deleted`, separated by commas.',
    'added,updated',
  ),
  connection_ids: described('The `id` of up to 50 connections, separated by commas.', '1,2'),
  'datasets.connection': described('The `id` of the connection.', 1),
  consumers: example([{ name: 'billing', behind: 0 }]),
  ids: described('Only these records; may be repeated, up to 100.', ['row-1'], 'row-1'),
  modified_after: described('Only records that changed at this time or later: ISO 8601.', time),
  unless_emptied: described(
    '`true`: a cursor from before the dataset was emptied is refused as `cursor_expired`.',
    'false',
  ),
  changes: described('`true`: each record has the fields of its last change.', 'false', null),
  records: example([{ id: 'row-1', name: 'Ada', amount: 12 }], 3),
  'records.records': example([{ id: 'row-1', name: 'Ada', amount: 12 }], 3),
  fields: example(['amount']),
  ignore_fields: example(['fetched_at']),
  changed_fields: example({ 'row-1': ['amount'] }, false),
  missing: example([]),
  'records.deleted': example([], 0),
  already_deleted: example([]),
  'records.pruned': example([], 0),
  duplicates: example([], 0),
  deleted_keys: example(['row-3']),
  deleted: example(0),
  pruned: example(0),
  payload_bytes: example(512),
  bytes: example(512),
  behind: example(0),
  key_id: described('ID of the key that owns the consumer; null: no valid key owns it.', 4),
  stalled_since: described(
    'The time since which the consumer has acknowledged the same cursor while changes wait, once that has lasted for ' +
      '30 days; otherwise null.',
    time,
  ),
  share: example(0.5),
  number: example(10),
  'keys.added': example(['row-1']),
  'keys.updated': example([]),
  'keys.restored': example([]),
  added: example(1, ['row-1']),
  updated: example(0, []),
  unchanged: example(0),
  restored: example(0, []),
  prune_after_days: example(30),
  remove_tombstones_after_days: example(90),
  overlap_hours: example(24),
  rate_limit: example(600),
  replaces: described('ID of the key whose consumers the new key also owns.', 3),
  webhook_signing_key_overlap_hours: example(24),

  // Functions
  function: described('Name of the function.', 'rows'),
  'functions.name': described('Name of the function.', 'rows'),
  'integrations.name': described('Name of the function.', 'rows'),
  'sync.name': described('Name of the sync.', 'rows'),
  sync_name: example('rows'),
  syncName: example('rows'),
  action_name: example('read-range'),
  syncs: described(
    '`*` for all, or names of syncs, separated by commas; `rows::mine` names a variant.',
    '*',
    ['rows'],
  ),
  description: example('Rows of a sheet', ''),
  version: described('Number of the version.', 2, '2'),
  version_label: example('0.1.0'),
  sdk_version: example('0.1.0'),
  sdkVersion: example('0.1.0'),
  runs: example('every 5 minutes'),
  frequency: example('every 5 minutes'),
  frequency_s: example(300),
  deployed_by: example('key:12'),
  input: example({ spreadsheet_id: spreadsheet, range: 'A1:C3' }, 'ReadRangeInput'),
  returns: example(['Row']),
  json_schema: example({
    definitions: { Row: { type: 'object', properties: { id: { type: 'string' } }, required: ['id'] } },
  }),
  metadata_schema: example(null),
  checkpoint_schema: example(null),
  endpoints: example([]),
  features: example([]),
  webhookSubscriptions: example([]),
  webhook_subscriptions: example([]),
  models: example(['Row']),
  deletedModels: example([]),
  js: example('"use strict"; ...'),
  ts: example("import { createSync } from 'trellis'; ..."),
  failures: example(0),
  trigger: example('schedule'),
  attempt: example(1),
  attempts: example(1),
  most_attempts: example(3),
  not_before: example(time),
  earlier_attempts: example([]),
  payload: example({ reason: 'The sheet is empty.' }),
  level: example('info'),
  position: example(1042),
  statusUrl: example(`/functions/actions/${uuid}`),
  held: example(0),
  running: example(0),
  paused: example(0),
  failing: example(0),
  active: example(3),
  blocked: example(0),
  needs_reauth: example(0),
  connections: example(3),
  used: example(12),
  window_s: example(60),
  data_schema: example({ type: 'object', properties: { connection_id: { type: 'string' } } }),
  meaning: example('An account was connected, or its tokens were imported.'),
  data: example({ connection_id: 'ada-sheets', provider_config_key: 'google-sheet' }),
  'event.id': example(uuid),
  'events.id': example(5, uuid),
  lag_s: example(0),
  last_attempt: example({ at: time, http_status: 200, duration_ms: 41 }),

  // Activity
  method: example('GET'),
  request_id: example('req-7f3k2m'),
  error_code: example('upstream_timeout'),
  http_status: example(200),
  requests: example(1),
  retries: example(0),
  request_bytes: example(0),
  answer_bytes: example(1834),
  dropped: example(0),
  failed: example(0),
  details: example({ target: 'sheets.googleapis.com' }),
  'ready.checks': example({ database: 'ok' }),
  hour: example('2026-11-21T10:00:00.000Z'),

  // Choices of an end user
  spreadsheet: example(spreadsheet),
  spreadsheet_id: example(spreadsheet),
  title: example('Customers'),
  tab: example('Sheet1'),
  sheet_id: example(0),
  header_row: example(1),
  suggested_header_row: example(1),
  total_rows: example(3),
  key_column: example('id'),
  column: example('id'),
  empty: example(0),
  page_token: example('next-page'),
  modified_at: example(time),
  rows: example([{ id: 'row-1', name: 'Ada' }]),
  timestamp: example(time),
  event: example('open'),
  value: example('https://api.example.com'),
};

const ofTimes = example(time);
const ofDurations = example(41);

/** Description and values of a field name. Names of times end in `_at`, those of durations in `_ms`. */
export function fieldOf(name: string): Field | undefined {
  if (Object.hasOwn(fieldsByName, name)) return fieldsByName[name];
  if (/(_at|^at|^since|^created|^last_deployed)$/.test(name)) return ofTimes;
  return name.endsWith('_ms') ? ofDurations : undefined;
}

export type JsonSchema = {
  $ref?: string;
  title?: string;
  type?: string | string[];
  properties?: Record<string, JsonSchema>;
  required?: string[];
  additionalProperties?: boolean | JsonSchema;
  items?: JsonSchema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: JsonSchema[];
  oneOf?: JsonSchema[];
  allOf?: JsonSchema[];
  default?: unknown;
  examples?: unknown[];
  description?: string;
  format?: string;
  pattern?: string;
  minLength?: number;
  propertyNames?: unknown;
  minimum?: number;
  maximum?: number;
};

/** Examples of responses have all fields, those of requests only the required ones. */
type Fields = 'all' | 'required';

/** There is no value for the field at this path. */
export class UnknownExample extends Error {
  readonly path: string;
  constructor(path: string[]) {
    super(`no example is known for ${path.join('.')}`);
    this.path = path.join('.');
  }
}

/**
 * A value that matches the schema: the schema's example, its constant, the value of the field name (`fieldOf`), its default,
 * its first enum value, or a value made of its parts, in this order. Throws `UnknownExample`.
 */
export function exampleOf(schema: JsonSchema, fields: Fields, path: string[] = []): unknown {
  if (schema.examples !== undefined) return schema.examples[0];
  if (schema.const !== undefined) return schema.const;
  const found = valueFor(schema, path);
  if (found !== undefined) return found.value;
  if (schema.default !== undefined) return schema.default;
  if (schema.enum !== undefined) return schema.enum[0];
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined && schema.properties === undefined)
    return firstOf(alternatives, fields, path);
  if (schema.allOf !== undefined)
    return Object.assign({}, ...schema.allOf.map((part) => exampleOf(part, fields, path)));
  const types = [schema.type ?? []].flat();
  if (types.includes('object')) return objectOf(schema, fields, path);
  if (types.includes('array')) return [exampleOf(schema.items ?? {}, fields, [...path, '0'])];
  if (types.includes('boolean')) return true;
  if (types.includes('null')) return null;
  if (schema.format === 'date-time') return '2026-11-21T10:15:17.733Z';
  throw new UnknownExample(path);
}

function objectOf(schema: JsonSchema, fields: Fields, path: string[]): Record<string, unknown> {
  // Of several spellings the first.
  const { properties = {}, required = [], anyOf = [] } = schema;
  const needed = [...required, ...(anyOf[0]?.required ?? [])];
  const named = Object.entries(properties).filter(([name]) => fields === 'all' || needed.includes(name));
  return Object.fromEntries(named.map(([name, part]) => [name, exampleOf(part, fields, [...path, name])]));
}

/** A value of the first alternative that is not null; null if there is none. */
function firstOf(alternatives: JsonSchema[], fields: Fields, path: string[]): unknown {
  const notNull = alternatives.find(({ type }) => type !== 'null');
  return exampleOf(notNull ?? alternatives[0] ?? {}, fields, path);
}

/** The matching value with the longest name: `account.id` has precedence over `id`. */
function valueFor(schema: JsonSchema, path: string[]): { value: unknown } | undefined {
  const names = path.filter((name) => !/^\d+$/.test(name));
  for (let from = 0; from < names.length; from += 1) {
    for (const value of fieldOf(names.slice(from).join('.'))?.examples ?? [])
      if (matches(value, schema)) return { value };
  }
  return undefined;
}

/** Whether a value matches the schema. */
function matches(value: unknown, schema: JsonSchema): boolean {
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives !== undefined && !alternatives.some((one) => matches(value, one))) return false;
  if (schema.const !== undefined) return schema.const === value;
  if (schema.enum !== undefined) return schema.enum.includes(value);
  const types = [schema.type ?? []].flat();
  if (types.length > 0 && !types.some((type) => isOf(value, type))) return false;
  if (typeof value === 'string') {
    if (schema.pattern !== undefined && !new RegExp(schema.pattern, 'u').test(value)) return false;
    return schema.format !== 'uuid' || /^[\da-f]{8}-([\da-f]{4}-){3}[\da-f]{12}$/.test(value);
  }
  if (Array.isArray(value)) return value.every((one) => matches(one, schema.items ?? {}));
  if (typeof value !== 'object' || value === null) return true;
  const parts = Object.entries(value);
  const { properties = {}, additionalProperties = true, required = [] } = schema;
  return (
    required.every((name) => Object.hasOwn(value, name)) &&
    parts.every(([name, part]) => {
      const own = properties[name] ?? additionalProperties;
      return own === true || (own !== false && matches(part, own));
    })
  );
}

function isOf(value: unknown, type: string): boolean {
  if (type === 'null') return value === null;
  if (type === 'array') return Array.isArray(value);
  if (type === 'integer') return Number.isInteger(value);
  if (type === 'object') return typeof value === 'object' && value !== null && !Array.isArray(value);
  return typeof value === type;
}
