/**
 * How much of large bodies a node holds at once, and which are refused.
 *
 * A body is kept whole until its request is answered, so many large ones at a time would fill the memory. It counts the
 * bytes received, not the announced length: a caller that announces much and sends nothing keeps no other caller out.
 */
import { Readable } from 'node:stream';
import type { FastifyInstance, FastifyReply, FastifyRequest, RequestPayload } from 'fastify';
import { AppError } from '../errors.ts';
import { metrics } from '../metrics/metrics.ts';

/**
 * A body that was compressed is refused unread: what it becomes is known only once it is there. Bodies of proxied calls are no
 * concern of it, they pass as they are.
 */
export function refuseCoded(app: FastifyInstance): void {
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const coding = request.headers['content-encoding']?.trim().toLowerCase();
    if (coding === undefined || coding === '' || coding === 'identity') {
      done();
      return;
    }
    // RFC 9110 §12.5.3 and §15.5.16: it says what would be taken instead.
    const headers = { 'accept-encoding': 'identity' };
    done(
      new AppError('invalid_content_type', 'Send the body as it is, without Content-Encoding.', { headers }),
    );
  });
}

/** A body that says to be no longer is read without more ado. */
const smallBytes = 64 * 1024;
/** The share of those who have shown no key. */
const strangersShare = 1 / 4;

/** Bodies that are held together. */
export class BodyBudget {
  readonly #maxBytes: number;
  #bytes = 0;

  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether so much more would be too much for one that holds so much already; one alone always goes. */
  isFullFor(more: number, own = 0): boolean {
    return this.#bytes > own && this.#bytes + more > this.#maxBytes;
  }

  add(bytes: number): void {
    this.#bytes += bytes;
  }
}

/** Bodies beyond `maxBytes` together, and those of strangers beyond their share of it, are told to come again. */
export function limitBodyMemory(app: FastifyInstance, maxBytes: number): void {
  const all = new BodyBudget(maxBytes);
  const ofStrangers = new BodyBudget(maxBytes * strangersShare);
  app.addHook('preParsing', (request, reply, payload, done) => {
    const budgets = request.isKnown ? [all] : [all, ofStrangers];
    const refusal = () => {
      metrics.httpRefused.add(['overloaded']);
      return new AppError('overloaded', 'Too many large bodies come at once.', { retryAfterS: 1 });
    };
    holdIn(budgets, { request, reply, payload, refusal }, done);
  });
}

/**
 * Hands on a body that may be large, each part of it counted before it is kept, until its request is answered. Without free
 * memory the request is refused before any of it is read. Without free memory for the next part, the body ends with the
 * refusal, and the memory that it held is free again: so of bodies that fill the memory together some always get to their
 * end.
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
  // One that says to be too long is refused by what reads it.
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
    // What comes behind an answer nobody keeps, and after the end nobody would give it back.
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

/** What it says to be, or as long as its route takes where it does not say. */
function lengthOf({ headers, routeOptions }: FastifyRequest): number {
  if (headers['content-length'] !== undefined) return Number(headers['content-length']);
  return headers['transfer-encoding'] === undefined ? 0 : routeOptions.bodyLimit;
}

/**
 * As `payload`, which is read when this is. A part that is not admitted ends it with that error, and the rest stays unread.
 * Behind the answer nobody reads this, and what comes goes by (`lingerBehind`).
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
