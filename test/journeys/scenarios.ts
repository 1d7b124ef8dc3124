import { connect, type TestTrellis } from '../support/trellis.ts';
import { type Fixture, inQuery, key, ofConnection, type Scenario, withEarlierNames } from './scenario.ts';
import { functionScenarios, prepareFunctions } from './scenarios-functions.ts';

const ticketFor = (method: string) =>
  ofConnection('/tickets', ({ connectionId }) => ({
    provider_config_key: key,
    connection_id: connectionId,
    methods: [method],
    paths: ['/v4/spreadsheets/**'],
  }));

const ownDefinition = 'extends: private-api-key\ndisplay_name: Our CRM\n';

// In an order in which each request still finds what it names.
export const scenarios: Record<string, Scenario> = withEarlierNames({
  'GET /providers': { request: ofConnection('/providers'), right: 200, foreign: 200 },
  'GET /providers/{provider}': { request: ofConnection('/providers/google-sheet'), right: 200, foreign: 200 },
  'POST /providers': {
    request: ofConnection('/providers', () => ({ name: 'own-crm', definition: ownDefinition })),
    right: 200,
    foreign: 200,
  },
  'PUT /providers/{provider}': {
    request: ofConnection('/providers/own-dev-only', () => ({ definition: ownDefinition })),
    right: 200,
    foreign: 404,
  },
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
    foreign: 400,
  },
  'GET /connections/{id}/health': {
    request: ofConnection(`/connections/{id}/health?${inQuery}`),
    right: 200,
    foreign: 400,
  },
  'POST /connections/{id}/refresh': {
    request: ofConnection(`/connections/{id}/refresh?${inQuery}`),
    right: 200,
    foreign: 400,
  },
  'PATCH /connections/{id}': {
    request: ofConnection(`/connections/{id}?${inQuery}`, () => ({ tags: { a: 'b' } })),
    right: 200,
    foreign: 400,
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
  'GET /connect/sessions': { request: ofConnection('/connect/sessions'), right: 200, foreign: 200 },
  'DELETE /connect/sessions/{id}': {
    request: ({ sessionId }) => ({ path: `/connect/sessions/${sessionId}` }),
    right: 200,
    foreign: 404,
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
  'GET /records/datasets/of-connections': {
    request: ({ connectionRow }) => ({
      path: `/records/datasets/of-connections?connection_ids=${connectionRow}`,
    }),
    right: 200,
    foreign: 200,
  },
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
    scope: 'records:read',
    also: 'records:write',
  },
  'PUT /records/consumers/{name} (of another key)': {
    request: ofConnection('/records/consumers/reports', ({ cursor }) => ({ model: 'M', cursor })),
    right: 200,
    foreign: 400,
    scope: 'records:write',
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
    scope: 'records:read',
    also: 'records:write',
  },
  'DELETE /records/consumers/{name} (of another key)': {
    request: ofConnection('/records/consumers/reports?model=M'),
    right: 200,
    foreign: 400,
    scope: 'records:write',
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
  'POST /events/endpoints/{id}/test': {
    request: ({ endpointId }) => ({ path: `/events/endpoints/${endpointId}/test`, body: {} }),
    right: 200,
    foreign: 404,
  },
  'DELETE /events/endpoints/{id}': {
    request: ({ endpointId }) => ({ path: `/events/endpoints/${endpointId}` }),
    right: 200,
    foreign: 404,
  },
  'GET /environment/health': { request: ofConnection('/environment/health'), right: 200, foreign: 200 },
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
  ...functionScenarios,
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
  'DELETE /providers/{provider}': {
    request: ofConnection('/providers/own-dev-only'),
    right: 200,
    foreign: 404,
  },
  'DELETE /integrations/{key}': { request: ofConnection('/integrations/dev-only'), right: 200, foreign: 404 },
});

/** A connection with a record, and an integration that `dev` alone has: what the requests name. */
export async function prepareScenarios(trellis: TestTrellis): Promise<Fixture> {
  const { connectionId, headers } = await connect(trellis);
  const { body: listed } = await trellis.call('GET', `/connections?connectionId=${connectionId}`);
  const [{ id: connectionRow }] = listed.connections as [{ id: number }];
  const devOnly = { provider: 'google-sheet', unique_key: 'dev-only' };
  await trellis.call('POST', '/integrations/quickstart', { body: devOnly });
  await trellis.call('POST', '/providers', { body: { name: 'own-dev-only', definition: ownDefinition } });
  await trellis.call('POST', '/records', { headers, body: { model: 'M', records: [{ id: 'x' }] } });
  const ofReports = { headers, body: { model: 'M', cursor: null } };
  await trellis.call('PUT', '/records/consumers/reports', ofReports);
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
  const { body: sessions } = await trellis.call('GET', '/connect/sessions?limit=1');
  const [{ id: sessionId }] = sessions.data as [{ id: number }];
  const cursor = record!._trellis_metadata.cursor;
  const ofFunctions = await prepareFunctions(trellis, { connectionId, headers });
  return {
    connectionId,
    connectionRow,
    headers,
    cursor,
    operationId,
    sessionId,
    keyId,
    endpointId,
    deliveryId,
    ...ofFunctions,
  };
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
