/**
 * What a local run reads, from the service: calls by its proxy, the connection, the records that are stored.
 *
 * Nothing here writes. A call that may change something at a provider is refused unless it was allowed.
 */
import type { Stored } from '../local/model-writes.ts';
import { asJson, type JsonObject, refusal } from '../local/outcome.ts';
import { type CallAnswer, isRead, type OutgoingCall, type Reads, titleOf } from '../local/reads.ts';
import { type Api, bodyOf } from './api.ts';

export type Place = { integrationKey: string; connectionId: string };

/** The connection as the service tells of it, fresh. Throws its refusal. */
export async function getConnection(api: Api, { integrationKey, connectionId }: Place): Promise<JsonObject> {
  const query = new URLSearchParams({ provider_config_key: integrationKey });
  return bodyOf(await api.get(`/connections/${encodeURIComponent(connectionId)}?${query}`));
}

export type Integration = { fields: JsonObject; webhookUrl: string; environmentName: string };

/** What functions are told of an integration, and whose it is. Throws the service's refusal. */
export async function getIntegration(api: Api, key: string): Promise<Integration> {
  const answer = await api.get(`/integrations/${encodeURIComponent(key)}?include=webhook`);
  const { data } = bodyOf<{ data: JsonObject }>(answer);
  const { unique_key, provider, display_name, logo, forward_webhooks, webhook_url, ...rest } = data;
  const { integration_config = null, custom = null, created_at, updated_at } = rest;
  const webhookUrl = String(webhook_url);
  const environmentName = decodeURIComponent(/\/webhook\/([^/]+)\//.exec(webhookUrl)?.[1] ?? '');
  return {
    fields: asJson({
      ...{ unique_key, provider, display_name, logo, forward_webhooks, webhook_url },
      ...{ integration_config, custom, created_at, updated_at },
    }) as JsonObject,
    ...{ webhookUrl, environmentName },
  };
}

/** How a provider hands out lists in pages, as its definition says; undefined where it does not. */
export async function findPaginate(api: Api, provider: string): Promise<Record<string, unknown> | undefined> {
  type Definition = { proxy?: { paginate?: Record<string, unknown> } };
  const answer = await api.get(`/providers/${encodeURIComponent(provider)}`);
  return bodyOf<{ data: Definition }>(answer).data.proxy?.paginate;
}

export function liveReads(
  api: Api,
  {
    place,
    connection,
    integration,
    mayWrite,
  }: { place: Place; connection: JsonObject; integration: Integration; mayWrite: boolean },
): Reads {
  return {
    async call(call, signal) {
      if (!mayWrite && !isRead(call)) {
        throw refusal(
          'write_not_allowed',
          `${titleOf(call)} may change something at the provider: it is made with --allow-writes alone.`,
        );
      }
      return call.name === 'proxy' ? proxied(api, { place, call, signal }) : fetched(call, signal);
    },
    async fact(name) {
      if (name === 'getConnection') return viewOf(connection);
      if (name === 'getIntegration') return integration.fields;
      if (name === 'getWebhookURL') return integration.webhookUrl;
      if (name === 'getEnvironmentVariables') return asJson(bodyOf(await api.get('/environment-variables')));
      const { credentials } = await getConnection(api, place);
      const of = (credentials ?? {}) as JsonObject;
      if (credentials === undefined)
        throw refusal(
          'forbidden',
          'The key may not read credentials: it lacks the scope connections:credentials.',
        );
      return of.type === 'OAUTH2' ? (of.access_token ?? null) : of;
    },
  };
}

/** What of a connection a function in the service gets. */
function viewOf(connection: JsonObject): JsonObject {
  const { id, connection_id, provider_config_key, provider, metadata, connection_config } = connection;
  const {
    credentials = {},
    tags,
    end_user = null,
    account = null,
    scopes,
    created_at,
    updated_at,
    errors = [],
    webhook_url_override = null,
    last_fetched_at = null,
  } = connection;
  return asJson({
    ...{ id, connection_id, provider_config_key, provider, metadata, connection_config, credentials, tags },
    ...{ end_user, account, scopes: (scopes as JsonObject | null)?.granted ?? null, created_at, updated_at },
    ...{ errors, webhook_url_override, last_fetched_at },
  }) as JsonObject;
}

async function proxied(
  api: Api,
  { place, call, signal }: { place: Place; call: OutgoingCall; signal: AbortSignal | undefined },
): Promise<CallAnswer> {
  const { method, endpoint = '', query = '', headers = {}, ...how } = call.args;
  const brand = await api.brand();
  const own = Object.entries(headers).map(([name, value]) => [`${brand}-proxy-${name}`, value]);
  const path = `/proxy/${endpoint.replace(/^\/+/, '')}`;
  const { body: bytes, ...value } = await api.send({
    method,
    path: encoded(query === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${query}`),
    headers: {
      ...Object.fromEntries(own),
      'provider-config-key': place.integrationKey,
      'connection-id': place.connectionId,
      'quota-wait': '60',
      ...(how.retries !== undefined && { retries: String(how.retries) }),
      ...(how.retryOn !== undefined && how.retryOn.length > 0 && { 'retry-on': how.retryOn.join(',') }),
      ...(how.baseUrlOverride !== undefined && { 'base-url-override': how.baseUrlOverride }),
      ...(how.decompress !== false && { decompress: 'true' }),
    },
    body: call.body,
    signal,
  });
  // The proxy's own word is no answer of the provider's.
  const code = value.headers[`x-${brand}-error`];
  if (code !== undefined) throw refusal(code, messageOf(bytes) ?? code);
  return { value, body: bytes };
}

function messageOf(bytes: Buffer): string | undefined {
  try {
    return (JSON.parse(bytes.toString('utf8')) as { error?: { message?: string } }).error?.message;
  } catch {
    return undefined;
  }
}

/** What may not stand in a request line is sent as clients send it; what is encoded already stays as it is. */
function encoded(path: string): string {
  return path.replace(/[^\x21-\x7e]+/g, (part) => encodeURIComponent(Buffer.from(part).toString('utf8')));
}

async function fetched(
  { args, body }: OutgoingCall,
  signal: AbortSignal = new AbortController().signal,
): Promise<CallAnswer> {
  const { method, url = '', headers = {} } = args;
  const sent = body === undefined ? {} : { body: new Uint8Array(body) };
  const answer = await fetch(url, { method, headers, signal, ...sent }).catch((error: Error) => {
    // What fetch says itself is that it failed.
    throw error.cause instanceof Error
      ? new Error(`${url} cannot be reached: ${error.cause.message}`)
      : error;
  });
  const { status, statusText } = answer;
  return {
    value: { status, statusText, url: answer.url, headers: Object.fromEntries(answer.headers.entries()) },
    body: Buffer.from(await answer.arrayBuffer()),
  };
}

/** The records that are stored for a connection and a variant. */
export function liveStored(api: Api, { place, variant }: { place: Place; variant: string }): Stored {
  const headers = { 'provider-config-key': place.integrationKey, 'connection-id': place.connectionId };
  type Page = { records: JsonObject[]; next_cursor: string | null };
  let metadataKey = '';
  const read = async (query: string[][], of = variant): Promise<Page> => {
    metadataKey = `_${await api.brand()}_metadata`;
    return bodyOf(await api.get(`/records?${new URLSearchParams([['variant', of], ...query])}`, headers));
  };
  const byIds = async (model: string, ids: string[], of?: string) =>
    (await read([['model', model], ['limit', '100'], ...ids.map((id) => ['ids', id])], of)).records;
  return {
    page: (model, cursor) =>
      read([['model', model], ['limit', '1000'], ...(cursor === undefined ? [] : [['cursor', cursor]])]),
    byIds: (model, ids) => byIds(model, ids),
    isDeleted: (record) => (record[metadataKey] as JsonObject | undefined)?.last_action === 'DELETED',
    records: async ({ model, ids, variant: of }) =>
      (await byIds(model, ids, of)).map(({ [metadataKey]: metadata = null, ...record }) => ({
        record,
        metadata,
      })),
  };
}
