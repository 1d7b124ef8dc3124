import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { setTimeout as wait } from 'node:timers/promises';
import { z } from 'zod';
import { type Db, type Queryable, tables } from '../db/pool.ts';
import { AppError } from '../errors.ts';
import type { ProxyCaller } from '../http/auth/caller.ts';
import type { App } from '../http/server.ts';
import { withIntegrationId } from '../http/spellings.ts';
import { type OperationFilter, type OperationRow, operationColumns, timeOfId } from './operations.ts';
import { fits } from './search.ts';
import { filterInput, filterOf, operationsToWire } from './wire.ts';

type TailDeps = {
  db: Db;
  now: () => Date;
  /** Rejects if the sender of this request may no longer read the log, by the rights stored now. */
  authorizeAgain: (request: IncomingMessage) => Promise<ProxyCaller>;
  timing?: TailTiming;
};

export type TailTiming = {
  /** How often the database is read, for new entries and for the key. */
  pollMs: number;
  /** How often an idle stream sends a comment, so that no proxy in between closes it. */
  heartbeatMs: number;
  /** The limits of `EventStream`. */
  stallMs: number;
  lingerMs: number;
};
const usual: TailTiming = { pollMs: 500, heartbeatMs: 15_000, stallMs: 10_000, lingerMs: 5_000 };

/** Each costs the database some milliseconds a second. */
const maxOnNode = 20;

/** The route that follows the log. */
export function tailRoute(app: App, { db, now, authorizeAgain, timing = usual }: TailDeps): void {
  const open = new Set<EventStream>();
  app.addHook('preClose', async () => {
    for (const stream of open) stream.end('stopping');
  });

  app.get(
    '/operations/tail',
    {
      // A HEAD request would wait for the end of the stream.
      exposeHeadRoute: false,
      config: { access: { by: 'key', scope: 'activity:read' } },
      schema: {
        operationId: 'tailOperations',
        summary: 'Stream operations as they are logged (server-sent events)',
        description:
          'The stream starts now, or shortly before the operation that Last-Event-ID names. Each operation is an event ' +
          '`operation`. The last event is `end` and has the reason, unless the client closes the stream. `seconds` is the ' +
          'duration of the stream; with 0, it has only the existing operations.',
        errors: ['too_many_requests'],
        headers: z.looseObject({ 'last-event-id': z.uuid().optional() }),
        querystring: z.strictObject({
          ...filterInput,
          /** When the stream ends; 0: after the entries that exist. */
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
        throw new AppError('too_many_requests', `A node serves at most ${maxOnNode} tails at a time.`, {
          retryAfterS: 10,
        });
      }
      const lastId = headers['last-event-id'];
      const tail = tailOperations(db, {
        filter: await filterOf(db, caller, query),
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
        toWire: (operations, now) => operationsToWire(db, { operations, caller: now }),
      });
      return reply
        .type('text/event-stream; charset=utf-8')
        .headers({ 'cache-control': 'no-store', 'x-accel-buffering': 'no' })
        .send(stream.body);
    },
  );
}

/** Sends new operations until the stream ends. Never rejects. */
async function pump(
  stream: EventStream,
  {
    tail,
    timing: { pollMs, heartbeatMs },
    until,
    authorizeAgain,
    toWire,
  }: {
    tail: Tail;
    timing: TailTiming;
    until: number;
    authorizeAgain: () => Promise<ProxyCaller>;
    toWire: (operations: OperationRow[], caller: ProxyCaller) => ReturnType<typeof operationsToWire>;
  },
): Promise<void> {
  const { ended } = stream;
  try {
    await stream.send('retry: 1000\n\n');
    let quietSince = performance.now();
    while (!ended.aborted) {
      const caller = await authorizeAgain();
      const { operations, hasMore } = await tail.next();
      for (const operation of await toWire(operations, caller)) {
        if (ended.aborted) return;
        await stream.send(event('operation', { id: operation.id, data: withIntegrationId(operation) }));
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

/**
 * How much later than it was logged an entry may get into the database and still be told: nodes write in batches, and
 * their clocks differ.
 */
const lateMs = 5_000;
/** Told in one go. */
const maxAtOnce = 200;
const dayMs = 86_400_000;

type Tail = {
  /**
   * What came since the last call, oldest first as far as it is known, each once: entries of one moment may come in
   * another order, since they are written by several nodes. `hasMore`: there are more than one call returns.
   */
  next(): Promise<{ operations: OperationRow[]; hasMore: boolean }>;
};

/**
 * Follows the log on all nodes from `since`, in ms. It asks the database, so it costs a look at the entries of the last
 * five seconds each time.
 */
function tailOperations(
  db: Queryable,
  { filter, since, nowMs }: { filter: OperationFilter; since: number; nowMs: () => number },
): Tail {
  const sent = new Set<string>();
  /** Everything that was in the database at this time was sent, except late entries. */
  let reached = since + lateMs;

  return {
    async next() {
      const at = nowMs();
      const from = new Date(Math.max(since, reached - lateMs));
      for (const id of sent) if (timeOfId(id) < from) sent.delete(id);
      const range = { from, to: new Date(Math.max(at, from.getTime()) + dayMs) };
      const rows = tables
        .selectFrom('operation')
        .where('environment_id', '=', filter.environmentId)
        .where('created_at', '>=', range.from)
        .where('created_at', '<', range.to);
      const found = await db.run(
        rows
          .select('id')
          .where(fits(filter, range))
          .orderBy('created_at')
          .orderBy('id')
          .limit(sent.size + maxAtOnce + 1),
      );
      const fresh = found.map(({ id }) => id).filter((id) => !sent.has(id));
      const ids = fresh.slice(0, maxAtOnce);
      const hasMore = fresh.length > ids.length;
      const last = ids.at(-1);
      reached = hasMore && last !== undefined ? timeOfId(last).getTime() : Math.max(at, reached);
      if (last === undefined) return { operations: [], hasMore };
      const operations = await db.run(
        rows.select(operationColumns).where('id', 'in', ids).orderBy('created_at').orderBy('id'),
      );
      for (const { id } of operations) sent.add(id);
      return { operations, hasMore };
    },
  };
}

/** The time from which to follow, so that a reader that has the log up to this operation misses nothing. */
function sinceOperation(id: string): number {
  return timeOfId(id).getTime() - lateMs;
}

/** Why an event stream ends that its reader did not end. */
type EndReason = 'asked' | 'stopping' | 'key' | 'too_slow' | 'failed';

const endings: Record<EndReason, string> = {
  asked: 'The requested time has ended.',
  stopping: 'The node stops. Connect again.',
  key: 'The key was revoked, has expired or lost its scope.',
  too_slow: 'The client read too slowly. Connect again with Last-Event-ID to continue.',
  failed: 'The log cannot be read at the moment. Connect again a little later.',
};

/**
 * Server-sent events (HTML standard, §9.2) for one reader. The buffer holds at most the last sent text and some 16 KB:
 * `send` resolves once the buffer has capacity again.
 */
export class EventStream {
  readonly body: Readable;
  /** Aborted once it has ended, from whichever side. */
  readonly ended: AbortSignal;
  readonly #stallMs: number;
  readonly #lingerMs: number;
  readonly #ending = new AbortController();
  #drained: (() => void) | undefined;

  /** A reader that reads nothing for `stallMs` gets the end event, and is disconnected after `lingerMs` more. */
  constructor({ stallMs, lingerMs }: { stallMs: number; lingerMs: number }) {
    this.#stallMs = stallMs;
    this.#lingerMs = lingerMs;
    this.ended = this.#ending.signal;
    this.body = new Readable({
      read: () => this.#drained?.(),
      destroy: (error, done) => {
        this.#ending.abort();
        done(error);
      },
    });
  }

  /** Sends `text`, which is complete lines, and waits until the buffer has capacity; returns at once if the stream has ended. */
  async send(text: string): Promise<void> {
    if (this.ended.aborted || this.body.push(text)) return;
    const { promise: drained, resolve } = Promise.withResolvers<void>();
    this.#drained = resolve;
    const over = new AbortController();
    const signal = AbortSignal.any([over.signal, this.ended]);
    const stalled = wait(this.#stallMs, 'stalled', { signal }).catch(() => 'ended');
    const outcome = await Promise.race([drained, stalled]);
    this.#drained = undefined;
    over.abort();
    if (outcome === 'stalled') this.end('too_slow');
  }

  /** The last event gives the reason; a reader that does not read it is disconnected a little later. */
  end(reason: EndReason): void {
    if (this.ended.aborted) return;
    this.#ending.abort();
    this.body.push(event('end', { data: { reason, message: endings[reason] } }));
    this.body.push(null);
    const cut = setTimeout(() => this.body.destroy(), this.#lingerMs);
    this.body.once('close', () => clearTimeout(cut));
  }
}

/** One event in the form of the stream; its data is JSON, in one line. */
export function event(name: string, { id, data }: { id?: string; data: unknown }): string {
  return `${id === undefined ? '' : `id: ${id}\n`}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
}
