import { z } from 'zod';
import { actorOf, writeAudit } from '../activity/audit.ts';
import type { Db, Tx } from '../db/pool.ts';
import { AppError, fieldError } from '../errors.ts';
import { typesNamed } from '../events/catalogue.ts';
import type { Caller } from '../http/caller.ts';
import type { App } from '../http/server.ts';
import { text, webAddress } from '../http/text.ts';
import type { Outbound } from '../outbound.ts';
import { stateOf } from './breaker.ts';
import {
  deleteEndpoint,
  disableEndpoint,
  type Endpoint,
  enableEndpoint,
  endpointKinds,
  getEndpoint,
  insertEndpoint,
  type ListPlace,
  listEndpoints,
  lockEndpoint,
  maxCounted,
  updateEndpoint,
} from './endpoints.ts';

type Deps = { db: Db; outbound: Pick<Outbound, 'requireReachable'>; now: () => Date };

const typeName = text({ min: 1, max: 100 }).refine(
  (name) => typesNamed(name).length > 0,
  'is no type of event, nor a beginning such as connection.*',
);
const types = z.array(typeName).max(100);
const description = text({ max: 255 });
export const idParams = z.object({ id: z.coerce.number().int().min(1).max(Number.MAX_SAFE_INTEGER) });

/** For routes that need no body: none at all is an empty one. */
export async function takeNoneAsEmpty(request: { body: unknown }): Promise<void> {
  if (request.body === undefined) request.body = {};
}

/** Endpoints that events are sent to; what changes is in the audit log. */
export function endpointRoutes(app: App, { db, outbound, now }: Deps): void {
  app.get(
    '/events/endpoints',
    {
      config: { access: { by: 'key', scope: 'events:read' } },
      schema: {
        operationId: 'listEndpoints',
        summary: 'Endpoints of the environment, and how they are',
        description:
          'In the order in which they were made, those that stand for addresses of connections (`override`) after all ' +
          'others. `kind` asks for one kind alone; `after` is `next_after` of the page before.',
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
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'createEndpoint',
        summary: 'Send events to an address',
        description:
          'From now on; `types` are exact names or a beginning such as `connection.*`, none means all.',
        errors: ['too_many_endpoints', 'address_not_allowed'],
        example: { body: { url: 'https://app.customer.example/hooks/trellis', types: ['connection.*'] } },
        body: z.strictObject({
          url: webAddress(),
          description: description.default(''),
          types: types.default([]),
        }),
        response: { 201: endpointWire },
      },
    },
    async ({ body, caller }, reply) => {
      requireAddress(body.url, ['url'], outbound);
      const { environmentId } = caller;
      const made = await db.transaction(async (tx) => {
        const id = await insertEndpoint(tx, { environmentId, ...body });
        const endpoint = await getEndpoint(tx, { id, environmentId });
        await note(tx, caller, 'endpoint.created', endpoint);
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
          'What is left out stays. With another address, or enabled again, it starts afresh with what waits for it. ' +
          'One that stands for a setting can only be disabled and enabled.',
        errors: ['not_found', 'endpoint_of_setting', 'address_not_allowed'],
        params: idParams,
        example: { body: { types: ['connection.*'], enabled: true } },
        body: z.strictObject({
          url: webAddress().optional(),
          description: description.optional(),
          types: types.optional(),
          enabled: z.boolean().optional(),
        }),
        response: { 200: endpointWire },
      },
    },
    async ({ params: { id }, body: { enabled, ...change }, caller }) => {
      if (change.url !== undefined) requireAddress(change.url, ['url'], outbound);
      const at = { id, environmentId: caller.environmentId };
      const changed = await db.transaction(async (tx) => {
        const before = await lockEndpoint(tx, at);
        if (Object.values(change).some((value) => value !== undefined)) {
          requireOwn(before);
          await updateEndpoint(tx, { at, change, now: now() });
        }
        if (enabled === true) await enableEndpoint(tx, { at, now: now() });
        if (enabled === false) await disableEndpoint(tx, { at, cause: 'operator', now: now() });
        const endpoint = await getEndpoint(tx, at);
        await note(tx, caller, 'endpoint.changed', endpoint);
        return endpoint;
      });
      return toWire(changed, now());
    },
  );

  app.delete(
    '/events/endpoints/:id',
    {
      config: { access: { by: 'key', scope: 'events:write' } },
      schema: {
        operationId: 'deleteEndpoint',
        summary: 'Delete an endpoint',
        description: 'What waits for it is never sent, and its deliveries are no longer listed.',
        errors: ['not_found', 'endpoint_of_setting'],
        params: idParams,
        response: { 200: z.object({ success: z.literal(true) }) },
      },
    },
    async ({ params: { id }, caller }) => {
      const at = { id, environmentId: caller.environmentId };
      await db.transaction(async (tx) => {
        const endpoint = await lockEndpoint(tx, at);
        requireOwn(endpoint);
        await deleteEndpoint(tx, { at, now: now() });
        await note(tx, caller, 'endpoint.deleted', endpoint);
      });
      return { success: true as const };
    },
  );
}

/** Throws where an address can be told now never to be called: see `requireReachable` of `outbound.ts`. */
export function requireAddress(
  given: string,
  path: string[],
  outbound: Pick<Outbound, 'requireReachable'>,
): void {
  const url = new URL(given);
  if (url.username !== '' || url.password !== '') {
    throw fieldError('invalid_body', path, 'must hold no user and no password');
  }
  outbound.requireReachable(url);
}

/** A connection's own address for events is judged as any other, whichever route takes it. */
export function guardOverrides(app: App, { outbound }: Pick<Deps, 'outbound'>): void {
  app.addHook('preHandler', async ({ body }) => {
    const given = (body as { webhook_url_override?: unknown } | null | undefined)?.webhook_url_override;
    if (typeof given === 'string' && given !== '') requireAddress(given, ['webhook_url_override'], outbound);
  });
}

/**
 * What the audit log may hold of an address, so that many see it: scheme, host and port. With many receivers the path is
 * the secret.
 */
export function originOf(url: string): string {
  return new URL(url).origin;
}

function requireOwn({ kind }: Endpoint): void {
  if (kind !== 'events') throw new AppError('endpoint_of_setting');
}

async function note(
  tx: Tx,
  caller: Caller,
  action: 'endpoint.created' | 'endpoint.changed' | 'endpoint.deleted',
  { id, url, types: wanted, disabled }: Endpoint,
): Promise<void> {
  await writeAudit(tx, {
    environmentId: caller.environmentId,
    actor: actorOf(caller),
    action,
    target: String(id),
    details: { origin: originOf(url), types: wanted.join(' '), enabled: disabled === undefined },
  });
}

/** An endpoint, and how it is, as the API shows it. */
const endpointWire = z.object({
  id: z.number().int(),
  /** `events`, or the setting it stands for: `primary`, `secondary`, `override`. */
  kind: z.string(),
  url: z.string(),
  description: z.string(),
  /** None: all. */
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
  /** How long the oldest waiting event has waited. */
  lag_s: z.number(),
  last_success_at: z.string().nullable(),
  last_failure: z.looseObject({ at: z.string() }).nullable(),
  created_at: z.string(),
});

/** A place of the list as `next_after` spells it: `own.7`, `override.7`. */
const listPlace = z
  .string()
  .regex(/^(own|override)\.[1-9]\d{0,14}$/, 'is no next_after of this list')
  .transform((given): ListPlace => {
    const [group, id] = given.split('.');
    return { isOverride: group === 'override', id: Number(id) };
  });
/** Where the list goes on behind an endpoint. */
const placeText = ({ kind, id }: Endpoint) => `${kind === 'override' ? kind : 'own'}.${id}`;

/** `now` says what is over: a pause, an open breaker. */
function toWire(endpoint: Endpoint, now: Date): z.input<typeof endpointWire> {
  const { disabled, waiting, waitingSince, lastFailure, lastFailureAt } = endpoint;
  return {
    id: endpoint.id,
    kind: endpoint.kind,
    url: endpoint.url,
    description: endpoint.description,
    types: [...endpoint.types],
    enabled: disabled === undefined,
    disabled: disabled ? { cause: disabled.cause, at: disabled.at.toISOString() } : null,
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
