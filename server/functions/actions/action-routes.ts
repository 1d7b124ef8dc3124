import { z } from 'zod';
import type { ConnectionReader } from '../../connections/reader.ts';
import { connectionId } from '../../connections/wire.ts';
import { requireScope } from '../../http/caller.ts';
import { connectionErrors, type RouteError } from '../../http/describe.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { functionName } from '../deploys/definition.ts';
import type { Actions } from './actions.ts';

type Deps = {
  actions: Actions;
  connections: Pick<ConnectionReader, 'get'>;
  /** Throws where functions are turned off. */
  open: () => Promise<void>;
};

/** What an action may come to, told alike to who waits and to who asks later. */
const actionErrors = [
  'functions_off',
  'not_found',
  'disabled_resource',
  'invalid_action_input',
  'invalid_action_output',
  'action_is_read_only',
  'action_script_runtime_error',
  'script_internal_error',
  'script_http_error',
  'script_network_error',
  'script_timeout',
  'script_cancelled',
  'connection_needs_reauth',
  'connection_blocked',
  'missing_scopes',
] as const satisfies readonly RouteError[];

const maxInputBytes = 10 * 1024 * 1024;

/** Calling an action, and asking for what came of one that was not waited for. */
export function actionRoutes(app: App, { actions, connections, open }: Deps): void {
  app.post(
    '/action/trigger',
    {
      config: { access: { by: 'key', scope: ['functions:read', 'functions:write'] } },
      preParsing: open,
      bodyLimit: maxInputBytes,
      schema: {
        operationId: 'callAction',
        summary: 'Call an action',
        description:
          'It runs at once, and the answer is its output as it is. With `X-Async: true` it is left to run: 202, and the ' +
          'output is at `statusUrl` when it is over. `X-Max-Retries` (0 to 5) tries again what failed in a way that ' +
          'passes. A key without functions:write calls actions that are read-only.',
        errors: [...connectionErrors, ...actionErrors],
        headers: z.looseObject({
          'connection-id': connectionId,
          'provider-config-key': integrationKey,
          'x-async': z.enum(['true', 'false']).default('false'),
          'x-max-retries': z
            .string()
            .regex(/^[0-5]$/, 'must be a whole number from 0 to 5')
            .default('0'),
        }),
        example: {
          body: {
            action_name: 'read-range',
            input: { spreadsheet_id: '1BxiMVs0XRA5nFMdKvBdBZjgmUUqptlbs74OgvE2upms', range: 'A1:C3' },
          },
        },
        body: z.strictObject({ action_name: functionName, input: z.unknown().optional() }),
        response: { 200: z.unknown(), 202: z.object({ id: z.string(), statusUrl: z.string() }) },
      },
    },
    async ({ headers, body, caller }, reply) => {
      const { environmentId, environment } = caller;
      const integration = headers['provider-config-key'];
      const at = { environmentId, integrationKey: integration };
      const connection = await connections.get({ ...at, connectionId: headers['connection-id'] });
      const found = await actions.get({ ...at, name: body.action_name });
      if (!found.definition.read_only) requireScope(caller, 'functions:write');
      const retries = Number(headers['x-max-retries']);
      const call = { connection, environment, found, input: body.input, retries };
      if (headers['x-async'] === 'true') {
        const id = await actions.queue(call);
        const statusUrl = `/action/${id}`;
        reply.code(202).header('location', statusUrl);
        return { id, statusUrl };
      }
      const gone = new AbortController();
      reply.raw.once('close', () => gone.abort());
      // It may have hung up while its key and connection were looked up.
      if (reply.raw.destroyed) gone.abort();
      return reply.type(json).send(await actions.call({ ...call, signal: gone.signal }));
    },
  );

  app.get(
    '/action/:id',
    {
      config: { access: { by: 'key', scope: ['functions:read', 'functions:write'], viewers: 'refused' } },
      preParsing: open,
      schema: {
        operationId: 'getActionResult',
        summary: 'What came of an action that was not waited for',
        description:
          '404 while it is not over. A failure is answered as it would be to a caller who waits. A key without ' +
          'functions:write is answered of actions that are read-only.',
        errors: actionErrors,
        params: z.object({ id: z.uuid() }),
        response: { 200: z.unknown() },
      },
    },
    async ({ params: { id }, caller }, reply) => {
      const call = await actions.getCall({ environmentId: caller.environmentId, id });
      if (!call.isReadOnly) requireScope(caller, 'functions:write');
      return reply.type(json).send(await call.result());
    },
  );
}

const json = 'application/json; charset=utf-8';
