/**
 * Limits the memory for large bodies of requests to routes.
 *
 * A body is kept until the response, so many large bodies at a time would fill the memory. The received bytes count, not the
 * announced length: a caller that announces much and sends nothing keeps no other caller out.
 */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest, RequestPayload } from 'fastify';
import { AppError } from '../../errors.ts';
import { metrics } from '../../metrics/metrics.ts';

/** Refuses compressed bodies unread, since their decoded size is not known. Bodies of proxied calls do not pass here. */
export function refuseCoded(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const coding = request.headers['content-encoding']?.trim().toLowerCase();
    if (coding === undefined || coding === '' || coding === 'identity') {
      done();
      return;
    }
    // RFC 9110 §12.5.3 and §15.5.16: names the accepted coding.
    const headers = { 'accept-encoding': 'identity' };
    done(
      new AppError('invalid_content_type', 'Send the body as it is, without Content-Encoding.', { headers }),
    );
  });
}

/** Bodies with an announced length up to this are not counted. */
const smallBytes = 64 * 1024;
/** The share for callers without a valid key. */
const strangersShare = 1 / 4;

/** The memory for bodies that are held at the same time. */
export class BodyBudget {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether `more` bytes exceed the budget, for a body that holds `own` bytes. A single body never does. */
  isFullFor(more: number, own = 0): boolean {
    return this.#bytes > own && this.#bytes + more > this.#maxBytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
  }
}

/** Refuses bodies beyond `maxBytes` in total, and those of callers without a key beyond their share. */
export function limitBodyMemory(app: FastifyInstance, maxBytes: number): void {
  const all = new BodyBudget(maxBytes);
  const ofStrangers = new BodyBudget(maxBytes * strangersShare);
  app.addHook('preParsing', (request, reply, payload, done) => {
    const budgets = request.isKnown ? [all] : [all, ofStrangers];
    const refusal = () => {
      metrics.httpRefused.add(['overloaded']);
      return new AppError('overloaded', 'Too many large bodies arrive at the same time.', { retryAfterS: 1 });
    };
    holdIn(budgets, { request, reply, payload, refusal }, done);
  });
}

/**
 * Counts each part of a large body before it is kept, until the response. Without free memory the request is refused before
 * any of it is read. Without free memory for the next part, the body ends with the refusal, and its memory is released: so
 * some of the bodies that fill the memory together are always completed.
 */
export function holdIn(
  budgets: readonly BodyBudget[],
  {
    request,
    reply,
    payload,
    refusal,
  }: {
    request: FastifyRequest;
    reply: FastifyReply;
    payload: RequestPayload;
    refusal: () => AppError;
  },
  done: (error?: Error | null, payload?: RequestPayload) => void,
): void {
  const said = lengthOf(request);
  // A body that is too long for its route is refused by its parser.
  if (!(said > smallBytes && said <= request.routeOptions.bodyLimit)) {
    done();
    return;
  }
  if (
    budgets.some((budget) => budget.isFullFor(request.headers['content-length'] === undefined ? 1 : said))
  ) {
    done(refusal());
    return;
  }
  const { raw } = reply;
  let held = 0;
  const release = () => {
    for (const budget of budgets) budget.add(-held);
    held = 0;
  };
  const admit = (bytes: number) => {
    // Parts after the response are not kept, and after `close` nothing would release them.
    if (raw.headersSent || raw.closed || raw.destroyed) return undefined;
    if (budgets.some((budget) => budget.isFullFor(bytes, held))) {
      release();
      return refusal();
    }
    held += bytes;
    for (const budget of budgets) budget.add(bytes);
    return undefined;
  };
  raw.once('close', release);
  done(null, counted(payload, { admit, isAnswered: () => raw.writableEnded }));
}

/** The announced length, or the maximum of the route if none is announced. */
function lengthOf({ headers, routeOptions }: FastifyRequest): number {
  if (headers['content-length'] !== undefined) return Number(headers['content-length']);
  return headers['transfer-encoding'] === undefined ? 0 : routeOptions.bodyLimit;
}

/**
 * A stream that reads `payload`. A part that is not admitted ends it with that error, and the rest stays unread. After the
 * response, parts are dropped (`lingerBehind`).
 */
function counted(
  payload: RequestPayload,
  { admit, isAnswered }: { admit: (bytes: number) => AppError | undefined; isAnswered: () => boolean },
): Readable {
  let isBegun = false;
  const take = (chunk: Buffer) => {
    if (isAnswered()) return;
    const refused = admit(chunk.length);
    if (refused !== undefined) body.destroy(refused);
    else if (!body.push(chunk)) payload.pause();
  };
  const body = new Readable({
    read() {
      if (!isBegun) payload.on('data', take);
      isBegun = true;
      payload.resume();
    },
    destroy(error, done) {
      payload.off('data', take);
      payload.pause();
      done(error);
    },
  });
  payload.once('end', () => body.push(null)).once('error', (error) => body.destroy(error));
  // The reader of the body may have stopped listening.
  body.on('error', () => {});
  return body;
}
