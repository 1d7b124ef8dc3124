/**
 * The peer's responses, with the fields that are imported. Other fields are ignored: versions of the peer differ in them.
 */
import { z } from 'zod';
import { PeerError, PeerLostError } from './client.ts';

/** A response that the import depends on. Throws PeerLostError with the fields that are not valid. */
export function readRequired<S extends z.ZodType>(schema: S, response: unknown, path: string): z.output<S> {
  const read = schema.safeParse(response);
  if (read.success) return read.data;
  throw new PeerLostError(`The source's response to GET ${path} is not valid (${issuesOf(read.error)}).`);
}

/** A response without which others can be read: throws PeerError. */
export function readOptional<S extends z.ZodType>(schema: S, response: unknown, path: string): z.output<S> {
  const read = schema.safeParse(response);
  if (read.success) return read.data;
  const message = `a response that is not valid (${issuesOf(read.error)})`;
  throw new PeerError(path, { status: 200, code: 'unknown_form', message, payload: undefined });
}

/** The first fields that are not valid, with the reason. */
export function issuesOf({ issues }: z.ZodError): string {
  return issues
    .slice(0, 3)
    .map(({ path, message }) => `${path.join('.')}: ${message}`)
    .join('; ');
}

const text = z.string();
const json = z.record(z.string(), z.unknown());

/**
 * A time in any of its forms: with `Z` or an offset, with milliseconds or microseconds, with a blank for the T, or as a
 * number of seconds or milliseconds. Undefined if it is not valid.
 */
export function readTime(given: unknown): Date | undefined {
  if (typeof given === 'number' && Number.isFinite(given))
    return new Date(given > 100_000_000_000 ? given : given * 1000);
  if (typeof given !== 'string') return undefined;
  const [, date, time = '00:00:00', fraction = '', offset = 'Z'] =
    /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?)(\.\d+)?\s*(Z|[+-]\d\d(?::?\d\d)?)?)?$/i.exec(
      given.trim(),
    ) ?? [];
  if (date === undefined) return undefined;
  const zone = /^[+-]/.test(offset)
    ? `${offset.slice(0, 3)}:${offset.slice(3).replace(':', '') || '00'}`
    : 'Z';
  const seconds = time.length === 5 ? `${time}:00` : time;
  const read = new Date(`${date}T${seconds}${fraction.slice(0, 4)}${zone}`);
  return Number.isNaN(read.getTime()) ? undefined : read;
}

const time = z.unknown().optional().transform(readTime);

export const peerIntegrations = z.object({
  data: z.array(z.object({ unique_key: text, provider: text, display_name: text.nullish() })),
});
export type PeerIntegration = z.output<typeof peerIntegrations>['data'][number];

export const peerIntegration = z.object({
  data: z.object({
    forward_webhooks: z.boolean().nullish(),
    /** The OAuth client belongs to the peer, which shares it among its users and keeps its secret. */
    preconfigured_credentials: z.unknown().optional().transform(Boolean),
    credentials: z
      .object({
        type: text,
        client_id: text.nullish(),
        client_secret: text.nullish(),
        scopes: text.nullish(),
        webhook_secret: text.nullish(),
      })
      .nullish(),
  }),
});

export const peerProvider = z.object({ data: z.object({ auth_mode: text.nullish() }) });

const common = {
  connection_id: text,
  provider_config_key: text,
  end_user: json.nullish(),
  tags: json.nullish(),
};

/** Each entry is parsed alone, so an entry that is not valid does not affect the others. */
export const peerConnections = z.object({ connections: z.array(z.unknown()) });

/** The IDs of an entry of the list, whatever else it holds. */
export const peerConnectionRef = z.object({ connection_id: text, provider_config_key: text });

export const peerSummary = z.object({
  ...common,
  metadata: json.nullish(),
  created: time,
  errors: z.array(z.looseObject({ type: text.nullish() })).nullish(),
});
export type PeerSummary = z.output<typeof peerSummary>;

export const peerConnection = z.object({
  ...common,
  metadata: json.nullish(),
  connection_config: json.nullish(),
  webhook_url_override: text.nullish(),
  created_at: time,
  updated_at: time,
  credentials: json.nullish(),
});
export type PeerConnection = z.output<typeof peerConnection>;

export const peerSyncs = z.object({
  syncs: z.array(
    z.object({
      name: text,
      variant: text.nullish(),
      /** By model. A value that is not a number is unknown, and its model still counts. */
      recordCount: z.record(text, z.number().optional().catch(undefined)).nullish(),
    }),
  ),
});

export const peerRecords = z.object({ records: z.array(json), next_cursor: text.nullish() });

/** The peer's metadata of a record. */
export const peerRecordMetadata = z.object({
  last_action: text.nullish(),
  deleted_at: text.nullish(),
  pruned_at: text.nullish(),
  cursor: text.nullish(),
});
