import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { placeAll } from '../db/sequencer.ts';
import { fieldError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { type EventType, eventWire, typesNamed, typesToWire, typeWire } from './catalogue.ts';
import { eventWebhooks } from './describe.ts';
import { readFeed } from './feed.ts';
import { readLatest } from './latest.ts';
import { eventSequence } from './sequence.ts';
import { createFeedWatch } from './watch.ts';

const access = { by: 'key', scope: 'events:read' } as const;
const longestWaitS = 30;
const patienceMs = 2_000;

const query = z.strictObject({
  after: z.string().optional(),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
  /** Comma-separated: names, or all of a kind as `connection.*`. */
  types: z.string().optional(),
  /** Seconds to wait for an event where there is none. */
  wait: z.coerce.number().int().min(0).max(longestWaitS).default(0),
});

/** The event feed: what happened, in commit order, to be followed by `after`; and what can happen. */
export function eventRoutes(app: App, { db }: { db: Db }): void {
  app.describe((brand) => ({ webhooks: eventWebhooks(brand) }));
  const watch = createFeedWatch(db);
  // When the service stops, it answers waiting clients at once, and they continue at another node.
  app.addHook('preClose', async () => watch.stop());

  app.get(
    '/events',
    {
      config: { access },
      schema: {
        operationId: 'listEvents',
        summary: 'Events after a position, oldest first; waits for the next one where asked to',
        description:
          'Follow it by `after`, the `next_after` of the answer before: no event is ever overtaken.',
        errors: ['invalid_cursor', 'cursor_expired'],
        querystring: query,
        response: { 200: z.object({ events: z.array(eventWire), next_after: z.string() }) },
      },
    },
    async (request, reply) => {
      const { after, limit, types, wait } = request.query;
      const asked = {
        of: request.caller,
        limit,
        types: types === undefined ? undefined : readTypes(types),
      };
      await placeSoon(db);
      let page = await readFeed(db, {
        ...asked,
        after: after === undefined ? undefined : readPosition(after, 'after'),
      });
      if (page.events.length === 0 && wait > 0) {
        const isGone = new AbortController();
        reply.raw.once('close', () => isGone.abort());
        const signal = AbortSignal.any([isGone.signal, AbortSignal.timeout(wait * 1000)]);
        while (page.events.length === 0 && (await watch.past(page.last, signal))) {
          page = await readFeed(db, { ...asked, after: page.next });
        }
        // The key may have been revoked meanwhile.
        await request.callerNow();
      }
      return { events: page.events, next_after: String(page.next) };
    },
  );

  app.get(
    '/events/latest',
    {
      config: { access },
      schema: {
        operationId: 'listLatestEvents',
        summary: 'The latest events, newest first',
        description:
          'For people who look. Programs follow `GET /events`, which tells them where they missed some.',
        querystring: z.strictObject({
          /** `next_before` of the page before. */
          before: z.string().optional(),
          limit: z.coerce.number().int().min(1).max(200).default(50),
          types: z.string().optional(),
        }),
        response: { 200: z.object({ events: z.array(eventWire), next_before: z.string().nullable() }) },
      },
    },
    async ({ query: { before, limit, types }, caller }) => {
      await placeSoon(db);
      const { events, next } = await readLatest(db, {
        of: caller,
        limit,
        before: before === undefined ? undefined : readPosition(before, 'before'),
        types: types === undefined ? undefined : readTypes(types),
      });
      return { events, next_before: next === undefined ? null : String(next) };
    },
  );

  app.get(
    '/events/types',
    {
      config: { access },
      schema: {
        operationId: 'listEventTypes',
        summary: 'Every type of event, with its meaning, the JSON Schema of its data, and an example',
        description: 'The catalogue of what can happen.',
        response: { 200: z.object({ types: z.array(typeWire) }) },
      },
    },
    async () => ({ types: typesToWire() }),
  );
}

/**
 * What was committed before the call is in the feed, unless that takes longer than `patienceMs`: after a flood, or where a
 * node that froze holds it up. Then the reader gets what stands there, and the rest with a later answer.
 */
async function placeSoon(db: Db): Promise<void> {
  const isOver = new AbortController();
  const patience = sleep(patienceMs, undefined, { signal: isOver.signal }).catch(() => {});
  await Promise.race([placeAll(db, eventSequence), patience]).finally(() => isOver.abort());
}

/** A number as `next_after` and `next_before` spell it. */
function readPosition(given: string, name: 'after' | 'before'): number {
  const position = /^(0|[1-9]\d{0,15})$/.test(given) ? Number(given) : Number.NaN;
  if (!Number.isSafeInteger(position))
    throw fieldError('invalid_query_params', [name], `Use next_${name} of an earlier answer.`);
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
