import { setTimeout as pause } from 'node:timers/promises';
import type { Scope } from '../../server/http/caller.ts';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import { type CallOptions, connect, type TestTrellis } from '../support/trellis.ts';

/**
 * Every route of the interface with a request that works, and how it answers a key of another environment: the
 * objects of one environment do not exist for another.
 */
export type Scenario = {
  request: (with_: Fixture) => { path: string } & CallOptions;
  right: number;
  /** What the same request gives to a key of another environment. */
  foreign: number;
  /** Where docs/keys.md names several for the route: the one that this request needs. */
  scope?: Scope;
};
export type Fixture = {
  connectionId: string;
  headers: Record<string, string>;
  cursor: string;
  operationId: string;
  /** A key that can manage keys and nothing else. */
  keyId: number;
  /** An endpoint that is disabled, and a delivery that it did not take. */
  endpointId: number;
  deliveryId: number;
  /** Of the sync `things`. */
  runId: string;
  /** Of an action that was not waited for, and is over. */
  actionId: string;
};

const key = 'google-sheet';
const ofConnection =
  (path: string, body?: (with_: Fixture) => object): Scenario['request'] =>
  (given) => ({
    path: path.replace('{id}', given.connectionId).replace('{key}', key),
    headers: given.headers,
    ...(body && { body: body(given) }),
  });
const ticketFor = (method: string) =>
  ofConnection('/tickets', ({ connectionId }) => ({
    ...{ provider_config_key: key, connection_id: connectionId },
    ...{ methods: [method], paths: ['/v4/spreadsheets/**'] },
  }));
const ofSync = (path: string, body: object) =>
  ofConnection(path, ({ connectionId }) => ({
    provider_config_key: key,
    connection_id: connectionId,
    ...body,
  }));
const inQuery = `provider_config_key=${key}`;
/** A deploy of actions that double a number, beside what is there. */
const deployed = (...names: string[]) =>
  deployBody(
    names.map((name) => flowConfig({ name, code: actionCode() })),
    { reconcile: false },
  );

// In an order in which each request still finds what it names.
export const scenarios: Record<string, Scenario> = {
  'GET /providers': { request: ofConnection('/providers'), right: 200, foreign: 200 },
  'GET /providers/{provider}': { request: ofConnection('/providers/google-sheet'), right: 200, foreign: 200 },
  'GET /integrations': { request: ofConnection('/integrations'), right: 200, foreign: 200 },
  'POST /integrations': {
    request: ofConnection('/integrations', () => ({
      provider: 'unauthenticated',
      unique_key: 'other',
      integration_config: { base_url: 'https://api.example.com' },
    })),
    right: 200,
    foreign: 200,
  },
  'POST /integrations/quickstart': {
    request: ofConnection('/integrations/quickstart', () => ({
      provider: 'google-sheet',
      unique_key: 'quick',
    })),
    right: 200,
    foreign: 200,
  },
  'GET /integrations/{key}': { request: ofConnection('/integrations/{key}'), right: 200, foreign: 404 },
  'PATCH /integrations/{key}': {
    request: ofConnection('/integrations/{key}', () => ({})),
    right: 200,
    foreign: 404,
  },
  'GET /connections': { request: ofConnection('/connections'), right: 200, foreign: 200 },
  'POST /connections': {
    request: ofConnection('/connections', () => ({
      provider_config_key: key,
      connection_id: 'imported',
      credentials: { type: 'OAUTH2', access_token: 'a-token-from-elsewhere' },
    })),
    right: 201,
    foreign: 404,
  },
  'GET /connections/{id}': {
    request: ofConnection(`/connections/{id}?${inQuery}`),
    right: 200,
    foreign: 404,
  },
  'GET /connection/{id}': { request: ofConnection(`/connection/{id}?${inQuery}`), right: 200, foreign: 404 },
  'GET /connections/{id}/health': {
    request: ofConnection(`/connections/{id}/health?${inQuery}`),
    right: 200,
    foreign: 404,
  },
  'POST /connections/{id}/refresh': {
    request: ofConnection(`/connections/{id}/refresh?${inQuery}`),
    right: 200,
    foreign: 404,
  },
  'PATCH /connections/{id}': {
    request: ofConnection(`/connections/{id}?${inQuery}`, () => ({ tags: { a: 'b' } })),
    right: 200,
    foreign: 404,
  },
  'POST /connections/metadata': {
    request: ofConnection('/connections/metadata', ({ connectionId }) => ({
      connection_id: connectionId,
      provider_config_key: key,
      metadata: { a: 1 },
    })),
    right: 201,
    foreign: 404,
  },
  'PATCH /connections/metadata': {
    request: ofConnection('/connections/metadata', ({ connectionId }) => ({
      connection_id: connectionId,
      provider_config_key: key,
      metadata: { a: 1 },
    })),
    right: 200,
    foreign: 404,
  },
  'POST /connect/sessions': {
    request: ofConnection('/connect/sessions', () => ({
      end_user: { id: 'u' },
      allowed_integrations: [key],
    })),
    right: 201,
    foreign: 400,
  },
  'POST /connect/sessions/reconnect': {
    request: ofConnection('/connect/sessions/reconnect', ({ connectionId }) => ({
      connection_id: connectionId,
      integration_id: key,
    })),
    right: 201,
    foreign: 400,
  },
  'POST /records': {
    request: ofConnection('/records', () => ({ model: 'M', records: [{ id: 'x' }] })),
    right: 200,
    foreign: 400,
  },
  'GET /records': { request: ofConnection('/records?model=M'), right: 200, foreign: 400 },
  'PATCH /records': {
    request: ofConnection('/records', () => ({ model: 'M', records: [{ id: 'x', more: 1 }] })),
    right: 200,
    foreign: 400,
  },
  'POST /records/track-deletes/start': {
    request: ofConnection('/records/track-deletes/start', () => ({ model: 'Tracked' })),
    right: 200,
    foreign: 400,
  },
  'POST /records/track-deletes/end': {
    request: ofConnection('/records/track-deletes/end', () => ({ model: 'Tracked' })),
    right: 200,
    foreign: 400,
  },
  'POST /records/delete': {
    request: ofConnection('/records/delete', () => ({ model: 'M', ids: ['none'] })),
    right: 200,
    foreign: 400,
  },
  'GET /records/datasets': { request: ofConnection('/records/datasets'), right: 200, foreign: 400 },
  'PATCH /records/datasets': {
    request: ofConnection('/records/datasets', () => ({ model: 'M', ignore_fields: ['fetched_at'] })),
    right: 200,
    foreign: 400,
  },
  'POST /records/prune/estimate': {
    request: ofConnection('/records/prune/estimate', ({ cursor }) => ({ model: 'M', until_cursor: cursor })),
    right: 200,
    foreign: 400,
  },
  'PATCH /records/prune': {
    request: ofConnection('/records/prune', ({ cursor }) => ({ model: 'M', until_cursor: cursor })),
    right: 200,
    foreign: 400,
  },
  'GET /records/export': { request: ofConnection('/records/export?model=M'), right: 200, foreign: 400 },
  'GET /records/consumers': { request: ofConnection('/records/consumers'), right: 200, foreign: 400 },
  'PUT /records/consumers/{name}': {
    request: ofConnection('/records/consumers/billing', ({ cursor }) => ({ model: 'M', cursor })),
    right: 200,
    foreign: 400,
  },
  'GET /records/consumers/{name}': {
    request: ofConnection('/records/consumers/billing?model=M'),
    right: 200,
    foreign: 400,
  },
  'DELETE /records/consumers/{name}': {
    request: ofConnection('/records/consumers/billing?model=M'),
    right: 200,
    foreign: 400,
  },
  'PUT /records/retention': {
    request: ofConnection('/records/retention', () => ({
      provider_config_key: 'dev-only',
      prune_after_days: 30,
    })),
    right: 200,
    foreign: 404,
  },
  'GET /records/retention': { request: ofConnection('/records/retention'), right: 200, foreign: 200 },
  'DELETE /records/retention': {
    request: ofConnection('/records/retention?provider_config_key=dev-only'),
    right: 200,
    foreign: 404,
  },
  'GET /operations': { request: ofConnection('/operations'), right: 200, foreign: 200 },
  'GET /operations/stats': { request: ofConnection('/operations/stats'), right: 200, foreign: 200 },
  'GET /operations/tail': {
    request: ofConnection('/operations/tail?seconds=0'),
    right: 200,
    foreign: 200,
  },
  'GET /audit': { request: ofConnection('/audit'), right: 200, foreign: 200 },
  'GET /operations/{id}': {
    request: ({ operationId }) => ({ path: `/operations/${operationId}` }),
    right: 200,
    foreign: 404,
  },
  'GET /events': { request: ofConnection('/events'), right: 200, foreign: 200 },
  'GET /events/latest': { request: ofConnection('/events/latest'), right: 200, foreign: 200 },
  'GET /events/types': { request: ofConnection('/events/types'), right: 200, foreign: 200 },
  'GET /events/endpoints': { request: ofConnection('/events/endpoints'), right: 200, foreign: 200 },
  'POST /events/endpoints': {
    request: ofConnection('/events/endpoints', () => ({
      url: 'https://receiver.invalid/hook',
      types: ['integration.recovered'],
    })),
    right: 201,
    foreign: 201,
  },
  'PATCH /events/endpoints/{id}': {
    request: ({ endpointId }) => ({ path: `/events/endpoints/${endpointId}`, body: { description: 'mine' } }),
    right: 200,
    foreign: 404,
  },
  'GET /events/deliveries': { request: ofConnection('/events/deliveries'), right: 200, foreign: 200 },
  'GET /events/deliveries/{id}': {
    request: ({ deliveryId }) => ({ path: `/events/deliveries/${deliveryId}` }),
    right: 200,
    foreign: 404,
  },
  'POST /events/deliveries/{id}/replay': {
    request: ({ deliveryId }) => ({ path: `/events/deliveries/${deliveryId}/replay`, body: {} }),
    right: 200,
    foreign: 404,
  },
  'POST /events/endpoints/{id}/replay': {
    request: ({ endpointId }) => ({ path: `/events/endpoints/${endpointId}/replay`, body: { after: '0' } }),
    right: 200,
    foreign: 404,
  },
  'DELETE /events/endpoints/{id}': {
    request: ({ endpointId }) => ({ path: `/events/endpoints/${endpointId}` }),
    right: 200,
    foreign: 404,
  },
  'GET /environment/settings': { request: ofConnection('/environment/settings'), right: 200, foreign: 200 },
  'PATCH /environment/settings': {
    request: ofConnection('/environment/settings', () => ({ on_sync_error: false })),
    right: 200,
    foreign: 200,
  },
  'GET /environment-variables': { request: ofConnection('/environment-variables'), right: 200, foreign: 200 },
  'PATCH /environment-variables': {
    request: ofConnection('/environment-variables', () => ({ set: [{ name: 'MODE', value: 'fast' }] })),
    right: 200,
    foreign: 200,
  },
  'PUT /environment-variables': {
    request: ofConnection('/environment-variables', () => ({
      variables: [{ name: 'API_BASE', value: 'https://api.example.com' }],
    })),
    right: 200,
    foreign: 200,
  },
  'GET /environment/webhook-signing-key': {
    request: ofConnection('/environment/webhook-signing-key'),
    right: 200,
    foreign: 200,
  },
  'POST /environment/webhook-signing-key/rotate': {
    request: ofConnection('/environment/webhook-signing-key/rotate', () => ({})),
    right: 200,
    foreign: 200,
  },
  'GET /environment/api-keys': { request: ofConnection('/environment/api-keys'), right: 200, foreign: 200 },
  'POST /environment/api-keys': {
    request: ofConnection('/environment/api-keys', () => ({ name: 'another', scopes: ['keys'] })),
    right: 201,
    foreign: 201,
  },
  'PATCH /environment/api-keys/{id}': {
    request: ({ keyId }) => ({ path: `/environment/api-keys/${keyId}`, body: { name: 'renamed' } }),
    right: 200,
    foreign: 404,
  },
  'DELETE /environment/api-keys/{id}': {
    request: ({ keyId }) => ({ path: `/environment/api-keys/${keyId}` }),
    right: 200,
    foreign: 404,
  },
  'POST /sync/deploy/confirmation': {
    request: ofConnection('/sync/deploy/confirmation', () => deployed('other')),
    right: 200,
    foreign: 400,
  },
  'POST /sync/deploy': {
    request: ofConnection('/sync/deploy', () => deployed('other')),
    right: 200,
    foreign: 400,
  },
  'GET /scripts/config': { request: ofConnection('/scripts/config'), right: 200, foreign: 200 },
  'GET /integrations/{key}/functions': {
    request: ofConnection('/integrations/{key}/functions'),
    right: 200,
    foreign: 404,
  },
  'GET /integrations/{key}/functions/{name}': {
    request: ofConnection('/integrations/{key}/functions/double'),
    right: 200,
    foreign: 404,
  },
  'GET /integrations/{key}/functions/{name}/code': {
    request: ofConnection('/integrations/{key}/functions/double/code'),
    right: 200,
    foreign: 404,
  },
  'GET /integrations/{key}/functions/{name}/versions': {
    request: ofConnection('/integrations/{key}/functions/double/versions'),
    right: 200,
    foreign: 404,
  },
  'POST /integrations/{key}/functions/{name}/rollback': {
    request: ofConnection('/integrations/{key}/functions/double/rollback', () => ({ version: 1 })),
    right: 200,
    foreign: 404,
  },
  'PATCH /integrations/{key}/functions/{name}': {
    request: ofConnection('/integrations/{key}/functions/double', () => ({ enabled: true })),
    right: 200,
    foreign: 404,
  },
  'DELETE /integrations/{key}/functions/{name}': {
    request: ofConnection('/integrations/{key}/functions/leaving?type=action'),
    right: 200,
    foreign: 404,
  },
  'POST /sync/trigger': { request: ofSync('/sync/trigger', { syncs: ['things'] }), right: 200, foreign: 400 },
  'POST /sync/start': { request: ofSync('/sync/start', { syncs: ['things'] }), right: 200, foreign: 400 },
  'POST /sync/pause': { request: ofSync('/sync/pause', { syncs: ['things'] }), right: 200, foreign: 400 },
  'GET /sync/status': {
    request: ofConnection(`/sync/status?syncs=*&${inQuery}`),
    right: 200,
    foreign: 400,
  },
  'PUT /sync/update-connection-frequency': {
    request: ofSync('/sync/update-connection-frequency', { sync_name: 'things', frequency: 'every day' }),
    right: 200,
    foreign: 400,
  },
  'POST /sync/{name}/variant/{variant}': {
    request: ofSync('/sync/things/variant/mine', {}),
    right: 200,
    foreign: 400,
  },
  'DELETE /sync/{name}/variant/{variant}': {
    request: ofSync('/sync/things/variant/mine', {}),
    right: 200,
    foreign: 400,
  },
  'POST /action/trigger': {
    request: ofConnection('/action/trigger', () => ({ action_name: 'double', input: { n: 1 } })),
    right: 200,
    foreign: 400,
    scope: 'functions:write',
  },
  'GET /action/{id}': {
    request: ({ actionId }) => ({ path: `/action/${actionId}` }),
    right: 200,
    foreign: 404,
  },
  'GET /functions/runs': { request: ofConnection('/functions/runs'), right: 200, foreign: 200 },
  'GET /functions/runs/{id}': {
    request: ({ runId }) => ({ path: `/functions/runs/${runId}` }),
    right: 200,
    foreign: 404,
  },
  'GET /functions/runs/{id}/lines': {
    request: ({ runId }) => ({ path: `/functions/runs/${runId}/lines` }),
    right: 200,
    foreign: 404,
  },
  'POST /functions/runs/{id}/cancel': {
    request: ({ runId }) => ({ path: `/functions/runs/${runId}/cancel` }),
    right: 200,
    foreign: 404,
  },
  'POST /tickets': { request: ticketFor('GET'), right: 201, foreign: 400, scope: 'proxy:read' },
  'POST /tickets (to write)': { request: ticketFor('POST'), right: 201, foreign: 400, scope: 'proxy:write' },
  // Not in the OpenAPI document: the provider's own paths.
  'GET /proxy/v4/spreadsheets/none': {
    request: ofConnection('/proxy/v4/spreadsheets/none'),
    right: 404,
    foreign: 404,
  },
  'HEAD /proxy/v4/spreadsheets/none': {
    request: ofConnection('/proxy/v4/spreadsheets/none'),
    right: 404,
    foreign: 404,
  },
  'GET /v4/spreadsheets/none': { request: ofConnection('/v4/spreadsheets/none'), right: 404, foreign: 404 },
  'POST /proxy/v4/spreadsheets': {
    request: ofConnection('/proxy/v4/spreadsheets', () => ({ properties: { title: 'made' } })),
    right: 200,
    foreign: 404,
  },
  'POST /v4/spreadsheets': {
    request: ofConnection('/v4/spreadsheets', () => ({ properties: { title: 'made' } })),
    right: 200,
    foreign: 404,
  },
  'DELETE /connections/{id}': {
    request: ofConnection(`/connections/{id}?${inQuery}`),
    right: 200,
    foreign: 400,
  },
  'DELETE /integrations/{key}': { request: ofConnection('/integrations/dev-only'), right: 200, foreign: 404 },
};

/** A connection with a record, and an integration that `dev` alone has: what the requests name. */
export async function prepareScenarios(trellis: TestTrellis): Promise<Fixture> {
  const { connectionId, headers } = await connect(trellis);
  await trellis.call('POST', '/sync/deploy', { body: deployed('double', 'leaving') });
  const things = { name: 'things', code: syncCode({ more: 'autoStart: false,' }), type: 'sync' as const };
  await trellis.call('POST', '/sync/deploy', {
    body: deployBody([flowConfig(things)], { reconcile: false }),
  });
  const devOnly = { provider: 'google-sheet', unique_key: 'dev-only' };
  await trellis.call('POST', '/integrations/quickstart', { body: devOnly });
  await trellis.call('POST', '/records', { headers, body: { model: 'M', records: [{ id: 'x' }] } });
  const { body } = await trellis.call('GET', '/records?model=M', { headers });
  const [record] = body.records as { _trellis_metadata: { cursor: string } }[];
  await trellis.call('GET', '/proxy/v4/spreadsheets/none', { headers });
  // The log is written a little later.
  let operationId: string | undefined;
  while (operationId === undefined) {
    const { body: log } = await trellis.call('GET', '/operations');
    operationId = (log.operations as { id: string }[])[0]?.id;
  }
  const { body: made } = await trellis.call('POST', '/environment/api-keys', {
    body: { name: 'keeper', scopes: ['keys'] },
  });
  const { id: keyId } = made.data as { id: number };
  const { endpointId, deliveryId } = await prepareDelivery(trellis);
  const cursor = record!._trellis_metadata.cursor;
  const runId = await prepareRun(trellis, connectionId);
  const actionId = await prepareAction(trellis, headers);
  return { connectionId, headers, cursor, operationId, keyId, endpointId, deliveryId, runId, actionId };
}

async function prepareAction(trellis: TestTrellis, headers: Record<string, string>): Promise<string> {
  const { body } = await trellis.call('POST', '/action/trigger', {
    headers: { ...headers, 'x-async': 'true' },
    body: { action_name: 'double', input: { n: 1 } },
  });
  const { id, statusUrl } = body as { id: string; statusUrl: string };
  while ((await trellis.call('GET', statusUrl)).status === 404) await pause(50);
  return id;
}

async function prepareRun(trellis: TestTrellis, connectionId: string): Promise<string> {
  await trellis.call('POST', '/sync/trigger', {
    body: { provider_config_key: key, connection_id: connectionId, syncs: ['things'] },
  });
  const { body } = await trellis.call('GET', '/functions/runs?function=things');
  return (body.runs as { id: string }[])[0]!.id;
}

async function prepareDelivery(trellis: TestTrellis): Promise<{ endpointId: number; deliveryId: number }> {
  const { body: endpoint } = await trellis.call('POST', '/events/endpoints', {
    body: { url: 'https://receiver.invalid/hook', types: ['integration.recovered'] },
  });
  const endpointId = endpoint.id as number;
  await trellis.call('PATCH', `/events/endpoints/${endpointId}`, { body: { enabled: false } });
  // Gives the events their positions.
  await trellis.call('GET', '/events');
  const [delivery] = await trellis.db.query<{ id: number }>(
    `insert into delivery (environment_id, endpoint_id, event_id, position, lane, status, queued_at, settled_at)
     select environment_id, $1, id, position, 0, 'dead', now(), now()
     from event
     order by position
     limit 1
     returning id`,
    [endpointId],
  );
  return { endpointId, deliveryId: delivery!.id };
}
