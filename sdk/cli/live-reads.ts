/**
 * The reads of a local run through the service: calls by its proxy, the connection, the stored records.
 *
 * Writes nothing to the service. A call that may change something at the provider is refused unless `mayWrite` is set.
 */
import type { Stored } from '../local/model-writes.ts';
import { asJson, type JsonObject, serviceError } from '../local/outcome.ts';
import { type CallResponse, formatCall, isRead, type OutgoingCall, type Reads } from '../local/reads.ts';
import { type Api, requireBody } from './api.ts';

export type ConnectionRef = { integrationKey: string; connectionId: string };

/** Returns the current connection. Throws the error of the service. */
export async function getConnection(
  api: Api,
  { integrationKey, connectionId }: ConnectionRef,
): Promise<JsonObject> {
  const query = new URLSearchParams({ integration_id: integrationKey });
  return requireBody(await api.get(`/connections/${encodeURIComponent(connectionId)}?${query}`));
}

export type Integration = { fields: JsonObject; webhookUrl: string; environmentName: string };

/** Returns the fields of an integration that functions get, and its environment. Throws the error of the service. */
export async function getIntegration(api: Api, key: string): Promise<Integration> {
  const result = await api.get(`/integrations/${encodeURIComponent(key)}?include=webhook`);
  const { data } = requireBody<{ data: JsonObject }>(result);
  const webhookUrl = String(data.webhook_url);
  const environmentName = decodeURIComponent(/\/webhook\/([^/]+)\//.exec(webhookUrl)?.[1] ?? '');
  const fields = pick(
    { integration_config: null, custom: null, ...data },
    'unique_key provider display_name logo forward_webhooks webhook_url integration_config custom created_at updated_at',
  );
  return { fields, webhookUrl, environmentName };
}

/** The pagination settings of a provider, or undefined if its definition has none. */
export async function findPaginate(api: Api, provider: string): Promise<Record<string, unknown> | undefined> {
  type Definition = { proxy?: { paginate?: Record<string, unknown> } };
  const result = await api.get(`/providers/${encodeURIComponent(provider)}`);
  return requireBody<{ data: Definition }>(result).data.proxy?.paginate;
}

export function liveReads(
  api: Api,
  {
    ref,
    connection,
    integration,
    mayWrite,
  }: { ref: ConnectionRef; connection: JsonObject; integration: Integration; mayWrite: boolean },
): Reads {
  return {
    async call(call, signal) {
      if (!mayWrite && !isRead(call)) {
        throw serviceError(
          'write_not_allowed',
          `${formatCall(call)} may change something at the provider. It requires --allow-writes.`,
        );
      }
      return call.name === 'proxy' ? proxied(api, { ref, call, signal }) : fetched(call, signal);
    },
    async fact(name) {
      if (name === 'getConnection') return viewOf(connection);
      if (name === 'getIntegration') return integration.fields;
      if (name === 'getWebhookURL') return integration.webhookUrl;
      if (name === 'getEnvironmentVariables')
        return asJson(requireBody(await api.get('/environment-variables')));
      const credentials = (await getConnection(api, ref)).credentials as JsonObject | undefined;
      if (credentials === undefined)
        throw serviceError(
          'forbidden',
          'The key cannot read credentials: it lacks the scope connections:credentials.',
        );
      if (credentials.type === 'OAUTH1')
        return {
          oAuthToken: credentials.oauth_token ?? null,
          oAuthTokenSecret: credentials.oauth_token_secret ?? null,
        };
      return credentials.type === 'OAUTH2' ? (credentials.access_token ?? null) : credentials;
    },
  };
}

/** The fields of a connection that a function in the service gets. */
function viewOf(connection: JsonObject): JsonObject {
  const scopes = (connection.scopes as JsonObject | null | undefined)?.granted ?? null;
  const defaults = { credentials: {}, end_user: null, account: null, errors: [] };
  return pick(
    { ...defaults, webhook_url_override: null, last_fetched_at: null, ...connection, scopes },
    'id connection_id provider_config_key provider metadata connection_config credentials tags end_user ' +
      'account scopes created_at updated_at errors webhook_url_override last_fetched_at',
  );
}

/** The fields of an object named in `names`, separated by spaces, in this order. Omits missing fields. */
function pick(object: JsonObject, names: string): JsonObject {
  return Object.fromEntries(
    names.split(' ').flatMap((name) => (name in object ? [[name, object[name]!]] : [])),
  );
}

async function proxied(
  api: Api,
  { ref, call, signal }: { ref: ConnectionRef; call: OutgoingCall; signal: AbortSignal | undefined },
): Promise<CallResponse> {
  const { method, endpoint = '', query = '', headers = {}, ...options } = call.args;
  const brand = await api.brand();
  const prefixed = Object.entries(headers).map(([name, value]) => [`${brand}-proxy-${name}`, value]);
  const path = `/proxy/${endpoint.replace(/^\/+/, '')}`;
  const { body: bytes, ...value } = await api.send({
    method,
    path: encodePath(query === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${query}`),
    headers: {
      ...Object.fromEntries(prefixed),
      'integration-id': ref.integrationKey,
      'connection-id': ref.connectionId,
      'quota-wait': '60',
      ...(options.retries !== undefined && { retries: String(options.retries) }),
      ...(options.retryOn !== undefined &&
        options.retryOn.length > 0 && { 'retry-on': options.retryOn.join(',') }),
      ...(options.baseUrlOverride !== undefined && { 'base-url-override': options.baseUrlOverride }),
      ...(options.decompress !== false && { decompress: 'true' }),
    },
    body: call.body,
    signal,
  });
  // This header marks an error of the proxy, which is not a response from the provider.
  const code = value.headers[`x-${brand}-error`];
  if (code !== undefined) throw serviceError(code, messageOf(bytes) ?? code);
  return { value, body: bytes };
}

function messageOf(bytes: Buffer): string | undefined {
  try {
    return (JSON.parse(bytes.toString('utf8')) as { error?: { message?: string } }).error?.message;
  } catch {
    return undefined;
  }
}

/** Encodes the characters that a request line cannot contain, as HTTP clients do. Does not encode anything twice. */
function encodePath(path: string): string {
  return path.replace(/[^\x21-\x7e]+/g, (part) => encodeURIComponent(Buffer.from(part).toString('utf8')));
}

async function fetched(
  { args, body }: OutgoingCall,
  signal: AbortSignal = new AbortController().signal,
): Promise<CallResponse> {
  const { method, url = '', headers = {} } = args;
  const sent = body === undefined ? {} : { body: new Uint8Array(body) };
  const response = await fetch(url, { method, headers, signal, ...sent }).catch((error: Error) => {
    // The message of `fetch` has no details; they are in the cause.
    throw error.cause instanceof Error
      ? new Error(`${url} cannot be reached: ${error.cause.message}`)
      : error;
  });
  const { status, statusText } = response;
  return {
    value: { status, statusText, url: response.url, headers: Object.fromEntries(response.headers.entries()) },
    body: Buffer.from(await response.arrayBuffer()),
  };
}

/** The stored records of a connection and a variant. */
export function liveStored(api: Api, { ref, variant }: { ref: ConnectionRef; variant: string }): Stored {
  const headers = { 'integration-id': ref.integrationKey, 'connection-id': ref.connectionId };
  type Page = { records: JsonObject[]; next_cursor: string | null };
  let metadataKey = '';
  const read = async (query: string[][], variantName = variant): Promise<Page> => {
    metadataKey = `_${await api.brand()}_metadata`;
    return requireBody(
      await api.get(`/records?${new URLSearchParams([['variant', variantName], ...query])}`, headers),
    );
  };
  const byIds = async (model: string, ids: string[], variantName?: string) =>
    (await read([['model', model], ['limit', '100'], ...ids.map((id) => ['ids', id])], variantName)).records;
  return {
    page: (model, cursor) =>
      read([['model', model], ['limit', '1000'], ...(cursor === undefined ? [] : [['cursor', cursor]])]),
    byIds: (model, ids) => byIds(model, ids),
    isDeleted: (record) => (record[metadataKey] as JsonObject | undefined)?.last_action === 'DELETED',
    records: async ({ model, ids, variant: variantName }) =>
      (await byIds(model, ids, variantName)).map(({ [metadataKey]: metadata = null, ...record }) => ({
        record,
        metadata,
      })),
  };
}
