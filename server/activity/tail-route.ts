import type { IncomingMessage } from 'node:http';
import { setTimeout as wait } from 'node:timers/promises';
import { z } from 'zod';
import type { Db } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { App } from '../http/server.ts';
import { type EndReason, EventStream, event } from './event-stream.ts';
import { filterInput, filterOf } from './filter-input.ts';
import { sinceOperation, type Tail, tailOperations } from './tail.ts';
import { operationToWire } from './wire.ts';

type TailDeps = {
  db: Db;
  now: () => Date;
  /** Rejects if the sender of this request may no longer read the log, by the rights stored now. */
  authorizeAgain: (request: IncomingMessage) => Promise<unknown>;
  timing?: TailTiming;
};

export type TailTiming = {
  /** How often the database is asked, for new entries and for the key. */
  pollMs: number;
  /** A stream on which nothing happens says so much more often than a proxy in between waits. */
  heartbeatMs: number;
  /** As `EventStream` has them. */
  stallMs: number;
  lingerMs: number;
};
const usual: TailTiming = { pollMs: 500, heartbeatMs: 15_000, stallMs: 10_000, lingerMs: 5_000 };

/** Each costs the database some milliseconds a second. */
const maxOnNode = 20;

/** Following the log as it grows. */
export function tailRoute(app: App, { db, now, authorizeAgain, timing = usual }: TailDeps): void {
  const open = new Set<EventStream>();
  app.addHook('preClose', async () => {
    for (const stream of open) stream.end('stopping');
  });

  app.get(
    '/operations/tail',
    {
      // A HEAD would wait for an end that does not come.
      exposeHeadRoute: false,
      config: { access: { by: 'key', scope: 'activity:read' } },
      schema: {
        operationId: 'tailOperations',
        summary: 'Operations as they are logged, as server-sent events',
        description:
          'From now on, or from shortly before the operation that Last-Event-ID names. Each is an event `operation`; the last ' +
          'event is `end` and says why, unless the reader ended it. `seconds` is how long it lasts; 0 tells what is there already.',
        errors: ['too_many_requests'],
        headers: z.looseObject({ 'last-event-id': z.uuid().optional() }),
        querystring: z.strictObject({
          ...filterInput,
          /** When it ends by itself; 0: with what is there already. */
          seconds: z.coerce.number().int().min(0).max(3600).optional(),
        }),
        answers: {
          200: {
            description: 'A stream of events.',
            type: 'text/event-stream',
            schema: { type: 'string' },
            example: 'retry: 1000\n\nevent: end\ndata: {"reason":"asked"}\n\n',
          },
        },
      },
    },
    async ({ query: { seconds = Number.POSITIVE_INFINITY, ...query }, headers, caller, raw }, reply) => {
      if (open.size >= maxOnNode) {
        throw new AppError('too_many_requests', `A node serves ${maxOnNode} tails at once.`, {
          retryAfterS: 10,
        });
      }
      const lastId = headers['last-event-id'];
      const tail = tailOperations(db, {
        filter: filterOf(caller, query),
        since: lastId === undefined ? now().getTime() : sinceOperation(lastId),
        nowMs: () => now().getTime(),
      });
      const stream = new EventStream(timing);
      open.add(stream);
      stream.body.once('close', () => open.delete(stream));
      void pump(stream, {
        tail,
        timing,
        until: performance.now() + seconds * 1000,
        authorizeAgain: () => authorizeAgain(raw),
      });
      return reply
        .type('text/event-stream; charset=utf-8')
        .headers({ 'cache-control': 'no-store', 'x-accel-buffering': 'no' })
        .send(stream.body);
    },
  );
}

/** Sends what comes until the stream ends. Never rejects. */
async function pump(
  stream: EventStream,
  {
    tail,
    timing: { pollMs, heartbeatMs },
    until,
    authorizeAgain,
  }: { tail: Tail; timing: TailTiming; until: number; authorizeAgain: () => Promise<unknown> },
): Promise<void> {
  const { ended } = stream;
  try {
    await stream.send('retry: 1000\n\n');
    let quietSince = performance.now();
    while (!ended.aborted) {
      await authorizeAgain();
      const { operations, hasMore } = await tail.next();
      for (const operation of operations) {
        if (ended.aborted) return;
        await stream.send(event('operation', { id: operation.id, data: operationToWire(operation) }));
      }
      const at = performance.now();
      if (operations.length > 0) quietSince = at;
      else if (at - quietSince >= heartbeatMs) {
        await stream.send(': nothing new\n\n');
        quietSince = at;
      }
      if (hasMore) continue;
      if (at >= until) stream.end('asked');
      else await wait(Math.min(pollMs, until - at), undefined, { signal: ended }).catch(() => {});
    }
  } catch (error) {
    stream.end(reasonOf(error));
  }
}

function reasonOf(error: unknown): EndReason {
  return error instanceof AppError && (error.status === 401 || error.status === 403) ? 'key' : 'failed';
}
