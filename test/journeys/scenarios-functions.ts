import { setTimeout as pause } from 'node:timers/promises';
import { actionCode, deployBody, flowConfig, syncCode } from '../support/functions.ts';
import type { TestTrellis } from '../support/trellis.ts';
import { type Fixture, inQuery, key, ofConnection, type Scenario } from './scenario.ts';

const ofSync = (path: string, body: object) =>
  ofConnection(path, ({ connectionId }) => ({
    provider_config_key: key,
    connection_id: connectionId,
    ...body,
  }));
/** A deploy of actions that double a number, beside what is there. */
const deployed = (...names: string[]) =>
  deployBody(
    names.map((name) => flowConfig({ name, code: actionCode() })),
    { reconcile: false },
  );

/** Of functions, their syncs, actions and runs. */
export const functionScenarios: Record<string, Scenario> = {
  'POST /functions/deploys/plan': {
    request: ofConnection('/functions/deploys/plan', () => deployed('other')),
    right: 200,
    foreign: 400,
  },
  'POST /functions/deploys': {
    request: ofConnection('/functions/deploys', () => deployed('other')),
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
  'GET /functions/shipped': {
    request: ofConnection('/functions/shipped?provider=google-sheet'),
    right: 200,
    foreign: 200,
  },
  'GET /providers/{provider}/templates': {
    request: ofConnection('/providers/google-sheet/templates'),
    right: 200,
    foreign: 200,
  },
  'PUT /integrations/{key}/functions/{name}/shipped': {
    request: ofConnection('/integrations/{key}/functions/create-spreadsheet/shipped', () => ({
      type: 'action',
    })),
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
  'POST /functions/syncs/trigger': {
    request: ofSync('/functions/syncs/trigger', { syncs: ['things'] }),
    right: 200,
    foreign: 400,
  },
  'POST /functions/syncs/start': {
    request: ofSync('/functions/syncs/start', { syncs: ['things'] }),
    right: 200,
    foreign: 400,
  },
  'POST /functions/syncs/pause': {
    request: ofSync('/functions/syncs/pause', { syncs: ['things'] }),
    right: 200,
    foreign: 400,
  },
  'GET /functions/syncs/status': {
    request: ofConnection(`/functions/syncs/status?syncs=*&${inQuery}`),
    right: 200,
    foreign: 400,
  },
  'PUT /functions/syncs/frequency': {
    request: ofSync('/functions/syncs/frequency', { sync_name: 'things', frequency: 'every day' }),
    right: 200,
    foreign: 400,
  },
  'POST /functions/syncs/{name}/variants/{variant}': {
    request: ofSync('/functions/syncs/things/variants/mine', {}),
    right: 200,
    foreign: 400,
  },
  'DELETE /functions/syncs/{name}/variants/{variant}': {
    request: ofSync('/functions/syncs/things/variants/mine', {}),
    right: 200,
    foreign: 400,
  },
  'POST /functions/actions/trigger': {
    request: ofConnection('/functions/actions/trigger', () => ({ action_name: 'double', input: { n: 1 } })),
    right: 200,
    foreign: 400,
    scope: 'functions:write',
  },
  'GET /functions/actions/{id}': {
    request: ({ actionId }) => ({ path: `/functions/actions/${actionId}` }),
    right: 200,
    foreign: 404,
    scope: 'functions:write',
  },
  'GET /functions': { request: ofConnection('/functions'), right: 200, foreign: 200 },
  'GET /functions/syncs': { request: ofConnection('/functions/syncs'), right: 200, foreign: 200 },
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
};

/** Functions, a run and the outcome of an action that the requests name. */
export async function prepareFunctions(
  trellis: TestTrellis,
  { connectionId, headers }: Pick<Fixture, 'connectionId' | 'headers'>,
): Promise<Pick<Fixture, 'runId' | 'actionId'>> {
  await trellis.call('POST', '/functions/deploys', { body: deployed('double', 'leaving') });
  const things = { name: 'things', code: syncCode({ more: 'autoStart: false,' }), type: 'sync' as const };
  await trellis.call('POST', '/functions/deploys', {
    body: deployBody([flowConfig(things)], { reconcile: false }),
  });
  return {
    runId: await prepareRun(trellis, connectionId),
    actionId: await prepareAction(trellis, headers),
  };
}

async function prepareAction(trellis: TestTrellis, headers: Record<string, string>): Promise<string> {
  const { body } = await trellis.call('POST', '/functions/actions/trigger', {
    headers: { ...headers, 'x-async': 'true' },
    body: { action_name: 'double', input: { n: 1 } },
  });
  const { id, statusUrl } = body as { id: string; statusUrl: string };
  while ((await trellis.call('GET', statusUrl)).status === 404) await pause(50);
  return id;
}

async function prepareRun(trellis: TestTrellis, connectionId: string): Promise<string> {
  await trellis.call('POST', '/functions/syncs/trigger', {
    body: { provider_config_key: key, connection_id: connectionId, syncs: ['things'] },
  });
  const { body } = await trellis.call('GET', '/functions/runs?function=things');
  return (body.runs as { id: string }[])[0]!.id;
}
