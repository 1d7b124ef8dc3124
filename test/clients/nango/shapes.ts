// What the published node client declares of the answers it hands on, to be checked at run time.
//
// Each shape names every field of the declaration, so that one that a later version declares fails the type check here.
// More fields than these are allowed: the service says more.

import assert from 'node:assert/strict';
import type { Nango } from '@nangohq/node';
import { z } from 'zod';

type Answer<M extends keyof Nango> = Nango[M] extends (...given: never[]) => Promise<infer A> ? A : never;

/** The fields of a declaration, none left out. */
function declared<T extends object>() {
  return <F extends { [K in keyof Required<T>]: z.ZodType }>(fields: F) => z.looseObject(fields);
}

/** ISO 8601 with an offset; as many digits of a second as there are. */
const time = z.iso.datetime({ offset: true });
const json = z.record(z.string(), z.unknown());

export const integration = declared<Answer<'getIntegration'>['data']>()({
  unique_key: z.string(),
  provider: z.string(),
  display_name: z.string(),
  logo: z.url(),
  forward_webhooks: z.boolean(),
  created_at: time,
  updated_at: time,
  webhook_url: z.url().nullable().optional(),
  credentials_label: json.optional(),
  preconfigured_credentials: z.array(z.string()).optional(),
  preconfigured_connection_config: z.array(z.string()).optional(),
  credentials: z
    .looseObject({
      type: z.enum(['OAUTH2', 'OAUTH1']),
      client_id: z.string(),
      client_secret: z.string(),
      scopes: z.string(),
      webhook_secret: z.string().nullable(),
    })
    .nullable()
    .optional(),
});

export const provider = z.looseObject({
  name: z.string(),
  display_name: z.string(),
  logo_url: z.url(),
  categories: z.array(z.string()),
  docs: z.url(),
  auth_mode: z.enum([
    'OAUTH2',
    'OAUTH1',
    'OAUTH2_CC',
    'API_KEY',
    'BASIC',
    'TWO_STEP',
    'AWS_SIGV4',
    'AWS_ROLE',
    'JWT',
    'NONE',
  ]),
  proxy: z.looseObject({ base_url: z.string() }).optional(),
});
/** What those of OAuth have besides. */
export const oauthProvider = provider.extend({
  authorization_url: z.string(),
  authorization_params: z.record(z.string(), z.string()),
  token_url: z.string(),
  scope_separator: z.string(),
  default_scopes: z.array(z.string()),
});

const endUser = z.looseObject({
  id: z.string(),
  display_name: z.string().nullable(),
  email: z.string().nullable(),
  tags: z.record(z.string(), z.string()).nullable(),
  organization: z.looseObject({ id: z.string(), display_name: z.string().nullable() }).nullable(),
});
const ofConnection = {
  id: z.int(),
  connection_id: z.string(),
  provider_config_key: z.string(),
  provider: z.string(),
  errors: z.array(z.looseObject({ type: z.enum(['auth', 'sync']), log_id: z.string() })),
  end_user: endUser.nullable(),
  tags: z.record(z.string(), z.string()),
  metadata: json.nullable(),
};
export const listedConnection = declared<Answer<'listConnections'>['connections'][number]>()({
  ...ofConnection,
  created: time,
});
export const connection = declared<Answer<'getConnection'>>()({
  ...ofConnection,
  connection_config: json,
  webhook_url_override: z.string().nullable(),
  created_at: time,
  updated_at: time,
  last_fetched_at: time.nullable(),
  credentials: json,
});
export const oauth2Credentials = z.looseObject({
  type: z.literal('OAUTH2'),
  access_token: z.string(),
  refresh_token: z.string().optional(),
  expires_at: time,
  raw: z.looseObject({ access_token: z.string(), token_type: z.string(), expires_in: z.number() }),
});

export const session = z.strictObject({
  data: declared<Answer<'createConnectSession'>['data'] & Answer<'createReconnectSession'>['data']>()({
    token: z.string().regex(/^nango_connect_session_[0-9a-f]{64}$/),
    connect_link: z.url(),
    expires_at: time,
  }),
});

const schema = z.looseObject({ definitions: z.record(z.string(), json) });
const deployed = {
  id: z.int(),
  name: z.string(),
  description: z.string(),
  scopes: z.array(z.string()),
  enabled: z.boolean(),
  last_deployed: time,
  source: z.string(),
};
const schemas = { input: z.string().optional(), returns: z.array(z.string()), json_schema: schema };
const schedule = { runs: z.string(), auto_start: z.boolean(), track_deletes: z.boolean() };
type Listed = Answer<'listFunctions'>['data'][number];
type Kind<K extends Listed['type']> = Extract<Listed, { type: K }>;
export const deployedFunction = z.discriminatedUnion('type', [
  declared<Kind<'sync'>>()({ type: z.literal('sync'), ...deployed, ...schemas, ...schedule }),
  declared<Kind<'action'>>()({ type: z.literal('action'), ...deployed, ...schemas }),
  declared<Kind<'on-event'>>()({ type: z.literal('on-event'), ...deployed, event: z.string() }),
]);

type Template = Answer<'getProviderTemplates'>['data'][number];
const ofTemplate = {
  name: z.string(),
  description: z.string(),
  scopes: z.array(z.string()),
  ...schemas,
};
export const template = z.discriminatedUnion('type', [
  declared<Extract<Template, { type: 'sync' }>>()({ type: z.literal('sync'), ...ofTemplate, ...schedule }),
  declared<Extract<Template, { type: 'action' }>>()({ type: z.literal('action'), ...ofTemplate }),
]);

type Config = Extract<Answer<'getScriptsConfig'>, unknown[]>[number];
const flow = declared<
  // Optional there, and not told here.
  Omit<Config['syncs'][number], 'attributes' | 'sync_type' | 'upgrade_version' | 'models' | 'source'>
>()({
  name: z.string(),
  type: z.enum(['sync', 'action', 'on-event']),
  runs: z.string().nullable(),
  auto_start: z.boolean(),
  description: z.string(),
  scopes: z.array(z.string()),
  metadata: z.looseObject({ description: z.string(), scopes: z.array(z.string()) }),
  track_deletes: z.boolean(),
  returns: z.array(z.string()),
  endpoints: z.array(z.unknown()),
  version: z.string(),
  last_deployed: time,
  id: z.int(),
  input: z.string().optional(),
  webhookSubscriptions: z.array(z.string()),
  enabled: z.boolean(),
  json_schema: schema,
  sdk_version: z.string().nullable(),
  features: z.array(z.string()),
});
export const config = declared<Config>()({
  providerConfigKey: z.string(),
  provider: z.string(),
  syncs: z.array(flow),
  actions: z.array(flow),
  'on-events': z.array(flow),
});
export const tool = z.strictObject({
  name: z.string(),
  description: z.string(),
  parameters: z.looseObject({
    type: z.literal('object'),
    properties: json,
    required: z.array(z.string()),
  }),
});

const counts = z.strictObject({ added: z.int(), updated: z.int(), deleted: z.int() });
export const syncStatus = declared<Answer<'syncStatus'>['syncs'][number]>()({
  id: z.string(),
  connection_id: z.string(),
  type: z.enum(['INITIAL', 'INCREMENTAL']),
  finishedAt: time.nullable(),
  nextScheduledSyncAt: time.nullable(),
  name: z.string(),
  variant: z.string(),
  status: z.enum(['RUNNING', 'SUCCESS', 'ERROR', 'PAUSED', 'STOPPED']),
  frequency: z.string(),
  latestResult: z.record(z.string(), counts),
  latestExecutionStatus: z.enum(['SUCCESS', 'PAUSED', 'STOPPED', 'RUNNING']).nullable(),
  recordCount: z.record(z.string(), z.int()),
  checkpoint: json.nullable(),
});

/** Microseconds, as the official service prints them. */
const exactTime = z.string().regex(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}\+00:00$/);
export const recordMetadata = declared<Answer<'listRecords'>['records'][number]['_nango_metadata']>()({
  first_seen_at: exactTime,
  last_modified_at: exactTime,
  last_action: z.enum(['ADDED', 'UPDATED', 'DELETED']),
  deleted_at: exactTime.nullable(),
  pruned_at: exactTime.nullable(),
  cursor: z.string().min(1),
}).strict();

/** The value, once it has the shape. */
export function shaped<S extends z.ZodType>(shape: S, value: unknown): z.output<S> {
  const read = shape.safeParse(value);
  assert.ok(read.success, `${z.prettifyError(read.error ?? new z.ZodError([]))}\n${JSON.stringify(value)}`);
  return read.data;
}
