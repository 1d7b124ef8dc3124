import { z } from 'zod';
import { writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { emailAddress } from '../email-address.ts';
import { AppError, fieldError } from '../errors.ts';
import { alertTypes } from '../events/alerts.ts';
import { typesNamed } from '../events/catalogue.ts';
import { actorOf, type Caller } from '../http/auth/caller.ts';
import { nameSchemas, success } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { anyAddress, text } from '../http/text.ts';
import type { Outbound } from '../outbound/outbound.ts';
import type { Mailer } from '../users/mail.ts';
import {
  deleteEndpoint,
  disableEndpoint,
  type Endpoint,
  type EndpointFormat,
  enableEndpoint,
  endpointFormats,
  endpointKinds,
  getEndpoint,
  insertEndpoint,
  type ListPlace,
  listEndpoints,
  lockEndpoint,
  maxCounted,
  originOf,
  updateEndpoint,
} from './endpoints.ts';
import { stateOf } from './retry-policy.ts';
import { evidenceOf } from './send.ts';
import type { Deliverer } from './worker.ts';

type EndpointRouteDeps = {
  db: Db;
  outbound: Pick<Outbound, 'requireReachable'>;
  /** Undefined if the service has no mail server. */
  mailer: Mailer | undefined;
  sendTest: Deliverer['sendTest'];
  now: () => Date;
};

const typeName = text({ min: 1, max: 100 }).refine(
  (name) => typesNamed(name).length > 0,
  'is neither an event type nor a prefix such as connection.*',
);
const types = z.array(typeName).max(100);
const description = text({ max: 255 });
export const idParams = z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) });

/** For routes that need no body: a missing body counts as an empty one. */
export async function acceptEmptyBody(request: { body: unknown }): Promise<void> {
  if (request.body === undefined) request.body = {};
}

/** Routes for endpoints. The audit log records each change. */
export function endpointRoutes(app: App, { db, outbound, mailer, sendTest, now }: EndpointRouteDeps): void {
  /** Throws if the endpoint can never be reached there. */
  function requireDestination(url: string, format: EndpointFormat): void {
    const refused = (message: string) => fieldError('invalid_body', ['url'], message);
    const isMail = /^mailto:/i.test(url);
    if (format === 'email') {
      const isOne = isMail && emailAddress.safeParse(url.slice('mailto:'.length)).success;
      if (!isOne) throw refused('must be mailto: and one address, such as mailto:ops@example.com');
      if (mailer === undefined)
        throw refused('cannot be a mail address: this node has no mail server. Set SMTP_URL and SMTP_FROM');
    } else if (isMail) throw refused('begins with mailto:, so `format` must be `email`');
    else requireAddress(url, ['url'], outbound);
  }

  app.get(
    '/events/endpoints',
    {
      config: { access: { by: 'key', scope: 'events:read' } },
      schema: {
        operationId: 'listEndpoints',
        list: { items: 'endpoints', by: { parameter: 'after', next: 'next_after' } },
        summary: 'List the endpoints of the environment with their state',
        description:
          'In the order of creation; the endpoints of addresses of connections (`override`) are last. ' +
          '`kind` selects one kind; `after` is the `next_after` of the previous page.',
        querystring: z.strictObject({
          kind: z.enum(endpointKinds).optional(),
          after: listPlace.optional(),
          limit: z.coerce.number().int().min(1).max(200).default(100),
        }),
        response: { 200: z.object({ endpoints: z.array(endpointWire), next_after: z.string().nullable() }) },
      },
    },
    async ({ query: { kind, after, limit }, caller }) => {
      const { environmentId } = caller;
      const kinds = kind && [kind];
      const endpoints = await listEndpoints(db, { environmentId, kinds, after, limit });
      const last = endpoints.length === limit ? endpoints.at(-1) : undefined;
      return {
        endpoints: endpoints.map((one) => toWire(one, now())),
        next_after: last === undefined ? null : placeText(last),
      };
    },
  );

  app.post(
    '/events/endpoints',
    {
      config: { access: { by: 'key', scope: 'events:write' }, idempotent: true },
      schema: {
        operationId: 'createEndpoint',
        summary: 'Create an endpoint',
        description:
          'The endpoint receives events that are raised from now on. `types` has exact names or prefixes such as ' +
          '`connection.*`; an empty list means all types. The `format` `slack` or `email` sends alerts.',
        errors: ['too_many_endpoints', 'address_not_allowed'],
        example: { body: { url: 'https://app.customer.example/hooks/trellis', types: ['connection.*'] } },
        body: z.strictObject({
          url: destination,
          format: z.enum(endpointFormats).default('standard'),
          description: description.default(''),
          types: types.optional(),
        }),
        response: { 201: endpointWire },
      },
    },
    async ({ body, caller }, reply) => {
      const { url, format } = body;
      requireDestination(url, format);
      const { environmentId } = caller;
      const wanted = body.types ?? (format === 'standard' ? [] : alertTypes);
      const made = await db.transaction(async (tx) => {
        const id = await insertEndpoint(tx, { environmentId, ...body, types: wanted });
        const endpoint = await getEndpoint(tx, { id, environmentId });
        await auditEndpoint(tx, caller, 'endpoint.created', endpoint);
        return endpoint;
      });
      reply.code(201);
      return toWire(made, now());
    },
  );

  app.patch(
    '/events/endpoints/:id',
    {
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'changeEndpoint',
        summary: 'Change, disable or enable an endpoint',
        description:
          'Absent fields stay as they are. A new address, and enabling it again, resets its failures and sends its waiting ' +
          'deliveries. The endpoint of a setting can only be disabled and enabled.',
        errors: ['not_found', 'endpoint_of_setting', 'address_not_allowed'],
        params: idParams,
        example: { body: { types: ['connection.*'], enabled: true } },
        body: z.strictObject({
          url: destination.optional(),
          description: description.optional(),
          types: types.optional(),
          enabled: z.boolean().optional(),
        }),
        response: { 200: endpointWire },
      },
    },
    async ({ params: { id }, body: { enabled, ...change }, caller }) => {
      const at = { id, environmentId: caller.environmentId };
      const changed = await db.transaction(async (tx) => {
        const before = await lockEndpoint(tx, at);
        if (Object.values(change).some((value) => value !== undefined)) {
          requireOwn(before);
          if (change.url !== undefined) requireDestination(change.url, before.format);
          await updateEndpoint(tx, { at, change, now: now() });
        }
        if (enabled === true) await enableEndpoint(tx, { at, now: now() });
        if (enabled === false) await disableEndpoint(tx, { at, cause: 'operator', now: now() });
        const endpoint = await getEndpoint(tx, at);
        await auditEndpoint(tx, caller, 'endpoint.changed', endpoint);
        return endpoint;
      });
      return toWire(changed, now());
    },
  );

  app.post(
    '/events/endpoints/:id/test',
    {
      preValidation: acceptEmptyBody,
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'testEndpoint',
        summary: 'Send a test to an endpoint',
        description: 'Sends one `endpoint.test` event, or a test alert.',
        errors: ['not_found', 'endpoint_of_setting'],
        params: idParams,
        body: z.strictObject({}),
        response: { 200: testOutcome },
      },
    },
    async ({ params: { id }, caller: { environmentId, environment } }) => {
      const endpoint = await getEndpoint(db, { id, environmentId });
      requireOwn(endpoint);
      const attempt = await sendTest(endpoint, { id: environmentId, name: environment });
      return { delivered: attempt.isDelivered, ...evidenceOf(attempt) };
    },
  );

  app.delete(
    '/events/endpoints/:id',
    {
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'deleteEndpoint',
        summary: 'Delete an endpoint',
        description: 'Its waiting deliveries are never sent, and its deliveries are no longer listed.',
        errors: ['not_found', 'endpoint_of_setting'],
        params: idParams,
        response: { 200: success },
      },
    },
    async ({ params: { id }, caller }) => {
      const at = { id, environmentId: caller.environmentId };
      await db.transaction(async (tx) => {
        const endpoint = await lockEndpoint(tx, at);
        requireOwn(endpoint);
        await deleteEndpoint(tx, { at, now: now() });
        await auditEndpoint(tx, caller, 'endpoint.deleted', endpoint);
      });
      return { success: true as const };
    },
  );
}

/** Throws if the address can never be called: see `requireReachable` in `outbound/outbound.ts`. */
export function requireAddress(
  given: string,
  path: string[],
  outbound: Pick<Outbound, 'requireReachable'>,
): void {
  const url = new URL(given);
  if (url.username !== '' || url.password !== '') {
    throw fieldError('invalid_body', path, 'must not contain a user name or a password');
  }
  outbound.requireReachable(url);
}

const destination = anyAddress().refine(
  (url) => /^(https?|mailto):/i.test(url),
  'must begin with https:// or mailto:',
);

/** Checks a connection's own address for events in the same way, on every route that accepts one. */
export function guardOverrides(app: App, { outbound }: Pick<EndpointRouteDeps, 'outbound'>): void {
  app.addHook('preHandler', async ({ body }) => {
    const given = (body as { webhook_url_override?: unknown } | null | undefined)?.webhook_url_override;
    if (typeof given === 'string' && given !== '') requireAddress(given, ['webhook_url_override'], outbound);
  });
}

function requireOwn({ kind }: Endpoint): void {
  if (kind !== 'events') throw new AppError('endpoint_of_setting');
}

async function auditEndpoint(
  tx: Tx,
  caller: Caller,
  action: 'endpoint.created' | 'endpoint.changed' | 'endpoint.deleted',
  { id, url, types: wanted, disabledCause }: Endpoint,
): Promise<void> {
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action,
    target: String(id),
    details: { origin: originOf(url), types: wanted.join(' '), enabled: disabledCause === null },
  });
}

/** An endpoint and its state in the API. */
const endpointWire = z.object({
  id: z.number().int(),
  /** `events`, or the setting that it belongs to: `primary`, `secondary`, `override`. */
  kind: z.string(),
  format: z.enum(endpointFormats),
  url: z.string(),
  description: z.string(),
  /** Empty: all types. */
  types: z.array(z.string()),
  enabled: z.boolean(),
  disabled: z.object({ cause: z.string(), at: z.string() }).nullable(),
  breaker: z.object({
    state: z.enum(['closed', 'open', 'probing']),
    failures: z.number(),
    failing_since: z.string().nullable(),
    open_until: z.string().nullable(),
  }),
  paused_until: z.string().nullable(),
  waiting: z.object({ count: z.number(), is_more: z.boolean(), since: z.string().nullable() }),
  /** The age of the oldest waiting event. */
  lag_s: z.number(),
  last_success_at: z.string().nullable(),
  last_failure: z.looseObject({ at: z.string() }).nullable(),
  created_at: z.string(),
});
nameSchemas({ WebhookEndpoint: endpointWire });

/** As the last attempt of a delivery. */
const testOutcome = z.looseObject({ delivered: z.boolean() });

/** A place in the list, in the form of `next_after`: `own.7`, `override.7`. */
const listPlace = z
  .string()
  .regex(/^(own|override)\.[1-9]\d{0,14}$/, 'is not a valid `next_after` of this list')
  .transform((given): ListPlace => {
    const [group, id] = given.split('.');
    return { isOverride: group === 'override', id: Number(id) };
  });
/** The place after an endpoint. */
const placeText = ({ kind, id }: Endpoint) => `${kind === 'override' ? kind : 'own'}.${id}`;

/** A pause or an open breaker that ended before `now` is not shown. */
function toWire(endpoint: Endpoint, now: Date): z.input<typeof endpointWire> {
  const { disabledCause: cause, disabledAt, waiting, waitingSince, lastFailure, lastFailureAt } = endpoint;
  return {
    id: endpoint.id,
    kind: endpoint.kind,
    format: endpoint.format,
    url: endpoint.url,
    description: endpoint.description,
    types: [...endpoint.types],
    enabled: cause === null,
    disabled: cause === null || disabledAt === null ? null : { cause, at: disabledAt.toISOString() },
    breaker: {
      state: stateOf(endpoint, now.getTime()),
      failures: endpoint.failures,
      failing_since: endpoint.failingSince?.toISOString() ?? null,
      open_until: endpoint.openUntil?.toISOString() ?? null,
    },
    paused_until:
      endpoint.pausedUntil !== null && endpoint.pausedUntil > now ? endpoint.pausedUntil.toISOString() : null,
    waiting: {
      count: waiting,
      is_more: waiting >= maxCounted,
      since: waitingSince?.toISOString() ?? null,
    },
    lag_s: waitingSince === null ? 0 : Math.max(0, (now.getTime() - waitingSince.getTime()) / 1000),
    last_success_at: endpoint.lastSuccessAt?.toISOString() ?? null,
    last_failure:
      lastFailureAt === null ? null : { at: lastFailureAt.toISOString(), ...(lastFailure as object) },
    created_at: endpoint.createdAt.toISOString(),
  };
}
