/** Routes that call an action, and return the result of a queued call. */
import type { FastifyReply } from 'fastify';
import { z } from 'zod';
import { connectionId } from '../../connections/routes/wire.ts';
import type { ConnectionReader } from '../../connections/store/reader.ts';
import { requireScope } from '../../http/auth/caller.ts';
import { connectionErrors, type RouteError } from '../../http/openapi/describe.ts';
import type { App } from '../../http/server.ts';
import { integrationKey } from '../../integrations/wire.ts';
import { functionName } from '../deploys/definition.ts';
import type { Actions } from './actions.ts';

type ActionRoutesDeps = {
  actions: Actions;
  connections: Pick<ConnectionReader, 'get'>;
  /** Throws if functions are turned off. */
  open: () => Promise<void>;
};

/** Errors of the run of an action, except for those that its code throws. */
export const actionRunErrors = [
  'invalid_action_input',
  'invalid_action_output',
  'script_internal_error',
  'script_http_error',
  'script_network_error',
  'script_timeout',
  'script_cancelled',
  'connection_needs_reauth',
  'connection_blocked',
  'missing_scopes',
] as const satisfies readonly RouteError[];

/** Errors of a call, for callers that wait and for callers that read the result later. */
const actionErrors = [
  'functions_off',
  'not_found',
  'disabled_resource',
  'action_is_read_only',
  'action_script_runtime_error',
  ...actionRunErrors,
] as const satisfies readonly RouteError[];

const exampleOutput = { values: [['zip_code', 'city']] };
const maxInputBytes = 10 * 1024 * 1024;

export function actionRoutes(app: App, { actions, connections, open }: ActionRoutesDeps): void {
  app.post(
    '/functions/actions/trigger',
    {
      config: { access: { by: 'key', scope: ['functions:read', 'functions:write'] }, idempotent: true },
      preParsing: open,
      bodyLimit: maxInputBytes,
      schema: {
        operationId: 'callAction',
        summary: 'Call an action',
        description:
          'The action runs immediately, and the response body is its output. With `X-Async: true`, the action runs in the ' +
          'background: the response is 202, and `statusUrl` returns the output when the run has ended. `X-Max-Retries` (0 ' +
          'to 5) is the number of retries after temporary failures. A key without functions:write can call only read-only ' +
          'actions. The end of the connection cancels the action, unless the call has an Idempotency-Key.',
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
          answers: { 200: exampleOutput },
        },
        body: z.strictObject({ action_name: functionName, input: z.unknown().optional() }),
        response: { 200: z.unknown(), 202: z.object({ id: z.string(), statusUrl: z.string() }) },
      },
    },
    async ({ headers, body, caller, routeOptions }, reply) => {
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
        // Below the name that the caller uses.
        const statusUrl = routeOptions.url!.replace(/[^/]+$/, id);
        reply.code(202).header('location', statusUrl);
        return { id, statusUrl };
      }
      return reply.type(json).send(await actions.call({ ...call, signal: disconnectSignal(reply) }));
    },
  );

  app.get(
    '/functions/actions/:id',
    {
      config: { access: { by: 'key', scope: ['functions:read', 'functions:write'], viewers: 'refused' } },
      preParsing: open,
      schema: {
        operationId: 'getActionResult',
        summary: 'Get the result of an asynchronous action',
        description:
          '404 until the run has ended. A failure has the same response as in a synchronous call. A key without ' +
          'functions:write can read only results of read-only actions.',
        errors: actionErrors,
        example: { answers: { 200: exampleOutput } },
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

/** Aborts when the caller disconnects, or if it already has; never for a request with an Idempotency-Key. */
export function disconnectSignal({ raw, request }: FastifyReply): AbortSignal {
  const gone = new AbortController();
  if (request.outlivesCaller) return gone.signal;
  raw.once('close', () => gone.abort());
  if (raw.destroyed) gone.abort();
  return gone.signal;
}
