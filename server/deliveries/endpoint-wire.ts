import { z } from 'zod';
import { stateOf } from './breaker.ts';
import { type Endpoint, type ListPlace, maxCounted } from './endpoints.ts';

/** An endpoint, and how it is, as the API shows it. */
export const endpointWire = z.object({
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
export const listPlace = z
  .string()
  .regex(/^(own|override)\.[1-9]\d{0,14}$/, 'is no next_after of this list')
  .transform((given): ListPlace => {
    const [group, id] = given.split('.');
    return { isOverride: group === 'override', id: Number(id) };
  });
/** Where the list goes on behind an endpoint. */
export const placeText = ({ kind, id }: Endpoint) => `${kind === 'override' ? kind : 'own'}.${id}`;

/** `now` says what is over: a pause, an open breaker. */
export function toWire(endpoint: Endpoint, now: Date): z.input<typeof endpointWire> {
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
