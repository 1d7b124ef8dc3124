import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { emailsOf } from '../activity/accounts.ts';
import type { Db } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { fieldError } from '../errors.ts';
import { nameSchemas } from '../http/openapi/schema-names.ts';
import type { App } from '../http/server.ts';
import { text } from '../http/text.ts';
import { eventWebhooks, eventWire, typesNamed, typesToWire, typeWire } from './catalogue.ts';
import type { EventType } from './event-types.ts';
import { createFeedWatch, readFeed, readLatest } from './feed.ts';
import { eventSequence } from './sequence.ts';

/** With the e-mail address of the account or, if it has none, of the end user; null without `connections:read`. */
const latestEventWire = eventWire.extend({ account_email: z.string().nullable() });
nameSchemas({ LatestEvent: latestEventWire });

const access = { by: 'key', scope: 'events:read' } as const;
const maxWaitS = 30;
const maxAssignMs = 2_000;

const query = z.strictObject({
  after: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** Comma-separated: names, or groups such as `connection.*`. */
  types: z.string().optional(),
  /** Seconds to wait for an event if there is none. */
  wait: z.coerce.number().int().min(0).max(maxWaitS).default(0),
});

/** The event feed in commit order, the latest events, and the types of events. */
export function eventRoutes(app: App, { db }: { db: Db }): void {
  app.describe(() => ({ webhooks: eventWebhooks() }));
  const watch = createFeedWatch(db);
  // When the service stops, it responds to waiting clients at once, and they continue at another node.
  app.addHook('preClose', async () => watch.stop());

  app.get(
    '/events',
    {
      config: { access },
      schema: {
        operationId: 'listEvents',
        list: { items: 'events', by: { parameter: 'after', next: 'next_after', isFeed: true } },
        summary: 'List events after a position, oldest first, or wait for the next event',
        description:
          'To follow the feed, send the `next_after` of the previous response as `after`: all later events come after it. ' +
          'With `wait`, the call waits for the next event.',
        errors: ['invalid_cursor', 'cursor_expired'],
        querystring: query,
        response: { 200: z.object({ events: z.array(eventWire), next_after: z.string() }) },
      },
    },
    async (request, reply) => {
      const { after, limit, types, wait } = request.query;
      const page = {
        of: request.caller,
        limit,
        types: types === undefined ? undefined : readTypes(types),
      };
      await assignPositions(db);
      let found = await readFeed(db, {
        ...page,
        after: after === undefined ? undefined : readPosition(after, 'after'),
      });
      if (found.events.length === 0 && wait > 0) {
        const isGone = new AbortController();
        reply.raw.once('close', () => isGone.abort());
        const signal = AbortSignal.any([isGone.signal, AbortSignal.timeout(wait * 1000)]);
        while (found.events.length === 0 && (await watch.waitPast(found.last, signal))) {
          found = await readFeed(db, { ...page, after: found.next });
        }
        // The key may have been revoked meanwhile.
        await request.callerNow();
      }
      return { events: found.events, next_after: String(found.next) };
    },
  );

  app.get(
    '/events/latest',
    {
      config: { access },
      schema: {
        operationId: 'listLatestEvents',
        list: { items: 'events', by: { parameter: 'before', next: 'next_before' } },
        summary: 'List the latest events, newest first',
        description:
          'For display. Programs follow `GET /events`, which reports missed events. `connection_id` selects the events ' +
          'of one connection.',
        querystring: z.strictObject({
          /** `next_before` of the page before. */
          before: z.string().optional(),
          limit: z.coerce.number().int().min(1).max(200).default(50),
          types: z.string().optional(),
          connection_id: text({ max: 255 }).optional(),
          /** Only with `connection_id`. */
          provider_config_key: text({ max: 255 }).optional(),
        }),
        response: { 200: z.object({ events: z.array(latestEventWire), next_before: z.string().nullable() }) },
      },
    },
    async ({
      query: { before, limit, types, connection_id: id, provider_config_key: integration },
      caller,
    }) => {
      if (integration !== undefined && id === undefined)
        throw fieldError('invalid_query_params', ['provider_config_key'], 'needs `connection_id`');
      await assignPositions(db);
      const { events, next } = await readLatest(db, {
        of: caller,
        limit,
        before: before === undefined ? undefined : readPosition(before, 'before'),
        types: types === undefined ? undefined : readTypes(types),
        connection: id === undefined ? undefined : { id, integration },
      });
      const named = events.map(({ data }) => ({
        integration: textOf(data.provider_config_key),
        connection: textOf(data.connection_id),
      }));
      const emailOf = await emailsOf(db, { caller, all: named });
      return {
        events: events.map((event, at) => ({ ...event, account_email: emailOf(named[at]!) })),
        next_before: next === undefined ? null : String(next),
      };
    },
  );

  app.get(
    '/events/types',
    {
      config: { access },
      schema: {
        operationId: 'listEventTypes',
        list: { items: 'types', by: 'whole' },
        summary: 'List all types of events',
        description: 'Each type with its meaning, the JSON Schema of its data, and an example.',
        response: { 200: z.object({ types: z.array(typeWire) }) },
      },
    },
    async () => ({ types: typesToWire() }),
  );
}

/**
 * Gives positions to all events that were committed before the call, unless that takes longer than `maxAssignMs`:
 * after a burst of events, or if a frozen node blocks it. Then the reader gets the rest with a later response.
 */
async function assignPositions(db: Db): Promise<void> {
  const isDone = new AbortController();
  const timeout = sleep(maxAssignMs, undefined, { signal: isDone.signal }).catch(() => {});
  await Promise.race([placeAll(db, eventSequence), timeout]).finally(() => isDone.abort());
}

const textOf = (value: unknown) => (typeof value === 'string' ? value : null);

/** Reads a number in the form of `next_after` and `next_before`. */
function readPosition(given: string, name: 'after' | 'before'): number {
  const position = /^(0|[1-9]\d{0,15})$/.test(given) ? Number(given) : Number.NaN;
  if (!Number.isSafeInteger(position))
    throw fieldError('invalid_query_params', [name], `Use next_${name} of an earlier response.`);
  return position;
}

function readTypes(text: string): EventType[] {
  const wanted = text.split(',').flatMap((part) => {
    const named = typesNamed(part.trim());
    if (named.length === 0) {
      throw fieldError(
        'invalid_query_params',
        ['types'],
        `There is no type ${JSON.stringify(part.trim().slice(0, 64))}: see GET /events/types.`,
      );
    }
    return named;
  });
  return [...new Set(wanted)];
}
