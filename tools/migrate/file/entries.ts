import { z } from 'zod';
import { endpointFormats } from '../../../server/deliveries/endpoints.ts';
import { proxyRule } from '../../../server/http/auth/proxy-rule.ts';
import { integrationKey } from '../../../server/integrations/wire.ts';
import { environmentName } from '../../../server/providers/environment-definitions.ts';

/**
 * The format of the file's content: entries, one a line, as JSON. The entries of an environment follow it, those of a
 * connection follow the connection, and records follow their dataset.
 *
 * docs/guides/export-and-import.md lists them. A reader rejects an entry that it does not support.
 */
const time = z.iso.datetime({ offset: true }).transform((text) => new Date(text));
const texts = z.record(z.string(), z.string());
const json = z.record(z.string(), z.unknown());

const environment = z.strictObject({ kind: z.literal('environment'), name: z.string().min(1) });

const settings = z.strictObject({
  kind: z.literal('settings'),
  switches: z.record(z.string(), z.boolean()),
  overlap_hours: z.number(),
  webhook_url: z.string().nullable(),
  webhook_url_secondary: z.string().nullable(),
  connect: json,
});

/** The keys that sign events; newest first. */
const signingKeys = z.strictObject({
  kind: z.literal('signing_keys'),
  keys: z.array(z.strictObject({ secret: z.string(), created_at: time, retires_at: time.nullable() })).min(1),
});

const variable = z.strictObject({ kind: z.literal('variable'), name: z.string(), value: z.string() });

const endpoint = z.strictObject({
  kind: z.literal('endpoint'),
  url: z.string(),
  description: z.string(),
  types: z.array(z.string()),
  /** Absent: `standard`. */
  format: z.enum(endpointFormats).optional(),
  is_disabled: z.boolean(),
});

const apiKey = z.strictObject({
  kind: z.literal('api_key'),
  /** SHA-256 of the secret, which is not stored. */
  hash: z.base64(),
  hint: z.string(),
  name: z.string(),
  scopes: z.array(z.string()),
  proxy_rules: z.array(proxyRule),
  expires_at: time.nullable(),
  rate_limit: z.number().nullable(),
});

/** A definition that the environment added: as it was entered, and with its bases merged in. */
const provider = z.strictObject({
  kind: z.literal('provider'),
  name: z.string().regex(environmentName),
  definition: z.string(),
  content: json,
});

const integration = z.strictObject({
  kind: z.literal('integration'),
  unique_key: integrationKey,
  provider: z.string(),
  display_name: z.string(),
  is_test: z.boolean(),
  client: z.strictObject({ client_id: z.string(), client_secret: z.string() }).nullable(),
  webhook_secret: z.string().nullable(),
  scopes: z.array(z.string()).nullable(),
  integration_config: texts,
  custom: texts.nullable(),
  forward_webhooks: z.boolean(),
  proxy_rules: z.array(proxyRule),
});

const retention = z.strictObject({
  kind: z.literal('retention'),
  /** Null: for the whole environment. */
  unique_key: z.string().nullable(),
  prune_after_days: z.number().nullable(),
  remove_tombstones_after_days: z.number().nullable(),
  wait_for_consumers: z.boolean(),
});

const connection = z.strictObject({
  kind: z.literal('connection'),
  unique_key: z.string(),
  connection_id: z.string(),
  credentials: json,
  /** Earlier refresh tokens. */
  kept_tokens: z.array(z.string()),
  metadata: json,
  connection_config: json,
  tags: texts,
  end_user: json.nullable(),
  webhook_url_override: z.string().nullable(),
  account: z.strictObject({ id: z.string(), email: z.string().nullable() }).nullable(),
  scopes_requested: z.array(z.string()).nullable(),
  scopes_granted: z.array(z.string()).nullable(),
  scopes_lacking: z.array(z.string()).nullable(),
  access_expires_at: time.nullable(),
  refresh_expires_at: time.nullable(),
  granted_at: time,
  /** When the current credentials were issued. */
  refreshed_at: time.optional(),
  created_at: time,
  status: z.enum(['active', 'needs_reauth', 'blocked']),
  fault: z.unknown(),
});

const dataset = z.strictObject({
  kind: z.literal('dataset'),
  model: z.string(),
  variant: z.string(),
  ignore_fields: z.array(z.string()),
  keep_previous: z.boolean(),
  mass_delete_share: z.number(),
  mass_delete_number: z.number(),
});

const record = z.strictObject({
  kind: z.literal('record'),
  id: z.string(),
  is_deleted: z.boolean(),
  /** Null: it was pruned. */
  fields: json.nullable(),
});

/** Its place in the file is its position: after the last record that it has read. */
const consumer = z.strictObject({ kind: z.literal('consumer'), name: z.string() });

const end = z.strictObject({ kind: z.literal('end'), counts: z.record(z.string(), z.number()) });

export const entrySchema = z.discriminatedUnion('kind', [
  environment,
  settings,
  signingKeys,
  variable,
  endpoint,
  apiKey,
  provider,
  integration,
  retention,
  connection,
  dataset,
  record,
  consumer,
  end,
]);
export type Entry = z.output<typeof entrySchema>;
export type EntryOf<K extends Entry['kind']> = Extract<Entry, { kind: K }>;
/** An entry before it is written. */
export type EntryInput = z.input<typeof entrySchema>;

/** The bytes of an entry. */
export function lineOf(entry: EntryInput): Buffer {
  return Buffer.from(`${JSON.stringify(entry)}\n`);
}

const maxLineBytes = 64 * 1024 * 1024;

/** The lines of a stream. Throws if a line is larger than an export writes, or is incomplete. */
export async function* linesOf(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  let held: Buffer[] = [];
  let size = 0;
  for await (const chunk of chunks) {
    let at = 0;
    for (let end = chunk.indexOf(10, at); end >= 0; end = chunk.indexOf(10, at)) {
      yield held.length === 0 ? chunk.subarray(at, end) : Buffer.concat([...held, chunk.subarray(at, end)]);
      held = [];
      size = 0;
      at = end + 1;
    }
    if (at === chunk.length) continue;
    held.push(Buffer.from(chunk.subarray(at)));
    size += chunk.length - at;
    if (size > maxLineBytes) throw new Error('The file contains a line that is too long.');
  }
  if (held.length > 0) throw new Error('The file ends in the middle of a line.');
}
